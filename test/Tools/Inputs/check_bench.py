# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fails where the answer of `refold bench --kernels --format json` on weights.mlir counts wrongly."""

import json
import sys

answer = json.load(sys.stdin)
bound = answer["bound"]
assert answer["checked"] and answer["checked_against"] == "double"
assert bound["bytes"] == {"inputs": 4 * 64 * 4, "weights": 64 * 32 * 4, "outputs": 4 * 4}, bound["bytes"]
# The product is 2 * 4 * 64 * 32; the rest a few for each of its results.
assert 2 * 4 * 64 * 32 <= bound["operations"] <= 2 * 4 * 64 * 32 + 8 * 4 * 32, bound["operations"]
assert bound["ms"] == max(bound["memory_ms"], bound["arithmetic_ms"]) > 0
assert bound["name"] == ("memory" if bound["memory_ms"] >= bound["arithmetic_ms"] else "arithmetic")
for form in ("fused", "unfused"):
    steps = answer["kernels"][form]
    assert abs(sum(step["share"] for step in steps) - 1) < 1e-6
    assert all(step["ms"] > 0 and step["bound_ms"] > 0 for step in steps if step["kind"] != "check")
assert len(answer["kernels"]["unfused"]) > len(answer["kernels"]["fused"])
