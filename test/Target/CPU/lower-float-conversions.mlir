// RUN: %refold-opt %s -refold-lower-float-conversions -canonicalize | %FileCheck %s

// bf16 is the upper half of f32.

// CHECK-LABEL: func.func @extend_bf16(
// CHECK-SAME:    %[[X:.*]]: vector<8xbf16>
// CHECK-DAG:     %[[SIXTEEN:.*]] = arith.constant dense<16> : vector<8xi32>
// CHECK:         %[[BITS:.*]] = arith.bitcast %[[X]] : vector<8xbf16> to vector<8xi16>
// CHECK:         %[[WIDE:.*]] = arith.extui %[[BITS]]
// CHECK:         %[[UPPER:.*]] = arith.shli %[[WIDE]], %[[SIXTEEN]]
// CHECK:         %[[Y:.*]] = arith.bitcast %[[UPPER]] : vector<8xi32> to vector<8xf32>
// CHECK:         return %[[Y]]
func.func @extend_bf16(%x: vector<8xbf16>) -> vector<8xf32> {
  %y = arith.extf %x : vector<8xbf16> to vector<8xf32>
  return %y : vector<8xf32>
}

// Half of the last place is added, one less where that place is even; NaN stays
// one.

// CHECK-LABEL: func.func @round_to_bf16(
// CHECK-DAG:     %[[HALF:.*]] = arith.constant 32767 : i32
// CHECK-DAG:     %[[NAN:.*]] = arith.constant 32704 : i32
// CHECK:         arith.addi %{{.*}}, %[[HALF]] : i32
// CHECK:         %[[QUIET:.*]] = arith.ori %{{.*}}, %[[NAN]] : i32
// CHECK:         %[[IS:.*]] = arith.cmpf uno,
// CHECK:         arith.select %[[IS]], %[[QUIET]],
// CHECK-NOT:     arith.truncf
// CHECK:         return
func.func @round_to_bf16(%x: f32) -> bf16 {
  %y = arith.truncf %x : f32 to bf16
  return %y : bf16
}

// From f64 by way of f32 rounded to odd, so that nothing is rounded twice.

// CHECK-LABEL: func.func @round_f64_once(
// CHECK:         arith.truncf %{{.*}} : f64 to f32
// CHECK:         arith.extf %{{.*}} : f32 to f64
// CHECK:         arith.cmpf one,
// CHECK:         arith.ori
func.func @round_f64_once(%x: f64) -> f16 {
  %y = arith.truncf %x : f64 to f16
  return %y : f16
}

// A function of a storage type is one of f32.

// CHECK-LABEL: func.func @exp_of_f16(
// CHECK:         math.exp %{{.*}} : f32
func.func @exp_of_f16(%x: f16) -> f16 {
  %y = math.exp %x : f16
  return %y : f16
}
