// x times the product of a softmax of one table and another table: all but the
// last product follows from tables alone.
#row = affine_map<(i, k) -> (i)>
#all = affine_map<(i, k) -> (i, k)>
#lhs = affine_map<(i, j, k) -> (i, k)>
#rhs = affine_map<(i, j, k) -> (k, j)>
#out = affine_map<(i, j, k) -> (i, j)>
func.func @of_weights(%x: tensor<?x24xf32> {refold.name = "x", refold.dims = ["n", "k"]}) -> (tensor<?x40xf32> {refold.name = "y", refold.dims = ["n", "j"]}) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %least = arith.constant 0xFF800000 : f32
  %table = arith.constant dense<[
    [1.0, -2.0, 3.0, 0.5, 2.5, -1.0, 0.25, 4.0], [0.5, 0.75, -3.0, 1.5, 2.0, 0.0, -0.5, 1.0],
    [2.0, 1.0, 0.0, -1.0, -2.0, -3.0, 3.5, 0.125], [-1.5, 2.25, 1.25, 0.0, 0.5, 3.0, -2.5, 1.0],
    [3.0, 3.0, -1.0, 2.0, 1.0, 0.5, 0.75, -0.75], [0.0, 1.0, 2.0, 3.0, -1.0, -2.0, -3.0, 0.5],
    [1.5, -0.5, 0.5, -1.5, 2.5, -2.5, 1.0, 0.0], [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0],
    [1.0, -2.0, 3.0, 0.5, 2.5, -1.0, 0.25, -4.0], [0.5, 0.75, -3.0, 1.5, 2.0, 0.0, -0.5, -1.0],
    [2.0, 1.0, 0.0, -1.0, -2.0, -3.0, 3.5, 1.125], [-1.5, 2.25, 1.25, 0.0, 0.5, 3.0, -2.5, -1.0],
    [3.0, 3.0, -1.0, 2.0, 1.0, 0.5, 0.75, 0.75], [0.0, 1.0, 2.0, 3.0, -1.0, -2.0, -3.0, 1.5],
    [1.5, -0.5, 0.5, -1.5, 2.5, -2.5, 1.0, 2.0], [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, -2.0],
    [1.0, -2.0, 3.0, 0.5, 2.5, -1.0, 2.25, 4.0], [0.5, 0.75, -3.0, 1.5, 2.0, 0.0, 0.5, 1.0],
    [2.0, 1.0, 0.0, -1.0, -2.0, -3.0, 1.5, 0.125], [-1.5, 2.25, 1.25, 0.0, 0.5, 3.0, 2.5, 1.0],
    [3.0, 3.0, -1.0, 2.0, 1.0, 0.5, 1.75, -0.75], [0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 3.0, 0.5],
    [1.5, -0.5, 0.5, -1.5, 2.5, -2.5, -1.0, 0.0], [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, -1.75, 2.0]]> : tensor<24x8xf32>
  %row.empty = tensor.empty() : tensor<24xf32>
  %all.empty = tensor.empty() : tensor<24x8xf32>
  %max.start = linalg.fill ins(%least : f32) outs(%row.empty : tensor<24xf32>) -> tensor<24xf32>
  %max = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]} ins(%table : tensor<24x8xf32>) outs(%max.start : tensor<24xf32>) {
  ^bb0(%in: f32, %acc: f32):
    %m = arith.maximumf %in, %acc : f32
    linalg.yield %m : f32
  } -> tensor<24xf32>
  %exps = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]} ins(%table, %max : tensor<24x8xf32>, tensor<24xf32>) outs(%all.empty : tensor<24x8xf32>) {
  ^bb0(%in: f32, %m: f32, %o: f32):
    %d = arith.subf %in, %m : f32
    %e = math.exp %d : f32
    linalg.yield %e : f32
  } -> tensor<24x8xf32>
  %sum.start = linalg.fill ins(%zero : f32) outs(%row.empty : tensor<24xf32>) -> tensor<24xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]} ins(%exps : tensor<24x8xf32>) outs(%sum.start : tensor<24xf32>) {
  ^bb0(%in: f32, %acc: f32):
    %s = arith.addf %in, %acc : f32
    linalg.yield %s : f32
  } -> tensor<24xf32>
  %soft = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]} ins(%exps, %sum : tensor<24x8xf32>, tensor<24xf32>) outs(%all.empty : tensor<24x8xf32>) {
  ^bb0(%in: f32, %s: f32, %o: f32):
    %q = arith.divf %in, %s : f32
    linalg.yield %q : f32
  } -> tensor<24x8xf32>
  %other.empty = tensor.empty() : tensor<8x40xf32>
  %other = linalg.generic {indexing_maps = [#all], iterator_types = ["parallel", "parallel"]} outs(%other.empty : tensor<8x40xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %five = arith.constant 5 : index
    %eighth = arith.constant 0.125 : f32
    %scaled = arith.muli %i, %five : index
    %place = arith.subi %scaled, %j : index
    %word = arith.index_cast %place : index to i32
    %number = arith.sitofp %word : i32 to f32
    %small = arith.mulf %number, %eighth : f32
    linalg.yield %small : f32
  } -> tensor<8x40xf32> loc("other")
  %weights.empty = tensor.empty() : tensor<24x40xf32>
  %weights.start = linalg.fill ins(%zero : f32) outs(%weights.empty : tensor<24x40xf32>) -> tensor<24x40xf32>
  %weights = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%soft, %other : tensor<24x8xf32>, tensor<8x40xf32>) outs(%weights.start : tensor<24x40xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %acc, %p : f32
    linalg.yield %s : f32
  } -> tensor<24x40xf32> loc("weights")
  %n = tensor.dim %x, %c0 : tensor<?x24xf32>
  %y.empty = tensor.empty(%n) : tensor<?x40xf32>
  %y.start = linalg.fill ins(%zero : f32) outs(%y.empty : tensor<?x40xf32>) -> tensor<?x40xf32>
  %y = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %weights : tensor<?x24xf32>, tensor<24x40xf32>) outs(%y.start : tensor<?x40xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %acc, %p : f32
    linalg.yield %s : f32
  } -> tensor<?x40xf32> loc("y")
  return %y : tensor<?x40xf32>
}
