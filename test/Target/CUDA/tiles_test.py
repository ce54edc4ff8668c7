#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What needs no GPU of the CUDA target's tiles: products inside cascades, on examples and fixed widths.

Emulated in all modes against double (empty, one element, ragged, whole tiles, growing scores, NaN, -inf,
masked rows), by vectors and element by element; compiled for sm_80 and sm_90a without spills or stack, and the text for sm_80 for sm_90 but for what is listed; the
host's compiler takes the same text with warnings as errors.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import checks
from rows_test import ROOT, check_text, kernels_of, nvrtc, refold

PROGRAM = """weighted(q[b,h={heads},m,d={depth}], k[b,g={groups},n,d={depth}], v[b,g={groups},n,e={width}]{more}) -> o
  s = sum(d: q * k[b, h//{share}, n, d]) * rsqrt(len(d)){bias}
{mask}  t = max(n: s)
  p = exp(s - t)
  o[b,h,m,e] = sum(n: p * v[b, h//{share}, n, e]) / sum(n: p)
"""


def program(depth, width, heads=2, groups=2, mask="", more="", bias=""):
    return PROGRAM.format(depth=depth, width=width, heads=heads, groups=groups, share=heads // groups, mask=mask, more=more,
                          bias=bias)


LATENT = """latent(q[b,m,h,d={depth}], c[b,n,d={depth}]{more}) -> o
  s = sum(d: q*c) * rsqrt(192.0)
{mask}  t = max(n: s)
  p = exp(s - t)
  o[b,m,h,e] = sum(n: p * c[b, n, e]) / sum(n: p)
"""


def latent(depth, mask="", more=""):
    return LATENT.format(depth=depth, mask=mask, more=more)


CAUSAL = "  s = where(n <= m, s, -inf)\n"
WINDOW = "  s = where(n <= m, where(n > m - 20, s, -inf), -inf)\n"
FIXED = {"plain": program(64, 64), "causal": program(40, 72, mask=CAUSAL), "grouped": program(40, 24, 4, 2),
         "window": program(32, 16, mask=WINDOW), "bias": program(24, 32, more=", r[b,h,m,n]", bias=" + r"),
         "odd": program(13, 21, mask=CAUSAL),
         "biases": program(24, 32, more=", r[b,h,m,n], keep[m,n]: i64", bias=" + where(keep > 0, r, -2.5)")}
# Heads side by side in one dimension, and what the column alone or the row alone reads.
JOINED = """joined(q[b,m,c={all}], k[b,n,c], v[b,n,c], keep[b,n]: i64, by[b,m], heads[h=3], part[d={width}]) -> o
  s[b,h,m,n] = sum(d: q[b, m, h*{width} + d] * k[b, n, h*{width} + d]) / 5.65625 + where(keep > 0, 0.0, -65504.0){row}
  p = exp(s - max(n: s))
  o[b,m,h,d] = sum(n: p * v[b, n, h*{width} + d]) / sum(n: p)
"""


def joined(width, row=""):
    return JOINED.format(width=width, all=3 * width, row=row)


FIXED |= {"joined": joined(48), "joinedrow": joined(32, " - by * by"),
          "divided": program(32, 32, mask=CAUSAL).replace("* rsqrt(len(d))", "/ 5.5")}
# Where data say, for all rows of a matrix, which part of the stream they read; and for each row, which bounds nothing.
FIXED |= {"filled": program(64, 64, mask="  s = where(n < length, s, -inf)\n", more=", length[b]: i32"),
          "between": program(32, 48, 4, 2, mask="  s = where(n >= first and n <= last, s, -inf)\n",
                             more=", first[b,h]: i64, last[b]: i32"),
          "later": program(64, 64, mask="  s = where(n <= m + before, s, -inf)\n", more=", before[b]: i64"),
          "ofrows": program(24, 32, mask="  s = where(n < length, s, -inf)\n", more=", length[b,m]: i64")}
