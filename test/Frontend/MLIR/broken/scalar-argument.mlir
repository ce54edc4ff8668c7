// expect 4: found argument 0 of type 'f32', expected a ranked tensor
func.func @f(%x: f32) -> tensor<f32> {
  %y = tensor.empty() : tensor<f32>
  return %y : tensor<f32>
}
