// RUN: %refold-opt %s -refold-lower-to-llvm | %FileCheck %s

// Nothing of the dialects above is left, nor a cast between them; a memref is
// taken apart into the words that the runtime passes.

// CHECK-LABEL: llvm.func @scale(
// CHECK-SAME:    %{{[^:]*}}: !llvm.ptr, %{{[^:]*}}: !llvm.ptr, %{{[^:]*}}: i64, %{{[^:]*}}: i64, %{{[^:]*}}: i64, %{{[^:]*}}: f32)
// CHECK-NOT:     {{(vector|memref|scf|arith|affine)\.}}
// CHECK-NOT:     unrealized_conversion_cast
// CHECK:         llvm.intr.fma
// CHECK:         llvm.return
func.func @scale(%x: memref<?xf32>, %f: f32) {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %n = memref.dim %x, %c0 : memref<?xf32>
  %s = vector.broadcast %f : f32 to vector<16xf32>
  scf.for %i = %c0 to %n step %c16 {
    %v = vector.load %x[%i] : memref<?xf32>, vector<16xf32>
    %y = math.fma %v, %s, %s : vector<16xf32>
    vector.store %y, %x[%i] : memref<?xf32>, vector<16xf32>
  }
  return
}
