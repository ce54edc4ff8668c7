// expect 4: found argument 0 of type 'tensor<2xindex>', expected a ranked tensor of floats
func.func @f(%x: tensor<2xindex>) -> tensor<2xindex> {
  return %x : tensor<2xindex>
}
