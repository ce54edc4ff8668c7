// expect 4: found 2 blocks in 'func.func', expected 1
func.func @f(%x: tensor<f32>) -> tensor<f32> {
  cf.br ^end
^end:
  return %x : tensor<f32>
}
