// expect 1: found 4 bytes in the resource 'w', expected 8
func.func @f() -> tensor<2xf32> {
  %w = arith.constant dense_resource<w> : tensor<2xf32>
  return %w : tensor<2xf32>
}
{-#
  dialect_resources: {
    builtin: {
      w: "0x0400000000000000"
    }
  }
#-}
