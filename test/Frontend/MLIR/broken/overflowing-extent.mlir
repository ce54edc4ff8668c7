// expect 5: found a shape of more than 2^48 elements
func.func @f(%x: tensor<99999999999999999999xf32>) -> tensor<99999999999999999999xf32> {
  return %x : tensor<99999999999999999999xf32>
}
