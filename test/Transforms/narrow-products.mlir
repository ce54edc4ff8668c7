// What products of f32 read is rounded, as if the program said so: a computed
// array once, so that its other reader reads it rounded too; a weight, stored
// so; not a weight that f16 has no number for, and not what one product of two
// computed arrays makes for the next.
// RUN: refold compile --emit program --multiply f16 %s 2>&1 | FileCheck %s
// RUN: refold compile --emit program --multiply bf16 %s 2>&1 | FileCheck %s --check-prefix=BRAIN
// RUN: refold compile --emit program %s 2>&1 | FileCheck %s --check-prefix=AS-WRITTEN

// CHECK: remark: 4 products read f16; 1 constants are stored so, {{[0-9]+}} B instead of 128 B; 1 stay f32, which it has no numbers for
// BRAIN: remark: 4 products read bf16; 2 constants are stored so, 64 B instead of 128 B
// BRAIN-NOT: stay f32
// AS-WRITTEN-NOT: f16

// CHECK: func.func @products(%[[X:.*]]: tensor<?x4xf32> {{.*}} %[[K:.*]]: tensor<4x?xf32> {{.*}} %[[V:.*]]: tensor<?x4xf32>
// CHECK-DAG: %[[V16:.*]] = linalg.generic {{.*}} ins(%[[V]] : tensor<?x4xf32>) outs({{.*}}f16>)
// CHECK-DAG: %[[K16:.*]] = linalg.generic {{.*}} ins(%[[K]] : tensor<4x?xf32>) outs({{.*}}f16>)
// CHECK-DAG: %[[X16:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<?x4xf32>) outs({{.*}}f16>)
// CHECK-DAG: %[[READ:.*]] = linalg.generic {{.*}} ins(%[[X16]] : tensor<?x4xf16>) outs({{.*}}f32>)
// CHECK-DAG: %[[W:.*]] = arith.constant dense_resource<narrow{{.*}}> : tensor<4x4xf16>
// CHECK-DAG: %[[LARGE:.*]] = arith.constant dense<1.000000e+05> : tensor<4x4xf32>
// CHECK: %[[A:.*]] = linalg.generic {{.*}} ins(%[[X16]], %[[W]] : tensor<?x4xf16>, tensor<4x4xf16>)
// CHECK: linalg.generic {{.*}} ins(%[[X16]], %[[LARGE]] : tensor<?x4xf16>, tensor<4x4xf32>)
// CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%[[X16]], %[[K16]] : tensor<?x4xf16>, tensor<4x?xf16>)
// CHECK: linalg.generic {{.*}} ins(%[[S]], %[[V16]] : tensor<?x?xf32>, tensor<?x4xf16>)
// CHECK: linalg.add ins(%[[READ]], %[[A]] : tensor<?x4xf32>, tensor<?x4xf32>)

func.func @products(%x: tensor<?x4xf32>, %k: tensor<4x?xf32>, %v: tensor<?x4xf32>)
    -> (tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>) {
  %weight = arith.constant dense<1.5> : tensor<4x4xf32>
  %large = arith.constant dense<100000.0> : tensor<4x4xf32>
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x4xf32>
  %n = tensor.dim %k, %c1 : tensor<4x?xf32>
  %wide = tensor.empty(%m) : tensor<?x4xf32>
  %sums = linalg.fill ins(%zero : f32) outs(%wide : tensor<?x4xf32>) -> tensor<?x4xf32>
  %square = tensor.empty(%m, %n) : tensor<?x?xf32>
  %scores0 = linalg.fill ins(%zero : f32) outs(%square : tensor<?x?xf32>) -> tensor<?x?xf32>
  %a = linalg.matmul ins(%x, %weight : tensor<?x4xf32>, tensor<4x4xf32>) outs(%sums : tensor<?x4xf32>) -> tensor<?x4xf32>
  %b = linalg.matmul ins(%x, %large : tensor<?x4xf32>, tensor<4x4xf32>) outs(%sums : tensor<?x4xf32>) -> tensor<?x4xf32>
  %s = linalg.matmul ins(%x, %k : tensor<?x4xf32>, tensor<4x?xf32>) outs(%scores0 : tensor<?x?xf32>) -> tensor<?x?xf32>
  %o = linalg.matmul ins(%s, %v : tensor<?x?xf32>, tensor<?x4xf32>) outs(%sums : tensor<?x4xf32>) -> tensor<?x4xf32>
  %r = linalg.add ins(%x, %a : tensor<?x4xf32>, tensor<?x4xf32>) outs(%wide : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %r, %b, %o : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>
}
