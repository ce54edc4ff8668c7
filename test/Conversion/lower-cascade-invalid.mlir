// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// RUN: %refold-opt %s -split-input-file -verify-diagnostics -refold-lower-cascade

func.func @tensors(%A: tensor<4xf32>, %O: tensor<4xf32>) {
  // expected-error @below {{walk takes memrefs; bufferise first}}
  %r = refold.cascade rows(%i = 4) ins(%a = %A : tensor<4xf32>) outs(%o = %O : tensor<4xf32>) {
    %x = refold.read %a[%i] : f32
    refold.write %x, %o[%i] : f32
  }
  return
}

// -----

func.func @order(%A: memref<4xf32>, %O: memref<4xf32>) {
  // expected-error @below {{operands must be the arguments of the kernel, in order}}
  refold.cascade rows(%i = 4) ins(%a = %O : memref<4xf32>) outs(%o = %A : memref<4xf32>) {
    %x = refold.read %a[%i] : f32
    refold.write %x, %o[%i] : f32
  }
  return
}

// -----

func.func @schedule(%A: memref<4xf32>, %O: memref<4xf32>) {
  // expected-error @below {{schedule has tile 0 : i64 of 'i'; expected 1 to 1048576}}
  refold.cascade rows(%i = 4) ins(%a = %A : memref<4xf32>) outs(%o = %O : memref<4xf32>)
      schedule {tile = {i = 0}} {
    %x = refold.read %a[%i] : f32
    refold.write %x, %o[%i] : f32
  }
  return
}

// -----

func.func @field(%A: memref<4xf32>, %O: memref<4xf32>) {
  // expected-error @below {{schedule has 'warps' = 4 : i64; expected tile, register, unroll}}
  refold.cascade rows(%i = 4) ins(%a = %A : memref<4xf32>) outs(%o = %O : memref<4xf32>)
      schedule {warps = 4} {
    %x = refold.read %a[%i] : f32
    refold.write %x, %o[%i] : f32
  }
  return
}

// -----

func.func @ranked(%A: memref<4x9x3xf32>, %K: memref<4x2x3xf32>) {
  refold.cascade rows(%i = 4) stream(%j = 9) carried(%r = 2, %e = 3)
      ins(%a = %A : memref<4x9x3xf32>) outs(%k = %K : memref<4x2x3xf32>) {
    %x = refold.read %a[%i, %j, %e] : f32
    // expected-error @below {{has carried indices {e} besides its rank; expected rows}}
    %t = refold.state topk(%x : f32) rank(%r)
    refold.write %t, %k[%i, %r, %e] : f32
  }
  return
}
