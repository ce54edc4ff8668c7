// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows that are swept without results along them, and stay nowhere: some chunks
// are on their way to shared memory while one is folded.
#include "RowPrinter.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

/// Whether copies of 16 bytes bring all that is read of a row. What all rows
/// read is in the caches.
bool RowPrinter::mayStage(int width) {
  return width > 1 && hasStates() && !hasSweep() && listWords() == 0 &&
         !kernel.product && !kernel.isByPlaces() && !kernel.reads.empty() &&
         llvm::all_of(kernel.reads, [&](auto &read) {
           return read.second.isFolded && !read.second.isShared &&
                  width * read.second.bytes() % 16 == 0;
         });
}

/// Of an element.
int64_t RowPrinter::stageBytes() {
  int64_t bytes = 0;
  for (auto &[node, read] : kernel.reads)
    bytes += read.bytes();
  return bytes;
}

/// Copies take no registers of what is on its way, so that more blocks fit, and
/// a block has more on its way. By registers an H200 waited for memory half of
/// the time (benchmarks/results/cuda-rows.md, "Chunks on their way to shared
/// memory"). What a thread has there is 128 to 256 bytes.
void RowPrinter::addStages(CudaEntry &entry) {
  if (!mayStage(entry.width))
    return;
  int64_t own = entry.vectors * entry.width * stageBytes();
  entry.stages = own <= 64 ? 3 : 2;
  entry.sharedBytes = entry.stages * entry.chunk() * stageBytes();
  hasStages = true;
}

/// Where vector v of a read is, in bytes from the place of a chunk. Vectors of
/// groups are longer than what a lane reads at once: lanes beside each other
/// copy what lies beside each other, for all of their warp.
std::string RowPrinter::stagedAt(const RowRead &read) {
  int64_t before = 0;
  for (auto &[node, other] : kernel.reads) {
    if (&other == &read)
      break;
    before += other.bytes();
  }
  std::string bytes = std::to_string(read.bytes());
  return (before ? "uint32_t(" + std::to_string(before) + " * kChunk) + "
                 : "") +
         std::string("uint32_t(v * kThreads") +
         (read.group.size == 1 ? " * kWidth * " + bytes + " + lane * 16)"
                               : " + lane / 32 * 32) * kWidth * " + bytes);
}

void RowPrinter::printStages() {
  out.comment("Where copies bring chunks: kStages of them.");
  out.line("constexpr uint32_t kStageBytes = uint32_t(kChunk) * " +
           std::to_string(stageBytes()) + ";");
  out.line("REFOLD_SHARED_BYTES(staged, kStages * kStageBytes);");
  std::string end = hasParts ? "part_end" : count();
  // Templates, so that only entries that call them have to be able to.
  out.open(
      "[[maybe_unused]] const auto bring = [&](auto first, uint32_t at) {");
  out.line("REFOLD_UNROLL");
  out.open("for (int v = 0; v < kVectors; ++v) {");
  out.line("const Column column = first + (v * kThreads + lane) * kWidth;");
  for (auto &[node, read] : kernel.reads) {
    std::string to = "(at + " + stagedAt(read) + ", ";
    if (read.group.size == 1) {
      out.line("copy_kept<kThreads, kWidth>" + to + read.row +
               " + column, column < " + end + ");");
      continue;
    }
    std::string ofWarp = "(column - lane % 32 * kWidth)";
    out.line("copy_of_warp<" + read.times("kWidth") + ">" + to + read.row +
             " + " + read.times(ofWarp) + ", " +
             read.times("(" + end + " - " + ofWarp + ")") + ");");
  }
  out.close();
  out.close("};");
  out.open("[[maybe_unused]] const auto fetch = [&](auto &chunk, uint32_t at) "
           "{");
  out.line("REFOLD_UNROLL");
  out.open("for (int v = 0; v < kVectors; ++v) {");
  for (auto &[node, read] : kernel.reads)
    out.line("chunk." + read.name + "[v] = " +
             (read.group.size == 1 ? "load_kept<kThreads, " : "load_of_warp<") +
             storedType(node->type) + ", " + read.times("kWidth") + ">(at + " +
             stagedAt(read) + ");");
  out.close();
  out.close("};");
}

/// One chunk is folded while the others are on their way.
void RowPrinter::printStagedWalk(const std::string &fold,
                                 const std::string &begin,
                                 const std::string &end) {
  bool ofWarps = llvm::any_of(
      kernel.reads, [](auto &read) { return read.second.group.size > 1; });
  out.otherwise("if constexpr (kStages > 0)");
  out.open("const auto bring_later = [&](Column first, uint32_t to) {");
  out.line("if (first < " + end + ")");
  out.line("  bring(first, to);");
  out.line("commit_copies();");
  out.close("};");
  out.line("REFOLD_UNROLL");
  out.line("for (int stage = 0; stage < kStages - 1; ++stage)");
  out.line("  bring_later(" + (begin == "0" ? "" : begin + " + ") +
           "stage * kChunk, staged + stage * kStageBytes);");
  out.line("uint32_t at = staged, free = staged + (kStages - 1) * "
           "kStageBytes;");
  out.line("REFOLD_NO_UNROLL");
  out.open("for (Column first = " + begin + "; first < " + end +
           "; first += kChunk) {");
  if (ofWarps)
    out.line("warp_barrier(); // all lanes have read what was there");
  out.line("bring_later(first + (kStages - 1) * kChunk, free);");
  out.line("wait_copies<kStages - 1>();");
  if (ofWarps)
    out.line("warp_barrier(); // a warp's copies are seen by its lanes");
  // Before the branch: ptxas would widen elements once for each sweep over a
  // chunk (variance of bf16, 334 instructions for 299).
  out.line("fetch(chunk, at);");
  printChoice("first + kChunk <= " + count(), fold + "($, chunk, first);");
  out.line("free = at;");
  out.line("at = at + kStageBytes == staged + kStages * kStageBytes ? staged : "
           "at + kStageBytes;");
  out.close();
}
