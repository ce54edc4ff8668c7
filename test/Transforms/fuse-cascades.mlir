// RUN: %refold-opt %s --pass-pipeline='builtin.module(func.func(refold-normalise-program,refold-fuse-cascades))' | %FileCheck %s
// RUN: %refold-opt %s --pass-pipeline='builtin.module(func.func(refold-normalise-program,refold-fuse-cascades{fuse=false}))' | %FileCheck %s --check-prefix=ALONE

// The sum so far is multiplied by e^(OLD - NEW). A swapped subtraction is the
// mistake to catch, so both of its operands are captured.

// CHECK-LABEL: func.func @max_then_sumexp(
// CHECK-SAME:    %[[X:.*]]: tensor<?x?xf32>
// CHECK:       refold.cascade rows(%{{.*}} = ?) stream(%{{.*}} = ?)
// CHECK:         %[[MAX:.*]] = refold.state max(
// CHECK:         %[[PIVOT:.*]] = arith.maxnumf %[[MAX]]
// CHECK:         refold.state add({{.*}}) pivot(%[[PIVOT]] : f32) transport(%[[OLD:.*]], %[[NEW:.*]], %[[SELF:.*]]) {
// CHECK:           %[[DOWN:.*]] = arith.subf %[[OLD]], %[[NEW]]
// CHECK:           %[[R:.*]] = math.exp %[[DOWN]]
// CHECK:           arith.mulf %[[SELF]], %[[R]]
// CHECK-NOT:   linalg.generic
// CHECK:       return

// ALONE-LABEL: func.func @max_then_sumexp(
// ALONE-COUNT-2: refold.cascade
// ALONE-NOT:   transport
// ALONE:       return
func.func @max_then_sumexp(%x: tensor<?x?xf32>) -> tensor<?xf32> {
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
