// RUN: %refold-opt %s -split-input-file -refold-fuse-epilogues | %FileCheck %s

// Batch and position are the rows of one matrix; bias, activation and residual
// are computed from the contraction. Sides, subscripts and the order of the
// operands of the activation are captured.

// CHECK-LABEL: func.func @gated(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?x64xf32>, %[[R:.*]]: tensor<?x?x96xf32>
// CHECK-DAG:   %[[XROWS:.*]] = tensor.collapse_shape %[[X]] {{\[}}[0, 1], [2]]
// CHECK-DAG:   %[[RROWS:.*]] = tensor.collapse_shape %[[R]] {{\[}}[0, 1], [2]]
// CHECK-NOT:   linalg.generic
// CHECK:       %[[FLAT:.*]] = refold.cascade rows(%[[N:.*]] = 96, %[[M:.*]] = ?) inner(%[[K:.*]] = 64)
// CHECK:         ins({{.*}}%[[LHS:.*]] = %[[XROWS]] : tensor<?x64xf32>, %[[RHS:.*]] = %{{.*}} : tensor<64x96xf32>)
// CHECK:         %[[A:.*]] = refold.read %[[LHS]][%[[M]], %[[K]]]
// CHECK:         %[[B:.*]] = refold.read %[[RHS]][%[[K]], %[[N]]]
// CHECK:         %[[AB:.*]] = arith.mulf %[[A]], %[[B]]
// CHECK:         %[[C:.*]] = refold.contract %[[AB]] over(%[[K]])
// CHECK:         %[[BIAS:.*]] = refold.read %{{.*}}[%[[N]]]
// CHECK:         %[[S:.*]] = arith.addf %[[C]], %[[BIAS]]
// CHECK:         %[[T:.*]] = math.tanh %[[S]]
// CHECK:         %[[Y:.*]] = arith.subf %[[T]], %{{.*}}
// CHECK:         refold.write %[[Y]], %{{.*}}[%[[M]], %[[N]]]
// CHECK:       tensor.expand_shape %[[FLAT]] {{\[}}[0, 1], [2]]
func.func @gated(%x: tensor<?x?x64xf32>, %r: tensor<?x?x96xf32>) -> tensor<?x?x96xf32> {
  %w = arith.constant dense<0.5> : tensor<64x96xf32>
  %bias = arith.constant dense<1.0> : tensor<96xf32>
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %batch = tensor.dim %x, %c0 : tensor<?x?x64xf32>
  %length = tensor.dim %x, %c1 : tensor<?x?x64xf32>
  %empty = tensor.empty(%batch, %length) : tensor<?x?x96xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?x96xf32>) -> tensor<?x?x96xf32>
  %p = linalg.generic {
      indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (k, n)>,
                       affine_map<(b, m, n, k) -> (b, m, n)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<?x?x64xf32>, tensor<64x96xf32>) outs(%fill : tensor<?x?x96xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %ab = arith.mulf %a, %b : f32
    %sum = arith.addf %acc, %ab : f32
    linalg.yield %sum : f32
  } -> tensor<?x?x96xf32>
  %y = refold.cascade rows(%b = ?, %m = ?, %n = 96)
      ins(%product = %p : tensor<?x?x96xf32>, %t = %bias : tensor<96xf32>, %res = %r : tensor<?x?x96xf32>)
      outs(%out = %empty : tensor<?x?x96xf32>) sizes(%b = %product[0], %m = %product[1]) {
    %0 = refold.read %product[%b, %m, %n] : f32
    %1 = refold.read %t[%n] : f32
    %2 = arith.addf %0, %1 : f32
    %3 = math.tanh %2 : f32
    %4 = refold.read %res[%b, %m, %n] : f32
    %5 = arith.subf %3, %4 : f32
    refold.write %5, %out[%b, %m, %n] : f32
  }
  return %y : tensor<?x?x96xf32>
}

// -----

// Heads and positions in a head are both columns of the weights; positions in
// the sequence do not lie behind each other in the result and stay an index.