# Masks of finite numbers: rows that see nothing else, at the beginning, behind a window, at the end, beside a bias.
LOW = "  s = where(n < m - 3, s, -3.4028235e38)\n"
FIXED |= {"low": program(40, 72, mask=LOW), "lowwindow": program(32, 16, mask="  s = where(n <= m - 5 and n > m - 60, s, -1e9)\n"),
          "lowend": program(64, 64, mask="  s = where(n >= m + 20, s, -1e9)\n"),
          "lowbias": program(24, 32, mask=LOW, more=", r[b,h,m,n]", bias=" + r"),
          "lowadded": program(80, 80, mask="  s = s + where(n <= m - 2, 0.0, -3.4028235e38)\n")}
COMPILED = {"hd64": program(64, 64), "hd64causal": program(64, 64, mask=CAUSAL), "hd128": program(128, 128),
            "hd128causal": program(128, 128, mask=CAUSAL), "hd80": program(80, 80), "hd96gqa": program(96, 96, 4, 1),
            "hd256": program(256, 256), "hd128low": program(128, 128, mask=LOW), "hd64low": program(64, 64, mask=LOW), "filled": FIXED["filled"], "later": FIXED["later"],
            "joined": joined(32), "joinedwide": joined(64)}
# Rows that are multiplied and, of their front, added: read once, results wider than registers of those who multiply.
RAGGED = ("  s = where(n < length, s, -inf)\n", ", length[b]: i64")
WIDE = {"shared": (latent(272), 264), "sharedragged": (latent(320, *RAGGED), 104), "sharedcausal": (latent(288, CAUSAL), 288)}
COMPILED_WIDE = {"latent": (latent(576), 512), "latentragged": (latent(576, *RAGGED), 512),
                 "latentcausal": (latent(576, CAUSAL), 512), "latent320": (latent(320), 256),
                 "latent512": (latent(512), 512), "latentnarrow": (latent(576), 64)}
FAR = {"taken": program(64, 64, mask="  s = where(n < m, s, -5e37)\n"),
       "added": program(64, 64, mask="  s = s + where(n < m, 0.0, -3.4028235e38)\n"),
       "named": program(24, 32, more=", limit[n]", bias=" + limit")}
EXAMPLES = ["attention", "attention_causal", "attention_gqa", "attention_alibi", "attention_decode"]


def verify(path, dtype, lengths, *more, target="cuda-emulated"):
    refold("verify", "--target", target, str(path), "--dtype", dtype, "--lengths", lengths, "--broad-length", "0",
           "--first-seeds", "1", "--seeds", "2", "--splits", "0", "--threads", "1", *more)


def check_example(name, dtype):
    verify(ROOT / f"examples/{name}.fold", dtype, "0,17,40")


# Of 8 bits, of one format or both, beside 16 bits, whose factors are rounded to f16.
BYTES = {"bytes": ("f8e4m3", "f8e4m3", "f8e4m3", ""), "bytesbeside": ("bf16", "f8e5m2", "f8e4m3", CAUSAL),
         "bytesof16": ("f8e5m2", "f8e4m3", "f16", CAUSAL)}
# The same whose rows are whole vectors of 16 bytes: what is streamed is widened a tile ahead, all of it or the keys alone.
BYTES |= {"byteswhole": ("f8e4m3", "f8e4m3", "f8e5m2", "", 64, 48), "byteswholemasked": ("bf16", "f8e4m3", "f8e4m3", CAUSAL, 32, 64),
          "byteskeys": ("f16", "f8e5m2", "f16", LOW, 48, 32)}
COMPILED_BYTES = {"byteshd64": ("f8e4m3", "f8e4m3", "f8e4m3", "", 64, 64), "byteshd128": ("f8e4m3", "f8e4m3", "f8e4m3", CAUSAL, 128, 128),
                  "byteshd64beside": ("bf16", "f8e4m3", "f8e4m3", "", 64, 64)}


def bytes_program(q, k, v, mask, depth=40, width=24):
    return (program(depth, width, mask=mask).replace(f"m,d={depth}]", f"m,d={depth}]: {q}")
            .replace(f"n,d={depth}]", f"n,d={depth}]: {k}").replace(f"n,e={width}]", f"n,e={width}]: {v}"))


