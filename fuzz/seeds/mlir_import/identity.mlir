// The result is the argument, doubled: what array files are read into.
#map = affine_map<(d0, d1) -> (d0, d1)>
func.func @double(%x: tensor<?x?xf32> {refold.name = "x", refold.dims = ["m", "n"]})
    -> (tensor<?x?xf32> {refold.name = "y", refold.dims = ["m", "n"]}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %x, %c1 : tensor<?x?xf32>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %y = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<?x?xf32>) outs(%empty : tensor<?x?xf32>) {
  ^bb0(%in: f32, %out: f32):
    %twice = arith.addf %in, %in : f32
    linalg.yield %twice : f32
  } -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}