// CHECK-LABEL: func.func @heads(
// CHECK:       refold.cascade rows(%[[H:.*]] = 2, %[[D:.*]] = 32, %[[B:.*]] = ?, %[[M:.*]] = ?) inner(%[[K:.*]] = 64)
// CHECK:         refold.read %{{.*}}[%[[B]], %[[M]], %[[K]]]
// CHECK:         refold.read %{{.*}}[%[[K]], %[[H]] * 32 + %[[D]]]
// CHECK:         refold.write %{{.*}}, %{{.*}}[%[[B]], %[[H]], %[[M]], %[[D]]]
func.func @heads(%x: tensor<?x?x64xf32>) -> tensor<?x2x?x32xf32> {
  %w = arith.constant dense<0.5> : tensor<64x64xf32>
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %batch = tensor.dim %x, %c0 : tensor<?x?x64xf32>
  %length = tensor.dim %x, %c1 : tensor<?x?x64xf32>
  %empty = tensor.empty(%batch, %length) : tensor<?x?x64xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?x64xf32>) -> tensor<?x?x64xf32>
  %p = linalg.generic {
      indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (k, n)>,
                       affine_map<(b, m, n, k) -> (b, m, n)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<?x?x64xf32>, tensor<64x64xf32>) outs(%fill : tensor<?x?x64xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %ab = arith.mulf %a, %b : f32
    %sum = arith.addf %acc, %ab : f32
    linalg.yield %sum : f32
  } -> tensor<?x?x64xf32>
  %to = tensor.empty(%batch, %length) : tensor<?x2x?x32xf32>
  %y = refold.cascade rows(%b = ?, %h = 2, %m = ?, %d = 32)
      ins(%product = %p : tensor<?x?x64xf32>) outs(%out = %to : tensor<?x2x?x32xf32>) {
    %0 = refold.read %product[%b, %m, %h * 32 + %d] : f32
    %1 = math.exp %0 : f32
    refold.write %1, %out[%b, %h, %m, %d] : f32
  }
  return %y : tensor<?x2x?x32xf32>
}

// -----

// The epilogue writes the transposed product: lanes would lie apart. The
// product is a kernel by itself.

// CHECK-LABEL: func.func @transposed(
// CHECK:       %[[P:.*]] = refold.cascade rows({{.*}}) inner(
// CHECK:       refold.cascade rows(%[[N:.*]] = 64, %[[M:.*]] = 8)
// CHECK:        ins(%[[PRODUCT:.*]] = %[[P]]
// CHECK:         refold.read %[[PRODUCT]][%[[M]], %[[N]]]
func.func @transposed(%x: tensor<8x64xf32>) -> tensor<64x8xf32> {
  %w = arith.constant dense<0.5> : tensor<64x64xf32>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<8x64xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<8x64xf32>) -> tensor<8x64xf32>
  %p = linalg.generic {
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
                       affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<8x64xf32>, tensor<64x64xf32>) outs(%fill : tensor<8x64xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %ab = arith.mulf %a, %b : f32
    %sum = arith.addf %acc, %ab : f32
    linalg.yield %sum : f32
  } -> tensor<8x64xf32>
  %to = tensor.empty() : tensor<64x8xf32>
  %y = refold.cascade rows(%n = 64, %m = 8)
      ins(%product = %p : tensor<8x64xf32>) outs(%out = %to : tensor<64x8xf32>) {
    %0 = refold.read %product[%m, %n] : f32
    %1 = math.exp %0 : f32
    refold.write %1, %out[%n, %m] : f32
  }
  return %y : tensor<64x8xf32>
}

// -----

// Weights that are computed, written as the left side: the columns of the
// result are theirs.

// CHECK-LABEL: func.func @computed_weights(
// CHECK-NOT:   linalg.generic
// CHECK:       refold.cascade rows(%[[N:.*]] = 64, %[[M:.*]] = 8) inner(%[[K:.*]] = 64)
// CHECK:         refold.read %{{.*}}[%[[K]], %[[N]]]
// CHECK:         refold.read %{{.*}}[%[[M]], %[[K]]]
func.func @computed_weights(%x: tensor<8x64xf32>, %w: tensor<64x64xf32>) -> tensor<8x64xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<8x64xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<8x64xf32>) -> tensor<8x64xf32>
  %p = linalg.generic {
      indexing_maps = [affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, k)>,
                       affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%w, %x : tensor<64x64xf32>, tensor<8x64xf32>) outs(%fill : tensor<8x64xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %ab = arith.mulf %a, %b : f32
    %sum = arith.addf %acc, %ab : f32
    linalg.yield %sum : f32
  } -> tensor<8x64xf32>
  return %p : tensor<8x64xf32>
}

// -----

// Bytes, of any number of columns.

