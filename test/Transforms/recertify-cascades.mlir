// RUN: %refold-opt %s -split-input-file -verify-diagnostics --pass-pipeline='builtin.module(func.func(refold-recertify-cascades))' -o /dev/null

func.func @right(%X: tensor<?x?xf32>, %L: tensor<?xf32>) -> tensor<?xf32> {
  // expected-remark @below {{certificate holds}}
  %r = refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : tensor<?x?xf32>) outs(%l = %L : tensor<?xf32>) {
    %lowest = arith.constant -3.40282347E+38 : f32
    %xv = refold.read %x[%i, %j] : f32
    %mx = refold.state max(%xv : f32)
    %g = arith.maxnumf %mx, %lowest : f32
    %u = arith.subf %xv, %g : f32
    %p = math.exp %u : f32
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %d = arith.subf %old, %new : f32
      %f = math.exp %d : f32
      %m = arith.mulf %self, %f : f32
      refold.yield %m : f32
    }
    refold.write %z, %l[%i] : f32
  }
  return %r : tensor<?xf32>
}

// -----

// The difference is turned round.
func.func @wrong(%X: tensor<?x?xf32>, %L: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error @below {{certificate fails}}
  %r = refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : tensor<?x?xf32>) outs(%l = %L : tensor<?xf32>) {
    %lowest = arith.constant -3.40282347E+38 : f32
    %xv = refold.read %x[%i, %j] : f32
    %mx = refold.state max(%xv : f32)
    %g = arith.maxnumf %mx, %lowest : f32
    %u = arith.subf %xv, %g : f32
    %p = math.exp %u : f32
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %d = arith.subf %new, %old : f32
      %f = math.exp %d : f32
      %m = arith.mulf %self, %f : f32
      refold.yield %m : f32
    }
    refold.write %z, %l[%i] : f32
  }
  return %r : tensor<?xf32>
}
