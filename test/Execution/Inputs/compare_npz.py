# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fails where two .npz files differ in names or shapes, or an element of f32 by more than rounding. Needs
nothing but Python: the files are stored, and their headers are a dictionary."""

import ast
import struct
import sys
import zipfile


def arrays(path):
    found = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            size = struct.unpack("<H", data[8:10])[0]
            header = ast.literal_eval(data[10:10 + size].decode("latin1"))
            assert header["descr"] == "<f4", header
            found[name] = (header["shape"], struct.unpack(f"<{(len(data) - 10 - size) // 4}f", data[10 + size:]))
    return found


one, two = arrays(sys.argv[1]), arrays(sys.argv[2])
assert one.keys() == two.keys(), f"{sorted(one)} against {sorted(two)}"
for name, (shape, values) in one.items():
    assert shape == two[name][0], f"{name}: {shape} against {two[name][0]}"
    scale = max(map(abs, two[name][1]), default=0.0)
    worst = max((abs(a - b) for a, b in zip(values, two[name][1])), default=0.0)
    assert worst <= 1e-5 * scale, f"{name}: {worst} against at most {1e-5 * scale}"
