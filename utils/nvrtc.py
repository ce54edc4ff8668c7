# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles CUDA C++ to a cubin with NVRTC, where the Python package nvidia-cuda-nvrtc is installed."""

import ctypes
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPTIONS = ["--std=c++17", "-fmad=false", "-default-device", "--ptxas-options=-v"]
HEADERS = ["refold_cuda.h", "refold_cuda_f8.h", "refold_cuda_vectors.h", "refold_cuda_lists.h", "refold_cuda_parts.h",
           "refold_cuda_tiles.h", "refold_cuda_tiles_words.h", "refold_cuda_products.h", "refold_cuda_products_rows.h", "refold_cuda_products_words.h",
           "refold_cuda_wgmma.h", "refold_cuda_products_roles.h", "refold_cuda_products_panels.h", "refold_cuda_products_f8.h",
           "refold_cuda_products_f8_roles.h", "refold_cuda_wide.h", "refold_cuda_clusters.h",
           "refold_cuda_shares.h"]


def find_library():
    """The path of NVRTC: in .venv, in this Python, or None."""
    folders = [ROOT / ".venv" / "lib"] + [pathlib.Path(p) for p in sys.path if p]
    for folder in folders:
        for pattern in ("python3*/site-packages/nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cu13/lib/libnvrtc.so.13"):
            for path in folder.glob(pattern):
                return path
    return None


class Compiler:
    def __init__(self, path):
        # NVRTC looks for this one by name: it has to be there already.
        for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        self.lib = ctypes.CDLL(str(path))

    def compile(self, text, arch):
        """(cubin, log) of a text that includes refold_cuda.h; RuntimeError with the log if it is refused."""
        sources = [(ROOT / "runtime/cuda" / name).read_bytes() for name in HEADERS]
        program = ctypes.c_void_p()
        names = (ctypes.c_char_p * len(HEADERS))(*[n.encode() for n in HEADERS])
        self.lib.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", len(HEADERS),
                                    (ctypes.c_char_p * len(HEADERS))(*sources), names)
        options = [o.encode() for o in [*OPTIONS, f"--gpu-architecture={arch}"]]
        code = self.lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        log = self._get(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").decode().rstrip("\0")
        if code:
            raise RuntimeError(log)
        cubin = self._get(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
        self.lib.nvrtcDestroyProgram(ctypes.byref(program))
        return cubin, log

    def _get(self, program, size_name, get_name):
        size = ctypes.c_size_t()
        getattr(self.lib, size_name)(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self.lib, get_name)(program, buffer)
        return buffer.raw


def resources(log):
    """{entry: (registers, stack bytes, spilled bytes)} as ptxas reports them."""
    found, entry, memory = {}, None, (0, 0)
    for line in log.splitlines():
        if m := re.search(r"Function properties for (\w+)", line):
            entry = m[1]
        elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            memory = int(m[1]), int(m[2]) + int(m[3])
        elif (m := re.search(r"Used (\d+) registers", line)) and entry:
            found[entry] = (int(m[1]), *memory)
    return found
