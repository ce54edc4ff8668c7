// expect 1: error: type of return operand 0
func.func @f(%x: tensor<f32>) -> tensor<f64> {
  return %x : tensor<f32>
}
