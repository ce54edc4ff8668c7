#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""run, verify and bench with --target cuda, without a GPU: over Inputs/fake_cuda.cpp, which runs launches in
the emulator, records calls and fails those that it is told to. With --device: on the GPU that is there.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
SHAPE = ["--shape", "m=3,n=40"]
SOFTMAX = ["examples/softmax.fold", *SHAPE]


FAKE = ROOT / "test/Target/CUDA/Inputs/fake_cuda.cpp"
# Of what the fake compiles; -O1 takes longer where nothing is kept yet (tuning_test in CI 254 s and 193).
FLAGS = ["-std=c++20", "-O0", "-fPIC", "-ffp-contract=off", "-ftrivial-auto-var-init=pattern", "-w"]


class Machine:
    """A machine whose GPU is the fake one."""

    def __init__(self, folder, compiler):
        self.folder = pathlib.Path(folder)
        self.library = self.folder / "libfakecuda.so"
        self.log = self.folder / "calls"
        (self.folder / "cache").mkdir(mode=0o700)
        # A kernel is compiled once for all checks; in a run of all tests, for all of them.
        kept = pathlib.Path(os.environ.get("REFOLD_EMULATOR_DIR") or self.folder) / "kept"
        kept.mkdir(mode=0o700, exist_ok=True)
        self.compiler = compiler
        self.build(to=self.library)
        self.headers = self.precompile()
        self.environment = dict(os.environ, REFOLD_LIBCUDA=str(self.library), REFOLD_NVRTC=str(self.library),
                                REFOLD_CACHE_DIR=str(self.folder / "cache"), FAKE_CUDA_HEADERS=str(ROOT / "runtime/cuda"),
                                FAKE_CUDA_LOG=str(self.log), FAKE_CUDA_CXX=compiler, FAKE_CUDA_KEPT=str(kept),
                                FAKE_CUDA_FLAGS=" ".join(FLAGS + self.headers), REFOLD_CUBLASLT="off")

    def build(self, *flags, to=None):
        """The driver; with flags another one."""
        to = to or self.folder / "libotherfakecuda.so"
        subprocess.run([self.compiler, "-std=c++20", "-O1", "-shared", "-fPIC", *flags, "-o", to,
                        FAKE], check=True)
        return to

    def precompile(self):
        """Flags for the emulator's headers as clang has read them, which is most of what a small kernel takes."""
        if "clang" not in str(self.compiler):
            return []
        header, made = self.folder / "headers.h", self.folder / "headers.pch"
        header.write_text("#define REFOLD_CUDA_EMULATED\n#include <utility>\n#include \"refold_cuda_emulated.h\"\n")
        subprocess.run([self.compiler, *FLAGS, f"-I{ROOT / 'runtime/cuda'}", "-x", "c++-header", header, "-o", made], check=True)
        return ["-include-pch", str(made)]

    def run(self, *arguments, **environment):
        """(exit code, what was printed, calls of the driver)"""
        self.log.unlink(missing_ok=True)
        done = subprocess.run([*map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=300,
                              env={**self.environment, **environment})
        calls = self.log.read_text().splitlines() if self.log.exists() else []
        return done.returncode, done.stdout + done.stderr, calls

    def refold(self, *arguments, **environment):
        return self.run(REFOLD, *arguments, **environment)

    def answers(self, *arguments, **environment):
        code, text, calls = self.refold(*arguments, **environment)
        assert code == 0, text
        return text, calls

    def refuses(self, expected, words, *arguments, **environment):
        code, text, calls = self.refold(*arguments, **environment)
        assert code == expected, (code, text)
        assert text.startswith("error: ") and text.count("\n") == 1, text
        for word in words:
            assert word in text, (word, text)
        return calls


def count(calls, name):
    return sum(call.split()[0] == name for call in calls)


def values(text):
    """The first values of the first output, as `run` prints them."""
    return [float(x) for x in text.split("\n")[0].split(": ")[2].split() if x != "..."]


def assert_near(text, expected, bound):
    found, other = values(text), values(expected)
    assert len(found) == len(other) > 0, (text, expected)
    assert all(abs(a - b) <= bound * max(abs(b), 1e-3) for a, b in zip(found, other)), (text, expected)


def check_run(machine):
    """The CPU's values, in one launch, and nothing is left."""
    text, calls = machine.answers("run", "--target", "cuda", *SOFTMAX)
    expected, _ = machine.answers("run", *SOFTMAX)
    assert_near(text, expected, 1e-5)
    assert count(calls, "cuLaunchKernel") == 1
    assert count(calls, "cuMemAlloc_v2") == count(calls, "cuMemFree_v2") > 0, calls
    assert count(calls, "cuDevicePrimaryCtxRetain") == count(calls, "cuDevicePrimaryCtxRelease_v2")
    assert any("--gpu-architecture=sm_90a" in call for call in calls), calls  # of the first check: nothing was kept


def check_capability(machine):
    """A GPU of 8.6 gets the text for sm_80, compiled for itself; one of 7.0 is refused."""
    _, calls = machine.answers("run", "--target", "cuda", *SOFTMAX, FAKE_CUDA_CAPABILITY="8.6")
    assert any(call.endswith("--gpu-architecture=sm_86") for call in calls), calls
    machine.refuses(4, ["compute capability 7.0", "expected 8.0 or newer"], "run", "--target", "cuda", *SOFTMAX,
                    FAKE_CUDA_CAPABILITY="7.0")
    machine.refuses(4, ["is made for cuda-sm90", "compute capability 8.0"], "run", "--target", "cuda-sm90", *SOFTMAX,
                    FAKE_CUDA_CAPABILITY="8.0")


def check_early(machine):
    """A driver whose graphs have launches that begin before others end gets them, on a GPU that has them."""
    for version, capability, expected in (("12030", "9.0", True), ("12030", "8.6", False), ("12020", "9.0", False)):
        text, calls = machine.answers("run", "--target", "cuda", "--fuse", "never", "examples/entropy.fold", "--shape", "m=3,n=40",
                                      FAKE_CUDA_VERSION=version, FAKE_CUDA_CAPABILITY=capability)
        assert_near(text, machine.answers("run", "--fuse", "never", "examples/entropy.fold", "--shape", "m=3,n=40")[0], 1e-4)
        assert count(calls, "early") == (count(calls, "cuLaunchKernel") if expected else 0), (version, capability, calls)


def check_steps(machine):
    """Several kernels, intermediate arrays, a copy of an array that lies apart; unfused."""
    for program, shape in (("examples/entropy.fold", "m=3,n=40"), ("test/Target/CUDA/Inputs/rows_and_copy.mlir", "m=3,n=40")):
        text, calls = machine.answers("run", "--target", "cuda", "--fuse", "never", program, "--shape", shape)
        expected, _ = machine.answers("run", "--fuse", "never", program, "--shape", shape)
        assert_near(text, expected, 1e-4)
        assert count(calls, "cuLaunchKernel") >= 2, calls


def check_verify(machine):
    machine.answers("verify", "--target", "cuda", "examples/variance.fold", "--lengths", "0,1,17,64", "--broad-length", "70",
                    "--first-seeds", "1", "--seeds", "8", "--splits", "1", "--threads", "1")


def check_parts(machine):
    """A row of several blocks, again and again: tickets are made once, and are zeros whenever a launch begins."""
    _, calls = machine.answers("verify", "--target", "cuda", "examples/variance.fold", "--lengths", "20000", "--broad-length", "0",
                               "--shape", "m=2", "--first-seeds", "1", "--seeds", "1", "--splits", "0", "--threads", "1")
    assert calls.count("cuLaunchKernel k0_mu_parts256x4x4 4 256 49152") > 1, calls  # three chunks of its threads on their way
    assert calls.count("cuMemAlloc_v2 2048") == 1, calls


def check_clusters(machine):
    """Clusters that do many rows each: as many as the device runs at once."""
    run = ["run", "--target", "cuda", "--dtype", "bf16", "examples/rmsnorm_fp8.fold", "--shape", "m=3,n=131072"]
    texts = []
    for most in (1, 2):
        text, calls = machine.answers(*run, FAKE_CUDA_CAPABILITY="9.0", FAKE_CUDA_CLUSTERS=str(most))
        texts.append(values(text))
        launches = [call.split() for call in calls if call.startswith("cuLaunchKernel")]
        assert [launch[1:4] for launch in launches] == [["k0_q_ring4x512x8x8", str(4 * most), "512"]], calls
    assert texts[0] == texts[1] and len(texts[0]) > 0, texts


def check_explain(machine):
    """What explain says is launched is what is launched: entries, grids, threads and dynamic shared memory, in their order, of rows,
    parts, clusters, lists, tiles, steps beside each other and copies, on cards with much shared memory and with little."""
    attention = ["--dtype", "bf16", "--dim", "d=64,e=64", "examples/attention.fold", "--shape"]
    cases = [(SOFTMAX, {}), (["examples/variance.fold", "--shape", "m=2,n=20000"], {}), (["test/Target/CUDA/Inputs/router.fold", "--shape", "m=300,n=64"], {}),
             (["--dtype", "bf16", "examples/rmsnorm_fp8.fold", "--shape", "m=3,n=131072"], {"FAKE_CUDA_CLUSTERS": "1"}),
             ([*attention, "b=1,h=2,m=150,n=130"], {}), ([*attention, "b=1,h=2,m=150,n=130"], {"FAKE_CUDA_CAPABILITY": "8.0", "FAKE_CUDA_SHARED": "99"}),
             ([*attention, "b=1,h=1,m=3,n=70"], {}), (["--fuse", "never", "examples/entropy.fold", "--shape", "m=3,n=40"], {}),
             (["--fuse", "never", "test/Target/CUDA/Inputs/rows_and_copy.mlir", "--shape", "m=3,n=40"], {}),
             (["examples/attention.fold", "--shape", "b=1,h=2,m=20,n=30,d=8,e=8"], {})]
    for arguments, card in cases:
        text, calls = machine.answers("explain", "--target", "cuda", *arguments, "--format", "json", **card)
        assert count(calls, "cuLaunchKernel") + count(calls, "cuMemAlloc_v2") == 0, calls
        answer = json.loads(text)
        assert answer["card"]["name"] == "Fake GPU" and not answer["card"]["assumed"], answer["card"]
        said = [step["launch"] for step in answer["steps"] if step["launch"] and "entry" in step["launch"]]
        said = [[one["entry"], *one["grid"][:1], *one["block"][:1], one["dynamic_shared_bytes"]] for one in said]
        _, calls = machine.answers("run", "--target", "cuda", *arguments, **card)
        launched = [call.split()[1:] for call in calls if call.startswith("cuLaunchKernel ")]
        assert [[str(x) for x in one] for one in said] == launched != [], (arguments, said, launched)


def check_shared_bytes(machine):
    """Rows of 48 KB, beside states of warps in shared memory: more than a launch has unasked."""
    _, calls = machine.answers("run", "--target", "cuda", "--dtype", "bf16", "examples/layernorm.fold", "--shape", "m=2,n=24576")
    assert "cuFuncSetAttribute 8 49152" in calls, calls


def check_tiles(machine):
    """Products on matrix units, with more shared memory than a launch has unasked; what no entry has room for."""
    with tempfile.TemporaryDirectory() as folder:
        fixed, open_ended = pathlib.Path(folder) / "fixed.fold", pathlib.Path(folder) / "open.fold"
        formula = "\n  s = sum(d: q*k)\n  t = max(n: s)\n  o[m,e] = sum(n: exp(s - t)*v) / sum(n: exp(s - t))\n"
        fixed.write_text("f(q[m,d=128], k[n,d=128], v[n,e=128]) -> o" + formula)
        open_ended.write_text("f(q[m,d], k[n,d], v[n,e]) -> o" + formula)
        run = ["run", "--target", "cuda", "--dtype", "bf16"]
        for program, shape, room in ((fixed, "m=130,n=70", True), (open_ended, "m=3,n=70,d=24,e=40", False)):
            text, calls = machine.answers(*run, program, "--shape", shape)
            expected, _ = machine.answers("run", "--dtype", "bf16", program, "--shape", shape)
            assert_near(text, expected, 0.05)
            launches = [call.split() for call in calls if call.startswith("cuLaunchKernel")]
            assert len(launches) == 1 and int(launches[0][4]) > 0, calls
            asked = [call for call in calls if call == f"cuFuncSetAttribute 8 {launches[0][4]}"]
            assert len(asked) == int(int(launches[0][4]) > 24 << 10) and (asked or not room), calls
        # Tiles of 64 columns where a multiprocessor has room for two blocks of them, of which one would do.
        for room, columns in (("227", 64), ("163", 48), ("99", 48)):
            _, calls = machine.answers(*run, fixed, "--shape", "m=130,n=128", FAKE_CUDA_CAPABILITY="8.0", FAKE_CUDA_SHARED=room)
            _, launched = entries(calls)
            assert [name.split("_tiles")[1] for name in launched] == [f"128x{columns}x128x128x8"], (room, launched)
        check_wider(machine, open_ended, pathlib.Path(folder) / "open.rfx")


def check_wider(machine, program, package):
    """Extents that no entry has room for: other steps of the same program, in a run and in a package."""
    wide, narrow = "m=3,n=7,d=300,e=40", "m=3,n=7,d=64,e=40"
    expected, _ = machine.answers("run", "--dtype", "bf16", program, "--shape", wide)
    text, calls = machine.answers("run", "--target", "cuda", "--dtype", "bf16", program, "--shape", wide)
    assert_near(text, expected, 0.05)
    _, launched = entries(calls)
    assert len(launched) > 1 and not any("_tiles" in name or "_parts" in name for name in launched), launched
    text, _ = machine.answers("explain", "--target", "cuda-sm90", "--dtype", "bf16", program, "--shape", wide)
    assert "1 step for other sizes, left out at these" in text, text
    text, _ = machine.answers("explain", "--target", "cuda-sm90", "--dtype", "bf16", program, "--shape", narrow)
    assert f"{len(launched)} steps for other sizes, left out at these" in text, text
    machine.answers("compile", "--target", "cuda-sm90", "--dtype", "bf16", program, "-o", package)
    runner = str(pathlib.Path(REFOLD).parent / "refold-run")
    for shape, fused in ((wide, False), (narrow, True)):
        code, text, calls = machine.run(runner, package, "--shape", shape)
        _, names = entries(calls)
        assert code == 0 and (len(names) == 1) == fused, (code, text, names)
        bench, found, _ = machine.run(runner, package, "--shape", shape, "--bench")
        assert bench == 0 and found.count(" ms  ") == len(names), found


def check_maps(machine):
    """What boxes copy and write is told with the launch, by the driver; not of arrays that have no elements."""
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "f.fold"
        program.write_text("f(q[m,d=64], k[n,d=64], v[n,e=64]) -> o\n  s = sum(d: q*k)\n  t = max(n: s)\n"
                           "  o[m,e] = sum(n: exp(s - t)*v) / sum(n: exp(s - t))\n")
        run = ["run", "--target", "cuda", "--dtype", "bf16", program, "--shape"]
        _, calls = machine.answers(*run, "m=130,n=70")
        told = [call.split(maxsplit=1)[1] for call in calls if call.startswith("cuTensorMapEncodeTiled")]
        assert told == ["2 128 70", "2 128 130", "2 128 70", "2 128 130"], calls
        _, calls = machine.answers(*run, "m=130,n=0")
        assert count(calls, "cuTensorMapEncodeTiled") == 2, calls
        machine.refuses(70, ["cuTensorMapEncodeTiled of 'k0_", "999"], *run, "m=130,n=70", FAKE_CUDA_FAIL="cuTensorMapEncodeTiled=999")
        machine.refuses(4, ["copies by boxes", "a driver without cuTensorMapEncodeTiled"], *run, "m=130,n=70",
                        REFOLD_LIBCUDA=str(machine.build("-DFAKE_CUDA_OF_BEFORE_MAPS")))


def check_bench(machine):
    text, calls = machine.answers("bench", "--target", "cuda", "--format", "json", "examples/layernorm.fold", "--shape",
                                  "m=4,n=64")
    result = json.loads(text)
    assert result["gpu"] == "Fake GPU" and result["checked"] and result["fused_ms"] > 0, result
    assert result["bytes"] == 4 * (4 * 64 * 2 + 2 * 64), result
    assert result["copy_bytes_per_ms"] > 0 and len(result["kernels"]["fused"]) == 1, result
    assert len(result["kernels"]["unfused"]) > 1 and result["unfused_ms"] > 0, result
    machine.refuses(2, ["says nothing of speed"], "bench", "--target", "cuda-emulated", "examples/softmax.fold", *SHAPE)


def check_wrong_machine(machine):
    run = ["run", "--target", "cuda", *SOFTMAX]
    machine.refuses(4, ["found no CUDA driver", "no-such.so"], *run, REFOLD_LIBCUDA="/no-such.so")
    machine.refuses(4, ["lacks 'cuInit'"], *run, REFOLD_LIBCUDA="libz.so.1")
    machine.refuses(4, ["found no GPU", "CUDA_ERROR_NO_DEVICE"], *run, FAKE_CUDA_FAIL="cuInit=100")
    machine.refuses(4, ["found 0 GPUs"], *run, FAKE_CUDA_COUNT="0")
    machine.refuses(4, ["found no NVRTC in REFOLD_NVRTC '/no-such.so'"], *run, REFOLD_NVRTC="/no-such.so")
    machine.refuses(70, ["refuses the generated text for sm_90a", "a fake refusal"], *run, FAKE_CUDA_FAIL="nvrtcCompileProgram=6",
                    REFOLD_CACHE_DIR="")
    machine.refuses(5, ["for inputs and outputs", "out of memory", "CUDA_ERROR_OUT_OF_MEMORY"], *run, FAKE_CUDA_MEMORY="5120")  # tickets of parts take 4752
    machine.refuses(70, ["stopped the GPU 'Fake GPU'", "illegal memory access"], *run, FAKE_CUDA_FAIL="cuStreamSynchronize=700@4")


def check_every_failure(machine):
    """Each call of the driver, failing the first time it is made: one message, an exit code, nothing worse."""
    _, calls = machine.answers("run", "--target", "cuda", *SOFTMAX)
    failed = sorted({call.split()[0] for call in calls} - {"cuMemFree_v2", "cuStreamDestroy_v2", "cuModuleUnload",
                                                          "cuDevicePrimaryCtxRelease_v2"})
    assert len(failed) >= 12, failed
    for name in failed:
        code, text, _ = machine.refold("run", "--target", "cuda", *SOFTMAX, FAKE_CUDA_FAIL=f"{name}=999")
        assert code in (4, 70) and text.startswith("error: ") and text.count("\n") == 1, (name, code, text)


def check_cache(machine):
    """What NVRTC made is kept, and its version while its file is the same: it is loaded only to compile."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        run = ["run", "--target", "cuda", *SOFTMAX]
        _, first = machine.answers(*run, REFOLD_CACHE_DIR=folder)
        _, second = machine.answers(*run, REFOLD_CACHE_DIR=folder)
        _, other = machine.answers(*run, REFOLD_CACHE_DIR=folder, FAKE_CUDA_CAPABILITY="8.0")
        os.utime(machine.library, (1, 1))
        _, touched = machine.answers(*run, REFOLD_CACHE_DIR=folder)
        machine.refuses(4, ["found no NVRTC"], *run, REFOLD_CACHE_DIR=folder, REFOLD_NVRTC="/no-such.so")
    asked = [(count(calls, "nvrtcVersion"), count(calls, "nvrtcCompileProgram")) for calls in (first, second, other, touched)]
    assert asked == [(1, 1), (0, 0), (1, 1), (1, 0)], asked


def entries(calls):
    """Names of what was looked for in code, and of what was launched."""
    return ({call.split()[1] for call in calls if call.startswith(start)} for start in ("cuModuleGetFunction", "cuLaunchKernel "))


def check_entries(machine):
    """A launch compiles its own entry; another shape its own, and the first is kept; what was damaged is compiled anew."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)

        def run(columns):
            text, calls = machine.answers("run", "--target", "cuda", "examples/softmax.fold", "--shape", f"m=3,n={columns}",
                                          REFOLD_CACHE_DIR=folder)
            found, launched = entries(calls)
            assert found == launched and len(found) == 1, calls
            compiled_entries = {entry for call in calls if call.startswith("nvrtcCreateProgram") for entry in call.split()[1:]}
            assert compiled_entries <= found, calls
            return values(text), found, count(calls, "nvrtcCompileProgram")

        short, first, compiled = run(40)
        assert compiled == 1, compiled
        _, other, compiled = run(3000)
        assert compiled == 1 and other != first, (compiled, other)
        assert run(40) == (short, first, 0) and run(3000)[2] == 0
        for path in pathlib.Path(folder).glob("*/*"):
            kept = bytearray(path.read_bytes())
            kept[len(kept) // 2] ^= 1
            path.write_bytes(kept)
        assert run(40) == (short, first, 1) and run(40) == (short, first, 0)

        # Several lengths and several kernels in one process.
        lengths = ["verify", "--target", "cuda", "examples/softmax.fold", "--lengths", "1,40,41,3000,40", "--broad-length", "0",
                   "--first-seeds", "1", "--seeds", "1", "--splits", "0", "--threads", "1"]
        steps = ["run", "--target", "cuda", "--fuse", "never", "examples/entropy.fold", "--shape", "m=3,n=40"]
        for arguments in (lengths, steps):
            _, calls = machine.answers(*arguments, REFOLD_CACHE_DIR="")
            found, launched = entries(calls)
            assert found == launched and len(found) > 1, calls
            assert len(found) <= count(calls, "nvrtcCompileProgram") <= count(calls, "cuModuleLoadData"), calls
    code, text, _ = machine.refold("run", "--target", "cuda", "--fuse", "never", "examples/entropy.fold", "--shape", "m=3,n=40",
                                   FAKE_CUDA_FAIL="nvrtcCompileProgram=6", REFOLD_CACHE_DIR="")
    assert code == 70 and text.count("a fake refusal") == text.count("\n") == 1, text


def check_plan(machine):
    """--emit cuda says what lies where, and what runs in which order."""
    text, _ = machine.answers("compile", "--emit", "cuda", "--format", "json", "--fuse", "never", "examples/softmax.fold")
    plan = json.loads(text)
    kinds = [buffer["kind"] for buffer in plan["buffers"]]
    assert kinds.count("input") == 1 and kinds.count("output") == 1 and "temporary" in kinds, kinds
    assert sorted(plan["symbols"]) == ["m", "n"], plan["symbols"]
    written = set()
    for step in plan["steps"]:
        read = [o["buffer"] for o in step["operands"][:step["inputs"]]]
        assert all(kinds[b] != "temporary" or b in written for b in read), step
        written |= {o["buffer"] for o in step["operands"][step["inputs"]:]}
    assert [o["sizes"] for o in plan["steps"][-1]["operands"]][-1] == ["s0", "s1"], plan["steps"][-1]


def check_level(machine):
    """A level of optimisation that no compiler has is an error."""
    for level, code in (("0", 0), ("9", 4), ("", 4)):
        done = subprocess.run([REFOLD, "run", "--target", "cuda-emulated", *SOFTMAX], cwd=ROOT, capture_output=True, text=True,
                              env=dict(machine.environment, REFOLD_EMULATOR_OPT=level))
        assert done.returncode == code, (level, done.returncode, done.stderr)
        assert code == 0 or f"REFOLD_EMULATOR_OPT is '{level}'" in done.stderr, done.stderr


def check_interrupt(machine):
    """The emulator's folder goes when the user stops it."""
    with tempfile.TemporaryDirectory() as folder:
        compiler = pathlib.Path(folder) / "slow"
        compiler.write_text("#!/bin/sh\nexec sleep 20\n")
        compiler.chmod(0o755)
        started = subprocess.Popen([REFOLD, "run", "--target", "cuda-emulated", *SOFTMAX], cwd=ROOT, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True,
                                   env=dict(machine.environment, TMPDIR=folder, REFOLD_HOST_CXX=str(compiler)))
        for _ in range(200):
            if list(pathlib.Path(folder).glob("refold-cuda*/kernel.cpp")):
                break
            time.sleep(0.1)
        assert list(pathlib.Path(folder).glob("refold-cuda*")), "it has not begun"
        os.killpg(started.pid, signal.SIGINT)
        assert started.wait(timeout=30) != 0
        assert not list(pathlib.Path(folder).glob("refold-cuda*")), list(pathlib.Path(folder).iterdir())


CHECKS = [check_run, check_early, check_tiles, check_maps, check_entries, check_plan, check_interrupt, check_level, check_capability, check_steps, check_verify, check_parts, check_clusters, check_explain, check_shared_bytes, check_bench, check_wrong_machine, check_every_failure,
          check_cache]


def run_checks(make, checks):
    compiler = next((c for c in ("clang++-19", "clang++", "g++") if shutil.which(c)), None)
    if compiler is None:
        print("found no C++ compiler")
        return 77
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        machine = make(folder, compiler)
        for check in checks:
            try:
                check(machine)
            except (AssertionError, subprocess.SubprocessError) as error:
                failed += 1
                print(f"{check.__name__}: {error}")
    print(f"{len(checks) - failed} passed, {failed} failed, 0 skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(run_checks(Machine, CHECKS))
