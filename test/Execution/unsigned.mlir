// Maxima and minima of unsigned numbers, in a cascade: bytes and words above the largest signed number count as
// large, whatever the sign of the type that holds them; 37 elements, so that lanes beyond the end do not count.

// RUN: rm -rf %t && mkdir %t
// RUN: refold run %s --seed 5 --input a=uniform(-128,128) --input b=uniform(-2e9,2e9) --outputs-to %t/code.npz
// RUN: refold run %s --seed 5 --input a=uniform(-128,128) --input b=uniform(-2e9,2e9) --outputs-to %t/judge.npz --reference
// RUN: cmp %t/code.npz %t/judge.npz
// RUN: refold explain %s | FileCheck %s

// What compares with the result sees the number that the type holds, and has to wait for it.
// CHECK: cut, 2 reductions over {{.*}} in 2 passes
// CHECK:   pass 0  {{.*}} = max
// CHECK:   pass 1  {{.*}} = sum
// CHECK: [mixed-compare]
// CHECK: 1 cascade, 0 fused; 2 kernels

#id = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
func.func @unsigned(%a: tensor<5x37xi8> {refold.name = "a"}, %b: tensor<5x37xi32> {refold.name = "b"})
    -> (tensor<5xi8>, tensor<5xf32>, tensor<5xi32>) {
  %zero8 = arith.constant 0 : i8
  %most = arith.constant -1 : i32
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %e8 = tensor.empty() : tensor<5xi8>
  %e32 = tensor.empty() : tensor<5xi32>
  %ef = tensor.empty() : tensor<5xf32>
  %start8 = linalg.fill ins(%zero8 : i8) outs(%e8 : tensor<5xi8>) -> tensor<5xi8>
  %start32 = linalg.fill ins(%most : i32) outs(%e32 : tensor<5xi32>) -> tensor<5xi32>
  %startf = linalg.fill ins(%zero : f32) outs(%ef : tensor<5xf32>) -> tensor<5xf32>
  %largest = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<5x37xi8>) outs(%start8 : tensor<5xi8>) {
  ^bb0(%x: i8, %acc: i8):
    %m = arith.maxui %acc, %x : i8
    linalg.yield %m : i8
  } -> tensor<5xi8>
  %ties = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]}
      ins(%a, %largest : tensor<5x37xi8>, tensor<5xi8>) outs(%startf : tensor<5xf32>) {
  ^bb0(%x: i8, %m: i8, %acc: f32):
    %is = arith.cmpi eq, %x, %m : i8
    %c = arith.select %is, %one, %zero : f32
    %s = arith.addf %acc, %c : f32
    linalg.yield %s : f32
  } -> tensor<5xf32>
  %smallest = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%b : tensor<5x37xi32>) outs(%start32 : tensor<5xi32>) {
  ^bb0(%x: i32, %acc: i32):
    %m = arith.minui %x, %acc : i32
    linalg.yield %m : i32
  } -> tensor<5xi32>
  return %largest, %ties, %smallest : tensor<5xi8>, tensor<5xf32>, tensor<5xi32>
}
