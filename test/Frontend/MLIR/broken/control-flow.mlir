// expect 4: found 'cf.br', expected ops of linalg
func.func @f(%x: tensor<f32>) -> tensor<f32> {
  cf.br ^end
^end:
  return %x : tensor<f32>
}