def check_bytes_ahead(folder, name, dtype):
    """More tiles than places, ragged ones, more rows than a block has, and few rows whose blocks share the stream."""
    for target in ("cuda-emulated", "cuda-emulated-sm90"):
        verify(folder / f"{name}.fold", dtype, "1,150,400", "--shape", "b=1,m=140", target=target)
    entries = kernels_of(str(folder / name), dtype, "cuda-sm90")[0]["entries"]
    assert entries[0]["vectors"] and any(e["name"].endswith("x16") for e in entries), name
    if name != "byteskeys":
        assert any("_roles" in e["name"] for e in entries) and any("_parts" in e["name"] and e["width"] == 16 for e in entries), name
        verify(folder / f"{name}.fold", dtype, "70,900", "--shape", "b=1,m=3")


def check_wider(name, dtype, shapes):
    """Extents that are known when it runs, and that no entry has room for: steps of their own, in the same program."""
    path = ROOT / f"examples/{name}.fold"
    for target in ("cuda-emulated", "cuda-emulated-sm90"):
        for shape in shapes:
            verify(path, dtype, "1,40", "--shape", shape, target=target)
    kernels = kernels_of(str(path)[:-5], dtype)
    assert not kernels[0]["for_other_sizes"] and len(kernels) > 2 and all(k["for_other_sizes"] for k in kernels[1:]), name


def check_words(path, lengths, shape, families="normal,ninf,nan,const,growing"):
    """Tiles of f32 by its own bound: twice unfused's error and 2 ulp. Rows at an offset have scores of which all is rounding."""
    text = kernels_of(str(path)[:-5], "f32")[0]["text"]
    assert "WordTile" in text and "are rounded to" not in text, path
    verify(path, "f32", lengths, "--shape", shape, "--inputs", families)


def check_few(name, dtype, shape):
    """Few rows of several heads in one block, several blocks a stream, ragged ends."""
    path = ROOT / f"examples/{name}.fold"
    assert any("_parts16x" in e["name"] for e in kernels_of(str(path)[:-5], dtype)[0]["entries"])
    verify(path, dtype, "70,600", "--shape", shape)


def check_fixed(folder, name, dtype):
    # More rows than a block has; whole and ragged tiles.
    verify(folder / f"{name}.fold", dtype, "1,150", "--shape", "b=1,m=140")


def check_roles(folder, name, dtype):
    # Two tiles of the stream, of which one is ragged; two blocks of rows; of some two batches.
    batches = 2 if name in ("grouped", "joined") else 1
    verify(folder / f"{name}.fold", dtype, "1,150", "--shape", f"b={batches},m=140", target="cuda-emulated-sm90")
    if "bias" in name:  # rows that begin at multiples of 16 bytes, which are brought
        verify(folder / f"{name}.fold", dtype, "8,152", "--shape", "b=1,m=140", target="cuda-emulated-sm90")


def check_wide(folder, name, dtype, lengths, shape):
    """Rows of several indices in blocks of 64, ragged tiles, parts of the stream."""
    path = folder / f"{name}.fold"
    width = f"--dim=e={WIDE[name][1]}"
    entries = kernels_of(str(path)[:-5], dtype, "cuda-sm90", width)[0]["entries"]
    assert [e for e in entries if "_wide64x64x" in e["name"]] == entries, name
    verify(path, dtype, lengths, "--shape", shape, width, target="cuda-emulated-sm90")


def check_shares(folder):
    """Longer streams have more blocks: of seven groups of two blocks each at least, empty ones and whole ones among them."""
    path, width = folder / "sharedragged.fold", f"--dim=e={WIDE['sharedragged'][1]}"
    assert "share_blocks<" in kernels_of(str(path)[:-5], "bf16", "cuda-sm90", width)[0]["text"]
    for most in (2, 1500):
        verify(path, "bf16", "1500", "--shape", "b=7,m=1,h=3", width, "--inputs", "growing", "--input", f"length=uniform(0,{most})",
               target="cuda-emulated-sm90")


def check_few_shares(folder, most, shape):
    """The same of few rows without roles: fewer groups than a GPU has blocks at once, and more."""
    path = folder / "filled.fold"
    for target in ("cuda-sm80", "cuda-sm90"):
        assert "share_blocks<" in kernels_of(str(path)[:-5], "bf16", target)[0]["text"]
    verify(path, "bf16", "2000", "--shape", shape, "--inputs", "growing", "--input", f"length=uniform(0,{most})")


