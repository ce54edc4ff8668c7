// What products read through views is rounded in front of these: an index of what
// computes it does not become two, or two one.
// RUN: refold compile --emit program --multiply f16 %s 2>&1 | FileCheck %s

// CHECK: func.func @views(%[[X:.*]]: tensor<?x6xf32> {{.*}}, %[[Y:.*]]: tensor<5x6xf32>
// CHECK-DAG: %[[X16:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<?x6xf32>) outs({{.*}} : tensor<?x6xf16>)
// CHECK-DAG: %[[XH:.*]] = tensor.expand_shape %[[X16]] {{.*}} : tensor<?x6xf16> into tensor<?x2x3xf16>
// CHECK-DAG: %[[Y16:.*]] = linalg.generic {{.*}} ins(%[[Y]] : tensor<5x6xf32>) outs({{.*}} : tensor<5x6xf16>)
// CHECK-DAG: %[[YH:.*]] = tensor.expand_shape %[[Y16]] {{.*}} : tensor<5x6xf16> into tensor<5x2x3xf16>
// CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%[[XH]], %[[YH]] : tensor<?x2x3xf16>, tensor<5x2x3xf16>)
// CHECK: %[[S16:.*]] = linalg.generic {{.*}} ins(%[[S]] : tensor<2x?x5xf32>) outs({{.*}} : tensor<2x?x5xf16>)
// CHECK: %[[JOINED:.*]] = tensor.collapse_shape %[[S16]] {{.*}} : tensor<2x?x5xf16> into tensor<?x5xf16>
// CHECK: linalg.generic {{.*}} ins(%[[JOINED]], %{{.*}} : tensor<?x5xf16>, tensor<5x4xf16>)

func.func @views(%x: tensor<?x6xf32>, %y: tensor<5x6xf32>) -> tensor<?x4xf32> {
  %w = arith.constant dense<1.5> : tensor<5x4xf32>
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?x6xf32>
  %apart = tensor.expand_shape %x [[0], [1, 2]] output_shape [%m, 2, 3] : tensor<?x6xf32> into tensor<?x2x3xf32>
  %beside = tensor.expand_shape %y [[0], [1, 2]] output_shape [5, 2, 3] : tensor<5x6xf32> into tensor<5x2x3xf32>
  %empty = tensor.empty(%m) : tensor<2x?x5xf32>
  %sums = linalg.fill ins(%zero : f32) outs(%empty : tensor<2x?x5xf32>) -> tensor<2x?x5xf32>
  %s = linalg.generic {
      indexing_maps = [affine_map<(h, m, n, d) -> (m, h, d)>, affine_map<(h, m, n, d) -> (n, h, d)>,
                       affine_map<(h, m, n, d) -> (h, m, n)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%apart, %beside : tensor<?x2x3xf32>, tensor<5x2x3xf32>) outs(%sums : tensor<2x?x5xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %p = arith.mulf %a, %b : f32
    %r = arith.addf %acc, %p : f32
    linalg.yield %r : f32
  } -> tensor<2x?x5xf32>
  %joined = tensor.collapse_shape %s [[0, 1], [2]] : tensor<2x?x5xf32> into tensor<?x5xf32>
  %rows = tensor.dim %joined, %c0 : tensor<?x5xf32>
  %wide = tensor.empty(%rows) : tensor<?x4xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%wide : tensor<?x4xf32>) -> tensor<?x4xf32>
  %o = linalg.matmul ins(%joined, %w : tensor<?x5xf32>, tensor<5x4xf32>) outs(%zeros : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %o : tensor<?x4xf32>
}
