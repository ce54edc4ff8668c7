# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long a derivation takes: CPU time of every cascade of a set of programs, with and without its certificate, and of
whole graphs, which must grow linearly. Of several runs the least counts, since others use the machine too."""

import json
import pathlib
import statistics
import subprocess
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


def measure_programs(refold, paths, runs):
    """[(path, timing)] of programs that are not refused."""
    found = [(path, timing(refold, path, runs)) for path in paths]
    return [(path, times) for path, times in found if times]


def measure_graphs(refold, sizes, runs):
    """{nodes: timing}."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for nodes in sizes:
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