def check_no_vectors(folder):
    """Rows that are no whole vectors of 16 bytes (of results, or of what is multiplied) are left to products
    that take them, with a reason."""
    (folder / "odddepth.fold").write_text(latent(332))
    for name, width in (("sharedragged", "--dim=e=100"), ("odddepth", "--dim=e=264")):
        done = subprocess.run([os.environ["REFOLD"], "verify", "--target", "cuda-emulated-sm90", str(folder / f"{name}.fold"), "--dtype", "f16", "--shape",
                               "b=1,m=1,h=2,n=3", width, "--first-seeds", "1", "--seeds", "1", "--threads", "1", "--splits", "0"],
                              capture_output=True, text=True)
        assert done.returncode == 0 and "is not fused [cuda-not-tiles]" in done.stderr, (name, done.stderr)


def check_lowest(folder):
    """Masks that add the lowest number: rows of nothing else are uniform means, as on the CPU, not NaN."""
    outputs = []
    for target in ([], ["--target", "cuda-emulated"]):
        out = folder / f"lowest{len(target)}.npy"
        refold("run", str(folder / "lowest.fold"), *target, "--shape", "b=1,m=20,n=40", "--input", f"r={folder}/lowest.npy",
               "--output", f"o={out}")
        outputs.append(np.load(out))
    assert np.isfinite(outputs[1]).all(), "a row of the lowest number is not finite"
    assert np.abs(outputs[0] - outputs[1]).max() < 0.01, "rows of the lowest number are other means"


def check_bare_sum(folder):
    """A sum of exponentials that nothing divides: one of them is 1, the others vanish, at a score of 40960."""
    x, w = np.zeros((3, 24), np.float16), np.zeros((32, 24), np.float16)
    x[:, 0], w[7, 0] = 1280, 32
    np.savez(folder / "bare.npz", x=x, w=w)
    refold("run", str(folder / "bare.fold"), "--target", "cuda-emulated", "--dtype", "f16", f"--inputs-from={folder}/bare.npz",
           f"--output=o={folder}/bare.npy")
    found = np.load(folder / "bare.npy")
    assert np.abs(found - 1).max() < 1e-6, found


def check_far_numbers(folder, name):
    """The same of masks that take a number far below all scores: strict causal rows, of which the first has no other."""
    outputs = []
    for target in ([], ["--target", "cuda-emulated"], ["--target", "cuda-emulated-sm90"]):
        out = folder / f"{name}{len(outputs)}.npy"
        refold("run", str(folder / f"{name}.fold"), *target, "--dtype", "bf16", "--shape", "b=1,m=5,n=9", "--output", f"o={out}")
        outputs.append((np.load(out).view(np.uint16).astype(np.uint32) << 16).view(np.float32))  # bf16
    for found in outputs[1:]:
        assert np.isfinite(found).all() and np.abs(outputs[0] - found).max() < 0.02, f"rows of {name} are not as on the CPU"


