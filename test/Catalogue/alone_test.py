#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A row has the same bits by itself as among others: how many there are decides how work is divided, never in which
order the elements of one are summed.

    alone_test.py [--jobs N] [name ...]
    alone_test.py --self-test

Of the catalogue's programs those with an axis of rows: all results have it, nothing is reduced along it or asks for a
place along it, and the rows share no array of two axes. Rows that do are multiplied by it as their number suggests.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy

import fold_text
from policies import POLICIES

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
ROWS, ALONE = 37, (0, 21, 36)  # of the first item, of a later one, the last
LENGTHS = [17, 5001]
SIDES, MOST = (19, 5), 4 << 20  # of all other axes; elements of all inputs, beyond which the second is taken
LABELS = 8  # integers are below: places in any array
# Products of a batch share the cores by rows where there is one: with 16 registers the rows that a tile leaves over are
# added in another order than those in tiles (docs/testing.md), and where a share ends moves.
TILES_LEAVE_ROWS = {"catalogue_16_attention_backward_of_keys"}


def uses(e, reduced, values):
    """Adds the axes that `e` reduces, and what is a value in it: a place by itself in a subscript is none."""
    if e[0] == "reduce":
        reduced.update(e[2])
    elif e[0] in ("name", "len"):
        values.add(e[1])
    for part in e[1:]:
        if isinstance(part, tuple):
            uses(part, reduced, values)
        elif e[0] in ("at", "call") and isinstance(part, list):
            for operand in part:
                if e[0] == "call" or operand[0] != "name":
                    uses(operand, reduced, values)


def row_axis(text, inputs, outputs):
    """The first axis of rows and the axes that are reduced."""
    reduced, values = set(), set()
    for definition in fold_text.parse(text).definitions:
        uses(definition.value, reduced, values)
        if definition.best:
            reduced.add(definition.best[0])
    for axis in outputs[0]["dims"]:
        if (axis and axis not in reduced | values and all(axis in o["dims"] for o in outputs)
                and any(axis in i["dims"] for i in inputs)
                and all(e is None for p in inputs for d, e in zip(p["dims"], p["extents"]) if d == axis)
                and all(axis in i["dims"] or len(i["dims"]) < 2 for i in inputs)):
            return axis, reduced
    return None, reduced


def shape_of(port, extents):
    return [extents[d] if e is None else e for d, e in zip(port["dims"], port["extents"])]


def filled(port, extents, draw):
    shape = shape_of(port, extents)
    if port["dtype"] in ("f32", "f64", "f16"):
        return draw.standard_normal(shape).astype("f" + str(int(port["dtype"][1:]) // 8))
    if port["dtype"] == "bool":
        return draw.random(shape) < 0.7
    return draw.integers(0, LABELS, shape).astype("iu"[port["dtype"][0] == "u"] + str(int(port["dtype"][1:]) // 8))


def differing(among, alone, at, outputs, axis):
    """Names of the results whose row `at` among others is not that by itself."""
    return [o["name"] for o in outputs
            if among[o["name"]].take([at], axis=o["dims"].index(axis)).tobytes() != alone[o["name"]].tobytes()]


def run(path, folder, arrays, extents):
    numpy.savez(f"{folder}/in.npz", **arrays)
    command = [REFOLD, "run", str(path), "--fuse=always", "--threads=2", f"--inputs-from={folder}/in.npz",
               f"--outputs-to={folder}/out.npz", "--shape=" + ",".join(f"{d}={n}" for d, n in extents.items()),
               *POLICIES.get(path.stem, [])]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "REFOLD_CACHE_DIR": folder})
    if done.returncode:
        raise RuntimeError(" ".join(command) + "\n" + done.stderr)
    with numpy.load(f"{folder}/out.npz") as found:
        return {name: found[name] for name in found.files}


def has_avx512():
    return " avx512f " in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")


def examine(path):
    """None where no axis is one of rows, else what differs."""
    if path.stem in TILES_LEAVE_ROWS and not has_avx512():
        return None
    known = json.loads(subprocess.run([REFOLD, "inspect", "--format=json", str(path)], check=True, capture_output=True,
                                      text=True).stdout)
    inputs, outputs = known["inputs"], known["outputs"]
    axis, reduced = row_axis(path.read_text(encoding="utf-8"), inputs, outputs)
    if axis is None:
        return None
    dims = sorted({d for i in inputs for d, e in zip(i["dims"], i["extents"]) if e is None})
    longest = next((d for d in reversed(dims) if d in reduced), None)
    wrong = ""
    for length in LENGTHS:
        for side in SIDES:
            extents = {d: ROWS if d == axis else length if d == longest else side for d in dims}
            if sum(math.prod(shape_of(i, extents)) for i in inputs) <= MOST:
                break
        draw = numpy.random.default_rng(length)
        arrays = {i["name"]: filled(i, extents, draw) for i in inputs}
        with tempfile.TemporaryDirectory() as folder:
            try:
                among = run(path, folder, arrays, extents)
                for at in ALONE:
                    one = {i["name"]: arrays[i["name"]].take([at], axis=i["dims"].index(axis))
                           if axis in i["dims"] else arrays[i["name"]] for i in inputs}
                    names = differing(among, run(path, folder, one, {**extents, axis: 1}), at, outputs, axis)
                    if names:
                        wrong += f"{path.stem} {extents}: row {at} of {axis}, {' '.join(names)}\n"
            except RuntimeError as error:
                wrong += str(error)
    return wrong


def self_test():
    def port(name, *dims):
        return {"name": name, "dims": list(dims), "extents": [None] * len(dims)}

    def axis_of(text, *inputs):
        return row_axis(text, inputs, [port("y", "m")])[0]

    x, w = port("x", "m", "n"), port("w", "n", "k")
    assert axis_of("f(x[m,n]) -> y\n  y = sum(n: x)\n", x) == "m"
    assert axis_of("f(x[m,n]) -> y\n  y[m] = x[m, 0] / sum(m, n: x)\n", x) is None
    assert axis_of("f(x[m,n]) -> y\n  y[m] = sum(n: where(n <= m, x, 0))\n", x) is None
    assert axis_of("f(x[m,n], w[n,k]) -> y\n  y = max(k: sum(n: x*w))\n", x, w) is None
    outputs = [port("y", "m")]
    among = {"y": numpy.arange(4, dtype="f4")}
    assert differing(among, {"y": numpy.array([2], "f4")}, 2, outputs, "m") == []
    assert differing(among, {"y": numpy.nextafter(numpy.array([2], "f4"), numpy.float32(3))}, 2, outputs, "m") == ["y"]
    print("self-test passed")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    paths = [p for p in sorted(HERE.glob("catalogue_*.fold")) if not options.names or p.stem in options.names]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        answers = list(pool.map(examine, paths))
    print("".join(filter(None, answers)), end="")
    failed, skipped = sum(bool(a) for a in answers), answers.count(None)
    print(f"{len(answers) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
