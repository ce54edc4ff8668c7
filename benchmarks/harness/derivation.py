# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long a derivation takes: CPU time of every cascade of a set of programs, with and without its certificate, and of
whole graphs, which must grow linearly. Of several runs the least counts, since others use the machine too."""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from deep_model import deep_model


def timing(refold, program, runs):
    """`refold explain --timing`, the least of each number, or None where the program is refused."""
    answers = []
    for _ in range(runs):
        done = subprocess.run([refold, "explain", program, "--format=json", "--timing"], capture_output=True, text=True)
        if done.returncode:
            return None
        answers.append(json.loads(done.stdout)["timing"])
    least = {key: min(answer[key] for answer in answers) for key in ("load_ms", "plan_ms", "total_ms")}
    least["cascades"] = [{"name": same[0]["name"], **{key: min(one[key] for one in same)
                                                      for key in ("derive_ms", "certify_ms")}}
                         for same in zip(*(answer["cascades"] for answer in answers))]
    least["derivation_ms"] = least["plan_ms"] + sum(c["derive_ms"] + c["certify_ms"] for c in least["cascades"])
    return least


def say(text, end="\n"):
    """Progress, on the terminal's own line where there is one."""
    print(("\r\033[K" if sys.stderr.isatty() else "") + text, file=sys.stderr, flush=True, end=end)


def measure_programs(refold, paths, runs, is_quiet=True):
    """[(path, timing)] of programs that are not refused."""
    found = []
    for number, path in enumerate(paths, start=1):
        if not is_quiet and (sys.stderr.isatty() or number % 50 == 0 or number == len(paths)):
            say(f"derivation: {number} of {len(paths)} programs, {runs} runs each", "" if number < len(paths) and sys.stderr.isatty() else "\n")
        found.append((path, timing(refold, path, runs)))
    return [(path, times) for path, times in found if times]


def measure_graphs(refold, sizes, runs, is_quiet=True):
    """{nodes: timing}."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for nodes in sizes:
            if not is_quiet:
                say(f"derivation: a graph of {nodes} nodes, {runs} runs")
            path = pathlib.Path(folder) / f"deep_{nodes}.onnx"
            path.write_bytes(deep_model(nodes))
            found[nodes] = timing(refold, path, runs)
    return found


def summarise(programs, graphs):
    cascades = [c for _, times in programs for c in times["cascades"]]
    whole = [c["derive_ms"] + c["certify_ms"] for c in cascades]
    return {"cascades": len(cascades),
            "derive_median_ms": statistics.median(c["derive_ms"] for c in cascades),
            "derive_most_ms": max(c["derive_ms"] for c in cascades),
            "certified_median_ms": statistics.median(whole), "certified_most_ms": max(whole),
            "graphs_ms": {str(nodes): times["derivation_ms"] for nodes, times in graphs.items()},
            "graphs_total_ms": {str(nodes): times["total_ms"] for nodes, times in graphs.items()}}


def beyond(summary, limits, slack=1):
    """What is over its limit, as text."""
    found = {"derive_median_ms": summary["derive_median_ms"], "certified_median_ms": summary["certified_median_ms"]}
    found |= {f"graph_{nodes}_ms": ms for nodes, ms in summary["graphs_ms"].items()}
    return [f"{name}: found {found[name]:.2f} ms, expected at most {slack * limit} ms"
            for name, limit in limits.items() if name in found and not found[name] <= slack * limit]


def describe(summary, over):
    """The numbers of a summary, a line each, and what is beyond its limit."""
    lines = [f"{summary['cascades']} cascades, CPU time of each: derived in {summary['derive_median_ms']:.2f} ms (median, at most "
             f"{summary['derive_most_ms']:.1f}), with its certificate {summary['certified_median_ms']:.1f} ms (median, at most "
             f"{summary['certified_most_ms']:.0f})"]
    for nodes, ms in summary["graphs_ms"].items():
        lines.append(f"graph of {nodes} nodes: {ms:.0f} ms to find, derive and certify, {summary['graphs_total_ms'][nodes]:.0f} ms from file "
                     "to report")
    return "\n".join(lines + [f"beyond its limit: {text}" for text in over])
