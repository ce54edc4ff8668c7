// expect 4: found 2 functions, expected 1
func.func private @g(tensor<f32>) -> tensor<f32>
func.func @f(%x: tensor<f32>) -> tensor<f32> {
  %y = call @g(%x) : (tensor<f32>) -> tensor<f32>
  return %y : tensor<f32>
}
