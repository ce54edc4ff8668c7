#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Holds every primitive of runtime/cuda against what it says it does.

    conformance_test.py                 in the emulator, in all its modes
    conformance_test.py --cubin FILE    on the first GPU; FILE is conformance.cu, compiled
        [--roles FILE]                  and conformance_wgmma.cu, on an sm_90a
"""

import argparse
import ctypes
import heapq
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
RUNTIME = ROOT / "runtime/cuda"
LAUNCHER = """
#define REFOLD_CUDA_EMULATED
#include "conformance.cu"
#include "conformance_wgmma.cu"
extern "C" const char *conform(int which, int mode, int64_t blocks, char *in, int64_t in_bytes, char *out,
                               int64_t out_bytes, int64_t count, const int64_t *maps) {
  static std::string error;
  const int threads[] = {%s};
  const int64_t shared[] = {%s};
  refold::emulator::machine.isFollowing = which == %d;
  error = refold::emulator::launch(blocks, threads[which], refold::emulator::kModes[mode],
                                   {{in, in_bytes, false, false}, {out, out_bytes, true, true},
                                    {reinterpret_cast<char *>(conform_maps), sizeof(conform_maps), false, false, true},
                                    {reinterpret_cast<char *>(conform_tickets), sizeof(conform_tickets), false, false, true},
                                    {reinterpret_cast<char *>(conform_left), sizeof(conform_left), false, false, true}}, [=] {
    switch (which) {
    %s
    }
  }, shared[which]);
  return error.c_str();
}
"""
ARITHMETIC, EXCHANGE, MATRICES, F8 = "conform_arithmetic", "conform_exchange", "conform_matrices", "conform_f8"
COPIES = ["i8x1", "i8x8", "f8x8", "f8x16", "bf16x1", "f16x8", "f32x4", "f32x8", "i64x1", "i64x8"]
INPUTS = {ARITHMETIC: "float", F8: "float", EXCHANGE: "int32_t", MATRICES: "int16_t"}
# Columns of the left side's product, elements of a product, columns of the sums; rows and elements that are there.
PRODUCTS = {"conform_products_bf16x128": (128, 128, 128, 128, 128), "conform_products_bf16x112": (112, 80, 80, 109, 72),
            "conform_products_f16x64": (64, 64, 192, 64, 64), "conform_products_f16x32": (32, 112, 256, 17, 104),
            "conform_products_bf16wide": (64, 112, 256, 50, 104), "conform_products_f16wide": (64, 128, 192, 64, 128)}
# Formats of both sides, columns.
F8_PRODUCTS = {f"conform_products_{a}_{b}x{n}": (a, b, n) for a, b, n in
               [("e4m3", "e4m3", 64), ("e4m3", "e4m3", 256), ("e4m3", "e5m2", 128), ("e5m2", "e4m3", 128), ("e5m2", "e5m2", 64)]}
# Columns, whether rows of the right side lie along the sum.
SIDES = {"conform_along_f16x64": (64, True), "conform_along_bf16x128": (128, True), "conform_along_f16x256": (256, True),
         "conform_shared_bf16x256": (256, False)}
# Bytes of an element, columns, rows that are there.
ELEMENTS = {"conform_elements_i8x64": (1, 64, 61), "conform_elements_bf16x64": (2, 64, 64), "conform_elements_f16x128": (2, 128, 37),
            "conform_elements_bf16x80": (2, 80, 60), "conform_elements_f32x64": (4, 64, 63), "conform_elements_i64x32": (8, 32, 59)}
# Products of f32: columns of a product, elements of each, columns of the sums.
WORD_TILES = {"conform_word_tiles_%dx%dx%d" % n: n for n in [(16, 80, 48), (32, 64, 128), (64, 128, 80)]}
SLICES, WORDS, SHARES, TICKETS = "conform_slices", "conform_words", "conform_shares", "conform_row_tickets"
ROLES, HANDOVER, BOXES, STORES = "conform_roles", "conform_handover", "conform_boxes", "conform_stores"
ARRAYS, PANELS = "conform_array_stores", "conform_panel_stores"
ARRAY_BOXES, TOLD = "conform_array_boxes", "conform_told"
KERNELS = [(ARITHMETIC, "float"), (F8, "float"), (EXCHANGE, "int32_t"), (SLICES, "int32_t"), (TICKETS, "int32_t"), (SHARES, "int32_t"), (WORDS, "float"), (MATRICES, "float")] + [(f"conform_copy_{n}", "int8_t") for n in COPIES]
KERNELS += [(n, "int8_t") for n in ELEMENTS] + [(n, "float") for n in WORD_TILES]
KERNELS += [(n, "float") for n in [*PRODUCTS, *SIDES, ROLES, HANDOVER]]
INPUTS.update({n: "int16_t" for n in [*PRODUCTS, *SIDES, ROLES, HANDOVER]})
INPUTS[SHARES] = "int32_t"
CLUSTERS = "conform_clusters"
MAILBOXES = "conform_mailboxes"
KERNELS += [(n, "float") for n in F8_PRODUCTS] + [(BOXES, "int8_t"), (ARRAY_BOXES, "int8_t"), (TOLD, "int8_t"), (STORES, "int8_t"), (ARRAYS, "int8_t"), (PANELS, "int8_t"), (CLUSTERS, "int32_t"), (MAILBOXES, "int32_t")]
INPUTS.update({n: "int8_t" for n in [*F8_PRODUCTS, BOXES, ARRAY_BOXES, TOLD, STORES, ARRAYS, PANELS]})


def launch_of(name):
    """Threads and bytes of shared memory."""
    if name in PRODUCTS:
        rows, depth, width, _, _ = PRODUCTS[name]
        panels = [(64, depth), (rows, depth), (rows, width)]
        # Beside that, of wide results, a panel of factors and what the left side has in panels and in steps.
        return 256, sum(128 * r * -(-c // 64) for r, c in panels) + (12288 if "wide" in name else 32)
    if name in ELEMENTS:
        size, columns, _ = ELEMENTS[name]
        chunks, unit = columns * size // 16, max(size // 2, 1)
        return 128, 64 * 16 * (chunks if chunks % 8 == 0 else (chunks // unit | 1) * unit)
    if name in WORD_TILES:
        columns, depth, width = WORD_TILES[name]
        tiles = [(16, depth), (columns, depth), (columns, width)]
        return 32, 64 * columns + sum(rows * 16 * (n // 4 if n // 4 in (8, 16, 32) else n // 4 | 1) for rows, n in tiles)
    if name in F8_PRODUCTS:
        return 128, 128 * (64 + F8_PRODUCTS[name][2]) + 16
    if name in SIDES:
        return 128, 128 * (64 + SIDES[name][0]) + 16
    return {MATRICES: (32, 1536), SHARES: (128, 8192), WORDS: (32, 512), ROLES: (384, 4128), HANDOVER: (256, 5120), BOXES: (128, 2304), ARRAY_BOXES: (128, 20480), TOLD: (128, 16416),
            STORES: (128, 8192), ARRAYS: (128, 16384), PANELS: (128, 16384)}.get(name, (128, 0))



def maps_of(name, data, out):
    """Maps that a launch comes with, where arrays are there: address, bytes of a row, rows of a box, extents, strides."""
    if name != TOLD:
        return []
    matrix, boxes = 25 * 144, 2 * 24
    return [(data, 144, 16, (25, 3), (144, matrix)), (data + 3 * matrix, 144, 16, (25, 3, 2), (144, matrix, 3 * matrix)),
            (data + 9 * matrix, 144, 16, (25, 3, 2, 2), (144, matrix, 3 * matrix, 6 * matrix)),
            (data, 144, 16, (25, 3), (144, 0)), (out, 256, 16, (16, boxes), (256, 4096))]


class Emulated:
    modes = 4

    def __init__(self, folder):
        def told(name):
            return f", refold::emulator::mapsOf<{len(maps_of(name, 0, 0))}>(maps)" if maps_of(name, 0, 0) else ""

        cases = "\n".join(f"case {i}: return {name}(reinterpret_cast<{INPUTS.get(name, t)} *>(in), reinterpret_cast<{t} *>(out), count{told(name)});"
                          for i, (name, t) in enumerate(KERNELS))
        source, library = folder / "conform.cpp", folder / "conform.so"
        launches = [[str(launch_of(name)[i]) for name, _ in KERNELS] for i in (0, 1)]
        source.write_text(LAUNCHER % (", ".join(launches[0]), ", ".join(launches[1]), [k for k, _ in KERNELS].index(EXCHANGE), cases))
        compiler = next(c for c in ("clang++-19", "clang++", "g++") if shutil.which(c))
        warnings = ["-Wall", "-Wextra", "-Werror"]
        subprocess.run([compiler, "-std=c++20", "-O1", "-shared", "-fPIC", "-ffp-contract=off", *warnings, "-I", RUNTIME,
                        source, "-o", library], check=True)
        self.lib = ctypes.CDLL(str(library))
        self.lib.conform.restype = ctypes.c_char_p

    def run(self, name, mode, blocks, data, out, count):
        which = [k for k, _ in KERNELS].index(name)
        i64, words = ctypes.c_int64, []
        for first, columns, rows, extents, strides in maps_of(name, data.ctypes.data, out.ctypes.data):
            rest = 4 - len(extents)
            words += [first, columns, rows, *extents, *[1] * rest, *strides, *[16] * rest, len(extents)]
        error = self.lib.conform(which, mode, i64(blocks), ctypes.c_void_p(data.ctypes.data), i64(data.nbytes),
                                 ctypes.c_void_p(out.ctypes.data), i64(out.nbytes), i64(count), (i64 * len(words))(*words))
        assert not error, f"{name}, mode {mode}: {error.decode()}"


class Device:
    modes = 1

    def __init__(self, *cubins):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context, self.modules = ctypes.c_int(), ctypes.c_void_p(), []
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        for cubin in cubins:
            self.modules.append(ctypes.c_void_p())
            self.call("cuModuleLoadData", ctypes.byref(self.modules[-1]), cubin.read_bytes())

    def call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        assert code == 0, f"{name}: error {code}"

    def encode(self, to, first, columns, rows, extents, strides):
        """Bytes in boxes of 128, swizzled by 128 bytes, zeros where nothing is."""
        rank = 1 + len(extents)
        u64, u32 = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
        box = u32(128, rows, *[1] * (rank - 2))
        self.call("cuTensorMapEncodeTiled", ctypes.c_void_p(to), 0, rank, ctypes.c_void_p(first), u64(columns, *extents), u64(*strides),
                  box, u32(*[1] * rank), 0, 3, 0, 0)

    def run(self, name, mode, blocks, data, out, count):
        function, addresses = ctypes.c_void_p(), []
        module = self.modules[any(name in kernels for kernels in (PRODUCTS, F8_PRODUCTS, SIDES, (ROLES, HANDOVER, BOXES, ARRAY_BOXES, TOLD, STORES, ARRAYS, PANELS, CLUSTERS, MAILBOXES)))]
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        for array in (data, out):
            address = ctypes.c_uint64()
            self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(array.nbytes))
            self.call("cuMemcpyHtoD_v2", address, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))
            addresses.append(address)
        cells = [*addresses, ctypes.c_int64(count)]
        maps = maps_of(name, *[a.value for a in addresses])
        memory = ctypes.create_string_buffer(128 * len(maps) + 64)
        begin = -(-ctypes.addressof(memory) // 64) * 64
        for i, one in enumerate(maps):
            self.encode(begin + 128 * i, *one)
        values = (ctypes.c_void_p * 4)(*[ctypes.cast(ctypes.byref(c), ctypes.c_void_p) for c in cells], begin if maps else None)
        threads, shared = launch_of(name)
        if shared > 48 << 10:
            self.call("cuFuncSetAttribute", function, 8, shared)
        self.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, shared, None, values, None)
        self.call("cuCtxSynchronize")
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(out.ctypes.data), addresses[1], ctypes.c_size_t(out.nbytes))


def special_values():
    random = np.random.default_rng(3)
    ordinary = random.standard_normal(700) * 10.0 ** random.integers(-6, 7, 700)
    wild = np.float64(2.0) ** random.integers(-148, 127, 280)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 3.4e38, -3.4e38, 1e-45, -1e-45, 1.2e-38, 65519.0, 65520.0,
               1.00390625, 126.5, -126.5, -149.0, 128.0, 127.99, 2.5, 88.0, -87.0, 5.9e-8]
    return np.concatenate([ordinary, wild, special, -wild[:20]]).astype(np.float32)


def ulps(found, exact):
    """The distance to the exact value in units of the last place of a normal number."""
    with np.errstate(all="ignore"):
        unit = np.maximum(np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64), 2.0 ** -149)
        close = np.abs(found.astype(np.float64) - exact) / unit
    same = (found == exact.astype(np.float32)) | (np.isnan(found) & np.isnan(exact))
    return np.where(same, 0.0, close)


def to_bf16(x):
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return np.where(np.isnan(x), np.float32(np.nan), rounded)


def check_arithmetic(machine, mode):
    x = special_values()
    y = x[::-1]
    count = x.size
    out = np.full(32 * count, np.nan, np.float32)
    machine.run(ARITHMETIC, mode, -(-count // 128), x, out, count)
    found = out.reshape(32, count)
    a, b = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        flushed = np.where(np.abs(a) < 2.0 ** -126, np.copysign(0.0, a), a)
        nan = np.isnan(a) | np.isnan(b)
        exact = {"exp2_fast": (np.exp2(a), 4, True), "reciprocal_fast": (1 / flushed, 2.6, True),
                 "reciprocal_root_fast": (1 / np.sqrt(flushed), 2.6, True),
                 "max_nan": (np.where(nan, np.nan, np.maximum(a, b)), 0, False),
                 "min_nan": (np.where(nan, np.nan, np.minimum(a, b)), 0, False),
                 "multiply_add": (a * b + 1.0, 0.5001, False), "divide": (a / b, 1, False),
                 "square_root": (np.sqrt(a), 1, False), "exp_fast": (np.exp(a), 4 + 0.72 * np.abs(np.nan_to_num(a)), True),
                 "quotient": (a / b, 2, False), "bf16": (to_bf16(x).astype(np.float64), 0, False),
                 "f16": (x.astype(np.float16).astype(np.float64), 0, False), "plain_number": (a + 0.0, 0, False),
                 "plain quotient": (a / b, 1.5, False)}
        # To the bit: lists compare them.
        plain = np.where(np.isnan(x), np.uint32(0x7FFFFFFF), (x + np.float32(0.0)).view(np.uint32))
        assert (found[12].view(np.uint32) == plain).all(), ("plain_number", mode)
        rounded = {"bf16": [to_bf16(z).astype(np.float64) for z in (x, y)],
                   "f16": [z.astype(np.float16).astype(np.float64) for z in (x, y)]}
        halves = {"low": x.view(np.uint32) & 0xFFFF, "high": x.view(np.uint32) >> 16}
        for storage, sides in rounded.items():
            for name, choose in (("max", np.maximum), ("min", np.minimum)):
                value = np.where(nan, np.nan, choose(*sides))
                for half in ("low", "high"):
                    exact[f"{name}_pairs {storage} {half}"] = (value, 0, False)
            for half in ("low", "high"):
                exact[f"min_numbers {storage} {half}"] = (np.fmin(*sides), 0, False)
            largest = {"bf16": 0x7F80, "f16": 0x7C00}[storage]
            for half, bits in halves.items():
                plain = np.where((bits & 0x7FFF) > largest, 0x7FFF, np.where(bits == 0x8000, 0, bits))
                exact[f"plain_pairs {storage} {half}"] = (plain.astype(np.float64), 0, False)
        for half, bits in halves.items():
            exact[f"spread_signs {half}"] = (np.where(bits & 0x8000, 65535.0, 0.0), 0, False)
        for row, (name, (value, bound, flushes)) in zip(found, exact.items(), strict=True):
            value = np.where(np.abs(value) > 3.4028235e38 * (1 + 2.0 ** -25), np.copysign(np.inf, value), value)
            # Beside the largest and the smallest numbers, what rounds to them.
            edge = (np.abs(value) < 2.0 ** -125) if flushes else (np.abs(value) < 2.0 ** -126)
            good = (ulps(row, value) <= bound) | (edge & (np.abs(row) <= np.abs(value) * 1.01 + 2.0 ** -148))
            good |= (np.abs(value) > 3.4e38) & (np.abs(row) > 3.39e38) & (np.sign(row) == np.sign(value))
            assert good.all(), (name, mode, x[~good][:4], y[~good][:4], row[~good][:4], value[~good][:4])


def f8_values(fraction, bias, has_infinity):
    """The numbers of the codes 0 to 127 of a float of 8 bits, by definition."""
    codes = np.arange(128)
    exponent, rest = codes >> fraction, codes & ((1 << fraction) - 1)
    unit = 2.0 ** (1 - bias - fraction)
    values = np.where(exponent == 0, rest * unit, ((1 << fraction) + rest) * unit * 2.0 ** (np.maximum(exponent, 1) - 1))
    if has_infinity:
        values[124], values[125:] = np.inf, np.nan
    else:
        values[127] = np.nan
    return values


def f8_codes(x, values, saturates):
    """To nearest, ties to the even code: the step beyond the largest number is what decides where it overflows."""
    finite = values[np.isfinite(values)]
    last = finite.size - 1
    middles = (np.append(finite, 2 * finite[-1] - finite[-2])[1:] + finite) / 2
    size = np.abs(x.astype(np.float64))
    below = np.searchsorted(middles, size, side="left")  # ties: the lower one
    tie = (below <= last) & (size == middles[np.minimum(below, last)]) & (below % 2 == 1)
    codes = np.minimum(below + tie, last if saturates else last + 1)
    return np.where(np.isnan(x), 127, codes | np.where(np.signbit(x), 128, 0))


def check_f8(machine, mode):
    formats = {"f8e4m3": f8_values(3, 7, False), "f8e5m2": f8_values(2, 15, True)}
    near = [special_values(), np.float32([464, 448, 480, 61440, 57344, 65536, 1e9])]
    for values in formats.values():
        finite = values[np.isfinite(values)]
        middles = np.float32((finite[1:] + finite[:-1]) / 2)
        near += [np.float32(finite), middles, np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(np.inf))]
    x = np.concatenate(near)
    x = np.concatenate([x, -x, np.nextafter(x, np.float32(np.inf))]).astype(np.float32)
    out = np.full(10 * x.size, np.nan, np.float32)
    machine.run(F8, mode, -(-x.size // 128), x, out, x.size)
    found = out.reshape(10, x.size)
    for k, (name, values) in enumerate(formats.items()):
        for saturates in (True, False):
            row = 4 * k + 2 * (not saturates)
            for half, given in enumerate((x, x[::-1])):
                codes, wanted = found[row + half], f8_codes(given, values, saturates)
                bad = codes != wanted
                assert not bad.any(), (name, saturates, mode, half, given[bad][:4], codes[bad][:4], wanted[bad][:4])
        signed = np.concatenate([values, -values])[np.arange(x.size) % 256]
        got = found[8 + k]
        same = (got == signed) & (np.signbit(got) == np.signbit(signed)) | np.isnan(got) & np.isnan(signed)
        assert same.all(), (name, mode, got[~same][:4], signed[~same][:4])


def check_exchange(machine, mode):
    count = 256
    x = np.random.default_rng(5).integers(0, 1 << 20, count).astype(np.int32)
    out = np.full(2 * count, -1, np.int32)
    machine.run(EXCHANGE, mode, 2, x, out, count)
    total, i = np.zeros(count, np.int32), np.arange(count)
    with np.errstate(over="ignore"):
        for bit in range(5):
            other = x[i ^ (1 << bit)]
            total = total * np.int32(3) + other
            total ^= other
            total += other + other % 2
        total += x[i // 32 * 32 + i * 7 % 32] % 1024
    assert (out[:count] == total).all(), (EXCHANGE, mode)
    assert (out[count:] == x.reshape(2, 128)[:, ::-1].ravel()).all(), (EXCHANGE, mode, "shared memory")


def check_slices(machine, mode):
    """Twice: tickets are 0 again."""
    x = np.random.default_rng(12).integers(0, 1 << 20, (8, 128)).astype(np.int32)
    parts = np.arange(1, 9, dtype=np.int32)
    for _ in range(2):
        out = np.full(1040, -7, np.int32)
        machine.run(SLICES, mode, 8, x, out, x.size)
        sums = sum(p * (x[p - 1] + parts[:, None] - 1) for p in parts)
        assert (out[:1024].reshape(8, 128) == sums).all(), (SLICES, mode)
        assert (out[1024:1032] == 0).all(), (SLICES, mode, "a ticket has come")
        # Each adds a bit: all found others, and each one's is in what those behind it found.
        before, own = out[1032:], 1 << np.arange(8)
        order = np.argsort([bin(b).count("1") for b in before])
        assert (before[order] == np.cumsum(own[order]) - own[order]).all(), (SLICES, mode, before)


def check_row_tickets(machine, mode):
    """Twice: tickets are 0 again. Every part is had by a block that is not gone, its own one where nobody has waited in vain."""
    x = np.random.default_rng(13).integers(0, 1 << 20, (2, 4, 128)).astype(np.int32)
    for _ in range(2):
        out = np.full(1034, -7, np.int32)
        machine.run(TICKETS, mode, 8, x, out, x.size)
        assert (out[:1024].reshape(x.shape) == x.sum(1, dtype=np.int32)[:, None] + np.arange(4)[:, None]).all(), (TICKETS, mode)
        writer, had = out[1024:1026], out[1026:].reshape(2, 4)
        assert ((writer >= 0) & (writer < 4)).all() and ((had >= 0) & (had < 4)).all(), (TICKETS, mode, writer, had)
        if isinstance(mode, int) and mode < 2:
            assert (had == np.arange(4)).all(), (TICKETS, mode, had)


def end_of(parts, costs=(3, 1), at_once=132):
    """When the last of blocks is done that take parts in their order: (tiles, how many parts the stream has)."""
    ends = [0] * at_once
    for tiles, count in parts:
        heapq.heapreplace(ends, ends[0] + tiles + costs[0] + (costs[1] if count > 1 else 0))
    return max(ends)


def check_shares(machine, mode):
    """Every group has all of its parts once, beside each other, longer ones first, and the last is done early."""
    random = np.random.default_rng(5)
    uniform = random.integers(1, 129, 128)
    cases = [([0], 132), ([512], 264), ([7, 0, 0], 6), ([64] * 127 + [63], 198), ([40] * 131 + [41], 198), ([128] * 4 + [3] * 60, 198), (uniform, 198),
             (np.repeat(random.integers(0, 129, 16), 2), 198), (random.integers(0, 65, 256), 322), ([30] * 257, 257), ([30] * 257, 514)]
    for tiles, blocks in cases if mode == 0 else cases[3:8]:
        tiles = np.asarray(tiles, np.int32)
        out = np.full((blocks, 3), -7, np.int32)
        machine.run(SHARES, mode, blocks, np.append(tiles, np.int32(len(set(tiles)))), out, len(tiles))
        used = int((out[:, 0] > 0).sum())
        assert (out[used:] == 0).all(), (SHARES, mode, "a share behind none")
        at, found, parts = 0, [], []
        while at < used:
            count, group = out[at, :2]
            assert (out[at:at + count] == [(count, group, part) for part in range(count)]).all(), (SHARES, mode, at, out[at])
            each = -(-tiles[group] // count)
            parts += [(max(0, min(each, tiles[group] - part * each)), count) for part in range(count)]
            found.append(group)
            at += count
        assert sorted(found) == list(range(len(tiles))), (SHARES, mode, "groups", found)
        if len(tiles) > 256 or len(set(tiles)) == 1:  # as many blocks each
            continue
        longest = [part[0] for part in parts]
        assert all(x + max(longest) / 15 + 1 >= max(longest[i:]) for i, x in enumerate(longest) if parts[i][1] == 1), (SHARES, mode, longest)
        def cut(size):
            made = []
            for one in tiles:
                count = max(1, -(-int(one) // size))
                made += [(min(-(-int(one) // count), int(one)), count)] * count
            return sorted(made, reverse=True)
        best = min(end_of(made) for made in map(cut, range(4, max(5, int(tiles.max()) + 1))) if len(made) <= blocks)
        assert end_of(parts) <= 1.25 * best + 1, (SHARES, mode, end_of(parts), best)


def sums_of_units(left, right):
    """What matrix units make of 16 products, to the bit (docs/numerics.md, "Sums of matrix units")."""
    powers = (np.frexp(left)[1][:, None] + np.frexp(right.T)[1][None] - 2).max(-1)
    unit = 2.0 ** (powers - 25)
    part, power = np.frexp(np.trunc(left[:, None] * right.T[None] / unit[..., None]).sum(-1))
    return np.ldexp(np.trunc(np.ldexp(part, 24)), power - 24) * unit


def check_matrices(machine, mode):
    random = np.random.default_rng(8)
    values = to_bf16(random.standard_normal(384).astype(np.float32))
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    out = np.full(512, np.nan, np.float32)
    machine.run(MATRICES, mode, 1, bits.view(np.int16), out, 512)
    left, right = values[:256].reshape(16, 16).astype(np.float64), values[256:].reshape(16, 8).astype(np.float64)
    sums = sums_of_units(left, right)
    assert np.abs(sums - left @ right).max() < 1e-5
    assert (out[:128].reshape(16, 8) == sums).all(), (MATRICES, mode)
    assert (out[128:256].reshape(16, 8) == sums).all(), (MATRICES, mode, "columns")
    rows = bits[256:].reshape(16, 8)[np.arange(32) % 16, ::2]
    assert (out[256:384].reshape(32, 4) == rows).all(), (MATRICES, mode, "words")
    half = bits[:128].reshape(16, 8)[np.arange(32) % 16, ::2].copy()
    half[:, 2:] = 0
    assert (out[384:].reshape(32, 4) == half).all(), (MATRICES, mode, "half a copy")


def check_word_tiles(machine, mode):
    """Products of f32 and sums of these with columns, of small whole numbers; rows that are not there are zeros."""
    random = np.random.default_rng(14)
    for name, (columns, depth, width) in WORD_TILES.items():
        for count in (columns, columns - 5, 1):
            left, right, values = (random.integers(-3, 4, n).astype(np.float32) for n in [(16, depth), (columns, depth), (columns, width)])
            out = np.full(16 * (columns + width), np.nan, np.float32)
            machine.run(name, mode, 1, np.concatenate([left.ravel(), right.ravel(), values.ravel()]), out, count)
            right[count:] = values[count:] = 0
            products = left @ right.T
            assert (out[:16 * columns].reshape(16, columns) == products).all(), (name, mode, count, "products")
            assert (out[16 * columns:].reshape(16, width) == products @ values).all(), (name, mode, count, "sums")


def check_words(machine, mode):
    data, out = np.random.default_rng(4).standard_normal(128).astype(np.float32), np.full(128, np.nan, np.float32)
    machine.run(WORDS, mode, 1, data, out, 99)
    assert (out.reshape(4, 32) == np.where(np.arange(128) < 99, data, 0).reshape(32, 4).T).all(), (WORDS, mode)


def check_elements(machine, mode):
    for name, (size, columns, last) in ELEMENTS.items():
        stride = columns + 16
        data = np.random.default_rng(13).integers(-128, 128, (64, stride, size)).astype(np.int8)
        out = np.full((64, columns, size), 77, np.int8)
        machine.run(name, mode, 1, data, out, stride)
        wanted = data[:, :columns].copy()
        wanted[last:] = wanted[:, columns - 3:] = 0
        assert (out == wanted).all(), (name, mode)


def check_products(machine, mode):
    random = np.random.default_rng(9)
    for name, (rows, depth, width, fewer, shorter) in PRODUCTS.items():
        # Small whole numbers: sums are exact in any order.
        left, right, values = (random.integers(-3, 4, shape).astype(np.float32)
                               for shape in ((64, depth), (rows, depth), (rows, width)))
        bits = np.concatenate([x.ravel() for x in (left, right, values)])
        bits = (bits.view(np.uint32) >> 16).astype(np.uint16) if "bf16" in name else bits.astype(np.float16).view(np.uint16)
        out = np.full(64 * (rows + width), np.nan, np.float32)
        machine.run(name, mode, 1, bits.view(np.int16), out, bits.size)
        left[:, shorter:] = 0
        right[:, shorter:] = right[fewer:] = values[fewer:] = 0
        products = left @ right.T
        assert (out[:64 * rows].reshape(64, rows) == products).all(), (name, mode, "products")
        sums = np.where(products > 0, 1.0, -0.5) @ values
        assert (out[64 * rows:].reshape(64, width) == sums).all(), (name, mode, "sums")


def check_sides(machine, mode):
    random = np.random.default_rng(11)
    for name, (columns, is_along) in SIDES.items():
        left, right = (random.integers(-3, 4, shape).astype(np.float32)
                       for shape in ((64, 64), (64, columns) if is_along else (columns, 64)))
        values = np.concatenate([left.ravel(), right.ravel()])
        bits = (values.view(np.uint32) >> 16).astype(np.uint16) if "bf16" in name else values.astype(np.float16).view(np.uint16)
        out = np.full(64 * columns, np.nan, np.float32)
        machine.run(name, mode, 1, bits.view(np.int16), out, bits.size)
        assert (out.reshape(64, columns) == left @ (right if is_along else right.T)).all(), (name, mode)


FORMATS = {"e4m3": (3, 7, False), "e5m2": (2, 15, True)}
# Of the largest that is added at once, bits that matrix units keep: less than a unit is lost of each addend.
KEPT_BITS = 13


def check_f8_products(machine, mode):
    random = np.random.default_rng(10)
    for name, (left_format, right_format, columns) in F8_PRODUCTS.items():
        tables = [f8_values(*FORMATS[f]) for f in (left_format, right_format)]
        sides = [np.concatenate([t, -t]) for t in tables]
        # Small whole numbers are exact; of all finite numbers each lost bit is bounded.
        small = [np.flatnonzero(np.isin(s, np.arange(-3, 4))) for s in sides]
        # Products up to 2^30: their sums are finite.
        finite = [np.flatnonzero(np.abs(s) <= 2.0 ** 15) for s in sides]
        for codes, is_exact in ((small, True), (finite, False)):
            left, right = (random.choice(c, (n, 64)) for c, n in zip(codes, (64, columns)))
            out = np.full(64 * columns, np.nan, np.float32)
            machine.run(name, mode, 1, np.concatenate([left.ravel(), right.ravel()]).astype(np.uint8).view(np.int8), out, 64)
            products = sides[0][left][:, None, :] * sides[1][right][None]
            sums, halves = products.sum(2), products.reshape(64, columns, 2, 32)
            # Each instruction adds 32 products to what was there.
            before = np.abs(halves[:, :, 0].sum(2))
            largest = np.abs(halves).max(3)
            bound = 33 * 2.0 ** -KEPT_BITS * (largest[..., 0] + np.maximum(largest[..., 1], before))
            error = np.abs(out.reshape(64, columns) - sums)
            assert (error <= (0 if is_exact else bound)).all(), (name, mode, is_exact, error.max(), (error / bound).max())
        left[3, 5], right[7, 9] = np.flatnonzero(np.isnan(sides[0]))[0], 0
        machine.run(name, mode, 1, np.concatenate([left.ravel(), right.ravel()]).astype(np.uint8).view(np.int8), out, 64)
        found = np.isnan(out.reshape(64, columns))
        assert found[3].all() and not found[np.arange(64) != 3].any(), (name, mode, "NaN")


def check_roles(machine, mode):
    for count in (1, 2, 7):
        tiles = np.random.default_rng(count).integers(-3, 4, (count, 16, 16)).astype(np.float32)
        out = np.full((2, 64, 16), np.nan, np.float32)
        machine.run(ROLES, mode, 1, (tiles.view(np.uint32) >> 16).astype(np.int16), out, count)
        sums = tiles.sum(1)
        assert (out[0] == sums.sum(0)).all() and (out[1] == sums[::2].sum(0)).all(), (ROLES, mode, count)


def check_handover(machine, mode):
    data = np.random.default_rng(10).standard_normal(3 * 2048).astype(np.float32).view(np.uint32) & 0xFFFF0000
    out = np.full(data.size, np.nan, np.float32)
    machine.run(HANDOVER, mode, 1, (data >> 16).astype(np.uint16).view(np.int16), out, 3)
    assert (out.view(np.uint32) == data).all(), (HANDOVER, mode)


def check_boxes(machine, mode):
    """Inside a matrix whose rows are longer in memory; beyond it zeros."""
    data = np.random.default_rng(7).integers(-128, 128, (24, 160)).astype(np.int8)
    out = np.full((2, 16, 128), 77, np.int8)
    machine.run(BOXES, mode, 2, data, out, data.size)
    wide = np.zeros((64, 512), np.int8)
    wide[:9, :144] = data[:9, :144]
    assert (out[0] == wide[4:20, 128:256]).all() and (out[1] == wide[4:20, :128]).all(), (BOXES, mode)


def check_array_boxes(machine, mode):
    """What lies beyond a matrix of an array is 0; strides may be 0."""
    data = np.random.default_rng(12).integers(-128, 128, (21, 25, 144)).astype(np.int8)
    rows = np.zeros((30, 32, 256), np.int8)
    rows[:21, :25, :144] = data
    for at in range(6):
        rows[21 + at, :25, :144] = data[at // 3]
    rows[27:, :25, :144] = data[1:4, :1]
    out = np.full((30, 32, 256), 77, np.int8)
    machine.run(ARRAY_BOXES, mode, 1, data, out, data.size)
    assert (out == rows).all(), (ARRAY_BOXES, mode)


def check_told(machine, mode):
    """The same by maps that the launch comes with, both ways."""
    data = np.random.default_rng(13).integers(-128, 128, (21, 25, 144)).astype(np.int8)
    rows = np.zeros((24, 32, 256), np.int8)
    rows[:21, :25, :144] = data
    rows[21:, :25, :144] = data[0]
    out = np.full((24, 32, 256), 77, np.int8)
    machine.run(TOLD, mode, 1, data, out, data.size)
    assert (out == rows).all(), (TOLD, mode)


def check_stores(machine, mode):
    """What lies beyond the matrix is not written."""
    data = np.random.default_rng(9).integers(-128, 128, (64, 256)).astype(np.int8)
    out = np.full((58, 144), 77, np.int8)
    machine.run(STORES, mode, 1, data, out, data.size)
    assert (out == data[:58, :144]).all(), (STORES, mode)


def check_array_stores(machine, mode):
    """Nor is another matrix of an array."""
    data = np.random.default_rng(10).integers(-128, 128, (64, 256)).astype(np.int8)
    out = np.full((21, 25, 144), 77, np.int8)
    wanted = out.copy()
    for at in range(42):
        rows = min(16, 25 - at % 2 * 16)
        wanted[at // 2, at % 2 * 16:][:rows] = data[at % 4 * 16:][:rows, :144] ^ at
    machine.run(ARRAYS, mode, 1, data, out, data.size)
    assert (out == wanted).all(), (ARRAYS, mode)


def check_panel_stores(machine, mode):
    """More panels than there is room for leave one after the other."""
    data = np.random.default_rng(11).integers(-128, 128, (64, 640)).astype(np.int8)
    out = np.full((2, 61, 624), 77, np.int8)
    machine.run(PANELS, mode, 1, data, out, data.size)
    assert (out[0] == data[:61, :624]).all() and (out[1] == data[:61, :624] ^ 0x5A).all(), (PANELS, mode)


def check_clusters(machine, mode):
    """Two clusters of four blocks, in several rounds."""
    data = np.random.default_rng(8).integers(-4096, 4096, (2, 4, 128)).astype(np.int32)
    out = np.zeros_like(data)
    machine.run(CLUSTERS, mode, 8, data, out, 3)
    sums = np.zeros_like(data)
    for values in (data, data + 1, data + 2):
        for which in range(4):
            at = (np.arange(128) + 17 * which) % 128
            sums += values[:, None, which, at] * (which + 1) + values[:, None, which, at ^ 1]
            sums += np.where(np.fmod(values[:, None, which, at ^ 2], 3) == 0, 1000 + which, 0).astype(np.int32)
    assert (out == sums).all(), (CLUSTERS, mode)


def check_mailboxes(machine, mode):
    """Two clusters of four blocks, in five exchanges."""
    data = np.random.default_rng(9).integers(-4096, 4096, (2, 4, 128)).astype(np.int32)
    out = np.zeros_like(data)
    machine.run(MAILBOXES, mode, 8, data, out, 5)
    place = np.arange(1, 5)
    for cluster in range(2):
        values = data[cluster, :, :5]
        for own in range(4):
            sums = ((values + own) * place[:, None] + values * np.arange(1, 6)).sum()
            assert (out[cluster, own] == sums).all(), (MAILBOXES, mode)


def check_copies(machine, mode):
    data = np.random.default_rng(6).integers(-128, 128, 4096).astype(np.int8)
    for name in COPIES:
        out = np.zeros_like(data)
        machine.run(f"conform_copy_{name}", mode, 32, data, out, data.nbytes)
        assert (out == data).all(), name


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cubin", type=pathlib.Path)
    parser.add_argument("--roles", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        machine = Device(*filter(None, [options.cubin, options.roles])) if options.cubin else Emulated(pathlib.Path(folder))
        checks = [check_arithmetic, check_f8, check_exchange, check_slices, check_row_tickets, check_shares, check_words, check_word_tiles, check_matrices, check_elements, check_copies]
        if options.roles or not options.cubin:
            checks += [check_products, check_sides, check_f8_products, check_boxes, check_array_boxes, check_told, check_stores, check_array_stores, check_panel_stores, check_roles, check_handover, check_clusters, check_mailboxes]
        passed = 0
        for mode in range(machine.modes):
            for check in checks:
                check(machine, mode)
                passed += 1
    print(f"{passed} passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    sys.exit(main())
