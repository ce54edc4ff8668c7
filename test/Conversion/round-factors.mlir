// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: %refold-opt %s -split-input-file -refold-round-factors | %FileCheck %s

// The weight of a bf16 row is rounded to bf16, since the largest of a row is 1 and
// results read the sum as a factor. The sum of the weights reads them as they are.

// CHECK-LABEL: func.func @attention(
// CHECK:         %[[P:.*]] = math.exp
// CHECK:         %[[V:.*]] = arith.extf %{{.*}} : bf16 to f32
// CHECK:         %[[HALF:.*]] = arith.truncf %[[P]] : f32 to bf16
// CHECK:         %[[WIDE:.*]] = arith.extf %[[HALF]] : bf16 to f32
// CHECK:         %[[PV:.*]] = arith.mulf %[[WIDE]], %[[V]]
// CHECK:         refold.state add(%[[PV]] : f32)
// CHECK:         refold.state add(%[[P]] : f32)
// CHECK-NOT:     arith.mulf %[[P]], %[[V]]
func.func @attention(%Q: memref<8x512x64xbf16>, %K: memref<8x512x64xbf16>, %V: memref<8x512x64xbf16>, %O: memref<8x512x64xf32>) {
  refold.cascade rows(%b = 8, %m = 512) stream(%n = 512) inner(%d = 64) carried(%e = 64)
      ins(%q = %Q : memref<8x512x64xbf16>, %k = %K : memref<8x512x64xbf16>, %v = %V : memref<8x512x64xbf16>)
      outs(%o = %O : memref<8x512x64xf32>) {
    %q0 = refold.read %q[%b, %m, %d] : bf16
    %qv = arith.extf %q0 : bf16 to f32
    %k0 = refold.read %k[%b, %n, %d] : bf16
    %kv = arith.extf %k0 : bf16 to f32
    %qk = arith.mulf %qv, %kv : f32
    %s = refold.contract %qk over(%d) : f32
    %t = refold.state max(%s : f32)
    %lowest = arith.constant -3.40282347E+38 : f32
    %g = arith.maxnumf %t, %lowest : f32
    %u = arith.subf %s, %g : f32
    %p = math.exp %u : f32
    %v0 = refold.read %v[%b, %n, %e] : bf16
    %vv = arith.extf %v0 : bf16 to f32
    %pv = arith.mulf %p, %vv : f32
    %a = refold.state add(%pv : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %w = arith.divf %a, %z : f32
    refold.write %w, %o[%b, %m, %e] : f32
  }
  return
}

// -----

// Rows of f32 are weighed as written.

// CHECK-LABEL: func.func @f32_rows(
// CHECK-NOT:     arith.truncf
func.func @f32_rows(%Q: memref<8x512x64xbf16>, %K: memref<8x512x64xbf16>, %V: memref<8x512x64xf32>, %O: memref<8x512x64xf32>) {
  refold.cascade rows(%b = 8, %m = 512) stream(%n = 512) inner(%d = 64) carried(%e = 64)
      ins(%q = %Q : memref<8x512x64xbf16>, %k = %K : memref<8x512x64xbf16>, %v = %V : memref<8x512x64xf32>)
      outs(%o = %O : memref<8x512x64xf32>) {
    %q0 = refold.read %q[%b, %m, %d] : bf16
    %qv = arith.extf %q0 : bf16 to f32
    %k0 = refold.read %k[%b, %n, %d] : bf16
    %kv = arith.extf %k0 : bf16 to f32
    %qk = arith.mulf %qv, %kv : f32
    %s = refold.contract %qk over(%d) : f32
    %t = refold.state max(%s : f32)
    %lowest = arith.constant -3.40282347E+38 : f32
    %g = arith.maxnumf %t, %lowest : f32
    %u = arith.subf %s, %g : f32
    %p = math.exp %u : f32
    %vv = refold.read %v[%b, %n, %e] : f32
    %pv = arith.mulf %p, %vv : f32
    %a = refold.state add(%pv : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %w = arith.divf %a, %z : f32
    refold.write %w, %o[%b, %m, %e] : f32
  }
  return
}

// -----

// One row: its memory decides, not its products.

// CHECK-LABEL: func.func @one_row(
// CHECK-NOT:     arith.truncf
func.func @one_row(%Q: memref<8x1x64xbf16>, %K: memref<8x512x64xbf16>, %V: memref<8x512x64xbf16>, %O: memref<8x1x64xf32>) {
  refold.cascade rows(%b = 8, %m = 1) stream(%n = 512) inner(%d = 64) carried(%e = 64)
      ins(%q = %Q : memref<8x1x64xbf16>, %k = %K : memref<8x512x64xbf16>, %v = %V : memref<8x512x64xbf16>)
      outs(%o = %O : memref<8x1x64xf32>) {
    %q0 = refold.read %q[%b, %m, %d] : bf16
    %qv = arith.extf %q0 : bf16 to f32
    %k0 = refold.read %k[%b, %n, %d] : bf16
    %kv = arith.extf %k0 : bf16 to f32
    %qk = arith.mulf %qv, %kv : f32
    %s = refold.contract %qk over(%d) : f32
    %t = refold.state max(%s : f32)
    %lowest = arith.constant -3.40282347E+38 : f32
    %g = arith.maxnumf %t, %lowest : f32
    %u = arith.subf %s, %g : f32
    %p = math.exp %u : f32
    %v0 = refold.read %v[%b, %n, %e] : bf16
    %vv = arith.extf %v0 : bf16 to f32
    %pv = arith.mulf %p, %vv : f32
    %a = refold.state add(%pv : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %w = arith.divf %a, %z : f32
    refold.write %w, %o[%b, %m, %e] : f32
  }
  return
}

// -----

// Of three columns there is little to gain.

// CHECK-LABEL: func.func @narrow(
// CHECK-NOT:     arith.truncf
func.func @narrow(%Q: memref<8x512x64xbf16>, %K: memref<8x512x64xbf16>, %V: memref<8x512x3xbf16>, %O: memref<8x512x3xf32>) {
  refold.cascade rows(%b = 8, %m = 512) stream(%n = 512) inner(%d = 64) carried(%e = 3)
      ins(%q = %Q : memref<8x512x64xbf16>, %k = %K : memref<8x512x64xbf16>, %v = %V : memref<8x512x3xbf16>)
      outs(%o = %O : memref<8x512x3xf32>) {
    %q0 = refold.read %q[%b, %m, %d] : bf16
    %qv = arith.extf %q0 : bf16 to f32
    %k0 = refold.read %k[%b, %n, %d] : bf16
    %kv = arith.extf %k0 : bf16 to f32
    %qk = arith.mulf %qv, %kv : f32
    %s = refold.contract %qk over(%d) : f32
    %t = refold.state max(%s : f32)
    %lowest = arith.constant -3.40282347E+38 : f32
    %g = arith.maxnumf %t, %lowest : f32
    %u = arith.subf %s, %g : f32
    %p = math.exp %u : f32
    %v0 = refold.read %v[%b, %n, %e] : bf16
    %vv = arith.extf %v0 : bf16 to f32
    %pv = arith.mulf %p, %vv : f32
    %a = refold.state add(%pv : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %w = arith.divf %a, %z : f32
    refold.write %w, %o[%b, %m, %e] : f32
  }
  return
}

// -----

// A difference of the sum may be of any size.

// CHECK-LABEL: func.func @difference(
// CHECK-NOT:     arith.truncf
func.func @difference(%Q: memref<8x512x64xbf16>, %K: memref<8x512x64xbf16>, %V: memref<8x512x64xbf16>, %O: memref<8x512x64xf32>) {
  refold.cascade rows(%b = 8, %m = 512) stream(%n = 512) inner(%d = 64) carried(%e = 64)
      ins(%q = %Q : memref<8x512x64xbf16>, %k = %K : memref<8x512x64xbf16>, %v = %V : memref<8x512x64xbf16>)
      outs(%o = %O : memref<8x512x64xf32>) {
    %q0 = refold.read %q[%b, %m, %d] : bf16
    %qv = arith.extf %q0 : bf16 to f32
    %k0 = refold.read %k[%b, %n, %d] : bf16
    %kv = arith.extf %k0 : bf16 to f32
    %qk = arith.mulf %qv, %kv : f32
    %s = refold.contract %qk over(%d) : f32
    %t = refold.state max(%s : f32)
    %lowest = arith.constant -3.40282347E+38 : f32
    %g = arith.maxnumf %t, %lowest : f32
    %u = arith.subf %s, %g : f32
    %p = math.exp %u : f32
    %v0 = refold.read %v[%b, %n, %e] : bf16
    %vv = arith.extf %v0 : bf16 to f32
    %pv = arith.mulf %p, %vv : f32
    %a = refold.state add(%pv : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %w = arith.subf %a, %z : f32
    refold.write %w, %o[%b, %m, %e] : f32
  }
  return
}

// -----

// Relative to at least 0 the largest weight of a row may be as small as f32 has them.

// CHECK-LABEL: func.func @other_pivot(
// CHECK-NOT:     arith.truncf
func.func @other_pivot(%Q: memref<8x512x64xbf16>, %K: memref<8x512x64xbf16>, %V: memref<8x512x64xbf16>, %O: memref<8x512x64xf32>) {
  refold.cascade rows(%b = 8, %m = 512) stream(%n = 512) inner(%d = 64) carried(%e = 64)
      ins(%q = %Q : memref<8x512x64xbf16>, %k = %K : memref<8x512x64xbf16>, %v = %V : memref<8x512x64xbf16>)
      outs(%o = %O : memref<8x512x64xf32>) {
    %q0 = refold.read %q[%b, %m, %d] : bf16
    %qv = arith.extf %q0 : bf16 to f32
    %k0 = refold.read %k[%b, %n, %d] : bf16
    %kv = arith.extf %k0 : bf16 to f32
    %qk = arith.mulf %qv, %kv : f32
    %s = refold.contract %qk over(%d) : f32
    %t = refold.state max(%s : f32)
    %lowest = arith.constant 0.0 : f32
    %g = arith.maxnumf %t, %lowest : f32
    %u = arith.subf %s, %g : f32
    %p = math.exp %u : f32
    %v0 = refold.read %v[%b, %n, %e] : bf16
    %vv = arith.extf %v0 : bf16 to f32
    %pv = arith.mulf %p, %vv : f32
    %a = refold.state add(%pv : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %w = arith.divf %a, %z : f32
    refold.write %w, %o[%b, %m, %e] : f32
  }
  return
}
