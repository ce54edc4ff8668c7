// expect 4: found elements of type 'i7', expected f64 f32 f16
func.func @f(%x: tensor<2xi7>) -> tensor<2xi7> {
  return %x : tensor<2xi7>
}
