// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Text, generic form and bytecode give the same op; a reader of the formula
// recognises it.
// RUN: %refold-opt %s | %refold-opt | %FileCheck %s
// RUN: %refold-opt %s -mlir-print-op-generic | %refold-opt | %FileCheck %s
// RUN: %refold-opt %s -emit-bytecode | %refold-opt | %FileCheck %s
// RUN: %refold-opt %s -canonicalize -cse | %refold-opt | %FileCheck %s --check-prefix=CSE

// o[b,h,m,e] = sum_n softmax_n(q.k / 8, causal) v, four query heads a key head.
// CHECK-LABEL: func.func @attention_causal_gqa
// CHECK: refold.cascade rows(%b = 2, %h = 8, %m = ?) stream(%n = ?) inner(%d = 64) carried(%e = 64)
// CHECK: refold.read %k[%b, %h floordiv 4, %n, %d] : f32
// CHECK: refold.contract %{{.*}} over(%d) : f32
// CHECK: refold.state add(%[[P:.*]] : f32) pivot(%{{.*}} : f32) transport(%old, %new, %self) {
// CHECK: law "rescale-distributes"
// CHECK: refold.write %{{.*}}, %o[%b, %h, %m, %e] : f32
func.func @attention_causal_gqa(%Q: tensor<2x8x?x64xf32>, %K: tensor<2x2x?x64xf32>, %V: tensor<2x2x?x64xf32>, %O: tensor<2x8x?x64xf32>) -> tensor<2x8x?x64xf32> {
  %r = refold.cascade rows(%b = 2, %h = 8, %m = ?) stream(%n = ?) inner(%d = 64) carried(%e = 64)
      ins(%q = %Q : tensor<2x8x?x64xf32>, %k = %K : tensor<2x2x?x64xf32>, %v = %V : tensor<2x2x?x64xf32>)
      outs(%o = %O : tensor<2x8x?x64xf32>) {
    %eighth = arith.constant 0.125 : f32
    %ninf = arith.constant 0xFF800000 : f32
    %lowest = arith.constant -3.4028235e38 : f32
    %qv = refold.read %q[%b, %h, %m, %d] : f32
    %kv = refold.read %k[%b, %h floordiv 4, %n, %d] : f32
    %qk = arith.mulf %qv, %kv : f32
    %s0 = refold.contract %qk over(%d) : f32
    %s = arith.mulf %s0, %eighth : f32
    %c = arith.cmpi ule, %n, %m : index
    %x = arith.select %c, %s, %ninf : f32
    %mx = refold.state max(%x : f32)
    %g = arith.maximumf %mx, %lowest : f32
    %u = arith.subf %x, %g : f32
    %p = math.exp %u : f32
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %t = arith.subf %old, %new : f32
      %f = math.exp %t : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    } law "rescale-distributes"
    %vv = refold.read %v[%b, %h floordiv 4, %n, %e] : f32
    %pv = arith.mulf %p, %vv : f32
    %a = refold.state add(%pv : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %t = arith.subf %old, %new : f32
      %f = math.exp %t : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    } law "rescale-distributes"
    %w = arith.divf %a, %z : f32
    refold.write %w, %o[%b, %h, %m, %e] : f32
  }
  return %r : tensor<2x8x?x64xf32>
}

// Softmax: the result has the stream index, so writing it is a second sweep. p is written once; the sum reads it
// at the running pivot and the result at the final one. Here it is spelt twice: CSE makes it one again.
// CHECK-LABEL: func.func @softmax
// CHECK: refold.write %{{.*}}, %y[%i, %j] : f32
// CSE-LABEL: func.func @softmax
// CSE-COUNT-1: arith.subf
// CSE: refold.state add
// CSE: math.exp
// CSE: arith.divf
// CSE-NOT: math.exp
// CSE: refold.write
func.func @softmax(%X: tensor<?x?xf32>, %Y: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %r = refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : tensor<?x?xf32>) outs(%y = %Y : tensor<?x?xf32>) {
    %lowest = arith.constant -3.4028235e38 : f32
    %v = refold.read %x[%i, %j] : f32
    %mx = refold.state max(%v : f32)
    %g = arith.maximumf %mx, %lowest : f32
    %u = arith.subf %v, %g : f32
    %p = math.exp %u : f32
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %t = arith.subf %old, %new : f32
      %f = math.exp %t : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %v2 = refold.read %x[%i, %j] : f32
    %u2 = arith.subf %v2, %g : f32
    %p2 = math.exp %u2 : f32
    %w = arith.divf %p2, %z : f32
    refold.write %w, %y[%i, %j] : f32
  }
  return %r : tensor<?x?xf32>
}

