#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every workload of benchmarks/suite at a small shape: it compiles, `refold bench` finds its answer right, its formulas can be
evaluated at all of its shapes, and the peers have a program for it. Nothing is timed."""

import ast
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks/harness"))

import acceptance  # noqa: E402
import suite  # noqa: E402

FIELDS = {"name", "family", "program", "shapes", "dtypes", "threads", "bytes", "flops", "bound"}


def peer_programs():
    """Names of the functions of programs.py, which the peers' environments import."""
    tree = ast.parse((ROOT / "benchmarks/peers/programs.py").read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list}


def problems(workload, programs):
    """What is wrong with the data."""
    missing = FIELDS - workload.keys()
    if missing:
        return [f"found no {', '.join(sorted(missing))}"]
    found = [f"found the bound {one}, expected one of {', '.join(suite.RESOURCES)}" for one in workload["bound"] if one not in suite.RESOURCES]
    if workload.get("peer", "model") not in programs | {"model"}:
        found.append(f"found the peer {workload['peer']}, expected a program of programs.py")
    built = (ROOT / "benchmarks/by_hand/CMakeLists.txt").read_text(encoding="utf-8")
    if workload.get("by_hand") and not re.search(rf"\b{workload['by_hand']}\b", built):
        found.append(f"found {workload['by_hand']} by hand, expected a program of benchmarks/by_hand")
    for shape in workload["shapes"] + workload.get("large_shapes", []):
        for dtype in workload["dtypes"]:
            try:
                if min(suite.amounts(workload, shape, dtype).values()) <= 0:
                    found.append(f"found no bytes or flops at {shape}")
            except (KeyError, ValueError) as error:
                found.append(f"{shape}: {error}")
    return found


def run_small(refold, workload, dtype):
    """What `refold bench` says against its answer; turns without any asked for are the check alone."""
    failed = []
    for program in filter(None, (workload["program"], workload.get("part"))):
        command = [refold, "bench", program, "--turns", "--dtype", dtype, "--shape", suite.shape_text(workload["smoke"])]
        command += [f"--dim={name}={extent}" for name, extent in workload.get("dims", {}).items()]
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode or '"checked":true' not in done.stdout:
            failed.append(f"{program} {dtype}: {done.stderr.strip()}")
    return failed


def self_test():
    """Broken data and a wrong program are seen."""
    good = suite.load(suite.parse_wanted("softmax"))[0]
    names = [{one["name"] for one in suite.load(wanted)} for wanted in ([], suite.parse_wanted("exports"))]
    assert len(names[1]) == 4 and not names[0] & names[1]
    wanted = suite.parse_wanted("softmax:n=64:f16,decode")
    assert suite.is_wanted(wanted, good, {"n": 64}, "f16") and suite.is_wanted([], good, {}, "f32")
    assert not suite.is_wanted(wanted, good, {"n": 64}, "f32") and not suite.is_wanted(wanted, good, {"n": 65}, "f16")
    assert not problems(good, peer_programs())
    assert problems({**good, "bytes": "2 * rows"}, peer_programs())
    assert problems({**good, "bytes": "m - m"}, peer_programs())
    assert problems({**good, "bound": ["luck"]}, peer_programs())
    assert problems({**good, "peer": "nobody"}, peer_programs())
    assert problems({**good, "by_hand": "nobody"}, peer_programs())
    assert problems({name: value for name, value in good.items() if name != "flops"}, peer_programs())


