#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Machine code of entries that launches take, read back by nvdisasm, no GPU needed: the loops have the instructions of the
schedule (matrix units, asynchronous copies, 16 bytes at once), no memory barrier wider than the block, and no local memory; what
roles of attention compute of an element runs while products are under way: between their issue and the wait for them, on every way
there.

Loops are found by branches back. A loop is named by what it has to have: {"HGMMA": 12, "MUFU.EX2": 64} is the smallest one with
at least 12 instructions that begin with the first word and 64 with the other. WHOLE says the same of an entry without such a loop.
Counts are at least what the schedule needs, not what a version of ptxas makes of it.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import checks
from checks import ROOT, nvrtc
from tiles_test import CAUSAL, latent, program

import sass

ARCHES = {"sm90": "sm_90a", "sm80": "sm_80"}
WRITTEN = {"hd64": program(64, 64), "hd128": program(128, 128), "causal64": program(64, 64, mask=CAUSAL),
           "causal128": program(128, 128, mask=CAUSAL), "latent": latent(576)}
WHOLE = "whole"
# The least share of what every turn computes of elements that runs while products are under way.
LEAST_BESIDE = 0.9
BOXES = {"UTMALDG": 1, "SYNCS.PHASECHK": 1}
COPIES = r"LDGSTS\..*128"
# (program, target, entry): the loops that it has to have, and for roles that share of the first one.
CASES = {
    ("hd64", "sm90", "roles192x128x64x64"): ([{"HGMMA": 12, "MUFU.EX2": 64, "FFMA": 64, "FMNMX": 64}, BOXES], LEAST_BESIDE),
    ("hd128", "sm90", "roles128x128x128x128"): ([{"HGMMA": 16, "MUFU.EX2": 64, "FFMA": 64, "FMNMX": 64}, BOXES], LEAST_BESIDE),
    ("causal64", "sm90", "roles192x128x64x64"): ([{"HGMMA": 12, "MUFU.EX2": 64, "FFMA": 64, "FMNMX": 64}, BOXES], LEAST_BESIDE),
    ("causal128", "sm90", "roles128x128x128x128"): ([{"HGMMA": 16, "MUFU.EX2": 64, "FFMA": 64, "FMNMX": 64}, BOXES], LEAST_BESIDE),
    # Its four warps that compute elements have no products under way meanwhile: the sums are those of eight other warps.
    ("latent", "sm90", "wide64x64x576x512"):
        ([{"HGMMA": 36, "MUFU.EX2": 32, "STSM": 4}, {"HGMMA.64x256": 4, "UTMALDG": 1}], 0.0),
    # Twice 64 products of scores, 64 of values and 8 of ones.
    ("hd64", "sm80", "tiles128x64x64x64x8"): ([{"HMMA": 272, COPIES: 16, "LDSM": 80, "MUFU.EX2": 128}], None),
    ("hd128", "sm80", "tiles128x64x128x128x8"): ([{"HMMA": 256, COPIES: 16, "LDSM": 80, "MUFU.EX2": 64}], None),
    ("causal128", "sm80", "tiles128x64x128x128x8"): ([{"HMMA": 256, COPIES: 16, "LDSM": 80, "MUFU.EX2": 64}], None),
    ("examples/attention_decode", "sm90", "parts16x64x128x128x8"): ([{"HMMA": 32, COPIES: 16, "LDSM": 16, "MUFU.EX2": 8}], None),
    ("examples/attention_decode", "sm80", "parts16x64x128x128x8"): ([{"HMMA": 32, COPIES: 16, "LDSM": 16, "MUFU.EX2": 8}], None),
    ("examples/fp8_quantised_product", "sm90", "f8Roles128x256x16"): ([{"QGMMA": 8, "WARPGROUP.DEPBAR": 2}, BOXES], None),
    ("examples/fp8_quantised_product", "sm80", "f8Units128x128x16"): ([{"HMMA": 64, COPIES: 8, "LDSM": 12}], None),
    ("examples/routing", "sm90", "roles128x256x64x8"): ([{"HGMMA.64x256": 4}, {COPIES: 24}], None),
    ("examples/routing", "sm80", "128x128x8"): ([{"HMMA": 32, COPIES: 8, "LDSM": 12}], None),
    # Lists of the best.
    ("examples/routing", "sm90", "lanes1x8x4"): ([{r"LDS\..*128": 8, "MUFU.EX2": 32}, {COPIES: 8}], None),
    ("examples/routing", "sm80", "rows32x4x4"): ([{WHOLE: 0, r"LDG\..*128": 4, "SHFL": 5}], None),
    # Rows of 4096 and of 32768.
    ("examples/softmax", "sm90", "rows64x8x8"): ([{WHOLE: 0, r"LDG\..*128": 8, r"STG\..*128": 8, "MUFU.EX2": 64}], None),
    ("examples/softmax", "sm80", "rows64x8x8"): ([{WHOLE: 0, r"LDG\..*128": 8, r"STG\..*128": 8, "MUFU.EX2": 64}], None),
    ("examples/softmax", "sm90", "shared512x2x8"):
        ([{r"LDS\..*128": 4, "MUFU.EX2": 32, r"STG\..*128": 4, COPIES: 4}, {r"LDS\..*128": 4, "MUFU.EX2": 32}, {COPIES: 8}], None),
    ("examples/softmax", "sm80", "shared512x2x8"):
        ([{r"LDS\..*128": 4, "MUFU.EX2": 32, r"STG\..*128": 4, COPIES: 4}, {r"LDS\..*128": 4, "MUFU.EX2": 32}, {COPIES: 8}], None),
    ("examples/layernorm", "sm90", "rows64x8x8"): ([{WHOLE: 0, r"LDG\..*128": 8, r"STG\..*128": 8}], None),
    ("examples/layernorm", "sm80", "rows64x8x8"): ([{WHOLE: 0, r"LDG\..*128": 8, r"STG\..*128": 8}], None),
    ("examples/layernorm", "sm90", "ring8x512x8x8"):
        ([{COPIES: 16, r"LDS\.128": 32, r"STG\..*128": 16, "SYNCS.PHASECHK": 1}], None),
    ("examples/layernorm", "sm80", "shared512x4x8"): ([{r"LDS\.128": 8, r"STG\..*128": 8, COPIES: 8}, {COPIES: 16}], None),
}
# What orders memory beyond the block, as ptxas spells fences, acquires and barriers of clusters.
WIDER = re.compile(r"MEMBAR\.\w+\.(GPU|SYS|VC)|ERRBAR|CCTL\.IVALL|UCGABAR|FENCE\.(?!VIEW\.ASYNC)")
LOCAL = re.compile(r"(LDL|STL)\b")
ELEMENT = re.compile(r"MUFU\.EX2|FFMA|FMNMX|FADD|FMUL")
# Factors stay where products were until the sums have come: their conversions follow the wait, by design.
WITH_CONVERSIONS = re.compile(ELEMENT.pattern + "|F2FP")
# (what is done to the text, where, what is said of it): a check that has never failed is none.
LOOP_OF_ROLES = ("hd128", "sm90", "roles128x128x128x128")
MUTANTS = [
    (LOOP_OF_ROLES, "wait_products<1>();", "wait_products<0>();", "of element work beside products"),
    (LOOP_OF_ROLES, "      begin_products();\n      multiply_panels", "      fence_blocks();\n      begin_products();\n      multiply_panels",
     "expected no memory barrier wider than the block"),
    (LOOP_OF_ROLES, "exp2_fast(", "(", "found no loop"),
    (LOOP_OF_ROLES, "      begin_products();\n      multiply_panels", "      volatile int numbers[64];\n      numbers[turn & 63] = turn;\n"
     "      begin_products();\n      multiply_panels", "expected no local memory"),
    (("examples/softmax", "sm90", "rows64x8x8"), "8, 8, InRegisters", "8, 2, InRegisters", "found no loop"),
]


