# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many factors of products an assembly file loads for all lanes and puts on the stack: they were loaded too early."""

import pathlib
import re
import sys

text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
print(len(re.findall(r"vbroadcastss\s+-?\w*\([^\n]*\), (%zmm\d+)\n\s+vmovups\s+\1, -?\d*\(%rsp\)", text)))