def acceptance_test():
    """Each figure is held against its cases and nothing else: a line that reaches it, one that misses it, one without an answer."""
    names = {one["name"] for one in suite.load() + suite.load(suite.parse_wanted("exports"))}
    named = {*acceptance.WRITING, *acceptance.INT8, *acceptance.REDUCING, *acceptance.BEHIND_PRODUCTS, *acceptance.BEFORE_PRODUCTS, *acceptance.EXPORTS}
    assert named <= names, named - names

    def line(share, speedup, checked=True, workload="softmax", **shape):
        peers = {"onnxruntime": {"speedup": 1.6}, "torch": {"speedup": 2.5}, "jax": {"problem": "none"}}
        return {"workload": workload, "dtype": "f32", "shape": shape, "threads": 1, "checked": checked, "speedup": speedup, "peers": peers,
                "ratio": 1.6, "bound": {"share": share}, "predicted_ms": {"fused": 1.0, "unfused": 1.3}, "fused_ms": 1.2, "unfused_ms": 1.2 * speedup}

    lines = [line(0.83, 1.5, m=1, n=4096), line(0.80, 0.95, m=2, n=4096), line(0.1, 0.1, checked=False, m=3, n=4096), line(0.6, 1.2, m=1, n=131072)]
    by_hand = acceptance.ByHand([{"workload": "softmax", "dtype": "f32", "shape": {"n": 131072}, "threads": 1, "ms": 10.0, "bound_ms": 6.8}])
    found = {row.split(" | ")[0].removeprefix("| "): row.split(" | ")[1:] for row in acceptance.table(acceptance.Results(lines), by_hand).splitlines()[2:]}
    assert found["rows that write, 1k to 16k: of the copy"][1:4] == ["1 of 2", "0.81", "open 1"], found
    assert "softmax f32 m2 n4096, 1 threads 0.80" in found["rows that write, 1k to 16k: of the copy"][4]
    # By hand 0.68 of the copy: 0.70 is more, and so is 0.72, where the longest rows would be three times the fastest of the others.
    assert found["rows that write, 128k: of the copy"][1:4] == ["0 of 1", "0.60", "by hand 1"] and found["rows that write: of ONNX Runtime"][1] == "3 of 3"
    assert found["rows that write: of every other peer"][1:4] == ["0 of 3", "2.50", "by hand 1, open 2"], found["rows that write: of every other peer"]
    assert found["all: of unfused"][1] == "2 of 3"
    # A line that was timed without peers hides none that was timed beside them.
    alone = {**line(0.9, 1.5, m=2, n=4096), "peers": {}}
    rows = {row[0]: row[1:] for row in acceptance.rows(acceptance.Results([lines[0], alone], lines[:2]))}
    assert [one["bound"]["share"] for one in rows["rows that write, 1k to 16k: of the copy"][2]] == [0.83, 0.9]
    assert [one["bound"]["share"] for one in rows["rows that write: of ONNX Runtime"][2]] == [0.83, 0.80]
    # What was declined is held against the unfused program only.
    declined = {**line(0.5, 0.98, workload="rmsnorm_product", m=128), "ratio": 0.9, "declined": [{"name": "o"}]}
    assert acceptance.against_all(declined) is None and acceptance.against_all({**declined, "declined": []}) == 0.9
    # Nothing is read from what two runs of one program differ by.
    same = {**line(0.5, 0.5, m=1, n=64), "same": True}
    assert acceptance.against_unfused(same) is None and acceptance.against_unfused({**same, "same": False}) == 0.5 and acceptance.is_left_alone(same)
    # By hand 0.68 of the best of a rate, of which the median that the line has was three quarters: 0.9 of that is 0.68.
    rated = {**lines[3], "bound": {"share": 0.6, "name": "copy", "rates": {"copy": 15.0}, "best_rates": {"copy": 20.0}}}
    assert acceptance.obstacle(rated, acceptance.share, 0.6, 0.9, by_hand) == acceptance.OPEN
    assert acceptance.obstacle(rated, acceptance.share, 0.6, 0.95, by_hand) == acceptance.BY_HAND
    # By hand in the same turns, against the same rates: 0.68 of the copy does not reach 0.7, 0.71 does, whatever another minute's did.
    turns = {**rated, "by_hand": {"ms": 1.0, "share": 0.68, "speedup": 0.9}}
    assert acceptance.obstacle(turns, acceptance.share, 0.6, 0.7, by_hand) == acceptance.BY_HAND
    assert acceptance.obstacle({**turns, "by_hand": {"ms": 1.0, "share": 0.71}}, acceptance.share, 0.6, 0.7, by_hand) == acceptance.OPEN
    assert acceptance.obstacle({**lines[3], "by_hand": {"ms": 1.0, "share": 0.71}}, acceptance.share, 0.6, 0.7, by_hand) == acceptance.OPEN
    assert acceptance.obstacle({**lines[3], "by_hand": {"problem": "is not built"}}, acceptance.share, 0.6, 0.7, by_hand) == acceptance.BY_HAND
    assert acceptance.obstacle({**turns, "by_hand": {"problem": "is not built"}}, acceptance.share, 0.6, 0.7, by_hand) == acceptance.OPEN
    # Half of the bound now, 1.0 of unfused; at 1.1 it would reach 0.55: the product alone, which takes 0.95 of the time, does not.
    product = {**line(0.5, 1.0, workload="routing_top8", m=1, n=128), "bound": {"share": 0.5, "ms": 1.0}, "fused_ms": 2.0}
    found_of = {part: acceptance.obstacle({**product, "part_ms": part}, acceptance.against_unfused, 1.0, 1.1, by_hand) for part in (1.9, 1.7)}
    assert found_of == {1.9: acceptance.PART, 1.7: acceptance.OPEN}, found_of
    # Ratios to peers are read from the line beside peers, and so is what is by hand: alone it was not reached, beside them it was.
    alone, beside = ({**lines[3], "by_hand": {"ms": 1.0, "share": reached}} for reached in (0.65, 0.95))
    told = {row.split(" | ")[0].removeprefix("| "): row.split(" | ")[1:] for row in acceptance.table(acceptance.Results([alone], [beside]), by_hand).splitlines()[2:]}
    assert told["rows that write, 128k: of the copy"][3] == "by hand 1" and told["rows that write: of every other peer"][3] == "open 1", told
    # Rows are held against as many elements in rows of 1024, and masked attention against the rate of its own minute.
    wide = [line(0.9, 1.5, m=128, n=1024), line(0.7, 1.5, m=64, n=1024), line(0.65, 1.5, m=1, n=65536)]
    full, masked = ({**line(0.9, 2, workload=name, m=2048, n=2048, d=64), "bound": {"share": 0.9, "ms": 1.0, "rates": {"fma": rate}}, "fused_ms": ms}
                    for name, rate, ms in [("attention", 200.0, 1.0), ("attention_causal", 100.0, 1.0)])
    rows = {row[0]: row[1:] for row in acceptance.rows(acceptance.Results([*wide, full, masked]))}
    figure, _, cases = rows["rows of 1k to 1M: share less that of 1k"]
    assert [round(figure(one), 9) for one in cases] == [-0.05], cases
    figure, _, cases = rows["causal, s >= 1024: full over causal"]
    assert [figure(one) for one in cases] == [2.0], cases

    def ratio(line):
        return line["ratio"]

    def fall(line):
        return -line["ratio"]

    fall.is_difference = True
    assert acceptance.needed(line(0.5, 1), ratio, 2, 3) == 0.75 and round(acceptance.needed(line(0.5, 1), fall, -0.3, -0.1), 9) == 0.7
    beyond = acceptance.obstacle(line(0.9, 1.5, m=1, n=4096), ratio, 2.5, 3, by_hand)
    assert beyond == acceptance.BOUND and acceptance.obstacle({**lines[3], "dtype": "f16"}, ratio, 0.6, 0.7, by_hand) == acceptance.OPEN
    assert found["decode, latent decode: of the best peer"][1] == "not measured"
    assert found["predictions within 25 %, fused"][1] == "3 of 3" and found["predictions within 25 %, unfused"][1] == "2 of 3"


def main():
    refold, programs, failed = os.environ["REFOLD"], peer_programs(), 0
    self_test()
    acceptance_test()
    workloads = suite.load() + suite.load(suite.parse_wanted("exports"))
    jobs = [(one, dtype) for one in workloads if "smoke" in one for dtype in one["dtypes"]]
    assert run_small(refold, {**workloads[0], "program": "examples/no_such.fold", "smoke": {"m": 1}}, "f32")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = pool.map(lambda job: (job, run_small(refold, *job)), jobs)
        found = [(one["name"], problems(one, programs)) for one in workloads] + [(job[0]["name"], said) for job, said in runs]
    for name, said in found:
        for text in said:
            print(f"{name}: {text}")
        failed += bool(said)
    print(f"{len(found) - failed} passed, {failed} failed, 0 skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
