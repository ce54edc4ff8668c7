// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "TestSupport.h"

using namespace refold;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

constexpr char kRowSum[] = R"mlir(
func.func @f(%x: tensor<?x?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                       iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%f : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
})mlir";

TEST(ProgramTest, RowSum) {
  EXPECT_THAT(
      evaluate(kRowSum, {array(DType::F32, {2, 3}, {1, 2, 3, 4, 5, 6})}),
      ElementsAre(6, 15));
}

TEST(ProgramTest, EmptyAxisGivesTheInitialValue) {
  EXPECT_THAT(evaluate(kRowSum, {array(DType::F32, {2, 0}, {})}),
              ElementsAre(0, 0));
  EXPECT_THAT(evaluate(kRowSum, {array(DType::F32, {0, 3}, {})}),
              ElementsAre());
}

} // namespace
