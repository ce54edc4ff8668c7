# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fails where the answer of `refold explain --format json` lacks a field of its contract."""

import json
import sys

FIELDS = {"name": str, "axes": list, "stages": list, "verdict": str, "passes": int, "unfused_passes": int,
          "state_size": int, "formula": str, "gauge": str, "certificate": str, "reasons": list,
          "policies": list}
STAGE = {"name": str, "op": str, "line": int, "pass": int}
REASON = {"key": str, "at": str, "text": str}


def check(record, fields, where):
    for name, kind in fields.items():
        assert isinstance(record.get(name), kind), f"{where}: {name} is {record.get(name)!r}"


answer = json.load(sys.stdin)
assert answer["cascades"], "no cascade"
for cascade in answer["cascades"]:
    check(cascade, FIELDS, cascade.get("name"))
    assert cascade["schedule"] is None or isinstance(cascade["schedule"], dict)
    assert cascade["verdict"] == ("fused" if cascade["passes"] == 1 else "cut")
    for stage in cascade["stages"]:
        check(stage, STAGE, cascade["name"])
        assert stage["line"] > 0
    for reason in cascade["reasons"]:
        check(reason, REASON, cascade["name"])
    assert (cascade["verdict"] == "cut") == bool(cascade["reasons"])
