// expect 4: found a private function, expected a public function with a body
func.func private @f(tensor<f32>) -> tensor<f32>
