// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: %refold-opt %s -refold-print-plan -o /dev/null | %FileCheck %s

// Attention, causal, four query heads to a key head. The first decision of every
// kind: which rows are tiled, what is packed, which tiles the mask drops, what each
// state is and which values cross from the rows to the matrix nest.

// CHECK-LABEL: rows m in tiles of 64
// CHECK-NEXT:  stream n in tiles of 512
// CHECK-NEXT:  packed 'k' in panels along n, of more than 32 rows
// CHECK-NEXT:  pass 0: tiles skipped or peeled by upper bound {m}
// CHECK-NEXT:  pass 0: contraction {b, h, m, n} over {d}, lanes n
// CHECK-NEXT:  pass 0: state 0 max {b, h, m} reduced each tile, level 0, lanes found by its contraction
// CHECK-NEXT:  pass 0: state 1 add {b, h, m} lane partial, level 1
// CHECK-NEXT:  pass 0: state 2 add {b, h, m, e} matrix nest, lanes e
// CHECK-NEXT:  pass 0: kept {b, h, m, n}, level 1
// CHECK-NEXT:  pass 0: kept {b, h, m}, level 1
// CHECK-NEXT:  pass 0: kept {b, h, m}, level 0
// CHECK-NEXT:  finish: writes {b, h, m, e}
func.func @attention(%Q: memref<2x8x?x64xf32>, %K: memref<2x2x?x64xf32>,
                     %V: memref<2x2x?x64xf32>, %O: memref<2x8x?x64xf32>) {
  refold.cascade rows(%b = 2, %h = 8, %m = ?) stream(%n = ?) inner(%d = 64) carried(%e = 64)
      ins(%q = %Q : memref<2x8x?x64xf32>, %k = %K : memref<2x2x?x64xf32>, %v = %V : memref<2x2x?x64xf32>)
      outs(%o = %O : memref<2x8x?x64xf32>) {
    %ninf = arith.constant 0xFF800000 : f32
    %lowest = arith.constant -3.4028235e38 : f32
    %qv = refold.read %q[%b, %h, %m, %d] : f32
    %kv = refold.read %k[%b, %h floordiv 4, %n, %d] : f32
    %qk = arith.mulf %qv, %kv : f32
    %s = refold.contract %qk over(%d) : f32
    %c = arith.cmpi ule, %n, %m : index
    %x = arith.select %c, %s, %ninf : f32
    %mx = refold.state max(%x : f32)
    %g = arith.maxnumf %mx, %lowest : f32
    %u = arith.subf %x, %g : f32
    %p = math.exp %u : f32
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %vv = refold.read %v[%b, %h floordiv 4, %n, %e] : f32
    %pv = arith.mulf %p, %vv : f32
    %a = refold.state add(%pv : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %w = arith.divf %a, %z : f32
    refold.write %w, %o[%b, %h, %m, %e] : f32
  }
  return
}

// A column sum: the dense row index takes the lanes.

// CHECK-LABEL: stream i in tiles of 64
// CHECK-NEXT:  carried j in tiles of 512
// CHECK-NEXT:  pass 0: state 0 add {j} matrix nest, lanes j
// CHECK-NEXT:  finish: writes {j}
func.func @columns(%A: memref<?x?xf32>, %O: memref<?xf32>) {
  refold.cascade rows(%j = ?) stream(%i = ?) ins(%a = %A : memref<?x?xf32>) outs(%o = %O : memref<?xf32>) {
    %x = refold.read %a[%i, %j] : f32
    %s = refold.state add(%x : f32)
    refold.write %s, %o[%j] : f32
  }
  return
}

// Elementwise: rows only.

// CHECK-LABEL: rows i in tiles of 16
// CHECK-NEXT:  carried j in tiles of 16384
// CHECK-NEXT:  finish: writes {i, j}
func.func @elementwise(%A: memref<?x?xf32>, %O: memref<?x?xf32>) {
  refold.cascade rows(%i = ?, %j = ?) ins(%a = %A : memref<?x?xf32>) outs(%o = %O : memref<?x?xf32>) {
    %x = refold.read %a[%i, %j] : f32
    %y = arith.addf %x, %x : f32
    refold.write %y, %o[%i, %j] : f32
  }
  return
}

// A second pass that only some rows need: every term is chosen by a value of the row.

// CHECK-LABEL: rows i in tiles of
// CHECK:       pass 1: only where a row of the tile asks for it, by a value of {i}
// CHECK-NEXT:  pass 1: state 1 add {i}
func.func @guarded(%X: memref<7x?xf32>, %O: memref<7xf32>) {
  refold.cascade rows(%i = 7) stream(%j = ?) ins(%x = %X : memref<7x?xf32>) outs(%o = %O : memref<7xf32>) {
    %zero = arith.constant 0.0 : f32
    %v = refold.read %x[%i, %j] : f32
    %s = refold.state add(%v : f32)
    %flag = arith.cmpf olt, %s, %zero : f32
    %sq = arith.mulf %v, %v : f32
    %t = arith.select %flag, %sq, %zero : f32
    %q = refold.state add(%t : f32)
    %r = arith.select %flag, %q, %s : f32
    refold.write %r, %o[%i] : f32
  }
  return
}

// An element asks by itself: all rows pass.

// CHECK-LABEL: rows i in tiles of
// CHECK-NOT:   only where
// CHECK:       pass 1: state 1 add {i}
func.func @element(%X: memref<7x?xf32>, %O: memref<7xf32>) {
  refold.cascade rows(%i = 7) stream(%j = ?) ins(%x = %X : memref<7x?xf32>) outs(%o = %O : memref<7xf32>) {
    %zero = arith.constant 0.0 : f32
    %v = refold.read %x[%i, %j] : f32
    %s = refold.state add(%v : f32)
    %flag = arith.cmpf olt, %s, %v : f32
    %sq = arith.mulf %v, %v : f32
    %t = arith.select %flag, %sq, %zero : f32
    %q = refold.state add(%t : f32)
    refold.write %q, %o[%i] : f32
  }
  return
}

// A sum for each channel beside one of all: an element has one place of k, which
// alone is touched. Masked by a product, where an infinity makes NaN elsewhere,
// it has every place.

// CHECK-LABEL: stream s in tiles of 512
// CHECK-NEXT:  pass 0: state 0 add {b} lane partial, level 0
// CHECK-NEXT:  pass 0: state 2 add {b, k} matrix nest, lanes k
// CHECK-NEXT:  pass 0: state 1 add {b, k} at k = c matrix nest, lanes k
func.func @channels(%X: memref<?x7x?xf32>, %A: memref<?xf32>, %O: memref<?x7xf32>,
                    %P: memref<?x7xf32>) {
  refold.cascade rows(%b = ?) stream(%c = 7, %s = ?) carried(%k = 7)
      ins(%x = %X : memref<?x7x?xf32>)
      outs(%a = %A : memref<?xf32>, %o = %O : memref<?x7xf32>, %p = %P : memref<?x7xf32>) {
    %zero = arith.constant 0.0 : f32
    %one = arith.constant 1.0 : f32
    %v = refold.read %x[%b, %c, %s] : f32
    %all = refold.state add(%v : f32)
    %is = arith.cmpi eq, %c, %k : index
    %own = arith.select %is, %v, %zero : f32
    %each = refold.state add(%own : f32)
    %weight = arith.select %is, %one, %zero : f32
    %scaled = arith.mulf %v, %weight : f32
    %every = refold.state add(%scaled : f32)
    refold.write %all, %a[%b] : f32
    refold.write %each, %o[%b, %k] : f32
    refold.write %every, %p[%b, %k] : f32
  }
  return
}

// One query a head, six heads to a key head: a group is a tile, nothing is
// packed, and the keys' lanes run along what is summed.

// CHECK-LABEL: rows h in tiles of 6
// CHECK-NEXT:  stream n in tiles of 256
// CHECK-NEXT:  pass 0: contraction {h, n} over {d}, lanes over the contracted
// CHECK-NEXT:  pass 0: state 0 max {h} reduced each tile, level 0
// CHECK-NEXT:  pass 0: state 1 add {h, e} matrix nest, lanes e
func.func @decode(%Q: memref<12x64xf32>, %K: memref<2x?x64xf32>,
                  %V: memref<2x?x64xf32>, %O: memref<12x64xf32>) {
  refold.cascade rows(%h = 12) stream(%n = ?) inner(%d = 64) carried(%e = 64)
      ins(%q = %Q : memref<12x64xf32>, %k = %K : memref<2x?x64xf32>, %v = %V : memref<2x?x64xf32>)
      outs(%o = %O : memref<12x64xf32>) {
    %lowest = arith.constant -3.4028235e38 : f32
    %qv = refold.read %q[%h, %d] : f32
    %kv = refold.read %k[%h floordiv 6, %n, %d] : f32
    %qk = arith.mulf %qv, %kv : f32
    %s = refold.contract %qk over(%d) : f32
    %mx = refold.state max(%s : f32)
    %g = arith.maxnumf %mx, %lowest : f32
    %u = arith.subf %s, %g : f32
    %p = math.exp %u : f32
    %vv = refold.read %v[%h floordiv 6, %n, %e] : f32
    %pv = arith.mulf %p, %vv : f32
    %a = refold.state add(%pv : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    refold.write %a, %o[%h, %e] : f32
  }
  return
}

// The first moment about the mean is sum(x) - mean * count, 0 where the row is one
// tile; about twice the mean it is not.

// CHECK-LABEL: rows i in tiles of 16
// CHECK:       pass 0: state 2 add {i} reduced each tile, level 1, 0 in a whole row
// CHECK-NEXT:  pass 0: state 3 add {i} reduced each tile, level 1{{$}}
// CHECK-LABEL: rows i in tiles of 16
// CHECK:       pass 0: state 2 add {i} reduced each tile, level 1{{$}}
// CHECK-NEXT:  pass 0: state 3 add {i} reduced each tile, level 1{{$}}
func.func @moments(%A: memref<?x?xf32>, %O: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%n = ?) ins(%a = %A : memref<?x?xf32>) outs(%o = %O : memref<?xf32>) {
    %one = arith.constant 1.0 : f32
    %x = refold.read %a[%i, %n] : f32
    %s = refold.state add(%x : f32)
    %c = refold.state add(%one : f32)
    %most = arith.maximumf %c, %one : f32
    %p = arith.divf %s, %most : f32
    %u = arith.subf %x, %p : f32
    %m1 = refold.state add(%u : f32) pivot(%p : f32) with(%c : f32) transport(%old, %new, %self, %w) {
      %D = arith.subf %old, %new : f32
      %k = arith.mulf %D, %w : f32
      %moved = arith.addf %self, %k : f32
      refold.yield %moved : f32
    }
    %v = arith.mulf %u, %u : f32
    %m2 = refold.state add(%v : f32) pivot(%p : f32) with(%m1 : f32, %c : f32) transport(%old, %new, %self, %w, %w2) {
      %D = arith.subf %old, %new : f32
      %two = arith.constant 2.0 : f32
      %a1 = arith.mulf %w, %two : f32
      %a2 = arith.mulf %D, %w2 : f32
      %a3 = arith.addf %a1, %a2 : f32
      %a4 = arith.mulf %D, %a3 : f32
      %moved = arith.addf %self, %a4 : f32
      refold.yield %moved : f32
    }
    %y = arith.addf %m1, %m2 : f32
    refold.write %y, %o[%i] : f32
  }
  return
}
func.func @moments_elsewhere(%A: memref<?x?xf32>, %O: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%n = ?) ins(%a = %A : memref<?x?xf32>) outs(%o = %O : memref<?xf32>) {
    %one = arith.constant 1.0 : f32
    %x = refold.read %a[%i, %n] : f32
    %s = refold.state add(%x : f32)
    %c = refold.state add(%one : f32)
    %half = arith.constant 0.5 : f32
    %most = arith.maximumf %c, %one : f32
    %less = arith.mulf %most, %half : f32
    %p = arith.divf %s, %less : f32
    %u = arith.subf %x, %p : f32
    %m1 = refold.state add(%u : f32) pivot(%p : f32) with(%c : f32) transport(%old, %new, %self, %w) {
      %D = arith.subf %old, %new : f32
      %k = arith.mulf %D, %w : f32
      %moved = arith.addf %self, %k : f32
      refold.yield %moved : f32
    }
    %v = arith.mulf %u, %u : f32
    %m2 = refold.state add(%v : f32) pivot(%p : f32) with(%m1 : f32, %c : f32) transport(%old, %new, %self, %w, %w2) {
      %D = arith.subf %old, %new : f32
      %two = arith.constant 2.0 : f32
      %a1 = arith.mulf %w, %two : f32
      %a2 = arith.mulf %D, %w2 : f32
      %a3 = arith.addf %a1, %a2 : f32
      %a4 = arith.mulf %D, %a3 : f32
      %moved = arith.addf %self, %a4 : f32
      refold.yield %moved : f32
    }
    %y = arith.addf %m1, %m2 : f32
    refold.write %y, %o[%i] : f32
  }
  return
}

