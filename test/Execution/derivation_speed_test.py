#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The smoke form of the workload "derivation" of benchmarks/suite: some programs and one graph, once. Fails where a limit
is missed by a factor of ten, or where a graph of three times the nodes takes ten times as long."""

import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks/harness"))

import derivation  # noqa: E402

SLACK = 10
SMALL, LARGE = 1000, 3000
MOST_GROWTH = 10


def problems(summary, limits):
    found = derivation.beyond(summary, limits, SLACK)
    small, large = (summary["graphs_ms"][str(nodes)] for nodes in (SMALL, LARGE))
    if large > MOST_GROWTH * small:
        found.append(f"{LARGE} nodes take {large:.0f} ms and {SMALL} take {small:.0f} ms; expected less than {MOST_GROWTH} times")
    return found


def self_test(limits):
    """A slow derivation and one that grows too fast are seen."""
    good = {"derive_median_ms": 1, "certified_median_ms": 10, "graphs_ms": {str(SMALL): 100, str(LARGE): 300}}
    assert not problems(good, limits)
    assert problems({**good, "derive_median_ms": 51}, limits)
    assert problems({**good, "certified_median_ms": 501}, limits)
    assert problems({**good, "graphs_ms": {str(SMALL): 100, str(LARGE): 1001}}, limits)


def main():
    refold = os.environ["REFOLD"]
    workload = json.loads((ROOT / "benchmarks/suite/derivation.json").read_text(encoding="utf-8"))
    # The graphs are smaller than the one that the limit is for.
    limits = {**workload["limits"], f"graph_{LARGE}_ms": workload["limits"]["graph_10000_ms"]}
    self_test(limits)
    paths = sorted((ROOT / "test/Catalogue").glob("theory_*.fold"))[::3]
    programs = derivation.measure_programs(refold, paths, 1)
    graphs = derivation.measure_graphs(refold, [SMALL, LARGE], 2)
    if len(programs) != len(paths) or None in graphs.values():
        found = ["a program was refused; expected all of them derived"]
    else:
        found = problems(derivation.summarise(programs, graphs), limits)
    print("\n".join(found))
    print(f"{int(not found)} passed, {int(bool(found))} failed, 0 skipped")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