def check_bounds(folder, target):
    """Bounds that data say: before the stream, inside it and at tiles' edges, behind it, and around nothing."""
    random = np.random.default_rng(3)
    q, k, v = (random.standard_normal(shape).astype(np.float16) for shape in ((4, 4, 5, 32), (4, 2, 150, 32), (4, 2, 150, 48)))
    first = np.array([[-7, 0, 31, 64], [0, 63, 77, 78], [149, 150, 0, 80], [5, 5, 5, 5]])
    last = np.array([150, 77, 149, -1], np.int32)
    k[1, :, 128:] = v[1, :, 128:] = np.nan  # tiles that no row reads
    np.savez(folder / "bounds.npz", q=q, k=k, v=v, first=first, last=last)
    refold("run", str(folder / "between.fold"), "--target", target, "--dtype", "f16", f"--inputs-from={folder}/bounds.npz",
           f"--output=o={folder}/bounds.npy")
    found, n = np.load(folder / "bounds.npy"), np.arange(150)
    for b, h in np.ndindex(4, 4):
        read = (n >= first[b, h]) & (n <= last[b])
        if not read.any():
            assert np.isnan(found[b, h]).all(), (b, h)
            continue
        s = q[b, h].astype(float) @ k[b, h // 2, read].astype(float).T / 32 ** 0.5
        p = np.exp(s - s.max(-1, keepdims=True))
        exact = p @ v[b, h // 2, read].astype(float) / p.sum(-1, keepdims=True)
        assert np.abs(found[b, h] - exact).max() < 4e-3, (target, b, h, np.abs(found[b, h] - exact).max())


def check_written(folder, name):
    check_text(str(folder / name), "bf16")


def check_compiled(compiler, folder, name, arch):
    target = "cuda-sm80" if arch == "sm_80" else "cuda-sm90"
    width = [f"--dim=e={COMPILED_WIDE[name][1]}"] if name in COMPILED_WIDE else []
    for kernel in kernels_of(str(folder / name), "bf16", target, *width):
        _, log = compiler.compile(kernel["text"], arch)
        found = nvrtc.resources(log)
        for entry in kernel["entries"]:
            registers, stack, spilled = found[entry["name"]]
            assert (stack, spilled) == (0, 0) and registers <= 255, (entry["name"], arch, found[entry["name"]])
            has_roles = "_roles" in entry["name"] or "_wide" in entry["name"]
            assert arch != "sm_80" or not has_roles, entry["name"]
            assert entry["shared_bytes"] <= (227 if has_roles else 163) << 10, entry["name"]
        # Products that ptxas runs one after the other, registers that it does not give.
        assert "(C75" not in log, (name, [line for line in log.splitlines() if "(C75" in line])
        assert arch == "sm_80" or "_roles" in kernel["text"] or "_wide" in kernel["text"], name


# Entries of the text for sm_80 that spill where an sm_90 runs it, by program; compiled for sm_80 they do not.
SPILLS_ON_NEWER = {
    "attention_decode": {"k6_o_apart_chunks1024x1x8"},
    "attention_causal": {"k0_o_tiles128x64x64x64x8", "k0_o_tiles128x48x128x128x8"},
    "attention_alibi": {"k0_o_tiles128x64x64x64x8", "k0_o_tiles128x48x128x128x8", "k0_o_tiles128x80x64x64x8", "k0_t_apart_chunks128x4x4"},
}


def check_compiled_words(compiler, path, arch):
    """f32: the same text for sm_80 and sm_90, without spills."""
    for kernel in kernels_of(str(path)[:-5], "f32", "cuda-sm80"):
        _, log = compiler.compile(kernel["text"], arch)
        for name, (registers, stack, spilled) in nvrtc.resources(log).items():
            assert (stack, spilled) == (0, 0), (name, arch, registers, stack, spilled)


def check_compiled_for_newer(compiler, name):
    """The text for sm_80 of widths that the program does not state, as an sm_90 has it compiled."""
    found, known = set(), SPILLS_ON_NEWER.get(name, set())
    for kernel in kernels_of(str(ROOT / f"examples/{name}"), "bf16", "cuda-sm80"):
        _, log = compiler.compile(kernel["text"], "sm_90")
        found |= {entry for entry, (_, stack, spilled) in nvrtc.resources(log).items() if stack or spilled}
    assert found == known, (name, "spill and are not listed", found - known, "listed and do not", known - found)


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name, text in {**FIXED, **COMPILED, **FAR}.items():
            (folder / f"{name}.fold").write_text(text)
        for name, (text, _) in {**WIDE, **COMPILED_WIDE}.items():
            (folder / f"{name}.fold").write_text(text)
        for name, parts in {**BYTES, **COMPILED_BYTES}.items():
            (folder / f"{name}.fold").write_text(bytes_program(*parts))
        (folder / "lowest.fold").write_text(program(32, 32, more=", r[b,h,m,n]: f32", bias=" + r").replace("n,d=32]", "n,d=32]: f16")
                                            .replace("m,d=32]", "m,d=32]: f16").replace("e=32]", "e=32]: f16"))
        lowest = np.zeros((1, 2, 20, 40), np.float32)
        lowest[0, :, ::3] = np.finfo(np.float32).min
        lowest[0, :, 1::3] = -2.5e38
        np.save(folder / "lowest.npy", lowest)
        (folder / "bare.fold").write_text("bare(x[m,d], w[n,d]) -> o: f32\n  s[m,n] = sum(d: x * w)\n  o[m] = sum(n: exp(s - max(n: s)))\n")
        cases = [(check_lowest, folder), (check_bare_sum, folder)]
        cases += [(check_far_numbers, folder, name) for name in FAR]
        cases += [(check_bounds, folder, target) for target in ("cuda-emulated", "cuda-emulated-sm90")]
        cases += [(check_example, name, dtype) for name, dtype in zip(EXAMPLES, ["bf16", "f16", "bf16", "f16", "bf16"])]
        cases += [(check_fixed, folder, name, dtype) for name, dtype in zip(FIXED, ["bf16", "f16"] * 9)]
        # Tiles of 64 columns beside results of 128, and of 48 where the stream is shorter.
        cases += [(check_fixed, folder, "hd128", "f16"), (check_fixed, folder, "hd128causal", "bf16")]
        cases += [(check_roles, folder, name, dtype) for name, dtype in zip(FIXED, ["f16", "bf16"] * 9)]
        cases += [(check_few, "attention_causal", "f16", "m=3"), (check_few, "attention_gqa", "bf16", "m=1")]
        cases += [(check_no_vectors, folder)]
        cases += [(check_wide, folder, "shared", "bf16", "1,1500", "b=1,m=1,h=3"), (check_wide, folder, "sharedragged", "f16", "70", "b=2,m=1,h=70"),
                  (check_wide, folder, "sharedcausal", "bf16", "40", "b=1,m=3,h=30"), (check_shares, folder)]
        cases += [(check_few_shares, folder, most, shape) for most, shape in ((2, "b=3,m=2"), (2000, "b=9,m=1"), (300, "b=90,m=1"))]
        # f32: more rows than a block has, ragged, one tile and several, few rows in parts; masks, groups, biases.
        cases += [(check_words, folder / f"{name}.fold", "1,150", "b=1,m=140")
                  for name in ("plain", "causal", "odd", "grouped", "low", "lowwindow", "biases", "joined", "later", "hd128causal")]
        cases += [(check_words, ROOT / f"examples/{name}.fold", "0,17,40", "b=2") for name in EXAMPLES]
        cases += [(check_words, ROOT / "examples/attention_causal.fold", "70,600", "m=3")]
        # --dtype is the type of what has 16 bits.
        cases += [(check_fixed, folder, name, dtype) for name, dtype in zip(BYTES, ("f16", "bf16", "f16"))]
        cases += [(check_bytes_ahead, folder, name, dtype)
                  for name, dtype in (("byteswhole", "f16"), ("byteswholemasked", "bf16"), ("byteskeys", "f16"))]
        cases += [(check_wider, "attention_causal", "f32", ("b=1,h=2,m=9,d=260,e=257", "b=1,h=2,m=9,d=256,e=300")),
                  (check_wider, "attention", "bf16", ("b=1,h=2,m=9,d=272,e=8", "b=1,h=2,m=9,d=40,e=24"))]
        cases += [(check_written, folder, name) for name in FIXED]
        gates = [(folder, name, arch) for name in COMPILED for arch in ("sm_80", "sm_90a")]
        gates += [(folder, name, "sm_90a") for name in COMPILED_WIDE]
        # Before sm_89 bytes are widened by integers, which spills.
        gates += [(folder, name, "sm_90a") for name in COMPILED_BYTES]
        gated, skipped = checks.compiled(check_compiled, gates)
        words, skipped_words = checks.compiled(check_compiled_words, [
            (path, arch) for path in [*[folder / f"{name}.fold" for name in ("hd64", "hd128", "hd128causal", "hd256", "biases", "joined")],
                                      ROOT / "examples/attention.fold"] for arch in ("sm_80", "sm_90")])
        newer, more_skipped = checks.compiled(check_compiled_for_newer, [(name,) for name in EXAMPLES[:3]])
        return checks.run(cases + gated + words + newer, skipped + skipped_words + more_skipped)


if __name__ == "__main__":
    sys.exit(main())
