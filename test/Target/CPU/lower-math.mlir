// RUN: %refold-opt %s -refold-lower-math -canonicalize | %FileCheck %s

// A full vector of AVX-512: a root of 2 from a register and one scalef, no branch
// for overflow. What is left of the argument is bounded, a NaN from below, so
// that what is scaled is positive and finite: -inf gives 0 and not NaN, and
// nothing underflows.

// CHECK-LABEL: func.func @exp_of_full_vector(
// CHECK-SAME:    %[[X:.*]]: vector<16xf32>
// CHECK-DAG:     %[[LOWEST:.*]] = arith.constant dense<-3.125000e-02> : vector<16xf32>
// CHECK-DAG:     %[[HIGHEST:.*]] = arith.constant dense<3.125000e-02> : vector<16xf32>
// CHECK:         %[[SHIFTED:.*]] = math.fma %[[X]],
// CHECK:         %[[N:.*]] = arith.subf %[[SHIFTED]],
// CHECK:         %[[MOST:.*]] = math.fma %[[N]], %{{.*}}, %[[X]]
// CHECK-NEXT:    %[[LEFT:.*]] = math.fma %[[N]], %{{.*}}, %[[MOST]]
// CHECK-NEXT:    %[[IS_ABOVE:.*]] = arith.cmpf ogt, %[[LEFT]], %[[LOWEST]]
// CHECK-NEXT:    %[[ABOVE:.*]] = arith.select %[[IS_ABOVE]], %[[LEFT]], %[[LOWEST]]
// CHECK-NEXT:    %[[IS_BELOW:.*]] = arith.cmpf olt, %[[HIGHEST]], %[[ABOVE]]
// CHECK-NEXT:    arith.select %[[IS_BELOW]], %[[HIGHEST]], %[[ABOVE]]
// CHECK-NOT:     math.exp
// CHECK:         %[[BITS:.*]] = arith.bitcast %[[SHIFTED]]
// CHECK:         %[[ROOT:.*]] = llvm.call_intrinsic "llvm.x86.avx512.permvar.sf.512"(%{{.*}}, %[[BITS]])
// CHECK:         %[[P:.*]] = math.fma %[[ROOT]], %{{.*}}, %[[ROOT]]
// CHECK-NEXT:    llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"(%[[P]], %[[N]],
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

// A scale by 1/8 and the difference behind it are one step of an exponent;
// one that is rounded to 16 bits later takes what lies above the next lower whole
// number.

// CHECK-LABEL: func.func @scaled_exponent(
// CHECK-SAME:    %[[X:.*]]: vector<16xf32>, %[[PIVOT:.*]]: vector<16xf32>
// CHECK-DAG:     %[[SCALE:.*]] = arith.constant dense<1.250000e-01>
// CHECK-DAG:     %[[DOWN:.*]] = arith.constant 9 : i32
// CHECK:         %[[LESS:.*]] = arith.negf %[[PIVOT]]
// CHECK-NEXT:    %[[DIFFERENCE:.*]] = math.fma %[[X]], %[[SCALE]], %[[LESS]]
// CHECK-NEXT:    %[[EXPONENT:.*]] = arith.mulf %[[DIFFERENCE]],
// CHECK-NEXT:    llvm.call_intrinsic "llvm.x86.avx512.mask.reduce.ps.512"(%[[EXPONENT]], %[[DOWN]],
// CHECK-COUNT-4: math.fma
// CHECK-NEXT:    llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"(%{{.*}}, %[[EXPONENT]],
func.func @scaled_exponent(%x: vector<16xf32>, %pivot: vector<16xf32>) -> vector<16xf32> {
  %scale = arith.constant dense<1.250000e-01> : vector<16xf32>
  %log2e = arith.constant dense<1.44269502> : vector<16xf32>
  %scaled = arith.mulf %x, %scale : vector<16xf32>
  %difference = arith.subf %scaled, %pivot : vector<16xf32>
  %exponent = arith.mulf %difference, %log2e : vector<16xf32>
  %y = math.exp2 %exponent fastmath<contract,afn> : vector<16xf32>
  return %y : vector<16xf32>
}

// Not where the product is rounded, may become infinite, is read by others, or is
// no exponent's.

