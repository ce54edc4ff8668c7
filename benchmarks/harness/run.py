#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the workloads of benchmarks/suite and writes one JSON line a measurement (schema.json).

    run.py --refold build/release/bin/refold --probe build/release/bin/bound_probe [--suite attention,rows] [--peers]
           [--by-hand] [--threads 1,2] [--out results.jsonl] [--check]

Ours fused, ours unfused, the probes of the machine and, with --peers, what .venv-peers/ holds, with --by-hand kernels
written by hand (benchmarks/by_hand), take turns, each in a process of its own; answers are checked against double
precision before anything is timed. A line without "checked" is not a time and is shown as UNCHECKED. The workload "derivation" is CPU time of the compiler itself (derivation.py),
"memory" is peak memory (memory.py).
"""

import argparse
import datetime
import json
import pathlib
import platform
import subprocess
import sys
import tempfile

import contest
import derivation
import memory
import suite

ROOT = suite.ROOT
#: Fused must not be slower than unfused by more than this.
LEAST_SPEEDUP = 0.97
#: Inputs beyond this are held by one peer process at a time for each library.
LARGE_BYTES = 1 << 28
#: The contestant's name; no peer.
BY_HAND = "by hand"
#: Another: what a program computes anyway, by itself.
PART = "part"


def machine():
    """Processor and number of threads, as the kernel says them."""
    names = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return {"processor": names[0] if names else platform.processor(), "threads": len(names)}


def is_older_than_sources(refold):
    """Whether the commit says nothing of the compiler that is timed."""
    sources = (path for folder in ("lib", "include", "tools") for path in (ROOT / folder).rglob("*") if path.is_file())
    return refold.stat().st_mtime < max(path.stat().st_mtime for path in sources)


def provenance(refold):
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "--untracked-files=no")), "stale": is_older_than_sources(refold), "machine": machine(),
            "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}


def ports_of(options, workload, dtype):
    command = [options.refold, "inspect", workload["program"], "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise contest.Failed(done.stderr.strip())
    ports = json.loads(done.stdout)["inputs"]
    for port in ports:
        port["dtype"] = dtype if port["dtype"] == "f32" else port["dtype"]
    return ports


class Peers:
    """The peer processes, started when first needed and kept: their start takes seconds."""

    def __init__(self, options):
        self.options, self.open = options, {}

    def get(self, kind, threads):
        key = (kind, threads)
        if key not in self.open:
            self.open[key] = contest.Peer(kind, threads, self.options.peer_folder)
        return self.open[key]

    def drop(self, kind, threads):
        peer = self.open.pop((kind, threads), None)
        if peer:
            peer.close()

    def close(self):
        for kind, threads in list(self.open):
            self.drop(kind, threads)


def bound_of(workload, shape, dtype, rates, best):
    """The tightest of the limits of a workload, in ms, by the usual rates; the best ones are told beside it."""
    found = suite.amounts(workload, shape, dtype)
    limits = {name: found[suite.RESOURCES[name]] / rate for name, rate in rates.items() if rate > 0}
    if "bf16" in limits:
        limits.pop("fma", None)
    name = max(limits, key=limits.get)
    return {"name": name, "ms": limits[name], "rates": {name: rate * 1e-6 for name, rate in rates.items()},
            "best_rates": {name: rate * 1e-6 for name, rate in best.items()}}


def prepare_peers(peers, options, workload, case, threads):
    """Contestants that have loaded the case and answered right, and what is known of each."""
    found, known = [], {}
    for kind in contest.kinds_for(workload, options.kinds):
        try:
            peer = peers.get(kind, threads)
            known[kind] = peer.prepare(workload, case["dtype"], case["inputs"], case["dtypes"], case["expected"])
            found.append(contest.Contestant(kind, peer.run))
        except contest.Failed as problem:
            known[kind] = {"problem": str(problem)}
            if "ended" in str(problem) or "installed" in str(problem):
                peers.drop(kind, threads)
    return found, known


def prepare_hand(options, workload, dtype, inputs):
    """The kernel by hand of a workload, None without one, and what is wrong with it."""
    if not options.by_hand or "by_hand" not in workload or dtype not in workload.get("by_hand_dtypes", ["f32"]):
        return None, None
    try:
        return contest.Hand(options.by_hand / workload["by_hand"], workload, inputs), None
    except contest.Failed as problem:
        return None, str(problem)


def prepare_part(options, workload, shape, dtype, inputs):
    """The program that is a part of a workload (its products without what is before and behind), None without one."""
    if "part" not in workload:
        return None
    part = dict(workload, program=workload["part"])
    names = [port["name"] for port in ports_of(options, part, dtype)]
    found = contest.Refold(options.refold, part, shape, dtype, [path for path in inputs if path.stem in names], None)
    if not found.checked["checked"]:
        found.close()
        raise contest.Failed(f"{PART}: its answer was not checked")
    return found


def by_hand_of(hand, contestant, fused, bound):
    """What a line says of the kernel by hand."""
    if contestant.problem:
        return {"problem": contestant.problem}
    times = contestant.result()
    return {**times, "form": hand.form, "error": hand.checked["error"], "speedup": contest.median_ratio(contestant, fused), "share": bound["ms"] / times["ms"]}


def line_of(workload, shape, dtype, threads, ours, contestants, known, rates, best, hand=None):
    by_name = {one.name: one for one in contestants}
    fused, unfused, own, part = by_name.pop("fused"), by_name.pop("unfused"), by_name.pop(BY_HAND, None), by_name.pop(PART, None)
    for one in (fused, unfused, part) if part else (fused, unfused):
        if one.problem:
            raise contest.Failed(f"{one.name}: {one.problem}")
    times, by_itself = fused.result(), unfused.result()
    bound = bound_of(workload, shape, dtype, rates, best)
    line = {"workload": workload["name"], "family": workload["family"], "shape": shape, "dtype": dtype, "threads": threads, **ours.checked,
            "fused_ms": times["ms"], "unfused_ms": by_itself["ms"],
            "predicted_ms": {"fused": times["predicted_ms"], "unfused": by_itself["predicted_ms"]}, "moment": times["moment"], "thread_ms": times["thread_ms"], "faults": times["faults"],
            "speedup": contest.median_ratio(unfused, fused), "rounds": len(fused.turns)}
    line["bound"] = dict(bound, share=bound["ms"] / times["ms"])
    if own:
        line["by_hand"] = by_hand_of(hand, own, fused, bound)
    if part:
        line["part_ms"] = part.result()["ms"]
    for kind, peer in by_name.items():
        if peer.problem:
            known[kind] = {"problem": peer.problem}
            continue
        known[kind] = {**known[kind], **peer.result(), "speedup": contest.median_ratio(peer, fused)}
    line["peers"] = known
    timed = {kind: one["speedup"] for kind, one in known.items() if "speedup" in one}
    if timed:
        line["best_peer"] = min(timed, key=timed.get)
        line["ratio"] = timed[line["best_peer"]]
    return line


def measure(peers, options, workload, shape, dtype, folder):
    """A line for each number of threads."""
    ports = ports_of(options, workload, dtype)
    inputs = suite.make_inputs(ports, workload, shape, folder)
    case = {"dtype": dtype, "inputs": inputs, "dtypes": [port["dtype"] for port in ports], "expected": folder / "expected.npz"}
    ours = contest.Refold(options.refold, workload, shape, dtype, inputs, case["expected"])
    is_large = sum(path.stat().st_size for path in inputs) > LARGE_BYTES
    probe = contest.Probe(options.probe)
    hand = part = None
    lines = []
    try:
        hand, why_not = prepare_hand(options, workload, dtype, inputs)
        part = prepare_part(options, workload, shape, dtype, inputs)
        for group in [[n] for n in options.threads] if is_large else [options.threads]:
            prepared = {n: prepare_peers(peers, options, workload, case, n) for n in group}
            holder = contest.hold_machine(options.hold)
            for n in group:
                contestants = [contest.Contestant(which, lambda runs, which=which: ours.run(which, n, runs)) for which in ("fused", "unfused")]
                contestants += [contest.Contestant(BY_HAND, lambda runs: hand.run(n, runs))] if hand else []
                contestants += [contest.Contestant(PART, lambda runs: part.run("unfused", n, runs))] if part else []
                contestants += prepared[n][0]
                size = suite.amounts(workload, shape, dtype)["bytes"]
                probes = [(what, lambda what=what: probe.rate(what, n, size)) for what in suite.resources_of(workload, dtype)]
                rates, best = contest.play(contestants, probes, options.rounds)
                lines.append(line_of(workload, shape, dtype, n, ours, contestants, prepared[n][1], rates, best, hand))
                if why_not:
                    lines[-1]["by_hand"] = {"problem": why_not}
            contest.release_machine(holder)
            for kind in options.kinds if is_large else []:
                peers.drop(kind, group[0])
    finally:
        for one in (hand, part):
            if one:
                one.close()
        probe.close()
        ours.close()
    return lines


def run_derivation(refold, workload):
    """One line a program, one a graph and one of all: CPU time, and what is over the limits."""
    paths = sorted(path for pattern in workload["derived"] for path in ROOT.glob(pattern))
    programs = derivation.measure_programs(refold, paths, workload["runs"], is_quiet=False)
    graphs = derivation.measure_graphs(refold, workload["graphs"], workload["runs"], is_quiet=False)
    summary = derivation.summarise(programs, graphs)
    lines = [{"program": str(path.relative_to(ROOT)), **times} for path, times in programs]
    lines += [{"nodes": nodes, **{k: v for k, v in times.items() if k != "cascades"}} for nodes, times in graphs.items()]
    return lines + [{"summary": summary, "beyond": derivation.beyond(summary, workload["limits"])}]


def describe(line):
    what = f"{line['workload']} {line['dtype']} {suite.shape_text(line['shape'])} threads {line['threads']}: "
    if not line["checked"]:
        return what + f"UNCHECKED {line['problem']}"
    text = what + f"{line['fused_ms']:.3f} ms, {100 * line['bound']['share']:.0f} % of {line['bound']['name']}, {line['speedup']:.2f}x unfused"
    if "by_hand" in line:
        own = line["by_hand"]
        text += f"; {BY_HAND} {own['problem']}" if "problem" in own else f"; {BY_HAND} {own['speedup']:.2f}x"
    if "part_ms" in line:
        text += f"; {PART} alone {line['part_ms'] / line['fused_ms']:.2f}"
    for kind, found in line["peers"].items():
        text += f"; {kind} {found['problem']}" if "problem" in found else f"; {kind} {found['speedup']:.2f}x"
    return text


def shapes_of(workload, options):
    if options.smoke:
        return [workload["smoke"]] if "smoke" in workload else []
    shapes = workload["shapes"] + (workload.get("large_shapes", []) if options.large else [])
    return shapes


def run_workload(peers, options, workload):
    for dtype in workload["dtypes"]:
        for shape in shapes_of(workload, options):
            if not suite.is_wanted(options.suite, workload, shape, dtype):
                continue
            with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
                try:
                    yield from measure(peers, options, workload, shape, dtype, pathlib.Path(folder))
                except contest.Failed as problem:
                    for threads in options.threads:
                        yield {"workload": workload["name"], "family": workload["family"], "shape": shape, "dtype": dtype,
                               "threads": threads, "checked": False, "problem": str(problem)}


def special_lines(options):
    """The workloads that are not times of a program."""
    for name, run in (("derivation", run_derivation), ("memory", memory.run)):
        if any(wanted.name == name for wanted in options.suite):
            workload = json.loads((suite.SUITE / f"{name}.json").read_text(encoding="utf-8"))
            yield from ({"workload": name, **line} for line in run(options.refold, workload))


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--refold", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--probe", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--suite", type=suite.parse_wanted, default=[],
                        help="workloads or families, each with extents and types if not all are wanted: rows:n=4096,decode:bf16; all without it")
    parser.add_argument("--peers", action="store_true", help="also times the libraries of .venv-peers/")
    parser.add_argument("--only-peers", type=lambda text: text.split(","), default=contest.PEERS, help="some of " + ",".join(contest.PEERS))
    parser.add_argument("--peer-folder", type=pathlib.Path, default=ROOT / ".venv-peers")
    parser.add_argument("--by-hand", nargs="?", const=ROOT / "build/release/bin", type=lambda text: pathlib.Path(text).resolve(),
                        help="kernels of benchmarks/by_hand take turns as well; the folder that they are in (build/release/bin)")
    parser.add_argument("--threads", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="one small shape a workload: whether answers are right, not times")
    parser.add_argument("--large", action="store_true", help="also the shapes that take seconds and gigabytes")
    parser.add_argument("--out", type=pathlib.Path, help="JSON lines are appended to it")
    parser.add_argument("--check", action="store_true", help=f"fails where fused is slower than {LEAST_SPEEDUP} of unfused")
    parser.add_argument("--hold", help="a command that keeps a shared machine quiet from its first line until its stdin ends")
    options = parser.parse_args()
    options.kinds = options.only_peers if options.peers else []
    options.scratch = ROOT / "build/bench"
    options.scratch.mkdir(parents=True, exist_ok=True)
    return options


def main():
    options = parse_options()
    failed, slower, common = 0, [], provenance(options.refold)
    peers = Peers(options)
    if common["stale"]:
        print(f"{options.refold} is older than the sources: the commit in the results is not its own", file=sys.stderr)

    def write(line):
        if options.out:
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**line, **common}) + "\n")
    for line in special_lines(options):
        write(line)
        failed += bool(line.get("beyond"))
        if "summary" in line:
            print(derivation.describe(line["summary"], line["beyond"]), flush=True)
        elif line["workload"] == "memory":
            print(memory.describe(line), flush=True)
    for workload in suite.load(options.suite):
        for line in run_workload(peers, options, workload):
            write(line)
            print(describe(line), flush=True)
            failed += not line["checked"]
            if line.get("speedup", 1) < LEAST_SPEEDUP:
                slower.append(line)
    peers.close()
    if options.check:
        print(f"{len(slower)} slower than {LEAST_SPEEDUP} of unfused")
        for line in slower:
            print("  " + describe(line))
    return int(failed > 0 or (options.check and bool(slower)))


if __name__ == "__main__":
    sys.exit(main())
