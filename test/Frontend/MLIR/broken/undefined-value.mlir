// expect 1: error: use of undeclared SSA value name
func.func @f(%x: tensor<f32>) -> tensor<f32> {
  return %y : tensor<f32>
}
