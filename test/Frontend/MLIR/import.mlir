// A program in MLIR stays as it is; what it leaves open about its ports is filled in.
// RUN: refold compile %s --emit program --locations | FileCheck %s

// CHECK:       func.func @rows(
// CHECK-SAME:    %[[X:.*]]: tensor<4x?xf32> {refold.dims = ["", "n"], refold.name = "x"}
// CHECK-SAME:    %{{.*}}: tensor<4xf32> {refold.dims = [""], refold.name = "arg1"}
// CHECK-SAME:    -> (tensor<4xf32> {refold.dims = [""], refold.name = "out0"})
// CHECK:       %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<4x?xf32>)
// CHECK:         arith.addf
// CHECK:       } -> tensor<4xf32> {{.*}}import.mlir:
// CHECK:       linalg.add ins(%[[SUM]], %{{.*}} : tensor<4xf32>, tensor<4xf32>)
// CHECK:       return

#x = affine_map<(m, n) -> (m, n)>
#y = affine_map<(m, n) -> (m)>
func.func @rows(%x: tensor<4x?xf32> {refold.name = "x", refold.dims = ["", "n"]}, %bias: tensor<4xf32>) -> tensor<4xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<4xf32>) -> tensor<4xf32>
  %sum = linalg.generic {indexing_maps = [#x, #y], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x?xf32>) outs(%init : tensor<4xf32>) {
  ^bb0(%in: f32, %acc: f32):
    %next = arith.addf %acc, %in : f32
    linalg.yield %next : f32
  } -> tensor<4xf32>
  %y = linalg.add ins(%sum, %bias : tensor<4xf32>, tensor<4xf32>) outs(%empty : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