// Variance: three sums moved by a Taylor shift, D = old - new. 'with' names the states a transport reads; the count
// has no row index, so there is one for all rows. The pivot is any row value, here the mean so far.
// CHECK-LABEL: func.func @variance
// CHECK: refold.state add(%{{.*}} : f32) pivot(%{{.*}} : f32) with(%{{.*}} : f32, %{{.*}} : f32) transport(%old, %new, %self, %with, %with_{{.*}}) {
func.func @variance(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%k = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %one = arith.constant 1.0 : f32
    %two = arith.constant 2.0 : f32
    %v = refold.read %x[%i, %k] : f32
    %n = refold.state add(%one : f32)
    %s = refold.state add(%v : f32)
    %n1 = arith.maximumf %n, %one : f32
    %mu = arith.divf %s, %n1 : f32
    %t = arith.subf %v, %mu : f32
    %c1 = refold.state add(%t : f32) pivot(%mu : f32) with(%n : f32) transport(%old, %new, %self, %n0) {
      %D = arith.subf %old, %new : f32
      %Dn = arith.mulf %D, %n0 : f32
      %moved = arith.addf %self, %Dn : f32
      refold.yield %moved : f32
    } law "taylor-shift"
    %tt = arith.mulf %t, %t : f32
    %c2 = refold.state add(%tt : f32) pivot(%mu : f32) with(%n : f32, %c1 : f32) transport(%old, %new, %self, %n0, %c0) {
      %D = arith.subf %old, %new : f32
      %D2 = arith.mulf %D, %D : f32
      %D2n = arith.mulf %D2, %n0 : f32
      %Dc = arith.mulf %D, %c0 : f32
      %twoDc = arith.mulf %two, %Dc : f32
      %a = arith.addf %self, %twoDc : f32
      %moved = arith.addf %a, %D2n : f32
      refold.yield %moved : f32
    } law "taylor-shift"
    %m2 = arith.divf %c2, %n1 : f32
    %m1 = arith.divf %c1, %n1 : f32
    %q = arith.mulf %m1, %m1 : f32
    %var = arith.subf %m2, %q : f32
    refold.write %var, %y[%i] : f32
  }
  return
}

