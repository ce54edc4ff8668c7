#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plants defects in what tiles of f32 are made of (refold_cuda_tiles_words.h): each has to give a wrong answer, or to be reported.

    word_tiles_test.py      every fourth; all of them with REFOLD_ALL_DEFECTS=1
"""

import ctypes
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import conformance_test as conformance  # noqa: E402

HEADER = "refold_cuda_tiles_words.h"
SOURCE = """
#define REFOLD_CUDA_EMULATED
#include "refold_cuda.h"
#include "refold_cuda_tiles_words.h"
using namespace refold;
%s
extern "C" const char *conform(int which, int mode, char *in, int64_t in_bytes, char *out, int64_t out_bytes, int64_t count,
                               int64_t shared) {
  static std::string error;
  error = refold::emulator::launch(1, 32, refold::emulator::kModes[mode],
                                   {{in, in_bytes, false, false}, {out, out_bytes, true, true}}, [=] {
    const float *from = reinterpret_cast<const float *>(in);
    float *to = reinterpret_cast<float *>(out);
    switch (which) {
    %s
    }
  }, shared);
  return error.c_str();
}
"""

# What stands in the header or in the kernel of conformance.cu, and what is there instead.
DEFECTS = [
    # Where elements of tiles lie.
    ("(at ^ ((chunks & 7) << 4)) + (chunks >> 3) * 128", "(at ^ ((chunks & 7) << 4))"),
    ("(at ^ ((chunks & 7) << 4)) + (chunks >> 3) * 128", "(at ^ ((chunks & 3) << 4)) + (chunks >> 3) * 128"),
    (": at + chunks * 16;", ": at + chunks * 32;"),
    ("(at ^ 64) + (four % 2 != 0 ? 128 : 0)", "(at ^ 64)"),
    ("(at ^ 64) + (four % 2 != 0 ? 128 : 0)", "at + 64"),
    ("      at += 64;", "      at += 80;"),
    ("(kIsPermuted ? at ^ ((rows & 7) << 4) : at) + rows * kRowBytes", "at + rows * kRowBytes"),
    ("(kIsPermuted ? chunk ^ (row & 7) : chunk) * 16", "(kIsPermuted ? chunk ^ (row & 3) : chunk) * 16"),
    # Who has which elements.
    ("at % 2 + at % 32 / 8 * 2 + half * 8", "at % 2 + at % 32 / 8 * 2"),
    ("at % 2 + at % 32 / 8 * 2 + half * 8", "at % 4 + at % 32 / 8 * 2 + half * 8"),
    ("{ return at / 2 % 4; }", "{ return at % 4; }"),
    ("return word_lane(at) * 2 + e;", "return word_lane(at) * 2;"),
    ("{ return word_lane(at) * 4; }", "{ return word_lane(at); }"),
    # Products.
    ("Left::down(Left::right(a, k), i * 8)", "Left::down(Left::right(a, k), i * 4)"),
    ("Left::right(a, k)", "Left::right(a, 0)"),
    ("Right::right(b, k), c / 2 * 8 + c % 2", "Right::right(b, k), c * 2"),
    ("float own[kRows][kCount] = {};\n    const auto", "float own[kRows][kCount];\n    const auto"),
    ("products[i][c] = products[i][c] + own[i][c];", "products[i][c] = own[i][c];"),
    ("    Left::step(a, first / kAtOnce);\n", ""),
    ("    Right::step(b, first / kAtOnce);\n", ""),
    ("Right::step(b, first / kAtOnce)", "Right::step(b, 0)"),
    ("first < Left::kChunks", "first + kAtOnce < Left::kChunks"),
    # Factors that lanes put for each other.
    ("row * kRowBytes + (piece ^ turned) * 16", "row * kRowBytes + (piece ^ turned) * 8"),
    ("place(word_row(i, lane), 4 * c + word_lane(lane))", "place(word_row(i, lane), 4 * c)"),
    ("place(word_row(i, lane), 4 * c + word_lane(lane))", "place(word_row(0, lane), 4 * c + word_lane(lane))"),
    ("  warp_barrier();\n  multiply_word_columns", "  multiply_word_columns"),
    # Sums of columns.
    ("(factors ^ (piece << 4)) + i * 8 * Factors::kRowBytes", "(factors ^ (piece << 4)) + i * 4 * Factors::kRowBytes"),
    ("factors ^ (piece << 4)", "factors + (piece << 4)"),
    ("2 * piece + e / 2 * 8 + e % 2", "4 * piece + e"),
    ("Values::right(at, 4 * (kFirst / 4 + j))", "Values::right(at, 4 * j)"),
    ("Values::right(at, 4 * (kFirst / 4 + j))", "Values::right(at, kFirst / 4 + j)"),
    ("    factors ^= 64;", "    factors += 64;"),
    ("    if (c % 2 != 0)\n      factors += 128;\n", ""),
    ("    values += 16 * Values::kRowBytes;\n", ""),
    ("sums[i][kFirst + j] + own[i][j]", "own[i][j]"),
    ("kLeft < kMost ? kLeft : kMost", "kLeft < kMost ? kLeft : kMost / 2"),
    ("kFirst + kAtOnce>(sums", "kFirst + 2 * kAtOnce>(sums"),
    ("wait_copies<0>();\n  block_barrier();\n  float products", "block_barrier();\n  float products"),
    ("wait_copies<0>();\n  block_barrier();\n  float products", "wait_copies<0>();\n  float products"),
]
# Programs that say the same; why.
SAME = {
    ("kLeft < kMost ? kLeft : kMost", "kLeft < kMost ? kLeft : kMost / 2"): "fewer columns at once",
    ("sums[i][kFirst + j] + own[i][j]", "own[i][j]"): "sums are zeros before: kernels over several tiles find it",
}


class Words:
    """The kernels of conformance.cu for tiles of f32, with a defect."""

    def __init__(self, folder, defect):
        runtime = folder / "runtime"
        shutil.copytree(conformance.RUNTIME, runtime)
        text = (runtime / "conformance.cu").read_text()
        kernels = text[text.index("/// One warp, f32"):text.index("/// Rows of `in`, `stride`")]
        header = (runtime / HEADER).read_text()
        if defect:
            found = header.count(defect[0]) + kernels.count(defect[0])
            assert found, f"no '{defect[0]}'"
            header, kernels = header.replace(*defect), kernels.replace(*defect)
        (runtime / HEADER).write_text(header)
        cases = "\n".join(f"case {i}: return {name}(from, to, count);" for i, name in enumerate(conformance.WORD_TILES))
        source, library = folder / "words.cpp", folder / "words.so"
        source.write_text(SOURCE % (kernels, cases))
        compiler = next(c for c in ("clang++-19", "clang++", "g++") if shutil.which(c))
        subprocess.run([compiler, "-std=c++20", "-O0", "-shared", "-fPIC", "-ffp-contract=off", "-w", "-I", runtime, source, "-o", library],
                       check=True)
        self.lib = ctypes.CDLL(str(library))
        self.lib.conform.restype = ctypes.c_char_p

    def run(self, name, mode, blocks, data, out, count):
        i64 = ctypes.c_int64
        error = self.lib.conform(list(conformance.WORD_TILES).index(name), mode, ctypes.c_void_p(data.ctypes.data), i64(data.nbytes),
                                 ctypes.c_void_p(out.ctypes.data), i64(out.nbytes), i64(count), i64(conformance.launch_of(name)[1]))
        assert not error, error.decode()


def is_caught(defect):
    with tempfile.TemporaryDirectory() as folder:
        words = Words(pathlib.Path(folder), defect)
        for mode in range(4):
            try:
                conformance.check_word_tiles(words, mode)
            except AssertionError:
                return True
    return False


def main():
    assert not is_caught(None), "the header itself"
    chosen = DEFECTS if os.environ.get("REFOLD_ALL_DEFECTS") else DEFECTS[::4]
    missed = [d for d in chosen if is_caught(d) == (d in SAME)]
    for before, after in missed:
        print(f"'{re.sub(chr(10), ' ', before)}' as '{after}': " + ("listed, and caught" if (before, after) in SAME else "missed"))
    print(f"{len(chosen)} defects, {len(chosen) - len(missed)} as expected")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
