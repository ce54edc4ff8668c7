// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which form a cascade is printed in: rows, rows of products, tiles.
#include "RowPrinter.h"
#include "TilePrinter.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

FailureOr<CudaKernel> refold::printCascadeAsCuda(func::FuncOp function,
                                                 const CudaOptions &options) {
  CascadeOp cascade;
  function.walk([&](CascadeOp op) { cascade = op; });
  if (!cascade)
    return function.emitError("found no cascade in the kernel"), failure();
  auto plan = makePlan(cascade, TargetFacts::scalar());
  if (failed(plan))
    return failure();
  if ((*plan)->inner && (*plan)->states.empty())
    return printF8Products(**plan, options);
  if ((*plan)->inner) {
    std::string why;
    {
      ScopedDiagnosticHandler handler(function.getContext(),
                                      [&](Diagnostic &diagnostic) {
                                        why += diagnostic.str();
                                        return success();
                                      });
      auto products = findProductRows(**plan);
      if (succeeded(products)) {
        RowKernel again = *products;
        RowPrinter first(*products, options);
        first.print();
        return RowPrinter(again, options, first.body).print();
      }
    }
    // What is no row of products may be tiles, but for lists and passes.
    bool mayBeTiles = (*plan)->passes.size() == 1 &&
                      llvm::none_of((*plan)->states, [](StatePlan &s) {
                        return s.op.isOrdered();
                      });
    if (!mayBeTiles)
      return cascade->emitError(why), failure();
    auto tiles = findTiles(**plan);
    if (failed(tiles))
      return failure();
    auto packed = findTiles(**plan, /*packs=*/true);
    if (failed(packed))
      return failure();
    TileKernel again = *tiles, packedAgain = *packed;
    TilePrinter first(*tiles, options);
    first.packing = &*packed;
    if (failed(first.print()))
      return failure();
    std::string bodies = first.body + first.partsBody;
    TilePrinter second(again, options, bodies);
    second.packing = &packedAgain;
    second.earlierOwn = first.body;
    second.earlierParts = first.partsBody;
    return second.print();
  }
  auto kernel = findRows(**plan);
  if (failed(kernel))
    return failure();
  RowKernel again = *kernel;
  RowPrinter first(*kernel, options);
  first.print();
  return RowPrinter(again, options, first.body).print();
}
