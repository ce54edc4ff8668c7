// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every message of the verifiers and parsers of the dialect.
// RUN: %refold-opt %s -split-input-file -verify-diagnostics

func.func @too_many_indices() {
  // expected-error @below {{has 65 indices; expected at most 64}}
  refold.cascade rows(%i0 = 1, %i1 = 1, %i2 = 1, %i3 = 1, %i4 = 1, %i5 = 1, %i6 = 1, %i7 = 1, %i8 = 1, %i9 = 1, %i10 = 1, %i11 = 1, %i12 = 1, %i13 = 1, %i14 = 1, %i15 = 1, %i16 = 1, %i17 = 1, %i18 = 1, %i19 = 1, %i20 = 1, %i21 = 1, %i22 = 1, %i23 = 1, %i24 = 1, %i25 = 1, %i26 = 1, %i27 = 1, %i28 = 1, %i29 = 1, %i30 = 1, %i31 = 1, %i32 = 1, %i33 = 1, %i34 = 1, %i35 = 1, %i36 = 1, %i37 = 1, %i38 = 1, %i39 = 1, %i40 = 1, %i41 = 1, %i42 = 1, %i43 = 1, %i44 = 1, %i45 = 1, %i46 = 1, %i47 = 1, %i48 = 1, %i49 = 1, %i50 = 1, %i51 = 1, %i52 = 1, %i53 = 1, %i54 = 1, %i55 = 1, %i56 = 1, %i57 = 1, %i58 = 1, %i59 = 1, %i60 = 1, %i61 = 1, %i62 = 1, %i63 = 1, %i64 = 1)   {

  }
  return
}
// -----
func.func @negative_extent() {
  // expected-error @below {{index 'i' has extent -2; expected 0 or more, or ?}}
  refold.cascade rows(%i = -2)   {

  }
  return
}
// -----
func.func @unknown_extent(%X: memref<?xf32>, %Y: memref<?xf32>) {
  // expected-error @below {{index 'j' has extent ? and is no operand's subscript by itself}}
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i * 4 + %j] : f32
    %s = refold.state add(%v : f32)
    refold.write %s, %y[%i] : f32
  }
  return
}
// -----
func.func @attribute_lengths(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  // expected-error @below {{index attributes differ in length}}
  "refold.cascade"(%X, %Y) <{arg_names = ["x", "y"], extents = array<i64: -9223372036854775808, -9223372036854775808>, index_names = ["i", "j"], operandSegmentSizes = array<i32: 1, 1>, roles = array<i32: 0>}> ({
  ^bb0(%i: index, %j: index, %x: !refold.arg<f32>, %y: !refold.arg<f32>):

  }) : (memref<?x?xf32>, memref<?xf32>) -> ()
  return
}
// -----
func.func @argument_names(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  // expected-error @below {{has 1 argument names; expected one an operand}}
  "refold.cascade"(%X, %Y) <{arg_names = ["x"], extents = array<i64: -9223372036854775808, -9223372036854775808>, index_names = ["i", "j"], operandSegmentSizes = array<i32: 1, 1>, roles = array<i32: 0, 1>}> ({
  ^bb0(%i: index, %j: index, %x: !refold.arg<f32>, %y: !refold.arg<f32>):

  }) : (memref<?x?xf32>, memref<?xf32>) -> ()
  return
}
// -----
func.func @role(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  // expected-error @below {{index 1 has role 7; expected 0 to 3}}
  "refold.cascade"(%X, %Y) <{arg_names = ["x", "y"], extents = array<i64: -9223372036854775808, -9223372036854775808>, index_names = ["i", "j"], operandSegmentSizes = array<i32: 1, 1>, roles = array<i32: 0, 7>}> ({
  ^bb0(%i: index, %j: index, %x: !refold.arg<f32>, %y: !refold.arg<f32>):

  }) : (memref<?x?xf32>, memref<?xf32>) -> ()
  return
}
// -----
func.func @argument_count(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  // expected-error @below {{body has 3 arguments; expected one an index and one an operand}}
  "refold.cascade"(%X, %Y) <{arg_names = ["x", "y"], extents = array<i64: -9223372036854775808, -9223372036854775808>, index_names = ["i", "j"], operandSegmentSizes = array<i32: 1, 1>, roles = array<i32: 0, 1>}> ({
  ^bb0(%i: index, %j: index, %x: !refold.arg<f32>):

  }) : (memref<?x?xf32>, memref<?xf32>) -> ()
  return
}
// -----
func.func @argument_type(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  // expected-error @below {{body argument 2 has type 'f32'; expected '!refold.arg<f32>'}}
  "refold.cascade"(%X, %Y) <{arg_names = ["x", "y"], extents = array<i64: -9223372036854775808, -9223372036854775808>, index_names = ["i", "j"], operandSegmentSizes = array<i32: 1, 1>, roles = array<i32: 0, 1>}> ({
  ^bb0(%i: index, %j: index, %x: f32, %y: !refold.arg<f32>):

  }) : (memref<?x?xf32>, memref<?xf32>) -> ()
  return
}
// -----
func.func @result_count(%X: memref<?x?xf32>, %Y: tensor<?xf32>) {
  // expected-error @below {{has 0 results; expected one for each of 1 output tensors}}
  "refold.cascade"(%X, %Y) <{arg_names = ["x", "y"], extents = array<i64: -9223372036854775808, -9223372036854775808>, index_names = ["i", "j"], operandSegmentSizes = array<i32: 1, 1>, roles = array<i32: 0, 1>}> ({
  ^bb0(%i: index, %j: index, %x: !refold.arg<f32>, %y: !refold.arg<f32>):

  }) : (memref<?x?xf32>, tensor<?xf32>) -> ()
  return
}
// -----
func.func @access_of_a_value(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    // expected-note @below {{prior use here}}
    %one = arith.constant 1.0 : f32
    // expected-error @below {{use of value '%one' expects different type than prior uses: '!refold.arg<f32>' vs 'f32'}}
    %v = refold.read %one[%i, %j] : f32
  }
  return
}
// -----
func.func @read_outside(%A: !refold.arg<f32>, %X: memref<?x?xf32>) {
  "refold.cascade"(%X) <{arg_names = ["x"], extents = array<i64>, index_names = [], operandSegmentSizes = array<i32: 1, 0>, roles = array<i32>}> ({
  ^bb0(%x: !refold.arg<f32>):
    // expected-error @below {{is not allowed in a cascade; expected scalar arith, math and refold ops}}
    %o = builtin.unrealized_conversion_cast to !refold.arg<f32>
  }) : (memref<?x?xf32>) -> ()
  return
}
// -----
func.func @rank(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    // expected-error @below {{has 1 subscripts; expected 2}}
    %v = refold.read %x[%i] : f32
  }
  return
}
// -----
func.func @size(%X: memref<4x8xf32>, %Y: memref<4xf32>) {
  refold.cascade rows(%i = 4) stream(%j = 9) ins(%x = %X : memref<4x8xf32>) outs(%y = %Y : memref<4xf32>) {
    // expected-error @below {{subscript 1 is 'j' of extent 9, but the operand has size 8 there}}
    %v = refold.read %x[%i, %j] : f32
    %s = refold.state add(%v : f32)
    refold.write %s, %y[%i] : f32
  }
  return
}
// -----
func.func @result_size(%X: memref<4x8xf32>, %Y: memref<5xf32>) {
  refold.cascade rows(%i = 4) stream(%j = 8) ins(%x = %X : memref<4x8xf32>) outs(%y = %Y : memref<5xf32>) {
    %v = refold.read %x[%i, %j] : f32
    %s = refold.state add(%v : f32)
    // expected-error @below {{subscript 0 is 'i' of extent 4, but the operand has size 5 there}}
    refold.write %s, %y[%i] : f32
  }
  return
}
// -----
func.func @reads_output(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?)  outs(%y = %Y : memref<?xf32>) {
    // expected-error @below {{reads an output}}
    %v = refold.read %y[%i] : f32
  }
  return
}
// -----
func.func @writes_input(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %one = arith.constant 1.0 : f32
    // expected-error @below {{writes an input}}
    refold.write %one, %x[%i, %j] : f32
  }
  return
}
// -----
func.func @write_type(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    // expected-note @below {{prior use here}}
    %one = arith.constant 1.0 : f64
    // expected-error @below {{use of value '%one' expects different type than prior uses: 'f32' vs 'f64'}}
    refold.write %one, %y[%i] : f32
  }
  return
}
// -----
func.func @write_twice_the_same_index(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %X : memref<?x?xf32>) {
    %one = arith.constant 1.0 : f32
    // expected-error @below {{subscripts must be different indices or 0}}
    refold.write %one, %y[%i, %i] : f32
  }
  return
}
// -----
func.func @write_computed(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %one = arith.constant 1.0 : f32
    // expected-error @below {{subscripts must be different indices or 0}}
    refold.write %one, %y[%i + 1] : f32
  }
  return
}
// -----
func.func @write_wider_than_result(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    // expected-error @below {{value has indices {i, j}; expected those of the result, {i}}}
    refold.write %v, %y[%i] : f32
  }
  return
}
// -----
func.func @write_inner(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade inner(%d = ?)  outs(%y = %Y : memref<?xf32>) {
    %one = arith.constant 1.0 : f32
    // expected-error @below {{writes inner indices {d}}}
    refold.write %one, %y[%d] : f32
  }
  return
}
// -----
func.func @read_type(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  "refold.cascade"(%X, %Y) <{arg_names = ["x", "y"], extents = array<i64: -9223372036854775808, -9223372036854775808>, index_names = ["i", "j"], operandSegmentSizes = array<i32: 1, 1>, roles = array<i32: 0, 1>}> ({
  ^bb0(%i: index, %j: index, %x: !refold.arg<f32>, %y: !refold.arg<f32>):
    %one = arith.constant 1.0 : f64
    // expected-error @below {{result is not of the operand's element type}}
    %v = "refold.read"(%x, %i, %j) <{map = affine_map<(d0, d1) -> (d0, d1)>}> : (!refold.arg<f32>, index, index) -> f64
  }) : (memref<?x?xf32>, memref<?xf32>) -> ()
  return
}
// -----
func.func @read_map(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  "refold.cascade"(%X, %Y) <{arg_names = ["x", "y"], extents = array<i64: -9223372036854775808, -9223372036854775808>, index_names = ["i", "j"], operandSegmentSizes = array<i32: 1, 1>, roles = array<i32: 0, 1>}> ({
  ^bb0(%i: index, %j: index, %x: !refold.arg<f32>, %y: !refold.arg<f32>):
    %one = arith.constant 1.0 : f64
    // expected-error @below {{map and indices differ in number}}
    %v = "refold.read"(%x, %i) <{map = affine_map<(d0, d1) -> (d0, d1)>}> : (!refold.arg<f32>, index) -> f32
  }) : (memref<?x?xf32>, memref<?xf32>) -> ()
  return
}
// -----
func.func @write_element_type(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  "refold.cascade"(%X, %Y) <{arg_names = ["x", "y"], extents = array<i64: -9223372036854775808, -9223372036854775808>, index_names = ["i", "j"], operandSegmentSizes = array<i32: 1, 1>, roles = array<i32: 0, 1>}> ({
  ^bb0(%i: index, %j: index, %x: !refold.arg<f32>, %y: !refold.arg<f32>):
    %one = arith.constant 1.0 : f64
    // expected-error @below {{value is not of the operand's element type}}
    "refold.write"(%one, %y, %i) <{map = affine_map<(d0) -> (d0)>}> : (f64, !refold.arg<f32>, index) -> ()
  }) : (memref<?x?xf32>, memref<?xf32>) -> ()
  return
}
// -----
func.func @write_map(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  "refold.cascade"(%X, %Y) <{arg_names = ["x", "y"], extents = array<i64: -9223372036854775808, -9223372036854775808>, index_names = ["i", "j"], operandSegmentSizes = array<i32: 1, 1>, roles = array<i32: 0, 1>}> ({
  ^bb0(%i: index, %j: index, %x: !refold.arg<f32>, %y: !refold.arg<f32>):
    %one = arith.constant 1.0 : f32
    // expected-error @below {{map and indices differ in number}}
    "refold.write"(%one, %y, %i) <{map = affine_map<(d0, d1) -> (d0)>}> : (f32, !refold.arg<f32>, index) -> ()
  }) : (memref<?x?xf32>, memref<?xf32>) -> ()
  return
}
// -----
func.func @inner_reaches_state(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade stream(%j = ?) inner(%d = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%j, %d] : f32
    // expected-error @below {{has inner indices {d}; contract them first}}
    %s = refold.state add(%v : f32)
  }
  return
}
// -----
func.func @contract_stream(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade stream(%j = ?) inner(%d = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%j, %d] : f32
    // expected-error @below {{contracts something other than inner indices}}
    %s = refold.contract %v over(%j) : f32
  }
  return
}
// -----
func.func @contract_absent(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade stream(%j = ?) inner(%d = ?) ins(%x = %X : memref<?x?xf32>, %z = %Y : memref<?xf32>)  {
    %u = refold.read %x[%j, %d] : f32
    %v = refold.read %z[%j] : f32
    // expected-error @below {{contracts {d}, which its operand does not have}}
    %s = refold.contract %v over(%d) : f32
  }
  return
}
// -----
func.func @extent_of_a_value(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = 1)  outs(%y = %Y : memref<?xf32>) {
    %one = arith.constant 1 : index
    // expected-error @below {{asks for the extent of something other than an index of the cascade}}
    %n = refold.extent %one
  }
  return
}
// -----
func.func @unknown_reducer(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    // expected-error @below {{has unknown reducer 'mean'}}
    %s = refold.state mean(%v : f32)
  }
  return
}
// -----
func.func @no_stream(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?, %j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    // expected-error @below {{reduces, but the cascade has no stream index}}
    %s = refold.state add(%v : f32)
  }
  return
}
// -----
func.func @payload_of_sum(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    // expected-error @below {{reducer add takes one value; payloads belong to topk and bottomk}}
    %s:2 = refold.state add(%v : f32, %v : f32)
  }
  return
}
// -----
func.func @rank_missing(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    // expected-error @below {{topk and bottomk, and only they, have a rank index}}
    %s = refold.state topk(%v : f32)
  }
  return
}
// -----
func.func @rank_of_sum(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) carried(%r = 2) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    // expected-error @below {{topk and bottomk, and only they, have a rank index}}
    %s = refold.state add(%v : f32) rank(%r)
  }
  return
}
// -----
func.func @rank_not_carried(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    // expected-error @below {{has a rank that is not a carried index}}
    %s = refold.state topk(%v : f32) rank(%i)
  }
  return
}
// -----
func.func @state_result_type(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  "refold.cascade"(%X, %Y) <{arg_names = ["x", "y"], extents = array<i64: -9223372036854775808, -9223372036854775808>, index_names = ["i", "j"], operandSegmentSizes = array<i32: 1, 1>, roles = array<i32: 0, 1>}> ({
  ^bb0(%i: index, %j: index, %x: !refold.arg<f32>, %y: !refold.arg<f32>):
    %one = arith.constant 1.0 : f64
    // expected-error @below {{results differ in type from the values}}
    %s = "refold.state"(%one) <{operandSegmentSizes = array<i32: 1, 0, 0, 0>, reducer = 0 : i32}> ({
    }) : (f64) -> f32
  }) : (memref<?x?xf32>, memref<?xf32>) -> ()
  return
}
// -----
func.func @logical_of_float(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    // expected-error @below {{reducer and does not take values of type 'f32'}}
    %s = refold.state and(%v : f32)
  }
  return
}
// -----
func.func @maxnum_of_integer(%X: memref<?x?xi32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xi32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : i32
    // expected-error @below {{reducer maxnum does not take values of type 'i32'}}
    %s = refold.state maxnum(%v : i32)
  }
  return
}
// -----
func.func @index_state(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    // expected-error @below {{reducer max does not take values of type 'index'}}
    %s = refold.state max(%j : index)
  }
  return
}
// -----
func.func @pivot_with_stream(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    %m = refold.state max(%v : f32)
    %u = arith.subf %v, %m : f32
    // expected-error @below {{has a pivot with indices {i, j}; expected row indices only}}
    %s = refold.state add(%u : f32) pivot(%u : f32) transport(%old, %new, %self) {
      refold.yield %self : f32
    }
  }
  return
}
// -----
func.func @pivot_without_state(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    %one = arith.constant 1.0 : f32
    // expected-error @below {{has a pivot that reads no state; it needs no transport}}
    %s = refold.state add(%v : f32) pivot(%one : f32) transport(%old, %new, %self) {
      refold.yield %self : f32
    }
  }
  return
}
// -----
func.func @pivot_without_transport(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    %m = refold.state max(%v : f32)
    // expected-error @below {{has a pivot and no transport}}
    %s = refold.state add(%v : f32) pivot(%m : f32)
  }
  return
}
// -----
func.func @transport_without_pivot(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    %m = refold.state max(%v : f32)
    // expected-error @below {{has a transport and no pivot}}
    %s = refold.state add(%v : f32) transport(%self) {
      refold.yield %self : f32
    }
  }
  return
}
// -----
func.func @with_without_transport(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    %m = refold.state max(%v : f32)
    // expected-error @below {{has 'with' and no transport}}
    %s = refold.state add(%v : f32) with(%m : f32)
  }
  return
}
// -----
func.func @transport_arguments(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    %m = refold.state max(%v : f32)
    // expected-error @below {{transport has 2 arguments; expected 3 (old and new of each pivot, the state, each of 'with')}}
    %s = refold.state add(%v : f32) pivot(%m : f32) transport(%old, %self) {
      refold.yield %self : f32
    }
  }
  return
}
// -----
func.func @transport_of_topk(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) carried(%r = 2) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    %m = refold.state max(%v : f32)
    // expected-error @below {{reducer topk has no transport}}
    %s = refold.state topk(%v : f32) pivot(%m : f32) rank(%r) transport(%old, %new, %self) {
      refold.yield %self : f32
    }
  }
  return
}
// -----
func.func @transport_argument_types(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    %m = refold.state max(%v : f32)
    // expected-error @below {{transport arguments do not match old and new of each pivot, the state, each of 'with'}}
    %s = "refold.state"(%v, %m) <{operandSegmentSizes = array<i32: 1, 1, 0, 0>, reducer = 0 : i32}> ({
    ^bb0(%old: f32, %new: f32, %self: f64):
      %z = arith.constant 0.0 : f32
      refold.yield %z : f32
    }) : (f32, f32) -> f32
  }
  return
}
// -----
func.func @transport_yields_nothing(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    %m = refold.state max(%v : f32)
    // expected-error @below {{transport must yield one value of the state's type}}
    %s = refold.state add(%v : f32) pivot(%m : f32) transport(%old, %new, %self) {
      %z = arith.constant 0 : i32
      refold.yield %z : i32
    }
  }
  return
}
// -----
func.func @transport_reads_body(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    %m = refold.state max(%v : f32)
    %n = refold.state min(%v : f32)
    // expected-error @below {{transport reads a value of the body; expected pivots, states of 'with' and constants only}}
    %s = refold.state add(%v : f32) pivot(%m : f32) transport(%old, %new, %self) {
      %a = arith.addf %self, %n : f32
      refold.yield %a : f32
    }
  }
  return
}
// -----
func.func @transport_with_effects(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    %m = refold.state max(%v : f32)
    %s = refold.state add(%v : f32) pivot(%m : f32) transport(%old, %new, %self) {
      // expected-error @below {{is not allowed in a transport}}
      %a = memref.alloc() : memref<f32>
      refold.yield %self : f32
    }
  }
  return
}
// -----
func.func @transport_yields_indices(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>, %z = %Y : memref<?xf32>) outs(%y = %Y : memref<?xf32>) {
    %w = refold.read %z[%j] : f32
    %v = refold.read %x[%i, %j] : f32
    %m = refold.state max(%v : f32)
    // expected-error @below {{transport yields indices {i}; the state has {}}}
    %s = refold.state add(%w : f32) pivot(%m : f32) transport(%old, %new, %self) {
      %a = arith.mulf %self, %old : f32
      refold.yield %a : f32
    }
  }
  return
}
// -----
func.func @with_no_state(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    %m = refold.state max(%v : f32)
    // expected-error @below {{'with' names something other than a state}}
    %s = refold.state add(%v : f32) pivot(%m : f32) with(%v : f32) transport(%old, %new, %self, %z0) {
      %a = arith.addf %self, %z0 : f32
      refold.yield %a : f32
    }
  }
  return
}
// -----
func.func @with_wider(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) carried(%e = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    %m = refold.state max(%v : f32)
    %e0 = refold.read %x[%j, %e] : f32
    %p = arith.mulf %v, %e0 : f32
    %w = refold.state add(%p : f32)
    // expected-error @below {{'with' names a state with indices {i, e} outside its own {i}}}
    %s = refold.state add(%v : f32) pivot(%m : f32) with(%w : f32) transport(%old, %new, %self, %z0) {
      %a = arith.addf %self, %z0 : f32
      refold.yield %a : f32
    }
  }
  return
}
// -----
func.func @with_of_other_pass(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    %z = refold.state add(%v : f32)
    %d = arith.divf %v, %z : f32
    %m = refold.state max(%d : f32)
    %u = arith.subf %d, %m : f32
    // expected-error @below {{'with' names a state of pass 0 in pass 1}}
    %s = refold.state add(%u : f32) pivot(%m : f32) with(%z : f32) transport(%old, %new, %self, %z0) {
      %a = arith.addf %self, %z0 : f32
      refold.yield %a : f32
    }
  }
  return
}
// -----
func.func @store_in_body(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    // expected-error @below {{is not allowed in a cascade; expected scalar arith, math and refold ops}}
    %a = memref.alloc() : memref<f32>
  }
  return
}
// -----
func.func @vector_in_body(%X: memref<?x?xf32>, %Y: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%j = ?) ins(%x = %X : memref<?x?xf32>) outs(%y = %Y : memref<?xf32>) {
    %v = refold.read %x[%i, %j] : f32
    // expected-error @below {{is not scalar}}
    %a = arith.constant dense<1.0> : vector<4xf32>
  }
  return
}
// -----
func.func @topk_dim(%X: tensor<?x?xf32>) {
  // expected-error @below {{has dim 2; expected 0 to 1}}
  %v, %i = refold.topk %X dim(2) k(8) largest(true) : tensor<?x?xf32> -> tensor<?x8xf32>, tensor<?x8xi32>
  return
}
// -----
func.func @topk_k(%X: tensor<?x?xf32>) {
  // expected-error @below {{has k 0; expected 1 or more}}
  %v, %i = refold.topk %X dim(1) k(0) largest(true) : tensor<?x?xf32> -> tensor<?x0xf32>, tensor<?x0xi32>
  return
}
// -----
func.func @topk_shape(%X: tensor<?x?xf32>) {
  // expected-error @below {{results have shapes other than the source's with 8 at dim 1}}
  %v, %i = refold.topk %X dim(1) k(8) largest(true) : tensor<?x?xf32> -> tensor<?x8xf32>, tensor<?x7xi32>
  return
}
// -----
func.func @topk_of_bools(%X: tensor<?x?xi1>) {
  // expected-error @below {{has keys of type i1; expected numbers, which have an order}}
  %v, %i = refold.topk %X dim(1) k(8) largest(true) : tensor<?x?xi1> -> tensor<?x8xi1>, tensor<?x8xi32>
  return
}
// -----
func.func @topk_types(%X: tensor<?x?xf32>) {
  // expected-error @below {{keys must have the source's element type and positions an integer one}}
  %v, %i = refold.topk %X dim(1) k(8) largest(true) : tensor<?x?xf32> -> tensor<?x8xf64>, tensor<?x8xi32>
  return
}
// -----
func.func @topk_positions(%X: tensor<?x?xf32>) {
  // expected-error @below {{keys must have the source's element type and positions an integer one}}
  %v, %i = refold.topk %X dim(1) k(8) largest(true) : tensor<?x?xf32> -> tensor<?x8xf32>, tensor<?x8xf32>
  return
}