// LayerNorm + product: o[i,j] = sum_k (x - mu) rs w[k,j]; rs is deferred. The column sum of w has only the carried index.
// CHECK-LABEL: func.func @layernorm_gemm
// CHECK: carried(%j = 256)
func.func @layernorm_gemm(%X: memref<?x512xf32>, %W: memref<512x256xf32>, %O: memref<?x256xf32>) {
  refold.cascade rows(%i = ?) stream(%k = 512) carried(%j = 256) ins(%x = %X : memref<?x512xf32>, %w = %W : memref<512x256xf32>) outs(%o = %O : memref<?x256xf32>) {
    %one = arith.constant 1.0 : f32
    %two = arith.constant 2.0 : f32
    %eps = arith.constant 1.0e-5 : f32
    %v = refold.read %x[%i, %k] : f32
    %wv = refold.read %w[%k, %j] : f32
    %n = refold.state add(%one : f32)
    %s = refold.state add(%v : f32)
    %n1 = arith.maximumf %n, %one : f32
    %mu = arith.divf %s, %n1 : f32
    %t = arith.subf %v, %mu : f32
    %c1 = refold.state add(%t : f32) pivot(%mu : f32) with(%n : f32) transport(%old, %new, %self, %n0) {
      %D = arith.subf %old, %new : f32
      %Dn = arith.mulf %D, %n0 : f32
      %moved = arith.addf %self, %Dn : f32
      refold.yield %moved : f32
    }
    %tt = arith.mulf %t, %t : f32
    %c2 = refold.state add(%tt : f32) pivot(%mu : f32) with(%n : f32, %c1 : f32) transport(%old, %new, %self, %n0, %c0) {
      %D = arith.subf %old, %new : f32
      %D2 = arith.mulf %D, %D : f32
      %D2n = arith.mulf %D2, %n0 : f32
      %Dc = arith.mulf %D, %c0 : f32
      %twoDc = arith.mulf %two, %Dc : f32
      %a = arith.addf %self, %twoDc : f32
      %moved = arith.addf %a, %D2n : f32
      refold.yield %moved : f32
    }
    %ws = refold.state add(%wv : f32)
    %tw = arith.mulf %t, %wv : f32
    %a = refold.state add(%tw : f32) pivot(%mu : f32) with(%ws : f32) transport(%old, %new, %self, %w0) {
      %D = arith.subf %old, %new : f32
      %Dw = arith.mulf %D, %w0 : f32
      %moved = arith.addf %self, %Dw : f32
      refold.yield %moved : f32
    }
    %m2 = arith.divf %c2, %n1 : f32
    %m1 = arith.divf %c1, %n1 : f32
    %q = arith.mulf %m1, %m1 : f32
    %var = arith.subf %m2, %q : f32
    %ve = arith.addf %var, %eps : f32
    %rs = math.rsqrt %ve : f32
    %m1w = arith.mulf %m1, %ws : f32
    %ar = arith.subf %a, %m1w : f32
    %y = arith.mulf %ar, %rs : f32
    refold.write %y, %o[%i, %j] : f32
  }
  return
}

