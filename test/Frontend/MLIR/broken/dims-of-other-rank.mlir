// expect 1: found refold.dims of argument 0 to be ["m"], expected 2 strings
func.func @f(%x: tensor<2x3xf32> {refold.dims = ["m"]}) -> tensor<2x3xf32> {
  return %x : tensor<2x3xf32>
}
