// RUN: %refold-opt %s -refold-lower-math | %FileCheck %s

// A full vector of AVX-512: a root of 2 from a register and one scalef, no branch
// for overflow. The argument is bounded below, so that -inf gives 0 and not NaN;
// above, what is scaled has to be positive.

// CHECK-LABEL: func.func @exp_of_full_vector(
// CHECK-SAME:    %[[X:.*]]: vector<16xf32>
// CHECK-DAG:     %[[LOWEST:.*]] = arith.constant dense<-1.040000e+02> : vector<16xf32>
// CHECK:         %[[ABOVE:.*]] = arith.cmpf ogt, %[[LOWEST]], %[[X]]
// CHECK:         %[[BOUNDED:.*]] = arith.select %[[ABOVE]], %[[LOWEST]], %[[X]]
// CHECK:         %[[SHIFTED:.*]] = math.fma %[[BOUNDED]],
// CHECK:         %[[N:.*]] = arith.subf %[[SHIFTED]],
// CHECK-NOT:     math.exp
// CHECK:         %[[BITS:.*]] = arith.bitcast %[[SHIFTED]]
// CHECK:         %[[ROOT:.*]] = llvm.call_intrinsic "llvm.x86.avx512.permvar.sf.512"(%{{.*}}, %[[BITS]])
// CHECK:         %[[P:.*]] = math.fma %[[ROOT]], %{{.*}}, %[[ROOT]]
// CHECK:         %[[POSITIVE:.*]] = math.absf %[[P]]
// CHECK:         llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"(%[[POSITIVE]], %[[N]],
func.func @exp_of_full_vector(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.exp %x : vector<16xf32>
  return %y : vector<16xf32>
}

// A number is the first lane of such a vector.

// CHECK-LABEL: func.func @exp_of_scalar(
// CHECK:         %[[ALL:.*]] = vector.broadcast %{{.*}} : f32 to vector<16xf32>
// CHECK:         %[[EXP:.*]] = llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"
// CHECK:         %[[FIRST:.*]] = vector.extract %[[EXP]][0]
// CHECK:         return %[[FIRST]]
func.func @exp_of_scalar(%x: f32) -> f32 {
  %y = math.exp %x : f32
  return %y : f32
}

// Every other width: two factors, and a factor of 0 in the place of underflow.

// CHECK-LABEL: func.func @exp_of_half_vector(
// CHECK-SAME:    %[[X:.*]]: vector<8xf32>
// CHECK-DAG:     %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : vector<8xf32>
// CHECK-DAG:     %[[LOWEST:.*]] = arith.constant dense<-1.040000e+02> : vector<8xf32>
// CHECK-NOT:     llvm.call_intrinsic
// CHECK:         %[[IS_ZERO:.*]] = arith.cmpf olt, %[[X]], %[[LOWEST]]
// CHECK:         arith.select %[[IS_ZERO]], %[[ZERO]],
// CHECK:         return
func.func @exp_of_half_vector(%x: vector<8xf32>) -> vector<8xf32> {
  %y = math.exp %x : vector<8xf32>
  return %y : vector<8xf32>
}

// Not log(1 + x), which has no digits near 0.

// CHECK-LABEL: func.func @log1p_is_libms(
// CHECK:         call @log1pf
// CHECK-NOT:     math.log
// CHECK:         return
func.func @log1p_is_libms(%x: f32) -> f32 {
  %y = math.log1p %x : f32
  return %y : f32
}

// What is one instruction stays.

// CHECK-LABEL: func.func @instructions_stay(
// CHECK:         math.sqrt
// CHECK:         math.fma
// CHECK:         math.roundeven
func.func @instructions_stay(%x: vector<16xf32>) -> vector<16xf32> {
  %a = math.sqrt %x : vector<16xf32>
  %b = math.fma %a, %x, %x : vector<16xf32>
  %c = math.roundeven %b : vector<16xf32>
  return %c : vector<16xf32>
}

// Bytes of rounded numbers: one conversion rounds, and takes NaN as 0 by its mask.

// CHECK-LABEL: func.func @rounded_bytes(
// CHECK-SAME:    %[[X:.*]]: vector<16xf32>
// CHECK-NOT:     math.roundeven
// CHECK-DAG:     %[[ISLOW:.*]] = arith.cmpf olt, %[[X]], %[[HIGHEST:.*]] : vector<16xf32>
// CHECK-DAG:     %[[LOW:.*]] = arith.select %[[ISLOW]], %[[X]], %[[HIGHEST]]
// CHECK-DAG:     %[[NUMBER:.*]] = arith.cmpf ord, %[[X]], %[[X]]
// CHECK:         llvm.call_intrinsic "llvm.x86.avx512.mask.cvtps2dq.512"(%[[LOW]],
// CHECK:         arith.maxsi
// CHECK:         arith.minsi
// CHECK:         arith.trunci
func.func @rounded_bytes(%x: vector<16xf32>) -> vector<16xi8> {
  %zero = arith.constant dense<0.0> : vector<16xf32>
  %lowest = arith.constant dense<-128.0> : vector<16xf32>
  %highest = arith.constant dense<127.0> : vector<16xf32>
  %rounded = math.roundeven %x : vector<16xf32>
  %nan = arith.cmpf uno, %rounded, %rounded : vector<16xf32>
  %number = arith.select %nan, %zero, %rounded : vector<16xi1>, vector<16xf32>
  %above = arith.maximumf %number, %lowest : vector<16xf32>
  %between = arith.minimumf %above, %highest : vector<16xf32>
  %q = arith.fptosi %between : vector<16xf32> to vector<16xi8>
  return %q : vector<16xi8>
}

// Truncated ones are not rounded.

// CHECK-LABEL: func.func @truncated_bytes(
// CHECK-NOT:     llvm.call_intrinsic
// CHECK:         arith.fptosi
func.func @truncated_bytes(%x: vector<16xf32>) -> vector<16xi8> {
  %zero = arith.constant dense<0.0> : vector<16xf32>
  %lowest = arith.constant dense<-128.0> : vector<16xf32>
  %highest = arith.constant dense<127.0> : vector<16xf32>
  %nan = arith.cmpf uno, %x, %x : vector<16xf32>
  %number = arith.select %nan, %zero, %x : vector<16xi1>, vector<16xf32>
  %above = arith.maximumf %number, %lowest : vector<16xf32>
  %between = arith.minimumf %above, %highest : vector<16xf32>
  %q = arith.fptosi %between : vector<16xf32> to vector<16xi8>
  return %q : vector<16xi8>
}
