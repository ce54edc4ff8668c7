// RUN: refold verify %s --first-seeds 1 --seeds 1 --splits 0 | FileCheck %s
#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1, d2) -> (d0, d2)>
#map2 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map3 = affine_map<(d0, d1, d2) -> (d0, d1)>
// A product of f32 reads what was widened, though f16 has the same numbers: the
// kernel was an internal error. Of a constant and of an argument.
// CHECK-NOT: BAD
// CHECK-COUNT-2: ok
func.func @g(%x: tensor<?x24xf32>, %half: tensor<40x24xf16>) -> (tensor<?x32xf32>, tensor<?x40xf32>) {
    %weights = arith.constant dense<0.3> : tensor<32x24xf16>
    %c0 = arith.constant 0 : index
    %dim = tensor.dim %x, %c0 : tensor<?x24xf32>
    %zero = arith.constant 0.0 : f32
    %0 = tensor.empty() : tensor<32x24xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%weights : tensor<32x24xf16>) outs(%0 : tensor<32x24xf32>) {
    ^bb0(%in: f16, %out: f32):
      %e = arith.extf %in : f16 to f32
      linalg.yield %e : f32
    } -> tensor<32x24xf32>
    %2 = tensor.empty(%dim) : tensor<?x32xf32>
    %3 = linalg.fill ins(%zero : f32) outs(%2 : tensor<?x32xf32>) -> tensor<?x32xf32>
    %4 = linalg.generic {indexing_maps = [#map1, #map2, #map3], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %1 : tensor<?x24xf32>, tensor<32x24xf32>) outs(%3 : tensor<?x32xf32>) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %p = arith.mulf %a, %b : f32
      %s = arith.addf %out, %p : f32
      linalg.yield %s : f32
    } -> tensor<?x32xf32>
    %5 = tensor.empty() : tensor<40x24xf32>
    %6 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%half : tensor<40x24xf16>) outs(%5 : tensor<40x24xf32>) {
    ^bb0(%in: f16, %out: f32):
      %e = arith.extf %in : f16 to f32
      linalg.yield %e : f32
    } -> tensor<40x24xf32>
    %7 = tensor.empty(%dim) : tensor<?x40xf32>
    %8 = linalg.fill ins(%zero : f32) outs(%7 : tensor<?x40xf32>) -> tensor<?x40xf32>
    %9 = linalg.generic {indexing_maps = [#map1, #map2, #map3], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %6 : tensor<?x24xf32>, tensor<40x24xf32>) outs(%8 : tensor<?x40xf32>) {
    ^bb0(%a: f32, %b: f32, %out: f32):
      %p = arith.mulf %a, %b : f32
      %s = arith.addf %out, %p : f32
      linalg.yield %s : f32
    } -> tensor<?x40xf32>
    return %4, %9 : tensor<?x32xf32>, tensor<?x40xf32>
}
