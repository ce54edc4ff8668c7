#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times row kernels of the CUDA target on the first GPU, and PyTorch's on the same inputs.

    rows.py --bundles FOLDER [--entries chosen|all] [--peers] [--widths 4096,32768] [--out FILE.jsonl]

A bundle is PROGRAM.DTYPE.json, as `refold compile --emit cuda --format json` prints it, beside
PROGRAM.DTYPE.cubin; build_bundles.py makes them where there is no GPU. Every answer is compared with
double precision on sampled rows, and every element has to be written, before a time counts. Inputs
are 1 GiB, so that no cache holds them; times are the median of 15 groups of launches.
"""

import argparse
import ctypes
import json
import pathlib
import statistics
import sys

import torch

GIB = 1 << 30
F = torch.nn.functional



def wide(*tensors):
    """In f32, or in double where they are."""
    return [t if t.dtype == torch.float64 else t.float() for t in tensors]


def quantised(y, most, dtype):
    scale = y.abs().amax(-1, keepdim=True) / most
    q = y / scale
    q = q.clamp(-most, most).to(dtype) if dtype.is_floating_point else q.round().to(dtype)
    return q, scale[..., 0]


def rmsnorm_fp8(x, g):
    x, g = wide(x, g)
    return quantised(x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * g, 448.0, torch.float8_e4m3fn)


def rmsnorm_int8(x, g):
    x, g = wide(x, g)
    return quantised(x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * g, 127.0, torch.int8)


def layernorm_f8(x, g, b):
    x, g, b = wide(x, g, b)
    return quantised(F.layer_norm(x, x.shape[-1:], g, b, 1e-5), 448.0, torch.float8_e4m3fn)


PROGRAMS = {  # name: (function of the inputs, kinds of the inputs, types of results that are not that of the inputs)
    "softmax": (lambda x: torch.softmax(x, -1), ["matrix"]),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), ["matrix"]),
    "entropy": (lambda x: -(torch.softmax(x, -1) * torch.log_softmax(x, -1)).sum(-1), ["matrix"]),
    "layernorm": (lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b, 1e-5), ["matrix", "row", "row"]),
    "rmsnorm_fp8": (rmsnorm_fp8, ["matrix", "row"], [torch.float8_e4m3fn]),
    "rmsnorm_int8": (rmsnorm_int8, ["matrix", "row"], [torch.int8]),
    "layernorm_f8": (layernorm_f8, ["matrix", "row", "row"], [torch.float8_e4m3fn]),
    "rmsnorm": (lambda x, g: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * g, ["matrix", "row"]),
    "variance": (lambda x: (x.mean(-1), x.var(-1, unbiased=False)), ["matrix"]),
    "kl_divergence": (lambda a, b: (torch.softmax(a, -1) * (torch.log_softmax(a, -1) - torch.log_softmax(b, -1))).sum(-1),
                      ["matrix", "matrix"]),
    "cross_entropy": (lambda x, label: F.cross_entropy(x, label, reduction="none"), ["matrix", "label"]),
}
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


class LaunchConfig(ctypes.Structure):
    _fields_ = [*((f"size{i}", ctypes.c_uint) for i in range(7)), ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p),
                ("count", ctypes.c_uint)]


class Driver:
    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        torch.zeros(1, device="cuda")  # PyTorch's context is the current one

    def call(self, name, *arguments):
        code = getattr(self.lib, name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: error {code}")

    def load(self, path):
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), pathlib.Path(path).read_bytes())
        return module

    def function(self, module, name):
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def launch(self, function, blocks, threads, values, shared=0):
        cells = [ctypes.c_int64(v) for v in values]
        array = (ctypes.c_void_p * len(cells))(*[ctypes.cast(ctypes.byref(c), ctypes.c_void_p) for c in cells])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, shared, stream, array, None)

    def allow_shared(self, function, size):
        self.call("cuFuncSetAttribute", function, 8, size)  # MAX_DYNAMIC_SHARED_SIZE_BYTES

    def most_clusters(self, function, threads, shared, blocks):
        """How many clusters of `blocks` the device runs at once."""
        config, found = LaunchConfig(blocks, 1, 1, threads, 1, 1, shared), ctypes.c_int()
        self.call("cuOccupancyMaxActiveClusters", ctypes.byref(found), function, ctypes.byref(config))
        return found.value



def time_ms(run, launches=6, groups=15):
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(groups):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(launches):
            run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / launches)
    return statistics.median(times)


def make_inputs(kinds, dtype, rows, width):
    torch.manual_seed(width)
    matrices = sum(k == "matrix" for k in kinds)
    made = []
    for kind in kinds:
        if kind == "label":
            made.append(torch.randint(0, width, (rows // matrices,), device="cuda"))
            continue
        if kind == "row":
            made.append(torch.randn(width, device="cuda").to(dtype))
            continue
        x = torch.randn(rows // matrices, width, device="cuda", dtype=torch.float32 if rows * width < 1 << 29 else dtype)
        # Scores that grow along the row: every pivot moves.
        x += torch.linspace(-4, 4, width, device="cuda", dtype=x.dtype)
        made.append(x.to(dtype))
    return made


def is_by_row(x):
    return x.dim() == 2 or x.dtype == torch.int64


def results_like(function, inputs, types):
    few = [x[:2] if is_by_row(x) else x for x in inputs]
    shown = function(*few)
    shown = shown if isinstance(shown, tuple) else (shown,)
    return [torch.empty((inputs[0].shape[0], *r.shape[1:]), device="cuda", dtype=own or inputs[0].dtype)
            for r, own in zip(shown, [*types, *[None] * len(shown)])]


def poison(result):
    """What no kernel here writes: NaN, or the least number of 8 bits."""
    if result.element_size() == 1:
        result.view(torch.uint8).fill_(0x7f if result.is_floating_point() else 0x80)
    else:
        result.fill_(float("nan"))


def unwritten_of(result):
    bits = result.view(torch.uint8) if result.element_size() == 1 else None
    if bits is None:
        return int(result.isnan().sum())
    return int((bits == (0x7f if result.is_floating_point() else 0x80)).sum())


def values_of(kernel, tensors):
    values = []
    for p in kernel["parameters"]:
        t = tensors[p["operand"]]
        if p["kind"] in ("workspace", "tickets"):  # of entries whose blocks share rows: not launched here
            values.append(0)
            continue
        values.append({"pointer": t.data_ptr, "size": lambda: t.shape[p["dim"]],
                       "stride": lambda: t.stride(p["dim"])}[p["kind"]]())
    return values


def error_of(function, inputs, results):
    """The largest deviation from double on sampled rows, each output's against its own scale."""
    rows = inputs[0].shape[0]
    sample = sorted({0, 1, rows // 3, rows // 2, rows - 2, rows - 1})
    few = [x[sample] if is_by_row(x) else x for x in inputs]
    exact = function(*[x if x.dtype == torch.int64 else x.double() for x in few])
    exact = exact if isinstance(exact, tuple) else (exact,)
    worst = 0.0
    for e, r in zip(exact, results):
        found = r[sample].double()
        e = e.double()
        worst = max(worst, ((found - e).norm() / e.norm().clamp_min(1e-30)).item())
    return worst


def chosen_entry(kernel, width, rows):
    for e in kernel["entries"]:
        fits = e["shortest"] <= width and (e["longest"] < 0 or width <= e["longest"]) and rows >= e["fewest_rows"]
        if not e["most_blocks"] and width % e["width"] == 0 and fits:
            return e["name"]
    return None


def ceilings(driver, folder):
    module = driver.load(folder / "ceilings.cubin")
    x = torch.randint(-2**31, 2**31 - 1, (GIB // 4,), device="cuda", dtype=torch.int32)
    y = torch.empty_like(x)
    vectors = GIB // 16
    read, copy = driver.function(module, "read_all"), driver.function(module, "copy_all")
    found = {
        "read_tbs": GIB / time_ms(lambda: driver.launch(read, 264, 512, [x.data_ptr(), y.data_ptr(), vectors])) / 1e9,
        "copy_tbs": 2 * GIB / time_ms(lambda: driver.launch(copy, vectors // 2048, 256,
                                                            [x.data_ptr(), y.data_ptr(), vectors])) / 1e9,
        "torch_copy_tbs": 2 * GIB / time_ms(lambda: y.copy_(x)) / 1e9,
    }
    assert torch.equal(x, y)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bundles", required=True, type=pathlib.Path)
    parser.add_argument("--entries", default="chosen")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--widths", default="4096,32768,131072")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    driver = Driver()
    log = []

    def note(**fields):
        log.append(fields)
        print(" ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in fields.items()), flush=True)

    note(device=torch.cuda.get_device_name(), torch=torch.__version__, **ceilings(driver, options.bundles))
    failed = False
    for path in sorted(options.bundles.glob("*.json")):
        program, dtype_name = path.stem.split(".")
        if program not in PROGRAMS or (options.only and path.stem not in options.only.split(",")):
            continue
        kernel = json.loads(path.read_text())["kernels"][0]
        module = driver.load(path.with_suffix(".cubin"))
        function, kinds, *types = PROGRAMS[program]
        dtype = DTYPES[dtype_name]
        for width in map(int, options.widths.split(",")):
            rows = GIB // (width * torch.empty((), dtype=dtype).element_size())
            inputs = make_inputs(kinds, dtype, rows, width)
            rows = inputs[0].shape[0]
            results = results_like(function, inputs, types[0] if types else [])
            moved = sum(t.numel() * t.element_size() for t in [*inputs, *results])
            values = values_of(kernel, [*inputs, *results])
            chosen = chosen_entry(kernel, width, rows)
            for e in kernel["entries"]:
                fits = (not e["resident"] or e["longest"] >= width) and not e.get("most_blocks")
                if width % e["width"] or not fits or (options.entries == "chosen" and e["name"] != chosen):
                    continue
                handle = driver.function(module, e["name"])
                blocks, shared = -(-rows // e["rows"]) * e["blocks"], e["shared_bytes"]
                if turn := e.get("turn_rows"):
                    blocks = max(-(-rows // turn), min(rows, 256 // e["blocks"])) * e["blocks"]
                if e["kept_bytes"]:
                    chunk = e["threads"] * e["vectors"] * e["width"]
                    chunks = max(-(-(width - e["held"]) // chunk), 0)
                    shared += -(-chunks // e["blocks"]) * chunk * e["kept_bytes"] + e.get("ahead_bytes", 0)
                driver.allow_shared(handle, shared)
                if e["blocks_per_unit"]:
                    units = torch.cuda.get_device_properties(0).multi_processor_count * e["blocks_per_unit"]
                    if e["blocks"] > 1:
                        units = driver.most_clusters(handle, e["threads"], shared, e["blocks"]) * e["blocks"]
                    blocks = min(blocks, units)
                for r in results:
                    poison(r)
                run = lambda: driver.launch(handle, blocks, e["threads"] * e["rows"], values, shared)
                run()
                torch.cuda.synchronize()
                error = error_of(function, inputs, results)
                unwritten = sum(map(unwritten_of, results))
                bits = [r.clone() for r in results] if rows * width <= 1 << 22 else None
                good = unwritten == 0 and error < {"bf16": 4e-3, "f16": 1e-3, "f32": 2e-6}[dtype_name]
                failed |= not good
                ms = time_ms(run) if good else float("nan")
                note(program=program, dtype=dtype_name, width=width, entry=e["name"],
                     chosen=int(e["name"] == chosen), ms=ms, tbs=moved / ms / 1e9, error=error, unwritten=unwritten)
                del bits
            if options.peers:
                for peer, f in [("torch", function), ("inductor", torch.compile(function, dynamic=False))]:
                    try:
                        with torch.no_grad():
                            f(*inputs)
                            ms = time_ms(lambda: f(*inputs), launches=3, groups=7)
                        note(program=program, dtype=dtype_name, width=width, peer=peer, ms=ms, tbs=moved / ms / 1e9)
                    except torch.OutOfMemoryError:
                        note(program=program, dtype=dtype_name, width=width, peer=peer, failed="memory")
                torch._dynamo.reset()
            del inputs, results
            torch.cuda.empty_cache()
    if options.out:
        options.out.write_text("".join(json.dumps(x) + "\n" for x in log))
    sys.exit(failed)


if __name__ == "__main__":
    main()
