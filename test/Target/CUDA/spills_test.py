#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What needs no GPU of the kernels of the catalogue and of the examples: compiled for a GPU of the target, no entry spills or
needs a stack.

Those of programs and types that spill or did, and some by lot, an eighth of them a commit (checks.share_of); all there are with
REFOLD_ALL_DEFECTS=1. Entries that are known to spill are listed with the bytes and the reason, and fail the test as soon as they
do not.
"""

import json
import os
import random
import subprocess
import sys

import checks
from checks import ROOT, nvrtc

ARCHES = {"cuda-sm90": "sm_90a", "cuda-sm80": "sm_80"}
ROLES = "8 to 148 bytes; with 32 columns 1.1 to 1.5 times as long on an H200, with 128 they spill up to 1.7 KB"
BROUGHT = "16 to 72 bytes; tiles of 64 columns in place of 128 spill nothing and take 1.1 to 1.6 times as long on an H100"
GATE = "31 registers once a block, behind the stream, where gates are read; with 16 columns 1.25 to 1.35 times as long on an H200"
STATES = "1.7 KB beside five states a row; without roles, which spills nothing, 1.6 to 2.3 times as long on an H200"
WORDS = "16 to 84 bytes; one tile of rows 1.09 to 1.17 times as long on an H200 (0.61 to 0.79 of 16 x 1000), 16 columns 1.01 to 1.12"
PAIRS = "8 bytes; with one block fewer, which spills nothing, 1.00 to 1.10 times as long on an H200"
DISTANCE = "40 to 500 bytes; tiles of 64 columns in place of 128 spill nothing and take 1.02 to 1.21 times as long on an H200"
# (program, type, target): what an entry's name ends with, and why it spills.
KNOWN = {
    ("catalogue_05_pair_bias", "f32", "cuda-sm90"): {"tiles128x32x128x128x1": WORDS, "tiles128x32x128x128x4": WORDS},
    ("catalogue_05_pair_bias", "f32", "cuda-sm80"): {"tiles128x32x128x128x1": WORDS, "tiles128x32x128x128x4": WORDS},
    ("catalogue_14_gated_attention", "f32", "cuda-sm90"): {"tiles128x32x128x128x1": WORDS, "tiles128x32x128x128x4": WORDS},
    ("catalogue_14_gated_attention", "f32", "cuda-sm80"): {"tiles128x32x128x128x1": WORDS, "tiles128x32x128x128x4": WORDS},
    ("catalogue_18_attention_probes", "bf16", "cuda-sm90"): {"roles128x64x256x256": STATES},
    ("catalogue_05_pair_bias", "bf16", "cuda-sm90"):
        {"roles128x64x256x256": ROLES, "roles128x128x64x64e": BROUGHT, "roles128x128x128x128e": BROUGHT},
    ("catalogue_05_bucketed_bias", "bf16", "cuda-sm90"): {"roles128x64x256x256": ROLES},
    ("catalogue_14_gated_attention", "bf16", "cuda-sm90"):
        {"tiles64x32x256x256x8": GATE, "roles128x64x256x256": ROLES, "roles192x64x64x64": ROLES},
    ("catalogue_14_gated_attention", "bf16", "cuda-sm80"): {"tiles64x32x256x256x8": GATE},
    **{(program, "f32", "cuda-sm90"): {f"rows{threads}x8x4": PAIRS for threads in (32, 64, 128)}
       for program in ("catalogue_57_kernel_regression", "catalogue_57_mean_shift", "catalogue_58_sinkhorn_half_step")},
    ("attention_alibi", "bf16", "cuda-sm90"):
        {"roles128x64x256x256": ROLES, "roles128x128x128x128": DISTANCE, "roles192x128x64x64": DISTANCE},
    ("attention_alibi", "f32", "cuda-sm90"): {"tiles128x32x128x128x4": WORDS},
    ("attention_alibi", "f32", "cuda-sm80"): {"tiles128x32x128x128x1": WORDS, "tiles128x32x128x128x4": WORDS},
}
SAMPLE = 5
# Programs that spilled once: all of what takes registers beside sums, states and rows.
MENDED = [("catalogue_31_instance_norm", "bf16", "cuda-sm90"), ("catalogue_32_layer_norm_backward", "bf16", "cuda-sm80"),
          ("catalogue_06_soft_capped_attention", "bf16", "cuda-sm90"), ("catalogue_18_attention_probes", "bf16", "cuda-sm80"),
          ("catalogue_53_skewness_and_kurtosis", "f32", "cuda-sm90"), ("catalogue_05_pair_bias", "bf16", "cuda-sm80"),
          ("catalogue_32_layer_norm_backward", "f32", "cuda-sm90"), ("catalogue_32_layer_norm_backward", "bf16", "cuda-sm90"),
          ("catalogue_38_block_scaled", "f32", "cuda-sm80"), ("catalogue_56_mixture_step", "bf16", "cuda-sm80"),
          ("catalogue_04_latent_decode", "bf16", "cuda-sm90"), ("catalogue_19_cross_entropy", "f32", "cuda-sm90"),
          ("catalogue_19_cross_entropy_backward", "bf16", "cuda-sm90"), ("catalogue_19_cross_entropy_backward", "bf16", "cuda-sm80"),
          ("catalogue_19_smoothed_targets", "bf16", "cuda-sm90"), ("catalogue_20_linear_cross_entropy", "bf16", "cuda-sm90"),
          ("catalogue_23_total_variation_to_a_label", "bf16", "cuda-sm90"), ("catalogue_26_supervised_contrastive", "bf16", "cuda-sm90"),
          ("catalogue_42_routing_not_renormalised", "bf16", "cuda-sm90"), ("catalogue_46_gumbel_sampling", "bf16", "cuda-sm90"),
          ("catalogue_54_regression", "bf16", "cuda-sm90"), ("catalogue_68_gated_loudness", "bf16", "cuda-sm90"),
          ("catalogue_38_block_scaled", "f32", "cuda-sm90"), ("catalogue_66_goodness_of_fit", "f32", "cuda-sm90"),
          ("catalogue_26_margin_softmax", "f32", "cuda-sm90"), ("attention_alibi", "bf16", "cuda-sm80"),
          ("attention_causal", "bf16", "cuda-sm90"), ("attention_gqa", "f32", "cuda-sm90"), ("fp8_quantised_product", "f32", "cuda-sm90"),
          ("catalogue_61_gyration_tensor", "f32", "cuda-sm90"), ("catalogue_31_group_norm_and_channel_means", "f32", "cuda-sm90"),
          ("catalogue_36_quantised_product", "bf16", "cuda-sm90"), ("rmsnorm_product", "f32", "cuda-sm90"),
          ("catalogue_30_layer_norm_product", "bf16", "cuda-sm80")]


def kernels_of(path, dtype, target):
    """Those of a program; none where the target refuses it, which is another test's matter."""
    refold = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
    done = subprocess.run([refold, "compile", "--target", target, "--emit", "cuda", "--format", "json", "--dtype", dtype, path],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode in (0, 4), done.stderr
    return json.loads(done.stdout)["kernels"] if done.returncode == 0 else []


def path_of(program):
    return ROOT / ("test/Catalogue" if program.startswith("catalogue") else "examples") / f"{program}.fold"


def check_spills(compiler, program, dtype, target):
    known, spilt = list(KNOWN.get((program, dtype, target), {})), {}
    for kernel in kernels_of(path_of(program), dtype, target):
        found = nvrtc.resources(compiler.compile(kernel["text"], ARCHES[target])[1])
        assert found, "found no entry, expected those that the compiler reports"
        spilt |= {name: (stack, spills) for name, (_, stack, spills) in found.items() if stack or spills}
    fresh = {name: found for name, found in spilt.items() if not name.endswith(tuple(known))}
    assert not fresh, f"found bytes of stack and spills {fresh}, expected none"
    ended = [end for end in known if not any(name.endswith(end) for name in spilt)]
    assert not ended, f"found no spills of {ended}: take them out of KNOWN"


def main():
    folders = (ROOT / "test/Catalogue").glob("catalogue_*.fold"), (ROOT / "examples").glob("*.fold")
    programs = [path.stem for folder in folders for path in sorted(folder)]
    every = [(program, dtype, target) for program in programs for dtype in ("f32", "bf16") for target in ARCHES]
    chosen = every
    if os.environ.get("REFOLD_ALL_DEFECTS"):
        os.environ["REFOLD_ALL_CASES"] = "1"
    else:
        chosen = list(dict.fromkeys([*KNOWN, *MENDED, *random.Random(5).sample(every, SAMPLE)]))
    return checks.run(*checks.compiled(check_spills, chosen))


if __name__ == "__main__":
    sys.exit(main())
