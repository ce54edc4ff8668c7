// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Conversions that nothing saturates: what is too large becomes NaN in one format and infinite in the other.
#all = affine_map<(m, n) -> (m, n)>
func.func @overflow(%x: tensor<?x?xf32> {refold.name = "x", refold.dims = ["m", "n"]})
    -> (tensor<?x?xf8E4M3FN> {refold.name = "p"}, tensor<?x?xf8E5M2> {refold.name = "q"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %large = arith.constant 3.0e+02 : f32
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?xf32>
  %p = tensor.empty(%m, %n) : tensor<?x?xf8E4M3FN>
  %q = tensor.empty(%m, %n) : tensor<?x?xf8E5M2>
  %both:2 = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x?xf32>) outs(%p, %q : tensor<?x?xf8E4M3FN>, tensor<?x?xf8E5M2>) {
    ^bb0(%a: f32, %b: f8E4M3FN, %c: f8E5M2):
      %d = arith.mulf %a, %large : f32
      %e = arith.mulf %d, %large : f32
      %f = arith.truncf %d : f32 to f8E4M3FN
      %g = arith.truncf %e : f32 to f8E5M2
      linalg.yield %f, %g : f8E4M3FN, f8E5M2
  } -> (tensor<?x?xf8E4M3FN>, tensor<?x?xf8E5M2>)
  return %both#0, %both#1 : tensor<?x?xf8E4M3FN>, tensor<?x?xf8E5M2>
}
