// expect 1: error: Dialect `foo' not found
func.func @f(%x: tensor<f32>) -> tensor<f32> {
  foo.bar %x : tensor<f32>
  return %x : tensor<f32>
}