// CHECK-LABEL: func.func @bytes(
// CHECK-NOT:   linalg.generic
// CHECK:       refold.contract
func.func @bytes(%x: tensor<8x64xi8>, %w: tensor<64x?xi8>) -> tensor<8x?xi32> {
  %zero = arith.constant 0 : i32
  %c1 = arith.constant 1 : index
  %columns = tensor.dim %w, %c1 : tensor<64x?xi8>
  %empty = tensor.empty(%columns) : tensor<8x?xi32>
  %fill = linalg.fill ins(%zero : i32) outs(%empty : tensor<8x?xi32>) -> tensor<8x?xi32>
  %p = linalg.generic {
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
                       affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<8x64xi8>, tensor<64x?xi8>) outs(%fill : tensor<8x?xi32>) {
  ^bb0(%a: i8, %b: i8, %acc: i32):
    %c = arith.extsi %a : i8 to i32
    %d = arith.extsi %b : i8 to i32
    %cd = arith.muli %c, %d : i32
    %sum = arith.addi %acc, %cd : i32
    linalg.yield %sum : i32
  } -> tensor<8x?xi32>
  return %p : tensor<8x?xi32>
}

// -----

// Both sides are others for every batch element: the product stays.

// CHECK-LABEL: func.func @batched(
// CHECK:       linalg.generic
// CHECK-NOT:   refold.cascade
func.func @batched(%x: tensor<4x8x64xf32>, %w: tensor<4x64x64xf32>) -> tensor<4x8x64xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x8x64xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x8x64xf32>) -> tensor<4x8x64xf32>
  %p = linalg.generic {
      indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, k, n)>,
                       affine_map<(b, m, n, k) -> (b, m, n)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<4x8x64xf32>, tensor<4x64x64xf32>) outs(%fill : tensor<4x8x64xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %ab = arith.mulf %a, %b : f32
    %sum = arith.addf %acc, %ab : f32
    linalg.yield %sum : f32
  } -> tensor<4x8x64xf32>
  return %p : tensor<4x8x64xf32>
}

// -----

// A convolution, its bias and a maximum: places times 2 plus taps, two of them
// summed beside the channels. The extent of what the windows slide along is one
// of the result.

// CHECK-LABEL: func.func @windows(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?x3xf32>
// CHECK-NOT:   linalg.generic
// CHECK:       refold.cascade rows(%[[O:.*]] = 40, %[[P:.*]] = ?, %[[Q:.*]] = ?) inner(%[[S:.*]] = 5, %[[T:.*]] = 3, %[[C:.*]] = 3)
// CHECK:         outs(%[[OUT:.*]] = %{{.*}} : tensor<?x?x40xf32>)
// CHECK:         sizes(%[[P]] = %[[OUT]][0], %[[Q]] = %[[OUT]][1])
// CHECK:         %[[A:.*]] = refold.read %{{.*}}[%[[P]] * 2 + %[[S]], %[[Q]] + %[[T]] * 4, %[[C]]]
// CHECK:         %[[B:.*]] = refold.read %{{.*}}[%[[O]], %[[C]], %[[S]], %[[T]]]
// CHECK:         %[[AB:.*]] = arith.mulf %[[A]], %[[B]]
// CHECK:         %[[SUM:.*]] = refold.contract %[[AB]] over(%[[S]], %[[T]], %[[C]])
// CHECK:         %[[M:.*]] = arith.maximumf %[[SUM]], %{{.*}}
// CHECK:         refold.write %[[M]], %[[OUT]][%[[P]], %[[Q]], %[[O]]]
func.func @windows(%x: tensor<?x?x3xf32>, %p: index, %q: index) -> tensor<?x?x40xf32> {
  %w = arith.constant dense<0.5> : tensor<40x3x5x3xf32>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty(%p, %q) : tensor<?x?x40xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?x40xf32>) -> tensor<?x?x40xf32>
  %conv = linalg.generic {
      indexing_maps = [affine_map<(p, q, s, t, o, c) -> (p * 2 + s, q + t * 4, c)>,
                       affine_map<(p, q, s, t, o, c) -> (o, c, s, t)>,
                       affine_map<(p, q, s, t, o, c) -> (p, q, o)>],
      iterator_types = ["parallel", "parallel", "reduction", "reduction", "parallel", "reduction"]}
      ins(%x, %w : tensor<?x?x3xf32>, tensor<40x3x5x3xf32>) outs(%fill : tensor<?x?x40xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %ab = arith.mulf %a, %b : f32
    %sum = arith.addf %acc, %ab : f32
    linalg.yield %sum : f32
  } -> tensor<?x?x40xf32>
  %y = refold.cascade rows(%i = ?, %j = ?, %o = 40)
      ins(%product = %conv : tensor<?x?x40xf32>)
      outs(%out = %empty : tensor<?x?x40xf32>) sizes(%i = %product[0], %j = %product[1]) {
    %0 = refold.read %product[%i, %j, %o] : f32
    %least = arith.constant 0.0 : f32
    %1 = arith.maximumf %0, %least : f32
    refold.write %1, %out[%i, %j, %o] : f32
  }
  return %y : tensor<?x?x40xf32>
}
