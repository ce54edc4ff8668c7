// expect 4: found argument 0 of type 'tensor<*xf32>', expected a ranked tensor
func.func @f(%x: tensor<*xf32>) -> tensor<*xf32> {
  return %x : tensor<*xf32>
}
