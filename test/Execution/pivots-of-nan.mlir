// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A largest element that is a NaN leaves the lower bound of a pivot: e^(x - c) of
// the others is not 1 at most. A sum without the NaN was finite for infinity.
//
// RUN: refold verify %s --target avx2 --inputs normal,growing --first-seeds 1 --seeds 2 --lengths 17,1000 --broad-length 0
// RUN: refold verify %s --target baseline --inputs normal,growing --first-seeds 1 --seeds 2 --lengths 17,1000 --broad-length 0

#query = affine_map<(m, n, d) -> (m, d)>
#key = affine_map<(m, n, d) -> (n, d)>
#score = affine_map<(m, n, d) -> (m, n)>
#pair = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
func.func @pivots_of_nan(
    %q: tensor<?x32xf32> {refold.dims = ["m", "d"], refold.name = "q"},
    %k: tensor<?x32xf32> {refold.dims = ["n", "d"], refold.name = "k"},
    %v: tensor<?xf32> {refold.dims = ["n"], refold.name = "v"})
    -> (tensor<?xf32> {refold.dims = ["m"], refold.name = "o"}) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %m = tensor.dim %q, %c0 : tensor<?x32xf32>
  %n = tensor.dim %k, %c0 : tensor<?x32xf32>
  %scores = tensor.empty(%m, %n) : tensor<?x?xf32>
  %rows = tensor.empty(%m) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%scores : tensor<?x?xf32>) -> tensor<?x?xf32>
  %products = linalg.generic {indexing_maps = [#query, #key, #score], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<?x32xf32>, tensor<?x32xf32>) outs(%zeros : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %product = arith.mulf %a, %b : f32
    %next = arith.addf %sum, %product : f32
    linalg.yield %next : f32
  } -> tensor<?x?xf32>
  %s = linalg.generic {indexing_maps = [#pair, #pair], iterator_types = ["parallel", "parallel"]}
      ins(%products : tensor<?x?xf32>) outs(%scores : tensor<?x?xf32>) {
  ^bb0(%a: f32, %unused: f32):
    %factor = arith.constant 90.0 : f32
    %root = math.sqrt %a : f32
    %scaled = arith.mulf %root, %factor : f32
    linalg.yield %scaled : f32
  } -> tensor<?x?xf32>
  %least = linalg.fill ins(%lowest : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %t = linalg.generic {indexing_maps = [#pair, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<?x?xf32>) outs(%least : tensor<?xf32>) {
  ^bb0(%a: f32, %best: f32):
    %next = arith.maximumf %best, %a : f32
    linalg.yield %next : f32
  } -> tensor<?xf32>
  %none = linalg.fill ins(%zero : f32) outs(%rows : tensor<?xf32>) -> tensor<?xf32>
  %o = linalg.generic {indexing_maps = [#pair, #row, affine_map<(m, n) -> (n)>, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s, %t, %v : tensor<?x?xf32>, tensor<?xf32>, tensor<?xf32>) outs(%none : tensor<?xf32>) {
  ^bb0(%a: f32, %best: f32, %value: f32, %sum: f32):
    %bound = arith.constant 1.0 : f32
    %c = arith.maxnumf %best, %bound : f32
    %x = arith.subf %a, %c : f32
    %p = math.exp %x : f32
    %term = arith.mulf %p, %value : f32
    %isNumber = arith.cmpf ord, %a, %a : f32
    %kept = arith.select %isNumber, %term, %zero : f32
    %next = arith.addf %sum, %kept : f32
    linalg.yield %next : f32
  } -> tensor<?xf32>
  return %o : tensor<?xf32>
}
