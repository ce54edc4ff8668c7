// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What steps beside kernels ask of a GPU. Arrays that lie apart are copied by a
// kernel of our own: one element a thread, wherever it lies. Checks on a stream
// of the caller leave the number of one that failed.
#include "Machines.h"

using namespace refold;

/// Dimensions that arrays have after those that lie evenly are merged.
static constexpr unsigned kRank = 8;

/// What every entry begins with.
static constexpr char kLaunchText[] = "  refold::begin_launch();\n";

static std::string parametersText() {
  std::string text = "int64_t count";
  for (const char *name : {"size", "from", "to"})
    for (unsigned d = 0; d < kRank; ++d)
      text += std::string(", int64_t ") + name + std::to_string(d);
  return text;
}

static std::string bodyText() {
  std::string text = "  const int64_t at = refold::block() * 256 + "
                     "refold::thread();\n"
                     "  if (at >= count)\n    return;\n"
                     "  int64_t rest = at, source = 0, target = 0;\n";
  for (unsigned d = kRank; d-- > 0;) {
    std::string n = std::to_string(d);
    text += "  source += rest % size" + n + " * from" + n +
            ";\n  target += rest % size" + n + " * to" + n +
            ";\n  rest /= size" + n + ";\n";
  }
  return text + "  output[target] = input[source];\n";
}

package::DeviceKernel refold::makeCopyKernel() {
  static const std::pair<unsigned, const char *> types[] = {
      {1, "uint8_t"}, {2, "uint16_t"}, {4, "uint32_t"}, {8, "uint64_t"}};
  package::DeviceKernel kernel;
  kernel.name = "copy";
  kernel.text = "// Copies of arrays of any strides. Generated; do not edit.\n"
                "#include \"refold_cuda.h\"\n";
  package::Launch launch;
  SizeSharing sharing(kernel.sizes);
  auto word = [](unsigned i) { return SizeExpr::symbol(i); };
  for (unsigned parameter : {0u, 1u})
    launch.parameters.push_back(sharing.add(word(parameter)));
  for (unsigned i = 3; i < 4 + 3 * kRank; ++i)
    launch.parameters.push_back(sharing.add(word(i)));
  SizeNumber none = sharing.add(0), one = sharing.add(1),
             threads = sharing.add(256);
  for (auto [bytes, type] : types) {
    package::LaunchWay way;
    way.entry = "copy" + std::to_string(bytes);
    kernel.text += "\nREFOLD_KERNEL(256)\n" + way.entry + "(const " + type +
                   " *input, " + type + " *output, " + parametersText() +
                   ") {\n" + kLaunchText + bodyText() + "}\n";
    way.condition = sharing.add(
        SizeExpr::binary(SizeExpr::Op::Eq, word(2), SizeExpr(bytes)));
    way.grid = {sharing.add(SizeExpr::binary(SizeExpr::Op::CeilDiv, word(3),
                                             SizeExpr(256))),
                one, one};
    way.block = {threads, one, one};
    way.sharedBytes = none;
    launch.ways.push_back(std::move(way));
  }
  kernel.launches.push_back(std::move(launch));
  kernel.workspaceBytes = none;
  return kernel;
}

package::DeviceKernel refold::makeCheckKernel() {
  package::DeviceKernel kernel;
  SizeSharing sharing(kernel.sizes);
  auto word = [&](unsigned i) { return sharing.add(SizeExpr::symbol(i)); };
  kernel.name = "check";
  kernel.text = "// Looks at checked data. Generated; do not edit.\n"
                "#include \"refold_cuda.h\"\n\n"
                "REFOLD_KERNEL(256)\n"
                "check(const uint8_t *flags, int32_t *failed, int64_t count, "
                "int64_t number";
  std::string place;
  for (unsigned d = 0; d < kRank; ++d)
    for (const char *name : {"size", "stride"})
      kernel.text += ", int64_t " + (name + std::to_string(d));
  for (unsigned d = kRank; d-- > 0;) {
    std::string n = std::to_string(d);
    place += "    place += rest % size" + n + " * stride" + n +
             ";\n    rest /= size" + n + ";\n";
  }
  kernel.text += std::string(") {\n") + kLaunchText +
                 "  for (int64_t at = refold::thread(); at < count; at += 256) "
                 "{\n    int64_t rest = at, place = 0;\n" +
                 place +
                 "    if (flags[place] == 0)\n"
                 "      *failed = int32_t(number);\n"
                 "  }\n}\n";
  package::Launch launch;
  for (unsigned i : {0u, 1u, 2u, 3u})
    launch.parameters.push_back(word(i));
  for (unsigned d = 0; d < kRank; ++d)
    for (unsigned first : {4u, 4u + kRank})
      launch.parameters.push_back(word(first + d));
  package::LaunchWay way;
  SizeNumber none = sharing.add(0), one = sharing.add(1);
  way.entry = "check";
  way.condition = one;
  way.grid = {one, one, one};
  way.block = {sharing.add(256), one, one};
  way.sharedBytes = none;
  launch.ways.push_back(std::move(way));
  kernel.launches.push_back(std::move(launch));
  kernel.workspaceBytes = none;
  return kernel;
}
