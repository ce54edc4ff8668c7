// Integers in code as in the judge, bit by bit: what truncates, what is unsigned, what wraps at 8 bits; 37
// elements, so that lanes beyond the end divide by 0.

// RUN: rm -rf %t && mkdir %t
// RUN: refold run %s --seed 5 --input a=uniform(-128,128) --input b=uniform(-128,128) --input p=uniform(-1e6,1e6) --input q=uniform(-9,9) --input x=uniform(-50,50) --input y=uniform(-3,3) --outputs-to %t/code.npz
// RUN: refold run %s --seed 5 --input a=uniform(-128,128) --input b=uniform(-128,128) --input p=uniform(-1e6,1e6) --input q=uniform(-9,9) --input x=uniform(-50,50) --input y=uniform(-3,3) --outputs-to %t/judge.npz --reference
// RUN: cmp %t/code.npz %t/judge.npz

// A number of another seed is seen.
// RUN: refold run %s --seed 6 --input a=uniform(-128,128) --input b=uniform(-128,128) --input p=uniform(-1e6,1e6) --input q=uniform(-9,9) --input x=uniform(-50,50) --input y=uniform(-3,3) --outputs-to %t/other.npz
// RUN: not cmp %t/code.npz %t/other.npz

#id = affine_map<(n) -> (n)>
func.func @integers(%a: tensor<37xi8> {refold.name = "a"}, %b: tensor<37xi8> {refold.name = "b"},
                    %p: tensor<37xi32> {refold.name = "p"}, %q: tensor<37xi32> {refold.name = "q"},
                    %x: tensor<37xf32> {refold.name = "x"}, %y: tensor<37xf32> {refold.name = "y"})
    -> (tensor<37xi8>, tensor<37xi32>, tensor<37xi32>, tensor<37xi32>, tensor<37xf32>) {
  %zero8 = arith.constant 0 : i8
  %one8 = arith.constant 1 : i8
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %e8 = tensor.empty() : tensor<37xi8>
  %e32 = tensor.empty() : tensor<37xi32>
  %ef = tensor.empty() : tensor<37xf32>
  // Sum, product and difference wrap before they are divided and compared.
  %short = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%a, %b : tensor<37xi8>, tensor<37xi8>) outs(%e8 : tensor<37xi8>) {
  ^bb0(%u: i8, %v: i8, %o: i8):
    %isZero = arith.cmpi eq, %v, %zero8 : i8
    %d = arith.select %isZero, %one8, %v : i8
    %sum = arith.addi %u, %v : i8
    %product = arith.muli %u, %v : i8
    %quotient = arith.divui %sum, %d : i8
    %rest = arith.remui %product, %d : i8
    %larger = arith.maxui %quotient, %rest : i8
    %smaller = arith.minui %quotient, %rest : i8
    %isBelow = arith.cmpi ult, %u, %v : i8
    %isAbove = arith.cmpi uge, %sum, %product : i8
    %either = arith.select %isBelow, %larger, %smaller : i8
    %whole = arith.select %isAbove, %either, %d : i8
    linalg.yield %whole : i8
  } -> tensor<37xi8>
  %cut = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%p, %q : tensor<37xi32>, tensor<37xi32>) outs(%e32 : tensor<37xi32>) {
  ^bb0(%u: i32, %v: i32, %o: i32):
    %isZero = arith.cmpi eq, %v, %zero : i32
    %d = arith.select %isZero, %one, %v : i32
    %down = arith.divsi %u, %d : i32
    %rest = arith.remsi %u, %d : i32
    %up = arith.ceildivsi %u, %d : i32
    %low = arith.floordivsi %u, %d : i32
    %t0 = arith.muli %down, %rest : i32
    %t1 = arith.subi %up, %low : i32
    %t2 = arith.addi %t0, %t1 : i32
    linalg.yield %t2 : i32
  } -> tensor<37xi32>
  %high = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%p, %q : tensor<37xi32>, tensor<37xi32>) outs(%e32 : tensor<37xi32>) {
  ^bb0(%u: i32, %v: i32, %o: i32):
    %isZero = arith.cmpi eq, %v, %zero : i32
    %d = arith.select %isZero, %one, %v : i32
    %quotient = arith.divui %u, %d : i32
    %rest = arith.remui %u, %d : i32
    %isBelow = arith.cmpi ugt, %quotient, %rest : i32
    %larger = arith.select %isBelow, %quotient, %rest : i32
    linalg.yield %larger : i32
  } -> tensor<37xi32>
  // Unsigned bytes as numbers, and back.
  %wide = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%a, %b : tensor<37xi8>, tensor<37xi8>) outs(%e32 : tensor<37xi32>) {
  ^bb0(%u: i8, %v: i8, %o: i32):
    %number = arith.extui %u : i8 to i32
    %real = arith.uitofp %v : i8 to f32
    %byte = arith.fptoui %real : f32 to i8
    %again = arith.extui %byte : i8 to i32
    %sum = arith.addi %number, %again : i32
    linalg.yield %sum : i32
  } -> tensor<37xi32>
  %rest = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<37xf32>, tensor<37xf32>) outs(%ef : tensor<37xf32>) {
  ^bb0(%u: f32, %v: f32, %o: f32):
    %r = arith.remf %u, %v : f32
    linalg.yield %r : f32
  } -> tensor<37xf32>
  return %short, %cut, %high, %wide, %rest : tensor<37xi8>, tensor<37xi32>, tensor<37xi32>, tensor<37xi32>, tensor<37xf32>
}
