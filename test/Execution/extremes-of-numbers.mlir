// RUN: refold verify %s --shape m=50 --first-seeds 1 --seeds 2
// RUN: env REFOLD_CPU=avx2 refold verify %s --shape m=35 --first-seeds 1 --seeds 1
// Extremes that ignore NaN, of joined rows of one group: a lane that begins with a NaN has the next number.
#e = affine_map<(m, n) -> (m, n)>
#r = affine_map<(m, n) -> (m)>
func.func @p(%x: tensor<?x64xf32> {refold.name = "x", refold.dims = ["m", "n"]}) -> (tensor<?xf32> {refold.name = "a", refold.dims = ["m"]}, tensor<?xf32> {refold.name = "b", refold.dims = ["m"]}) {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x64xf32>
  %ni = arith.constant 0xFF800000 : f32
  %pi = arith.constant 0x7F800000 : f32
  %e = tensor.empty(%m) : tensor<?xf32>
  %f = linalg.fill ins(%ni : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %g = linalg.fill ins(%pi : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %a = linalg.generic {indexing_maps = [#e, #r], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<?x64xf32>) outs(%f : tensor<?xf32>) {
  ^bb0(%v: f32, %acc: f32):
    %s = arith.maxnumf %v, %acc : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %b = linalg.generic {indexing_maps = [#e, #r], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<?x64xf32>) outs(%g : tensor<?xf32>) {
  ^bb0(%v: f32, %acc: f32):
    %s = arith.minnumf %v, %acc : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %a, %b : tensor<?xf32>, tensor<?xf32>
}
