// expect 4: found an op in the generic form, expected the custom form
func.func @f(%x: tensor<f32>) -> tensor<f32> {
  "func.return"(%x) : (tensor<f32>) -> ()
}
