// RUN: refold verify %s --shape t=9,n=3 --first-seeds 1 --seeds 1
// RUN: refold verify %s --shape t=19,n=40 --first-seeds 1 --seeds 1
// RUN: refold run %s --shape t=1,n=1 | FileCheck %s
// Lists of bytes: places that no element takes have the least byte, the largest where the least are wanted.
// CHECK: most: i8[1, 8], from -128 to
// CHECK: least: i8[1, 8], from {{.*}} to 127:
func.func @bytes(%x: tensor<?x?xi8> {refold.dims = ["t", "n"], refold.name = "x"})
    -> (tensor<?x8xi8> {refold.dims = ["t", "r"], refold.name = "most"}, tensor<?x8xi32> {refold.dims = ["t", "r"], refold.name = "i"},
        tensor<?x8xi8> {refold.dims = ["t", "r"], refold.name = "least"}, tensor<?x8xi32> {refold.dims = ["t", "r"], refold.name = "j"}) {
  %v, %i = refold.topk %x dim(1) k(8) largest(true) : tensor<?x?xi8> -> tensor<?x8xi8>, tensor<?x8xi32>
  %w, %j = refold.topk %x dim(1) k(8) largest(false) : tensor<?x?xi8> -> tensor<?x8xi8>, tensor<?x8xi32>
  return %v, %i, %w, %j : tensor<?x8xi8>, tensor<?x8xi32>, tensor<?x8xi8>, tensor<?x8xi32>
}
