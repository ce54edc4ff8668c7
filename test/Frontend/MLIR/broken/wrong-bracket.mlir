// expect 1: found ')', expected '}'
func.func @f() {
  return
)
