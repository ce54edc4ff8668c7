# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fails where the answer of `refold explain --format json` lacks a field of its contract; with --shape,
where schedules and steps do; with --cuda, where launches on a GPU do; with --accuracy, where measurements do, or where one does not hold; with --certificate,
where the checks of certificates do."""

import json
import sys

FIELDS = {"name": str, "axes": list, "stages": list, "verdict": str, "passes": int, "unfused_passes": int,
          "state_size": int, "single_product": bool, "formula": str, "gauge": str, "certificate": str, "reasons": list,
          "policies": list, "gauges": list, "roundings": list, "zeroed": list, "idle_guards": list, "choices": list}
STAGE = {"name": str, "op": str, "line": int, "pass": int}
REASON = {"key": str, "at": str, "text": str, "node": str, "hint": str, "evidence": str}
GAUGE = {"pivot": str, "states": list, "law": str, "why": str}
ROUNDING = {"stage": str, "formula": str, "unit": (int, float), "step": (int, float), "power_of_two": bool,
            "headroom": int, "bound": str}
SCHEDULE = {"kernel": str, "target": str, "tile": dict, "register_rows": int, "register_lanes": int, "lanes": str,
            "segments": int, "packed": list, "stream_bytes": int, "prefetch": bool, "passes": int, "second_sweep": bool, "plan": list,
            "bytes_read": (int, float), "bytes_written": (int, float), "operations": (int, float),
            "skips_tiles": bool}
NUMBER = (int, float, str)
ACCURACY = {"stream": NUMBER, "tiles": NUMBER, "tree": NUMBER, "amplification": NUMBER, "holds": bool,
            "dropped": NUMBER, "raw": NUMBER, "outputs": list}
FAMILY = {"family": str, "unfused": NUMBER, "amplification": NUMBER, **{
    order + what: NUMBER for order in ("stream", "tiles", "tree") for what in ("", "_ratio", "_bound")}}
CHECKS = {"transports": {"states": list, "trials": int, "modulus": str},
          "rows": {"rows": int, "lengths": list, "families": dict, "orders": dict, "comparisons": int, "worst": (int, float),
                   "worst_at": str},
          "edge rows": {"rows": int, "designs": list, "values": dict, "classes": dict, "differences": int}}
DESIGN = {"arithmetic": str, "length": int, "rows": int, "sparse_rows": int, "choices": int, "strength": int, "complete": bool}
STEP = {"name": str, "kind": str, "kernel": str, "bytes_read": (int, float), "bytes_written": (int, float),
        "operations": (int, float), "skips_tiles": bool}


NUMBERS = (int, float)
LAUNCH = {"kernel": str, "form": str, "entry": str, "what": str, "grid": list, "block": list, "cluster": int, "whole_grid": int,
          "groups": int, "parts": int, "call": dict, "dynamic_shared_bytes": int, "workspace_bytes": int, "occupancy": dict,
          "entries": list, "bytes": dict, "work": dict, "waves": NUMBERS, "predicted_ms": NUMBERS, "bound": str, "parts_ms": dict}
CARD = {"name": str, "assumed": bool, "source": str, "architecture": str, "multiprocessors": int, "cache_bytes": int,
        "shared_bytes_per_block": int, "memory_bytes": int, "rates": dict}
ENTRY = {"name": str, "what": str, "taken": bool, "why": str}
GPU_PARTS = {
    "call": ("batch", "rows", "length", "columns", "depth"), "occupancy": ("blocks", "warps", "most_warps"),
    "bytes": ("read", "written", "read_again", "from_memory", "to_memory", "through_cache"),
    "work": ("products", "simple", "exponentials", "functions", "divisions", "conversions", "slots", "walked"),
    "parts_ms": ("memory", "cache", "slots", "functions", "products", "waiting", "launch")}


def check_launch(launch):
    """What a step launches: every field, one entry taken, and no part of the time above all of it."""
    check(launch, LAUNCH, launch.get("entry"))
    for part, names in GPU_PARTS.items():
        check(launch[part], {name: NUMBERS for name in names}, part)
    for entry in launch["entries"]:
        check(entry, ENTRY, launch["entry"])
    assert [entry["name"] for entry in launch["entries"] if entry["taken"]] == [launch["entry"]]
    assert len(launch["grid"]) == len(launch["block"]) == 3
    assert all(launch["parts_ms"][p] <= launch["predicted_ms"] for p in ("memory", "cache", "launch")), launch["parts_ms"]


def check_gpu(answer):
    check(answer["card"], CARD, "card")
    assert answer["card"]["assumed"] and isinstance(answer["code"], str)
    steps = [step for step in answer["steps"] if step["launch"]]
    assert steps and abs(sum(step["predicted_ms"] for step in steps) - answer["predicted_ms"]) < 1e-9
    for step in steps:
        check_launch(step["launch"])
        assert step["launch"]["code"] is None  # the test has no NVRTC
    for cascade in answer["cascades"]:
        check(cascade, FIELDS, cascade.get("name"))
        schedule = cascade["schedule"]
        if schedule.get("declined"):
            check(schedule, {"declined": str, "text": str, "keeps_product": bool}, cascade["name"])
        else:
            check(schedule, {"target": str, "is_once": bool}, cascade["name"])
            assert any(step["launch"]["entry"] == schedule["entry"] for step in steps)


def check(record, fields, where):
    for name, kind in fields.items():
        assert isinstance(record.get(name), kind), f"{where}: {name} is {record.get(name)!r}"


has_shape = sys.argv[1:] == ["--shape"]
has_accuracy = sys.argv[1:] == ["--accuracy"]
has_proof = sys.argv[1:] == ["--certificate"]
answer = json.load(sys.stdin)
if sys.argv[1:] == ["--cuda"]:
    check_gpu(answer)
    sys.exit()
for step in answer["steps"] if has_shape else []:
    check(step, STEP, step.get("name"))
assert answer["cascades"], "no cascade"
for cascade in answer["cascades"]:
    check(cascade, FIELDS, cascade.get("name"))
    assert (cascade["schedule"] is not None) == has_shape
    if has_shape:
        check(cascade["schedule"], SCHEDULE, cascade["name"])
        assert cascade["schedule"]["operations"] > 0
    assert cascade["verdict"] == ("fused" if cascade["passes"] == 1 else "cut")
    for stage in cascade["stages"]:
        check(stage, STAGE, cascade["name"])
        assert stage["line"] > 0
    assert (cascade["accuracy"] is not None) == has_accuracy
    if has_accuracy:
        check(cascade["accuracy"], ACCURACY, cascade["name"])
        assert cascade["accuracy"]["holds"]
        for output in cascade["accuracy"]["outputs"]:
            for family in output["families"]:
                check(family, FAMILY, output["name"])
    assert (cascade["proof"] is not None) == has_proof
    if has_proof:
        assert cascade["proof"]["holds"] and cascade["proof"]["cuts"] == []
        assert [c["check"] for c in cascade["proof"]["checks"]] == list(CHECKS)
        for one in cascade["proof"]["checks"]:
            check(one, CHECKS[one["check"]], cascade["name"])
        for design in cascade["proof"]["checks"][2]["designs"]:
            check(design, DESIGN, cascade["name"])
    for reason in cascade["reasons"]:
        check(reason, REASON, cascade["name"])
    for gauge in cascade["gauges"]:
        check(gauge, GAUGE, cascade["name"])
        assert gauge["states"] and gauge["why"]
    for rounding in cascade["roundings"]:
        check(rounding, ROUNDING, cascade["name"])
    assert (cascade["verdict"] == "cut") == bool(cascade["reasons"])
