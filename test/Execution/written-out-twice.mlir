// RUN: refold verify %s --first-seeds 1 --seeds 2 --splits 0
// RUN: refold explain %s | FileCheck %s
// What is found at each place is read twice by one step, and returned too.
// CHECK-NOT: axis-change
#m3 = affine_map<(n, s) -> (n, s)>
#ms = affine_map<(n, s) -> (s)>
#mn = affine_map<(n, s) -> (n)>
#n1 = affine_map<(n) -> (n)>
#n0 = affine_map<(n) -> ()>
func.func @twice(%x: tensor<37x3xf32>) -> (tensor<f32>, tensor<3xf32>) {
  %z = arith.constant 0.0 : f32
  %e3 = tensor.empty() : tensor<3xf32>
  %k = linalg.fill ins(%z : f32) outs(%e3 : tensor<3xf32>) -> tensor<3xf32>
  %c = linalg.generic {indexing_maps = [#m3, #ms], iterator_types = ["reduction", "parallel"]} ins(%x : tensor<37x3xf32>) outs(%k : tensor<3xf32>) {
  ^bb0(%a: f32, %o: f32):
    %1 = arith.addf %o, %a : f32
    linalg.yield %1 : f32
  } -> tensor<3xf32>
  %c2 = linalg.generic {indexing_maps = [#n1, #n1, #n1], iterator_types = ["parallel"]} ins(%c, %c : tensor<3xf32>, tensor<3xf32>) outs(%e3 : tensor<3xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %1 = arith.mulf %a, %b : f32
    linalg.yield %1 : f32
  } -> tensor<3xf32>
  %en = tensor.empty() : tensor<37xf32>
  %fn = linalg.fill ins(%z : f32) outs(%en : tensor<37xf32>) -> tensor<37xf32>
  %d = linalg.generic {indexing_maps = [#m3, #ms, #mn], iterator_types = ["parallel", "reduction"]} ins(%x, %c2 : tensor<37x3xf32>, tensor<3xf32>) outs(%fn : tensor<37xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %1 = arith.subf %a, %b : f32
    %2 = arith.mulf %1, %1 : f32
    %3 = arith.addf %2, %o : f32
    linalg.yield %3 : f32
  } -> tensor<37xf32>
  %e0 = tensor.empty() : tensor<f32>
  %f0 = linalg.fill ins(%z : f32) outs(%e0 : tensor<f32>) -> tensor<f32>
  %r = linalg.generic {indexing_maps = [#n1, #n0], iterator_types = ["reduction"]} ins(%d : tensor<37xf32>) outs(%f0 : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %1 = arith.addf %a, %o : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  return %r, %c2 : tensor<f32>, tensor<3xf32>
}
