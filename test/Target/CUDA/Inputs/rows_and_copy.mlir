// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// y = x - max over n of x, between two columns of x: rows, then copies of arrays that lie apart.
#rows = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
func.func @between(%x: tensor<?x?xf32> {refold.name = "x", refold.dims = ["m", "n"]})
    -> (tensor<?x?xf32> {refold.name = "y", refold.dims = ["m", ""]}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?xf32>
  %low = arith.constant 0xFF800000 : f32
  %row = tensor.empty(%m) : tensor<?xf32>
  %init = linalg.fill ins(%low : f32) outs(%row : tensor<?xf32>) -> tensor<?xf32>
  %max = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%init : tensor<?xf32>) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.maximumf %a, %b : f32
      linalg.yield %c : f32
  } -> tensor<?xf32>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %y = linalg.generic {indexing_maps = [#rows, #row, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%x, %max : tensor<?x?xf32>, tensor<?xf32>) outs(%empty : tensor<?x?xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %c = arith.subf %a, %b : f32
      linalg.yield %c : f32
  } -> tensor<?x?xf32>
  %edge = tensor.extract_slice %x[0, 0] [%m, 1] [1, 1] : tensor<?x?xf32> to tensor<?x1xf32>
  %left = tensor.cast %edge : tensor<?x1xf32> to tensor<?x?xf32>
  %all = tensor.concat dim(1) %left, %y, %left : (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  return %all : tensor<?x?xf32>
}