// The maximum and the exponentials about it are found in one traversal: e^16 is far
// from the end of the range. Not where the exponent is multiplied by ten: e^160.

// CHECK-LABEL: rows i in tiles of 16
// CHECK:       pass 0: state 0 max {i} reduced each tile, level 0
// CHECK-NEXT:  pass 0: state 1 add {i} lane partial, level 1
// CHECK-NEXT:  pass 0: levels 0 and 1 at once, slack 16
// CHECK-LABEL: rows i in tiles of 16
// CHECK:       pass 0: state 1 add {i} lane partial, level 1
// CHECK-NOT:   at once
// CHECK:       finish: writes {i}
func.func @exponentials(%A: memref<?x?xf32>, %O: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%n = ?) ins(%a = %A : memref<?x?xf32>) outs(%o = %O : memref<?xf32>) {
    %lowest = arith.constant -3.4028235e38 : f32
    %x = refold.read %a[%i, %n] : f32
    %mx = refold.state max(%x : f32)
    %g = arith.maxnumf %mx, %lowest : f32
    %u = arith.subf %x, %g : f32
    %p = math.exp %u : f32
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %l = math.log %z : f32
    %y = arith.addf %mx, %l : f32
    refold.write %y, %o[%i] : f32
  }
  return
}
func.func @steep_exponentials(%A: memref<?x?xf32>, %O: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%n = ?) ins(%a = %A : memref<?x?xf32>) outs(%o = %O : memref<?xf32>) {
    %lowest = arith.constant -3.4028235e38 : f32
    %ten = arith.constant 10.0 : f32
    %x = refold.read %a[%i, %n] : f32
    %mx = refold.state max(%x : f32)
    %g = arith.maxnumf %mx, %lowest : f32
    %u = arith.subf %x, %g : f32
    %v = arith.mulf %u, %ten : f32
    %p = math.exp %v : f32
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %ten2 = arith.constant 10.0 : f32
      %D = arith.subf %old, %new : f32
      %E = arith.mulf %D, %ten2 : f32
      %f = math.exp %E : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %l = math.log %z : f32
    %y = arith.addf %mx, %l : f32
    refold.write %y, %o[%i] : f32
  }
  return
}

