# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Peak memory of a fused program: its arrays and a bounded workspace."""

import json
import os
import subprocess

import suite


def peak_of(command):
    """Bytes that were resident at most, of a command that ends well."""
    process = subprocess.Popen([str(one) for one in command], cwd=suite.ROOT, stdout=subprocess.PIPE, text=True)
    text = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}")
    return usage.ru_maxrss * 1024, json.loads(text)


def run(refold, workload):
    """Peak at the shape, without what the same program takes at one where its arrays are small."""
    def at(shape):
        return peak_of([refold, "run", workload["program"], "--threads", "2", "--format", "json", "--shape", suite.shape_text(shape)])
    shape = workload["shape"]
    peak, answer = at(shape)
    least, _ = at({name: min(extent, 64) for name, extent in shape.items()})
    names = dict(shape, size=4)
    arrays = suite.evaluate(workload["bytes"], names)
    found = {"bytes": peak, "beyond_arrays": peak - least - arrays}
    beyond = [f"{key}: found {value}, expected at most {workload['limits'][key]}" for key, value in found.items() if value > workload["limits"][key]]
    yield {"shape": shape, "peak": dict(found, arrays=arrays, process=least), "run_ms": answer["run_ms"], "beyond": beyond}


def describe(line):
    peak = line["peak"]
    text = f"memory: {peak['bytes'] / 1e6:.0f} MB at most, arrays {peak['arrays'] / 1e6:.0f}, process {peak['process'] / 1e6:.0f}, the rest {peak['beyond_arrays'] / 1e6:.0f}"
    return text + "".join(f"; {one}" for one in line["beyond"])