// CHECK-LABEL: func.func @scales_that_stay(
// CHECK-SAME:    %[[X:.*]]: vector<16xf32>, %[[PIVOT:.*]]: vector<16xf32>
// CHECK:         %[[ROUNDED:.*]] = arith.mulf %[[X]],
// CHECK-NEXT:    arith.subf %[[ROUNDED]], %[[PIVOT]]
// CHECK:         %[[DOUBLED:.*]] = arith.mulf %[[X]],
// CHECK-NEXT:    arith.subf %[[DOUBLED]], %[[PIVOT]]
// CHECK:         %[[HALVED:.*]] = arith.mulf %[[X]],
// CHECK-NEXT:    arith.subf %[[HALVED]], %[[PIVOT]]
// CHECK:         %[[OTHER:.*]] = arith.mulf %[[PIVOT]],
// CHECK-NEXT:    arith.subf %[[OTHER]], %[[X]]
func.func @scales_that_stay(%x: vector<16xf32>, %pivot: vector<16xf32>) -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>) {
  %root = arith.constant dense<0.0883883461> : vector<16xf32>
  %rounded = arith.mulf %x, %root : vector<16xf32>
  %d = arith.subf %rounded, %pivot : vector<16xf32>
  %weight = math.exp %d : vector<16xf32>
  %half = arith.constant dense<5.000000e-01> : vector<16xf32>
  %two = arith.constant dense<2.000000e+00> : vector<16xf32>
  %doubled = arith.mulf %x, %two : vector<16xf32>
  %a = arith.subf %doubled, %pivot : vector<16xf32>
  %grows = math.exp %a : vector<16xf32>
  %halved = arith.mulf %x, %half : vector<16xf32>
  %b = arith.subf %halved, %pivot : vector<16xf32>
  %shared = math.exp %b : vector<16xf32>
  %other = arith.mulf %pivot, %half : vector<16xf32>
  %c = arith.subf %other, %x : vector<16xf32>
  return %weight, %grows, %shared, %halved, %c : vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>
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

// Not log(1 + x), which has no digits near 0, but what the rounding of 1 + x has
// taken too; f64 is libm's.

// CHECK-LABEL: func.func @log1p_by_arithmetic(
// CHECK-SAME:    %[[X:.*]]: vector<16xf32>
// CHECK:         %[[SUM:.*]] = arith.addf %[[X]], %[[ONE:.*]] fastmath<contract>
// CHECK:         %[[ROUNDED:.*]] = arith.subf %[[SUM]], %[[ONE]]
// CHECK:         arith.subf %[[X]], %[[ROUNDED]]
// CHECK-NOT:     call
// CHECK:         return
func.func @log1p_by_arithmetic(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.log1p %x : vector<16xf32>
  return %y : vector<16xf32>
}

// CHECK-LABEL: func.func @log1p_of_f64_is_libms(
// CHECK:         call @log1p(
// CHECK-NOT:     math.log
// CHECK:         return
func.func @log1p_of_f64_is_libms(%x: f64) -> f64 {
  %y = math.log1p %x : f64
  return %y : f64
}

// CHECK-LABEL: func.func @by_arithmetic(
// CHECK-NOT:     call
// CHECK-NOT:     math.expm1
// CHECK-NOT:     math.log2
// CHECK:         return
func.func @by_arithmetic(%x: vector<16xf32>, %z: f64) -> (vector<16xf32>, f64) {
  %a = math.expm1 %x : vector<16xf32>
  %b = math.log2 %a : vector<16xf32>
  %c = math.expm1 %z : f64
  return %b, %c : vector<16xf32>, f64
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

// Four registers of them side by side narrow in two steps, each of which cuts off
// at the ends of its type; then the words of each group of 128 bits are put in order.

// CHECK-LABEL: func.func @packed_bytes(
// CHECK-SAME:    %[[A:.*]]: vector<16xi32>, %[[B:.*]]: vector<16xi32>, %[[C:.*]]: vector<16xi32>, %[[D:.*]]: vector<16xi32>
// CHECK:         %[[LOW:.*]] = llvm.call_intrinsic "llvm.x86.avx512.packssdw.512"(%[[A]], %[[B]])
// CHECK:         %[[HIGH:.*]] = llvm.call_intrinsic "llvm.x86.avx512.packssdw.512"(%[[C]], %[[D]])
// CHECK:         %[[BYTES:.*]] = llvm.call_intrinsic "llvm.x86.avx512.packsswb.512"(%[[LOW]], %[[HIGH]])
// CHECK:         %[[WORDS:.*]] = vector.bitcast %[[BYTES]]
// CHECK:         %[[ORDER:.*]] = vector.shuffle %[[WORDS]], %[[WORDS]] [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]
// CHECK:         vector.bitcast %[[ORDER]]
func.func @packed_bytes(%a: vector<16xi32>, %b: vector<16xi32>, %c: vector<16xi32>, %d: vector<16xi32>) -> vector<64xi8> {
  %lowest = arith.constant dense<-128> : vector<16xi32>
  %highest = arith.constant dense<127> : vector<16xi32>
  %a0 = arith.maxsi %a, %lowest : vector<16xi32>
  %a1 = arith.minsi %a0, %highest : vector<16xi32>
  %a2 = arith.trunci %a1 : vector<16xi32> to vector<16xi8>
  %b0 = arith.maxsi %b, %lowest : vector<16xi32>
  %b1 = arith.minsi %b0, %highest : vector<16xi32>
  %b2 = arith.trunci %b1 : vector<16xi32> to vector<16xi8>
  %c0 = arith.maxsi %c, %lowest : vector<16xi32>
  %c1 = arith.minsi %c0, %highest : vector<16xi32>
  %c2 = arith.trunci %c1 : vector<16xi32> to vector<16xi8>
  %d0 = arith.maxsi %d, %lowest : vector<16xi32>
  %d1 = arith.minsi %d0, %highest : vector<16xi32>
  %d2 = arith.trunci %d1 : vector<16xi32> to vector<16xi8>
  %ab = vector.shuffle %a2, %b2 [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31] : vector<16xi8>, vector<16xi8>
  %cd = vector.shuffle %c2, %d2 [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31] : vector<16xi8>, vector<16xi8>
  %all = vector.shuffle %ab, %cd [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63] : vector<32xi8>, vector<32xi8>
  return %all : vector<64xi8>
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

// A constant divides in a product and an FMA; a power of two in a product. What
// has no reciprocal, or is not known, divides as written.

// CHECK-LABEL: func.func @division_by_three(
// CHECK-SAME:    %[[X:.*]]: vector<16xf32>
// CHECK-DAG:     %[[HIGH:.*]] = arith.constant dense<0.333333313> : vector<16xf32>
// CHECK-DAG:     %[[LOW:.*]] = arith.constant dense<1.98682155E-8> : vector<16xf32>
// CHECK:         %[[REST:.*]] = arith.mulf %[[X]], %[[LOW]]
// CHECK:         %[[Q:.*]] = math.fma %[[X]], %[[HIGH]], %[[REST]]
// CHECK:         return %[[Q]]
func.func @division_by_three(%x: vector<16xf32>) -> vector<16xf32> {
  %three = arith.constant dense<3.0> : vector<16xf32>
  %y = arith.divf %x, %three : vector<16xf32>
  return %y : vector<16xf32>
}

// CHECK-LABEL: func.func @division_by_minus_four(
// CHECK:         arith.mulf %{{.*}}, %{{.*}} : f64
// CHECK-NEXT:    return
func.func @division_by_minus_four(%x: f64) -> f64 {
  %four = arith.constant -4.0 : f64
  %y = arith.divf %x, %four : f64
  return %y : f64
}

// CHECK-LABEL: func.func @division_by_what_has_no_reciprocal(
// CHECK-COUNT-3: arith.divf
func.func @division_by_what_has_no_reciprocal(%x: f32, %d: f32) -> (f32, f32, f32) {
  %zero = arith.constant 0.0 : f32
  %most = arith.constant 3.0e38 : f32
  %a = arith.divf %x, %zero : f32
  %b = arith.divf %x, %most : f32
  %c = arith.divf %x, %d : f32
  return %a, %b, %c : f32, f32, f32
}

// A number that divides a whole loop has its reciprocal made before it, where
// the number is: what is next to 1 / d towards 0, and the rest of it. Quotients
// side by side ask once whether the number is one that has these parts.

// CHECK-LABEL: func.func @division_by_a_number(
// CHECK-SAME:    %[[X:.*]]: memref<?xf32>, %[[D:.*]]: f32,
// CHECK:         %[[ARE_PLAIN:.*]] = arith.andi %{{.*}}, %{{.*}} : i1
// CHECK:         %[[MINUS:.*]] = arith.negf %[[D]]
// CHECK:         %[[NEAREST:.*]] = arith.divf %{{.*}}, %[[D]] : f32
// CHECK:         arith.cmpf ole
// CHECK:         %[[HIGH:.*]] = arith.bitcast %{{.*}} : i32 to f32
// CHECK:         %[[REST:.*]] = math.fma %[[MINUS]], %[[HIGH]], %{{.*}} : f32
// CHECK:         %[[LOW:.*]] = arith.mulf %[[REST]], %[[NEAREST]]
// CHECK-DAG:     %[[ALL:.*]] = vector.broadcast %[[D]]
// CHECK-DAG:     %[[HIGHS:.*]] = vector.broadcast %[[HIGH]]
// CHECK-DAG:     %[[LOWS:.*]] = vector.broadcast %[[LOW]]
// CHECK:         scf.for
// CHECK:           %[[V:.*]] = vector.load %[[X]]
// CHECK:           %[[W:.*]] = vector.load %[[X]]
// CHECK:           %[[BOTH:.*]]:2 = scf.if %[[ARE_PLAIN]]
// CHECK:             %[[PV:.*]] = arith.mulf %[[V]], %[[LOWS]]
// CHECK:             %[[QV:.*]] = math.fma %[[V]], %[[HIGHS]], %[[PV]]
// CHECK:             %[[PW:.*]] = arith.mulf %[[W]], %[[LOWS]]
// CHECK:             %[[QW:.*]] = math.fma %[[W]], %[[HIGHS]], %[[PW]]
// CHECK:             scf.yield %[[QV]], %[[QW]]
// CHECK:           else
// CHECK:             arith.divf %[[V]], %[[ALL]] : vector<16xf32>
// CHECK:             arith.divf %[[W]], %[[ALL]] : vector<16xf32>
// CHECK:           memref.prefetch
// CHECK:           vector.store %[[BOTH]]#0
// CHECK:           %[[LATE:.*]] = vector.load %[[X]]
// CHECK:           %[[ONE:.*]] = scf.if %[[ARE_PLAIN]]
// CHECK:             arith.mulf %[[LATE]], %[[LOWS]]
// CHECK:           %[[SUM:.*]] = arith.addf %[[ONE]], %[[BOTH]]#1
// CHECK:           scf.if %[[ARE_PLAIN]]
// CHECK:             arith.mulf %[[SUM]], %[[LOWS]]
func.func @division_by_a_number(%x: memref<?xf32>, %d: f32, %y: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c48 = arith.constant 48 : index
  %all = vector.broadcast %d : f32 to vector<16xf32>
  scf.for %i = %c0 to %n step %c48 {
    %v = vector.load %x[%i] : memref<?xf32>, vector<16xf32>
    %q = arith.divf %v, %all fastmath<arcp> : vector<16xf32>
    memref.prefetch %x[%i], read, locality<3>, data : memref<?xf32>
    %j = arith.addi %i, %c16 : index
    %w = vector.load %x[%j] : memref<?xf32>, vector<16xf32>
    %r = arith.divf %w, %all fastmath<arcp> : vector<16xf32>
    vector.store %q, %y[%i] : memref<?xf32>, vector<16xf32>
    // Behind a store, and of quotients.
    %k = arith.addi %j, %c16 : index
    %late = vector.load %x[%k] : memref<?xf32>, vector<16xf32>
    %s = arith.divf %late, %all fastmath<arcp> : vector<16xf32>
    %sum = arith.addf %s, %r : vector<16xf32>
    %t = arith.divf %sum, %all fastmath<arcp> : vector<16xf32>
    vector.store %t, %y[%j] : memref<?xf32>, vector<16xf32>
  }
  return
}

// Numbers of the lanes have parts where all of them do.

// CHECK-LABEL: func.func @division_by_numbers_of_lanes(
// CHECK:         %[[ALL:.*]] = vector.reduction <and>, %{{.*}} : vector<16xi1> into i1
// CHECK:         scf.for
// CHECK:           scf.if %[[ALL]]
func.func @division_by_numbers_of_lanes(%x: memref<?xf32>, %d: vector<16xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  scf.for %i = %c0 to %n step %c16 {
    %v = vector.load %x[%i] : memref<?xf32>, vector<16xf32>
    %q = arith.divf %v, %d fastmath<arcp> : vector<16xf32>
    vector.store %q, %x[%i] : memref<?xf32>, vector<16xf32>
  }
  return
}
