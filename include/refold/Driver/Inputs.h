// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DRIVER_INPUTS_H
#define REFOLD_DRIVER_INPUTS_H

#include "refold/Driver/Driver.h"
#include "refold/Support/RandomInputs.h"
#include <random>

namespace refold {

using Extents = std::map<std::string, int64_t>;

/// What to call dimension `dim` of a port: its name, or "x.0" where it has
/// none.
std::string dimName(const Port &port, unsigned dim);

/// Names of the input dimensions whose extents are known only when run, each
/// once, in order.
std::vector<std::string> openDims(llvm::ArrayRef<Port> inputs);

/// The axes that cascades run over; those of reductions where there is none.
std::vector<std::string> streamAxesOf(const FuseReport &fusion);

/// Whether each extent is of a dimension that the inputs have, and leave open
/// or fix to the same; the error names the nearest one.
llvm::Error checkExtents(llvm::ArrayRef<Port> inputs, const Extents &extents);

/// The shape of a port under these extents; the error names the dimension that
/// lacks one.
llvm::Expected<llvm::SmallVector<int64_t, 4>> shapeOf(const Port &port,
                                                      const Extents &extents);

/// Random arrays for all inputs. `recipes` overrules `recipe` for inputs by
/// name. Integer inputs that no recipe names stay in [0, 2), which is in range
/// as a subscript of most things.
llvm::Expected<std::vector<Tensor>>
makeInputs(llvm::ArrayRef<Port> inputs, const Extents &extents,
           const InputRecipe &recipe,
           const std::map<std::string, InputRecipe> &recipes, uint64_t seed);

/// Copies of the arrays in the types that they are computed in: narrow floats
/// as f32.
llvm::Expected<std::vector<Tensor>> asComputed(llvm::ArrayRef<Tensor> given);

/// Moves every finite f32 and f64 to a neighbour or leaves it, a third each.
void moveLastBits(Tensor &tensor, std::mt19937_64 &random);

/// Gives `run` eight draws of `given` as computed with last bits moved: what a
/// program errs on them against what `given` itself should give is the part of
/// an error that the problem decides, and not the order of its sums.
llvm::Error
eachMoved(llvm::ArrayRef<Tensor> given, uint64_t seed,
          llvm::function_ref<llvm::Error(llvm::ArrayRef<Tensor>)> run);

/// The same values behind strides with gaps.
llvm::Expected<Tensor> makeStrided(const Tensor &tensor);
/// The same values with the first axis dense in memory, not the last.
llvm::Expected<Tensor> makeTransposed(const Tensor &tensor);

/// The extents of named dimensions that these inputs have.
Extents extentsOf(llvm::ArrayRef<Port> ports, llvm::ArrayRef<Tensor> inputs);

} // namespace refold

#endif // REFOLD_DRIVER_INPUTS_H
