// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: %refold-opt %s -refold-lower-cascade | %FileCheck %s

// The functions of the kernel ABI. Bools are bytes, the scale comes by value.

// CHECK:      func.func @scale_shape(%{{.*}}: memref<?x?xf32>, %{{.*}}: f32, %{{.*}}: memref<?x?xi8>) -> (index, index, index, index)
// CHECK:      func.func @scale_phase0(
// CHECK-SAME: memref<?xi8>, %{{.*}}: memref<?xi8>, %{{.*}}: index, %{{.*}}: index)
// CHECK:      vector.load
// CHECK:      arith.cmpf ogt
// CHECK:      vector.store
// CHECK:      vector.maskedload
// CHECK:      vector.maskedstore
// CHECK-NOT:  refold.
func.func @scale(%A: memref<?x?xf32>, %S: f32, %O: memref<?x?xi1>) {
  refold.cascade rows(%i = ?, %j = ?) ins(%a = %A : memref<?x?xf32>, %s = %S : f32)
      outs(%o = %O : memref<?x?xi1>) {
    %zero = arith.constant 0.0 : f32
    %x = refold.read %a[%i, %j] : f32
    %y = arith.addf %x, %zero : f32
    %c = arith.cmpf ogt, %y, %zero : f32
    refold.write %c, %o[%i, %j] : i1
  }
  return
}

// A result that no cache would keep is stored past them, from each row's first
// aligned address on, and is there for others when the phase ends.

// CHECK-LABEL: func.func @large_phase0(
// CHECK:         memref.extract_aligned_pointer_as_index
// CHECK:         vector.maskedstore
// CHECK:         vector.store {{.*}} {nontemporal = true}
// CHECK:         llvm.fence seq_cst
// CHECK-NEXT:    return
func.func @large(%A: memref<64x1000xf32>, %O: memref<64x1000xf32>) {
  refold.cascade rows(%i = 64, %j = 1000) ins(%a = %A : memref<64x1000xf32>)
      outs(%o = %O : memref<64x1000xf32>) schedule {stream_bytes = 256000} {
    %x = refold.read %a[%i, %j] : f32
    %y = arith.addf %x, %x : f32
    refold.write %y, %o[%i, %j] : f32
  }
  return
}

// A result of the program from a quarter of that on; bytes of it where half of what
// passes through the caches with them is as much, and in whole lines.

// CHECK-LABEL: func.func @bytes_phase0(
// CHECK:         vector.store {{.*}} {nontemporal = true} : memref<?xi8>, vector<64xi8>
// CHECK-LABEL: func.func @kept_bytes_phase0(
// CHECK-NOT:     nontemporal
// CHECK:         vector.store {{.*}} : memref<?xi8>, vector<64xi8>
// CHECK-NOT:     nontemporal
// CHECK-LABEL: func.func @bytes_between_phase0(
// CHECK-NOT:     nontemporal
func.func @bytes(%A: memref<64x1024xi32>, %O: memref<64x1024xi8>) {
  refold.cascade rows(%i = 64) stream(%j = 1024) ins(%a = %A : memref<64x1024xi32>)
      outs(%o = %O : memref<64x1024xi8>) schedule {stream_bytes = 655360}
      attributes {refold.final = array<i1: true>} {
    %x = refold.read %a[%i, %j] : i32
    %m = refold.state max(%x : i32)
    %d = arith.subi %x, %m : i32
    %q = arith.trunci %d : i32 to i8
    refold.write %q, %o[%i, %j] : i8
  }
  return
}
func.func @kept_bytes(%A: memref<64x1024xi32>, %O: memref<64x1024xi8>) {
  refold.cascade rows(%i = 64) stream(%j = 1024) ins(%a = %A : memref<64x1024xi32>)
      outs(%o = %O : memref<64x1024xi8>) schedule {stream_bytes = 655361}
      attributes {refold.final = array<i1: true>} {
    %x = refold.read %a[%i, %j] : i32
    %m = refold.state max(%x : i32)
    %d = arith.subi %x, %m : i32
    %q = arith.trunci %d : i32 to i8
    refold.write %q, %o[%i, %j] : i8
  }
  return
}
func.func @bytes_between(%A: memref<64x1024xi32>, %O: memref<64x1024xi8>) {
  refold.cascade rows(%i = 64) stream(%j = 1024) ins(%a = %A : memref<64x1024xi32>)
      outs(%o = %O : memref<64x1024xi8>) schedule {stream_bytes = 163840} {
    %x = refold.read %a[%i, %j] : i32
    %m = refold.state max(%x : i32)
    %d = arith.subi %x, %m : i32
    %q = arith.trunci %d : i32 to i8
    refold.write %q, %o[%i, %j] : i8
  }
  return
}

// One byte less is kept in them.

// CHECK-LABEL: func.func @small_phase0(
// CHECK-NOT:     nontemporal
func.func @small(%A: memref<64x1000xf32>, %O: memref<64x1000xf32>) {
  refold.cascade rows(%i = 64, %j = 1000) ins(%a = %A : memref<64x1000xf32>)
      outs(%o = %O : memref<64x1000xf32>) schedule {stream_bytes = 256001} {
    %x = refold.read %a[%i, %j] : f32
    %y = arith.addf %x, %x : f32
    refold.write %y, %o[%i, %j] : f32
  }
  return
}

// Where numbers of rows are the lanes the weights of two places do not lie side by
// side: results alone are stored two registers at a time.

// CHECK-LABEL: func.func @weights_of_columns_phase0(
// CHECK:         vector.shuffle {{.*}} : vector<16xi16>, vector<16xi16>
// CHECK-NEXT:    vector.store {{.*}} : memref<?xi16>, vector<32xi16>
// CHECK-NOT:     vector<32xi16>
func.func @weights_of_columns(%X: memref<4x64x32xf32>, %V: memref<64x48xf16>, %O: memref<4x32x48xf16>) {
  refold.cascade rows(%i = 4, %c = 32) stream(%k = 64) carried(%e = 48)
      ins(%x = %X : memref<4x64x32xf32>, %v = %V : memref<64x48xf16>) outs(%o = %O : memref<4x32x48xf16>)
      schedule {lanes = "c"} {
    %xv = refold.read %x[%i, %k, %c] : f32
    %vv = refold.read %v[%k, %e] : f16
    %mx = refold.state max(%xv : f32)
    %u = arith.subf %xv, %mx : f32
    %p = math.exp %u : f32
    %h = arith.truncf %p : f32 to f16
    %t = arith.mulf %h, %vv : f16
    %z = refold.state add(%t : f16) pivot(%mx : f32) transport(%old, %new, %self) {
      %d = arith.subf %old, %new : f32
      %f = math.exp %d : f32
      %fh = arith.truncf %f : f32 to f16
      %m = arith.mulf %self, %fh : f16
      refold.yield %m : f16
    } law "rescale-distributes"
    refold.write %z, %o[%i, %c, %e] : f16
  }
  return
}
