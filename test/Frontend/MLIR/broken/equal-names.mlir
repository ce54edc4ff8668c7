// expect 1: found two arguments of the name 'x'
func.func @f(%x: tensor<f32> {refold.name = "x"}, %y: tensor<f32> {refold.name = "x"}) -> tensor<f32> {
  return %x : tensor<f32>
}
