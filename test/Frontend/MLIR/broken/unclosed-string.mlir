// expect 1: found a string without end
func.func @f() attributes {a = "b} {
  return
}
