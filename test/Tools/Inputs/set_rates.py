# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes rates that `doctor` has kept: FOLDER NAME=VALUE ..."""

import json
import pathlib
import sys

for kept in pathlib.Path(sys.argv[1]).glob("*.json"):
    content = json.loads(kept.read_text())
    for change in sys.argv[2:]:
        name, value = change.split("=")
        assert name in content["value"], name
        content["value"][name] = float(value)
    kept.write_text(json.dumps(content))
