// expect 1: found no data for the resource 'w'
func.func @f() -> tensor<2xf32> {
  %w = arith.constant dense_resource<w> : tensor<2xf32>
  return %w : tensor<2xf32>
}
