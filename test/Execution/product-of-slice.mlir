// RUN: refold verify %s --first-seeds 1 --seeds 1 --splits 0 | FileCheck %s
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1)>
// A product of a slice reads the slice: what it is cut from has another size.
// CHECK-NOT: BAD
// CHECK: ok
func.func @g(%arg0: tensor<?x1001xf32>, %w: tensor<256x72xf32>) -> tensor<?x72xf32> {
    %c0 = arith.constant 0 : index
    %dim = tensor.dim %arg0, %c0 : tensor<?x1001xf32>
    %cst_0 = arith.constant 0.000000e+00 : f32
    %extracted_slice = tensor.extract_slice %arg0[0, 0] [%dim, 256] [1, 1] : tensor<?x1001xf32> to tensor<?x256xf32>
    %0 = tensor.empty(%dim) : tensor<?x72xf32>
    %1 = linalg.fill ins(%cst_0 : f32) outs(%0 : tensor<?x72xf32>) -> tensor<?x72xf32>
    %2 = linalg.generic {indexing_maps = [#map, #map1, #map2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%extracted_slice, %w : tensor<?x256xf32>, tensor<256x72xf32>) outs(%1 : tensor<?x72xf32>) {
    ^bb0(%in: f32, %in_1: f32, %out: f32):
      %3 = arith.mulf %in, %in_1 : f32
      %4 = arith.addf %out, %3 : f32
      linalg.yield %4 : f32
    } -> tensor<?x72xf32>
    return %2 : tensor<?x72xf32>
}
