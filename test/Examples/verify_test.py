#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every program of examples/, and of Inputs/ here, against its judge, fused, cut otherwise and unfused: `refold verify`.

    verify_test.py [--all] [--jobs N] [name ...]

Lengths 0, 1, 2, 15, 16, 17, 1000 and 4097 of the stream axis; f32, f64, f16 and bf16 storage; strided
and transposed inputs; 1 and 2 threads. Without --all a data type meets two families of inputs and few
seeds, so that the tests stay quick; over the four data types every family meets every program.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
LENGTHS = [0, 1, 2, 15, 16, 17, 1000, 4097]
FAMILIES = ["normal", "ninf", "nan", "offset", "const", "growing"]
DTYPES = ["f32", "f64", "f16", "bf16"]
# What a program needs to make sense of random inputs.
OPTIONS = {
    "attention_decode": ["--input", "length=uniform(0,4099)"],
    "attention_latent": ["--shape", "j=3"],
    "quantised_product": ["--input", "w=uniform(-128,128)"],
}
# Where a mask leaves the first keys only, unless there are as many queries.
SQUARES = {"attention_causal": 300, "attention_alibi": 300}
# No axis of the stream is open; an empty one cannot be indexed.
FIXED = {"softmax_columns"}
NOT_EMPTY = {"cross_entropy"}


def cells(path, is_all):
    """The command lines of one program."""
    options = OPTIONS.get(path.stem, [])
    for i, dtype in enumerate(DTYPES):
        families = FAMILIES if is_all else [FAMILIES[2 * i % 6], FAMILIES[(2 * i + 1) % 6]]
        yield [path, "--dtype", dtype, "--inputs", ",".join(families), "--first-seeds", "4" if is_all else "1", *options]
        if path.stem in SQUARES:
            length = SQUARES[path.stem]
            shape = ["--shape", f"b=1,h=2,d=7,e=11,m={length},n={length}"]
            yield [path, "--dtype", dtype, "--inputs", ",".join(families), "--first-seeds", "1", *shape, *options]


def verify(arguments):
    command = [REFOLD, "verify", *map(str, arguments), "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    report = json.loads(done.stdout) if done.stdout.startswith("{") else None
    return " ".join(command[:-2]), done.returncode, report, done.stderr


def missing(path, arguments, coverage):
    """What the run should have covered and did not."""
    if "--shape" in arguments and path.stem in SQUARES:
        return []
    lengths = [] if path.stem in FIXED else [n for n in LENGTHS if n or path.stem not in NOT_EMPTY]
    wanted = {"lengths": lengths, "inputs": arguments[4].split(","), "threads": [1, 2]}
    found = [f"covered {key} {coverage[key]}, expected {value}" for key, value in wanted.items() if coverage[key] != value]
    if path.stem not in FIXED and not coverage["broad"]:
        found.append("covered no shape with long axes")
    if len(coverage["splits"]) < 2:
        found.append(f"covered {len(coverage['splits'])} splits of the stream, expected 2")
    return found


def failures(path, arguments):
    command, code, report, errors = verify(arguments)
    if report is None:
        return [f"{command}: exit code {code}\n{errors}"]
    lines = [f"{command}: {line}" for line in missing(path, arguments, report["coverage"])]
    for output in report["outputs"]:
        for case in output["cases"]:
            if not case["class_equal"] or not float(case["fused_error"]) <= float(case["bound"]):
                lines.append(f"{command}: {output['name']}: {case}")
    for key in "threads_equal", "strides_equal":
        if not report[key]:
            lines.append(f"{command}: {key} is false")
    if code != 0 and not lines:
        lines.append(f"{command}: exit code {code}\n{errors}")
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true", help="all families with all data types, 4 to 256 seeds (minutes)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("names", nargs="*", metavar="name")
    given = parser.parse_args()
    folders = [ROOT / "examples", pathlib.Path(__file__).resolve().parent / "Inputs"]
    files = [p for folder in folders for p in sorted(folder.glob("*.fold"))
             if not given.names or p.stem in given.names]
    assert len(files) >= (1 if given.names else 10)
    jobs, failed = [], 0
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        for path in files:
            jobs += [pool.submit(failures, path, arguments) for arguments in cells(path, given.all)]
        for job in jobs:
            lines = job.result()
            failed += bool(lines)
            print("\n".join(lines), end="\n" if lines else "")
    print(f"{len(jobs) - failed} passed, {failed} failed, 0 skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
