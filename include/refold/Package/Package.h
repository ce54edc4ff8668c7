// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_PACKAGE_PACKAGE_H
#define REFOLD_PACKAGE_PACKAGE_H

#include "refold/Package/Outcome.h"
#include "refold/Runtime/ProgramSpec.h"
#include "refold/Runtime/SizeTerms.h"
#include <array>
#include <memory>
#include <optional>
#include <string_view>

/// A compiled program as plain data, in memory or in a file (docs/packages.md).
/// Neither LLVM nor MLIR is needed to load and run it.
namespace refold::package {

/// What conditions, grids and shared memory of a launch may depend on of the
/// address of an array: its remainder of this.
inline constexpr int64_t kAddressRemainder = 256;

/// What copies of boxes are told of an array, made where it is launched: a
/// parameter of 128 bytes, by the driver. Rows of `columns` bytes, a box has
/// 128 of them and `boxRows` rows. Nothing is told of an array without
/// elements.
struct LaunchMap {
  static constexpr size_t kMostIndices = 4;
  SizeNumber first = 0; ///< the address of element 0
  /// Of the row and of all indices in front of it, the nearest first; strides
  /// are bytes.
  std::vector<SizeNumber> extents, strides;
  SizeNumber columns = 0;
  uint32_t boxRows = 1;
  bool operator==(const LaunchMap &) const = default;
};

/// The numbers of one.
struct MapValues {
  int64_t first = 0, columns = 0, boxRows = 0;
  int64_t extents[LaunchMap::kMostIndices] = {1, 1, 1, 1},
          strides[LaunchMap::kMostIndices] = {16, 16, 16, 16};
  int64_t numIndices = 0;
  bool isEmpty() const {
    return columns == 0 || extents[0] == 0 || extents[1] == 0 ||
           extents[2] == 0 || extents[3] == 0;
  }
};
/// Nothing where one of them overflows. A single place has any stride.
std::optional<MapValues> valuesOf(const LaunchMap &map, TermValues &sizes);

/// The blocks of a way that takes other numbers of them as well: `unit` times
/// a number. They are measured by `--tune` only; which bits come out may depend
/// on them.
struct FreeBlocks {
  SizeNumber unit = 0;   ///< blocks beside each other, or what has parts
  SizeNumber pieces = 0; ///< that so many blocks of a unit have together
  uint32_t most = 0;     ///< blocks in all, of which others know; 0: any number
  uint32_t leftBytes = 0; ///< of the workspace, for each block
  bool operator==(const FreeBlocks &) const = default;
};

/// What a way is, as far as its time is predicted by that.
struct WayShape {
  /// Of rows, where they are between sweeps.
  enum Place : uint8_t { Nowhere, Registers, OnChip, Ring };
  Place place = Nowhere;
  uint8_t unit = 0; ///< a GpuUnit
  bool hasParts = false, takesTurns = false;
  uint32_t threads = 32, rows = 1, vectors = 1, width = 1, columns = 0,
           stages = 0, blocks = 1;
  SizeNumber groups = 0, parts = 0; ///< where it has some
  bool operator==(const WayShape &) const = default;
};

/// One way to make a launch. Sizes are numbers of the kernel's terms, functions
/// of the words of its call (docs/architecture.md, "Kernel ABI"): symbol k is
/// word k, and the words after the last are the addresses of the workspace and
/// of the tickets.
struct LaunchWay {
  std::string entry;        ///< the function's name in the code
  SizeNumber condition = 0; ///< taken where it is not 0
  /// Where it is not 0 the way gives the results as well, whichever is expected
  /// to be done sooner. Holds wherever the condition does.
  SizeNumber legal = 0;
  std::array<SizeNumber, 3> grid = {}, ///< blocks; none: no launch
      block = {};                      ///< threads
  SizeNumber sharedBytes = 0;          ///< dynamic shared memory
  /// At most as many blocks a multiprocessor, for kernels that take any number
  /// of them; 0: the whole grid.
  uint32_t blocksPerUnit = 0;
  /// Taken only where a multiprocessor has shared memory for as many blocks; 0:
  /// for one.
  uint32_t leastBlocks = 0;
  std::optional<FreeBlocks> freeBlocks;
  WayShape shape;
  std::vector<LaunchMap> maps; ///< its last parameter, where there are some
  bool operator==(const LaunchWay &) const = default;
};

/// The first of `ways` that may be taken is.
struct Launch {
  std::vector<SizeNumber> parameters; ///< of every entry, a word each
  std::vector<LaunchWay> ways;
};

/// Which way a launch takes in place of the first that may: measured, of one
/// shape.
struct LaunchChoice {
  std::string entry;
  int64_t blocks = 0; ///< 0: as the way has them
  bool operator==(const LaunchChoice &) const = default;
};

/// A matrix product that a library of the machine may compute in place of a
/// kernel's launches: result = lhs rhs, row-major matrices of the last two
/// dimensions, then `+ bias`. Sums are f32.
struct DeviceProduct {
  /// An array as the words of the call have it: addresses from `word` on.
  struct Side {
    uint32_t word = 0;
    DType dtype = DType::F32;
    bool operator==(const Side &) const = default;
  };
  uint32_t rank = 2, biasRank = 1;
  Side lhs, rhs, result, bias;
  bool hasBias = false;
  /// Where it is not 0, a library is expected to be quicker.
  SizeNumber condition = 0;
};

/// What a call of a kernel is made of: elements of rows, tiles, rectangles.
enum class CallForm : uint8_t { Rows, Tiles, RowProduct, Product, ByteProduct };
struct CallExtents {
  CallForm form = CallForm::Rows;
  uint32_t elementBytes = 2; ///< of what is multiplied
  SizeNumber batch = 0, rows = 0, length = 0, columns = 0, depth = 0;
};

/// What a call of a kernel moves and computes, for what is predicted of it.
struct DeviceWork {
  static constexpr int64_t kUnit = 1024; ///< of what is a fraction
  /// For each of so many places.
  struct Part {
    SizeNumber places = 0;
    uint32_t products = 0, slots = 0, fixedSlots = 0, functions = 0,
             fixedFunctions = 0;
  };
  SizeNumber bytesRead = 0, bytesWritten = 0, streamBytes = 0, sharedBytes = 0;
  uint32_t sweeps = 1;
  uint32_t walked = kUnit; ///< of a stream of usual length
  std::vector<Part> parts;
};

/// A kernel for a GPU: launches one after the other.
struct DeviceKernel {
  std::string name;
  std::string text;       ///< CUDA C++; may be empty
  std::string_view cubin; ///< may be empty
  /// What launches ask for first comes first: parameters, then ways.
  SizeTerms sizes;
  std::vector<Launch> launches;
  std::optional<DeviceProduct> product;
  SizeNumber workspaceBytes = 0; ///< must not depend on addresses
  /// Words of 32 bits that are 0 before and after every launch; all kernels of
  /// a program have the same.
  uint32_t tickets = 0;
  CallExtents call;
  std::optional<DeviceWork> work; ///< nothing: times are not predicted
};

/// The ways of all its launches.
template <typename Each>
void forEachWay(const DeviceKernel &kernel, const Each &each) {
  for (const Launch &launch : kernel.launches)
    for (const LaunchWay &way : launch.ways)
      each(way);
}

/// A kernel for the CPU: an ELF object with `kernel_shape_words` and
/// `kernel_phaseN_words` of the kernel ABI.
struct HostKernel {
  std::string name;
  std::string_view object;
  uint32_t phases = 0;
  std::vector<uint32_t> packedOperands;
  bool sharesOnlyPanels = false;
};

/// Where a constant lies that is in another file than the package.
struct WeightPlace {
  uint32_t buffer = 0; ///< of the program
  uint32_t file = 0;   ///< of `weightFiles`
  uint64_t offset = 0; ///< of its first byte
  uint64_t sum = 0;    ///< `checksum` of its bytes
  bool operator==(const WeightPlace &) const = default;
};

enum class PackageTarget : uint8_t { Cpu, Cuda };

struct Package {
  std::string name;
  PackageTarget target = PackageTarget::Cpu;
  /// "avx512", "avx2", "baseline"; "sm_80", "sm_90a", ...: what the code is
  /// for. Empty for a GPU: there is text only.
  std::string architecture;
  /// Features of the CPU that the code uses, comma separated: "avx2,fma".
  std::string features;
  /// "cuda-sm80" or "cuda-sm90": what the text is for.
  std::string textTarget;
  ProgramSpec program;
  std::vector<DeviceKernel> deviceKernels;
  std::vector<HostKernel> hostKernels;
  /// That texts include, by name.
  std::vector<std::pair<std::string, std::string>> headers;
  /// From the folder of the package to that of `weightFiles`, whose names are
  /// paths below it.
  std::string weightsFolder;
  std::vector<std::string> weightFiles;
  /// Of the constants that lie there, by buffer. Their data is null until the
  /// files are mapped.
  std::vector<WeightPlace> weightPlaces;
  /// Of `deviceKernels`, the one that copies arrays; -1: nothing is copied.
  int64_t copyKernel = -1;
  /// Of them, the one that looks at checked data; -1: nothing is checked.
  int64_t checkKernel = -1;
  /// Keeps what constants and code point into.
  std::shared_ptr<void> owner;
};

/// The bytes of a file: a head, the plan, then constants and code at multiples
/// of 64. Equal packages give equal bytes.
std::string formatPackage(const Package &package);

/// Reads a package whose bytes `owner` keeps (nothing is copied that is large).
/// Whatever the bytes are, the answer is a package whose parts fit each other,
/// or what is wrong with it; `where` begins the message. Weights in other files
/// are to be mapped before it runs.
Outcome<std::shared_ptr<Package>> parsePackage(std::string_view bytes,
                                               const std::string &where,
                                               std::shared_ptr<void> owner);

/// Maps a file and parses it, and maps the files that its weights lie in: in
/// the folder `weights`, or where the package says if that is empty. A file is
/// taken as the only one.
Outcome<std::shared_ptr<Package>> openPackage(const std::string &path,
                                              const std::string &weights = {});

/// Maps the files of the weights of a package that was read at `path`. A file
/// that is not there, is shorter or has other bytes where a constant lies is
/// told by its name.
Problem mapWeights(Package &package, const std::string &path,
                   const std::string &weights);

/// Whether all constants have their bytes.
bool hasWeights(const Package &package);

/// Of a plan or of data, as the head of a file has them: tells damage, not
/// malice.
uint64_t checksum(std::string_view bytes);

/// Whether all indices of the parts are in range, steps write what they may,
/// and messages may repeat the names.
Problem checkPackage(const Package &package);

} // namespace refold::package

#endif // REFOLD_PACKAGE_PACKAGE_H
