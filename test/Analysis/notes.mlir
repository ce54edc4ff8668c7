// RUN: %refold-opt %s -split-input-file -verify-diagnostics --pass-pipeline='builtin.module(func.func(refold-normalise-program,refold-print-kernels))' -o /dev/null

// The weights are read by more than products, so that a product is not their last reader.
func.func @escapes(%x: tensor<8x16xf32>, %v: tensor<16x4xf32>) -> (tensor<8x4xf32>, tensor<16x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %rows = tensor.empty() : tensor<8xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%rows : tensor<8xf32>) -> tensor<8xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x16xf32>) outs(%zeros : tensor<8xf32>) {
  ^bb0(%e: f32, %acc: f32):
    %s = arith.addf %acc, %e : f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  %all = tensor.empty() : tensor<8x16xf32>
  // expected-remark @below {{kernel over}}
  %p = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sum : tensor<8x16xf32>, tensor<8xf32>) outs(%all : tensor<8x16xf32>) {
  ^bb0(%e: f32, %s: f32, %out: f32):
    %q = arith.divf %e, %s : f32
    linalg.yield %q : f32
  } -> tensor<8x16xf32>
  %o = tensor.empty() : tensor<8x4xf32>
  %turned = tensor.empty() : tensor<16x8xf32>
  %none = linalg.fill ins(%zero : f32) outs(%o : tensor<8x4xf32>) -> tensor<8x4xf32>
  // expected-remark @below {{product}}
  // expected-remark @below {{not fused [escapes]}}
  %a = linalg.matmul ins(%p, %v : tensor<8x16xf32>, tensor<16x4xf32>) outs(%none : tensor<8x4xf32>) -> tensor<8x4xf32>
  // expected-remark @below {{kernel over}}
  %b = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<8x16xf32>) outs(%turned : tensor<16x8xf32>) {
  ^bb0(%e: f32, %out: f32):
    %q = math.absf %e : f32
    linalg.yield %q : f32
  } -> tensor<16x8xf32>
  return %a, %b : tensor<8x4xf32>, tensor<16x8xf32>
}

// -----

// A row sum and a column sum in one formula: one of them is computed before.
func.func @axes(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %zero = arith.constant 0.0 : f32
  %r = tensor.empty() : tensor<8xf32>
  %c = tensor.empty() : tensor<16xf32>
  %all = tensor.empty() : tensor<8x16xf32>
  %zr = linalg.fill ins(%zero : f32) outs(%r : tensor<8xf32>) -> tensor<8xf32>
  %zc = linalg.fill ins(%zero : f32) outs(%c : tensor<16xf32>) -> tensor<16xf32>
  %rows = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x16xf32>) outs(%zr : tensor<8xf32>) {
  ^bb0(%e: f32, %acc: f32):
    %s = arith.addf %acc, %e : f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  // expected-remark @below {{kernel over}}
  // expected-remark @below {{not fused [axis-change]}}
  %columns = linalg.generic {indexing_maps = [affine_map<(j, i) -> (i, j)>, affine_map<(j, i) -> (j)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x16xf32>) outs(%zc : tensor<16xf32>) {
  ^bb0(%e: f32, %acc: f32):
    %s = arith.addf %acc, %e : f32
    linalg.yield %s : f32
  } -> tensor<16xf32>
  // expected-remark @below {{kernel over}}
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%rows, %columns : tensor<8xf32>, tensor<16xf32>) outs(%all : tensor<8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %s = arith.mulf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<8x16xf32>
  return %y : tensor<8x16xf32>
}

// -----

// The ranks of a top-k are one index of the kernel, in order.
func.func @ranks(%x: tensor<8x16xf32>) -> tensor<8xf32> {
  // expected-remark @below {{kernel over}}
  // expected-remark @below {{not fused [unsupported-access]}}
  %v, %i = refold.topk %x dim(1) k(4) largest(true) : tensor<8x16xf32> -> tensor<8x4xf32>, tensor<8x4xi32>
  %last = tensor.extract_slice %v[0, 3] [8, 1] [1, 1] : tensor<8x4xf32> to tensor<8xf32>
  %o = tensor.empty() : tensor<8xf32>
  // expected-remark @below {{kernel over}}
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%last : tensor<8xf32>) outs(%o : tensor<8xf32>) {
  ^bb0(%e: f32, %out: f32):
    %n = arith.negf %e : f32
    linalg.yield %n : f32
  } -> tensor<8xf32>
  return %y : tensor<8xf32>
}