def only_entry(text, name):
    """The text without all other entries: compiling those would be most of the time."""
    kept = re.sub(r"^REFOLD_\w*KERNEL\([^\n]*\n(\w+)\(.*?^}\n", lambda one: one[0] if one[1] == name else "", text,
                  flags=re.DOTALL | re.MULTILINE)
    assert f"\n{name}(" in kept, f"found no entry {name}"
    return kept


def text_of(folder, name, target, ending):
    """(the text of the kernel with that entry, the entry's name)"""
    refold = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
    path = folder / f"{name}.fold" if name in WRITTEN else ROOT / f"{name}.fold"
    width = ["--dim=e=512"] if name == "latent" else []
    done = subprocess.run([refold, "compile", "--target", f"cuda-{target}", "--emit", "cuda", "--format", "json", "--dtype", "bf16",
                           *width, path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kernels = json.loads(done.stdout)["kernels"]
    found = [(kernel["text"], entry["name"]) for kernel in kernels for entry in kernel["entries"]
             if entry["name"] == f"{kernel['name']}_{ending}"]
    names = [entry["name"] for kernel in kernels for entry in kernel["entries"]]
    assert len(found) == 1, f"found the entries {names}, expected one that ends with {ending}"
    return found[0]


def count(code, word):
    return sum(1 for one in code if re.match(word, one.opcode))


def find_loop(entry, wanted):
    """The smallest loop with all of these, or the entry."""
    if WHOLE in wanted:
        wanted = {word: least for word, least in wanted.items() if word != WHOLE}
        loops = [sass.Loop(0, set(), set(range(len(entry.code))))]
    else:
        loops = entry.loops()
    for loop in loops:
        if all(count((entry.code[i] for i in loop.body), word) >= least for word, least in wanted.items()):
            return loop
    counts = [{word: count((entry.code[i] for i in loop.body), word) for word in wanted} for loop in loops[-3:]]
    raise AssertionError(f"found no loop with {wanted}; the largest have {counts}")


def share_beside(entry, loop, kind):
    """Of the instructions of a kind that every turn runs, the share with a group of products under way; None where there are none."""
    under_way = entry.groups_under_way()
    of_kind = [i for i in entry.always_run(loop) if kind.match(entry.code[i].opcode)]
    return sum(1 for i in of_kind if under_way[i]) / len(of_kind) if of_kind else None


def judge(entry, loops, least_beside):
    """What is measured; an AssertionError where the entry is not as expected."""
    local = [str(one) for one in entry.code if LOCAL.match(one.opcode)]
    assert not local, f"found {local[:3]}, expected no local memory"
    found = [find_loop(entry, wanted) for wanted in loops]
    for loop, wanted in zip(found, loops):
        wider = [str(entry.code[i]) for i in sorted(loop.body) if WIDER.match(entry.code[i].opcode)]
        assert not wider or WHOLE in wanted, f"found {wider[:3]} in a loop, expected no memory barrier wider than the block"
    if least_beside is None:
        return ""
    element, all_of_it = (share_beside(entry, found[0], kind) for kind in (ELEMENT, WITH_CONVERSIONS))
    said = f"{element:.1%} of element work beside products, {all_of_it:.1%} with conversions of factors to operands"
    assert element >= least_beside, f"found {said}, expected at least {least_beside:.0%}"
    # A bound that is below what is reached hides what is lost later.
    assert least_beside or element == 0, f"found {said}, expected none: raise the bound"
    return said


def read_back(compiler, tool, text, name, target):
    cubin, _ = compiler.compile(only_entry(text, name), ARCHES[target])
    return sass.disassemble(tool, cubin)[name]


def check_entry(compiler, tool, folder, *case):
    said = judge(read_back(compiler, tool, *text_of(folder, *case), case[1]), *CASES[case])
    if said:
        print(*case, said)


def check_mutant(compiler, tool, folder, case, old, new, expected):
    """A text that is worse is told apart."""
    text, name = text_of(folder, *case)
    assert old in text, f"found no {old!r} to replace"
    try:
        judge(read_back(compiler, tool, text.replace(old, new), name, case[1]), *CASES[case])
    except AssertionError as error:
        assert expected in str(error), f"{old!r} to {new!r}: found '{error}', expected '{expected}'"
        return
    raise AssertionError(f"{old!r} to {new!r}: found nothing wrong, expected '{expected}'")


def main():
    tool = sass.find_nvdisasm()
    if not tool or not nvrtc.find_library():
        missing = "nvdisasm (Python package nvidia-cuda-nvdisasm)" if not tool else "NVRTC (Python package nvidia-cuda-nvrtc)"
        print(f"found no {missing}: no machine code is read")
        return 77
    compiler = nvrtc.Compiler(nvrtc.find_library())
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name, text in WRITTEN.items():
            (folder / f"{name}.fold").write_text(text)
        return checks.run([(check_entry, compiler, tool, folder, *case) for case in CASES] +
                          [(check_mutant, compiler, tool, folder, *mutant) for mutant in MUTANTS])


if __name__ == "__main__":
    sys.exit(main())
