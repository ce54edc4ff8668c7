// RUN: %refold-opt %s -split-input-file -verify-diagnostics --pass-pipeline='builtin.module(func.func(refold-normalise-program,refold-print-kernels))' -o /dev/null

// Two reductions over one axis, the second reading the first: one cascade.
func.func @spread(%x: tensor<?x?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %rows = tensor.dim %x, %c0 : tensor<?x?xf32>
  %empty = tensor.empty(%rows) : tensor<?xf32>
  %lows = linalg.fill ins(%low : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  %max = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%lows : tensor<?xf32>) {
  ^bb0(%e: f32, %acc: f32):
    %m = arith.maximumf %e, %acc : f32
    linalg.yield %m : f32
  } -> tensor<?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  // expected-remark @below {{cascade over stream}}
  %sum = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%x, %max : tensor<?x?xf32>, tensor<?xf32>) outs(%zeros : tensor<?xf32>) {
  ^bb0(%e: f32, %m: f32, %acc: f32):
    %d = arith.subf %e, %m : f32
    %p = math.exp %d : f32
    %s = arith.addf %acc, %p : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %sum : tensor<?xf32>
}

// -----

// A product whose result two readers want in memory stays a product.
func.func @product(%a: tensor<?x64xf32>, %b: tensor<64x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %a, %c0 : tensor<?x64xf32>
  %n = tensor.dim %b, %c1 : tensor<64x?xf32>
  %empty = tensor.empty(%m, %n) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  // expected-remark @below {{product}}
  %c = linalg.matmul ins(%a, %b : tensor<?x64xf32>, tensor<64x?xf32>) outs(%zeros : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %c : tensor<?x?xf32>
}

// -----

// The body reads its accumulator twice: no known combiner.
func.func @no_reduction(%x: tensor<8xf32>) -> tensor<f32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<f32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<f32>) -> tensor<f32>
  // expected-error @below {{no kernel can be made [not-a-reduction]: the body is no reduction by one known combiner}}
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>], iterator_types = ["reduction"]}
      ins(%x : tensor<8xf32>) outs(%zeros : tensor<f32>) {
  ^bb0(%e: f32, %acc: f32):
    %t = arith.mulf %acc, %acc : f32
    %s = arith.addf %t, %e : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  return %r : tensor<f32>
}
