// expect 1: found the end of the file, expected '}'
func.func @f() {
  return