// An extreme of what a contraction gives is found by its nest, and
// what the rows leave for the matrix nest is computed with rows along the lanes.

// CHECK-LABEL: rows m in tiles of 64
// CHECK:       pass 0: contraction {b, h, m, n} over {d}, lanes n
// CHECK-NEXT:  pass 0: state 0 max {b, h, m} reduced each tile, level 0, lanes found by its contraction
func.func @attention_of_known_rows(%Q: memref<2x8x128x64xf32>, %K: memref<2x2x1024x64xf32>,
                     %V: memref<2x2x1024x64xf32>, %O: memref<2x8x128x64xf32>) {
  refold.cascade rows(%b = 2, %h = 8, %m = 128) stream(%n = 1024) inner(%d = 64) carried(%e = 64)
      ins(%q = %Q : memref<2x8x128x64xf32>, %k = %K : memref<2x2x1024x64xf32>, %v = %V : memref<2x2x1024x64xf32>)
      outs(%o = %O : memref<2x8x128x64xf32>) {
    %ninf = arith.constant 0xFF800000 : f32
    %lowest = arith.constant -3.4028235e38 : f32
    %qv = refold.read %q[%b, %h, %m, %d] : f32
    %kv = refold.read %k[%b, %h floordiv 4, %n, %d] : f32
    %qk = arith.mulf %qv, %kv : f32
    %s = refold.contract %qk over(%d) : f32
    %c = arith.cmpi ule, %n, %m : index
    %x = arith.select %c, %s, %ninf : f32
    %mx = refold.state max(%x : f32)
    %g = arith.maxnumf %mx, %lowest : f32
    %u = arith.subf %x, %g : f32
    %p = math.exp %u : f32
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %vv = refold.read %v[%b, %h floordiv 4, %n, %e] : f32
    %pv = arith.mulf %p, %vv : f32
    %a = refold.state add(%pv : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %w = arith.divf %a, %z : f32
    refold.write %w, %o[%b, %h, %m, %e] : f32
  }
  return
}

// A mask that no row moves is converted before the nest of the scores, which
// leaves them divided and masked.

// CHECK-LABEL: rows m in tiles of 64
// CHECK:       pass 0: contraction {b, h, m, n} over {d}, lanes n, completed in registers
// CHECK-NEXT:  pass 0: state 0 max {b, h, m} reduced each tile, level 0, lanes found by its contraction
// CHECK:       pass 0: kept {b, n}, level 0
func.func @attention_under_a_mask(%Q: memref<2x8x128x64xf32>, %K: memref<2x2x1024x64xf32>,
                     %V: memref<2x2x1024x64xf32>,
                     %W: memref<2x1024xi64>, %O: memref<2x8x128x64xf32>) {
  refold.cascade rows(%b = 2, %h = 8, %m = 128) stream(%n = 1024) inner(%d = 64) carried(%e = 64)
      ins(%q = %Q : memref<2x8x128x64xf32>, %k = %K : memref<2x2x1024x64xf32>, %v = %V : memref<2x2x1024x64xf32>, %w = %W : memref<2x1024xi64>)
      outs(%o = %O : memref<2x8x128x64xf32>) {
    %lowest = arith.constant -3.4028235e38 : f32
    %qv = refold.read %q[%b, %h, %m, %d] : f32
    %kv = refold.read %k[%b, %h floordiv 4, %n, %d] : f32
    %qk = arith.mulf %qv, %kv : f32
    %s = refold.contract %qk over(%d) : f32
    %root = arith.constant 5.65685415 : f32
    %scaled = arith.divf %s, %root : f32
    %one = arith.constant 1.0 : f32
    %is = refold.read %w[%b, %n] : i64
    %there = arith.sitofp %is : i64 to f32
    %gone = arith.subf %one, %there : f32
    %mask = arith.mulf %gone, %lowest : f32
    %x = arith.addf %scaled, %mask : f32
    %mx = refold.state max(%x : f32)
    %g = arith.maxnumf %mx, %lowest : f32
    %u = arith.subf %x, %g : f32
    %p = math.exp %u : f32
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %vv = refold.read %v[%b, %h floordiv 4, %n, %e] : f32
    %pv = arith.mulf %p, %vv : f32
    %a = refold.state add(%pv : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %y = arith.divf %a, %z : f32
    refold.write %y, %o[%b, %h, %m, %e] : f32
  }
  return
}

// A mask inside another whose masked elements are finite: tiles are left out as
// long as each row has an element that makes them nothing.

// CHECK-LABEL: rows m in tiles of 64
// CHECK:       pass 0: tiles skipped or peeled by upper bound {m}, where state 0 is above what masks hold
func.func @attention_under_two_masks(%Q: memref<2x8x128x64xf32>, %K: memref<2x2x1024x64xf32>,
                     %V: memref<2x2x1024x64xf32>,
                     %W: memref<2x1024xf32>, %O: memref<2x8x128x64xf32>) {
  refold.cascade rows(%b = 2, %h = 8, %m = 128) stream(%n = 1024) inner(%d = 64) carried(%e = 64)
      ins(%q = %Q : memref<2x8x128x64xf32>, %k = %K : memref<2x2x1024x64xf32>, %v = %V : memref<2x2x1024x64xf32>, %w = %W : memref<2x1024xf32>)
      outs(%o = %O : memref<2x8x128x64xf32>) {
    %lowest = arith.constant -3.4028235e38 : f32
    %qv = refold.read %q[%b, %h, %m, %d] : f32
    %kv = refold.read %k[%b, %h floordiv 4, %n, %d] : f32
    %qk = arith.mulf %qv, %kv : f32
    %s = refold.contract %qk over(%d) : f32
    %c = arith.cmpi ule, %n, %m : index
    %causal = arith.select %c, %s, %lowest : f32
    %zero = arith.constant 0.0 : f32
    %wv = refold.read %w[%b, %n] : f32
    %is = arith.cmpf ogt, %wv, %zero : f32
    %x = arith.select %is, %causal, %lowest : f32
    %mx = refold.state max(%x : f32)
    %g = arith.maxnumf %mx, %lowest : f32
    %u = arith.subf %x, %g : f32
    %p = math.exp %u : f32
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %vv = refold.read %v[%b, %h floordiv 4, %n, %e] : f32
    %pv = arith.mulf %p, %vv : f32
    %a = refold.state add(%pv : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %D = arith.subf %old, %new : f32
      %f = math.exp %D : f32
      %moved = arith.mulf %self, %f : f32
      refold.yield %moved : f32
    }
    %y = arith.divf %a, %z : f32
    refold.write %y, %o[%b, %h, %m, %e] : f32
  }
  return
}

// Two of three streams are neighbours in all that is read; b is read by itself.
// CHECK-LABEL: stream w in tiles of 1024
// CHECK-NEXT:  with h as one stream, where they are one in memory
// CHECK-NEXT:  pass 0
func.func @flat(%X: memref<?x?x?x?xf32>, %B: memref<?xf32>, %O: memref<?xf32>) {
  refold.cascade rows(%c = ?) stream(%n = ?, %h = ?, %w = ?) ins(%x = %X : memref<?x?x?x?xf32>, %b = %B : memref<?xf32>) outs(%o = %O : memref<?xf32>) {
    %0 = refold.read %x[%n, %c, %h, %w] : f32
    %1 = refold.read %b[%n] : f32
    %2 = arith.mulf %0, %1 : f32
    %3 = refold.state add(%2 : f32)
    refold.write %3, %o[%c] : f32
  }
  return
}