// Routing: softmax over experts, the 8 largest probabilities and their experts. The rank is a carried index, the expert a payload.
// CHECK-LABEL: func.func @route
// CHECK: %[[KEY:.*]]:2 = refold.state topk(%{{.*}} : f32, %{{.*}} : i32) rank(%r)
func.func @route(%X: tensor<?x1024xbf16>, %W: tensor<1024x64xbf16>, %P: tensor<?x8xf32>, %I: tensor<?x8xi32>) -> (tensor<?x8xf32>, tensor<?x8xi32>) {
  %r:2 = refold.cascade rows(%t = ?) stream(%e = 64) inner(%c = 1024) carried(%r = 8)
      ins(%x = %X : tensor<?x1024xbf16>, %w = %W : tensor<1024x64xbf16>) outs(%prob = %P : tensor<?x8xf32>, %expert = %I : tensor<?x8xi32>) {
    %xv = refold.read %x[%t, %c] : bf16
    %wv = refold.read %w[%c, %e] : bf16
    %xf = arith.extf %xv : bf16 to f32
    %wf = arith.extf %wv : bf16 to f32
    %xw = arith.mulf %xf, %wf : f32
    %s = refold.contract %xw over(%c) : f32
    %id = arith.index_cast %e : index to i32
    %top:2 = refold.state topk(%s : f32, %id : i32) rank(%r)
    %mx = refold.state max(%s : f32)
    %u = arith.subf %s, %mx : f32
    %p = math.exp %u : f32
    %z = refold.state add(%p : f32) pivot(%mx : f32) transport(%old, %new, %self) {
      %d = arith.subf %old, %new : f32
      %f = math.exp %d : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %uk = arith.subf %top#0, %mx : f32
    %pk = math.exp %uk : f32
    %w8 = arith.divf %pk, %z : f32
    refold.write %w8, %prob[%t, %r] : f32
    refold.write %top#1, %expert[%t, %r] : i32
  }
  return %r#0, %r#1 : tensor<?x8xf32>, tensor<?x8xi32>
}

// Several streams, an extent, a gather, a scalar operand; every other reducer.
// CHECK-LABEL: func.func @pool
// CHECK: refold.cascade rows(%b = ?) stream(%h = 4, %w = ?)
// CHECK: refold.extent %w
// CHECK: refold.read %t[%{{.*}}] : f32
// CHECK: refold.state mul(
// CHECK: refold.state min(
// CHECK: refold.state maxnum(
// CHECK: refold.state minnum(
// CHECK: refold.state and(
// CHECK: refold.state or(
func.func @pool(%X: tensor<?x4x?xf32>, %I: tensor<4xi32>, %T: tensor<?xf32>, %s: f32, %Y: tensor<?xf32>, %B: tensor<?xi1>) -> (tensor<?xf32>, tensor<?xi1>) {
  %r:2 = refold.cascade rows(%b = ?) stream(%h = 4, %w = ?)
      ins(%x = %X : tensor<?x4x?xf32>, %i = %I : tensor<4xi32>, %t = %T : tensor<?xf32>, %scale = %s : f32)
      outs(%y = %Y : tensor<?xf32>, %z = %B : tensor<?xi1>) {
    %n = refold.extent %w
    %n32 = arith.index_cast %n : index to i32
    %nf = arith.sitofp %n32 : i32 to f32
    %at = refold.read %i[%h] : i32
    %row = arith.index_cast %at : i32 to index
    %g = refold.read %t[%row] : f32
    %v = refold.read %x[%b, %h, %w] : f32
    %vs = arith.mulf %v, %scale : f32
    %vg = arith.mulf %vs, %g : f32
    %c = arith.cmpf ogt, %vg, %scale : f32
    %prod = refold.state mul(%vg : f32)
    %low = refold.state min(%vg : f32)
    %a = refold.state maxnum(%vg : f32)
    %b1 = refold.state minnum(%vg : f32)
    %all = refold.state and(%c : i1)
    %any = refold.state or(%c : i1)
    %s0 = arith.addf %prod, %low : f32
    %s1 = arith.addf %s0, %a : f32
    %s2 = arith.addf %s1, %b1 : f32
    %s3 = arith.divf %s2, %nf : f32
    %f = arith.andi %all, %any : i1
    refold.write %s3, %y[%b] : f32
    refold.write %f, %z[%b] : i1
  }
  return %r#0, %r#1 : tensor<?xf32>, tensor<?xi1>
}

// No stream: an elementwise kernel, with a schedule.
// CHECK-LABEL: func.func @elementwise
// CHECK: refold.cascade rows(%i = ?, %j = ?)
// CHECK: schedule {tile = 8 : i64}
// CHECK: refold.read %x[%j, %i] : f32
func.func @elementwise(%X: tensor<?x?xf32>, %Y: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %r = refold.cascade rows(%i = ?, %j = ?) ins(%x = %X : tensor<?x?xf32>) outs(%y = %Y : tensor<?x?xf32>)
      schedule {tile = 8 : i64} {
    %v = refold.read %x[%j, %i] : f32
    refold.write %v, %y[%i, %j] : f32
  }
  return %r : tensor<?x?xf32>
}

// CHECK-LABEL: func.func @best
// CHECK: refold.topk %{{.*}} dim(1) k(8) largest(true) : tensor<?x?xf32> -> tensor<?x8xf32>, tensor<?x8xi32>
// CHECK: refold.state bottomk(%{{.*}} : f32) rank(%r)
func.func @best(%X: tensor<?x?xf32>, %Y: tensor<?x2xf32>) -> (tensor<?x8xf32>, tensor<?x8xi32>, tensor<?x2xf32>) {
  %v, %i = refold.topk %X dim(1) k(8) largest(true) : tensor<?x?xf32> -> tensor<?x8xf32>, tensor<?x8xi32>
  %b = refold.cascade rows(%i = ?) stream(%j = ?) carried(%r = 2)
      ins(%x = %X : tensor<?x?xf32>) outs(%y = %Y : tensor<?x2xf32>) {
    %e = refold.read %x[%i, %j] : f32
    %low = refold.state bottomk(%e : f32) rank(%r)
    refold.write %low, %y[%i, %r] : f32
  }
  return %v, %i, %b : tensor<?x8xf32>, tensor<?x8xi32>, tensor<?x2xf32>
}
