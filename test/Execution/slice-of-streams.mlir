// RUN: refold verify %s --first-seeds 1 --seeds 4 --splits 0 | FileCheck %s
#map = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#row = affine_map<(d0, d1, d2) -> (d0)>
// Rows of a slice have gaps between them: its two streams are no single one,
// which is known when the kernel runs.
// CHECK-NOT: BAD
// CHECK: ok
func.func @z(%x: tensor<5x40x51xf32>) -> tensor<5xf32> {
  %zero = arith.constant 0.000000e+00 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %slice = tensor.extract_slice %x[0, 0, 0] [5, 40, 49] [1, 1, 1] : tensor<5x40x51xf32> to tensor<5x40x49xf32>
  %empty = tensor.empty() : tensor<5xf32>
  %from = linalg.fill ins(%lowest : f32) outs(%empty : tensor<5xf32>) -> tensor<5xf32>
  %m = linalg.generic {indexing_maps = [#map, #row], iterator_types = ["parallel", "reduction", "reduction"]} ins(%slice : tensor<5x40x49xf32>) outs(%from : tensor<5xf32>) {
  ^bb0(%in: f32, %out: f32):
    %larger = arith.maximumf %in, %out : f32
    linalg.yield %larger : f32
  } -> tensor<5xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<5xf32>) -> tensor<5xf32>
  %z = linalg.generic {indexing_maps = [#map, #row, #row], iterator_types = ["parallel", "reduction", "reduction"]} ins(%slice, %m : tensor<5x40x49xf32>, tensor<5xf32>) outs(%start : tensor<5xf32>) {
  ^bb0(%in: f32, %pivot: f32, %out: f32):
    %d = arith.subf %in, %pivot : f32
    %e = math.exp %d : f32
    %sum = arith.addf %e, %out : f32
    linalg.yield %sum : f32
  } -> tensor<5xf32>
  return %z : tensor<5xf32>
}
