#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products outside cascades by cuBLASLt, without a GPU and without cuBLASLt: over Inputs/fake_cuda.cpp and
Inputs/fake_cublaslt.cpp, which multiplies on the host what it is told to, and refuses what does not fit.
"""

import json
import pathlib
import subprocess
import sys

from device_test import REFOLD, ROOT, Machine, count, run_checks

PROGRAMS = {
    "product": "f(x[m,k], w[k,n]) -> y\n  y[m,n] = sum(k: x*w)\n",
    "linear": "f(x[m,k], w[n,k], c[n]) -> y\n  y[m,n] = sum(k: x*w) + c\n",
    # A batch that continues the rows.
    "rows": "f(x[b,m,k], w[n,k]) -> y\n  y[b,m,n] = sum(k: x*w)\n",
    "left": "f(x[k,m], w[k,n]) -> y\n  y[m,n] = sum(k: x*w)\n",
    # Activations are our own products'.
    "relu": "f(x[m,k], w[n,k], c[n]) -> y\n  y[m,n] = max(sum(k: x*w) + c, 0)\n",
    "batch": "f(x[b,m,k], w[b,k,n]) -> y\n  y[b,m,n] = sum(k: x*w)\n",
    # Two dimensions of a batch that are none: as many calls as the outer one has places.
    "heads": "f(q[b,m,h,d], k[b,n,h,d]) -> s\n  s[b,h,m,n] = sum(d: q*k)\n",
}
SHIFTED = """func.func @shifted(%x: tensor<5x9xf32>, %w: tensor<8x4xf32>) -> tensor<5x4xf32> {
  %part = tensor.extract_slice %x[0, 1] [5, 8] [1, 1] : tensor<5x9xf32> to tensor<5x8xf32>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<5x4xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<5x4xf32>) -> tensor<5x4xf32>
  %y = linalg.matmul ins(%part, %w : tensor<5x8xf32>, tensor<8x4xf32>) outs(%init : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %y : tensor<5x4xf32>
}
"""
ONCE = ["--first-seeds", "1", "--seeds", "4", "--splits", "0", "--threads", "1", "--lengths", "17", "--broad-length", "0"]


class Library(Machine):
    """That machine with the library."""

    def __init__(self, folder, compiler):
        super().__init__(folder, compiler)
        library = self.folder / "libfakelt.so"
        subprocess.run([compiler, "-std=c++20", "-O1", "-shared", "-fPIC", "-o", library,
                        ROOT / "test/Target/CUDA/Inputs/fake_cublaslt.cpp"], check=True)
        self.environment["REFOLD_CUBLASLT"] = str(library)
        for name, text in PROGRAMS.items():
            (self.folder / f"{name}.fold").write_text(text)

    def program(self, name):
        return str(self.folder / f"{name}.fold")


def products(calls):
    """Rows x depth x columns of every call, and how many of a batch."""
    return [call.split(" ", 1)[1] for call in calls if call.startswith("cublasLtMatmul ")]


def check_forms(machine):
    """Against double, with infinite and NaN inputs among them; nothing of ours multiplies, and all is given back."""
    for name, shape, expected in (("product", "m=5,k=7,n=3", "5x7x3 of 1"), ("linear", "m=6,k=5,n=7", "6x5x7 of 1"),
                                  ("rows", "b=2,m=3,k=5,n=7", "6x5x7 of 1"), ("rows", "b=6,m=1,k=5,n=7", "6x5x7 of 1"), ("left", "m=5,k=7,n=3", "5x7x3 of 1"),
                                  ("batch", "b=3,m=2,k=5,n=7", "2x5x7 of 3"),
                                  ("heads", "b=2,m=3,h=5,d=8,n=12", "3x8x12 of 5"), ("product", "m=1,k=1,n=1", "1x1x1 of 1")):
        _, calls = machine.answers("verify", "--target", "cuda", machine.program(name), "--shape", shape, *ONCE)
        assert set(products(calls)) == {expected}, (name, set(products(calls)))
        assert count(calls, "cuLaunchKernel") == 0, (name, calls)
        for made, given in (("cublasLtCreate", "cublasLtDestroy"), ("cublasLtMatmulDescCreate", "cublasLtMatmulDescDestroy"),
                            ("cublasLtMatrixLayoutCreate", "cublasLtMatrixLayoutDestroy"), ("cuMemAlloc_v2", "cuMemFree_v2")):
            assert count(calls, made) == count(calls, given) > 0, (name, made)


def check_attention(machine):
    """Attention that is not fused is products and rows: both products."""
    _, calls = machine.answers("run", "--target", "cuda", "--fuse", "never", "examples/attention.fold", "--shape", "b=1,h=2,m=5,n=12,d=8,e=8")
    assert len(set(products(calls))) == 2, calls


def check_ours(machine):
    """What the library is not asked for: arrays that begin anywhere, empty ones, batches of too many calls, small 16 bits."""
    shifted = machine.folder / "shifted.mlir"
    shifted.write_text(SHIFTED)
    _, calls = machine.answers("verify", "--target", "cuda", shifted, *ONCE)
    assert count(calls, "cublasLtMatmulAlgoGetHeuristic") == 1 and not products(calls), calls
    for program, shape, dtype in ((machine.program("product"), "m=5,k=0,n=3", "f32"),
                                  (machine.program("product"), "m=0,k=4,n=3", "f32"),
                                  (machine.program("relu"), "m=5,k=8,n=12", "f32"),
                                  (machine.program("heads"), "b=65,m=2,h=2,d=8,n=4", "f32"),
                                  (machine.program("heads"), "b=2,m=3,h=5,d=7,n=12", "f32"),
                                  (machine.program("product"), "m=5,k=8,n=8", "bf16")):
        _, calls = machine.answers("verify", "--target", "cuda", program, "--shape", shape, "--dtype", dtype, *ONCE)
        assert not products(calls), (program, products(calls))
    product = ["run", "--target", "cuda", machine.program("product"), "--shape", "m=5,k=7,n=3"]
    for setting in ({"REFOLD_CUBLASLT": "off"}, {"REFOLD_CUBLASLT": ""}, {"FAKE_CUBLASLT_NONE": "1"}):
        _, calls = machine.answers(*product, **setting)
        assert not products(calls) and count(calls, "cuLaunchKernel") == 1, calls
    # Nothing is loaded for a program that has no product.
    _, calls = machine.answers("run", "--target", "cuda", "examples/softmax.fold", "--shape", "m=3,n=40", REFOLD_CUBLASLT="/no-such.so")
    assert count(calls, "cublasLtCreate") == 0, calls


def check_failures(machine):
    product = ["run", "--target", "cuda", machine.program("product"), "--shape", "m=5,k=7,n=3"]
    machine.refuses(4, ["found no cuBLASLt for REFOLD_CUBLASLT '/no-such.so'"], *product, REFOLD_CUBLASLT="/no-such.so")
    # "on" looks where Python's packages are.
    site = machine.folder / "venv/lib/python3/site-packages/nvidia/cu13/lib"
    site.mkdir(parents=True)
    (site / "libcublasLt.so.13").symlink_to(machine.environment["REFOLD_CUBLASLT"])
    _, calls = machine.answers(*product, REFOLD_CUBLASLT="on", VIRTUAL_ENV=str(machine.folder / "venv"))
    assert count(calls, "cublasLtMatmul") == 1, calls
    machine.refuses(4, ["lacks 'cublasLtCreate'"], *product, REFOLD_CUBLASLT="libz.so.1")
    machine.refuses(4, ["is version 11.5, expected 12.0 or newer"], *product, FAKE_CUBLASLT_VERSION="110500")
    machine.refuses(70, ["cublasLtCreate of cuBLASLt 13.1: CUBLAS_STATUS_FAKE (1)"], *product, FAKE_CUBLASLT_FAIL="cublasLtCreate=1")
    machine.refuses(70, ["on the GPU 'Fake GPU'", "cublasLtMatmul of cuBLASLt 13.1", "(13)"], *product, FAKE_CUBLASLT_FAIL="cublasLtMatmul=13")
    machine.refuses(5, ["for the workspace of cuBLASLt", "out of memory"], *product, FAKE_CUDA_MEMORY=str(16 << 20))


def check_bench(machine):
    """Who has computed a step is said."""
    text, _ = machine.answers("bench", "--target", "cuda", "--format", "json", machine.program("linear"), "--shape", "m=5,k=8,n=12")
    steps = [step["name"] for step in json.loads(text)["kernels"]["fused"]]
    assert len(steps) == 1 and steps[0].endswith(" (cuBLASLt 13.1)"), steps
    shifted = machine.folder / "shifted.mlir"
    shifted.write_text(SHIFTED)
    text, _ = machine.answers("bench", "--target", "cuda", "--format", "json", shifted)
    assert "cuBLASLt" not in text, text


def check_package(machine):
    """A package asks the library, too."""
    package = machine.folder / "linear.rfx"
    machine.answers("compile", "--target", "cuda-sm90", machine.program("linear"), "-o", package)
    code, text, calls = machine.run(pathlib.Path(REFOLD).with_name("refold-run"), package, "--shape", "m=5,k=8,n=12", "--bench")
    assert code == 0 and set(products(calls)) == {"5x8x12 of 1"} and "cuBLASLt 13.1" in text, (text, calls)


if __name__ == "__main__":
    sys.exit(run_checks(Library, [check_forms, check_attention, check_ours, check_failures, check_bench, check_package]))
