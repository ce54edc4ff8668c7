#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ways to launch that --tune times, over the fake GPU of device_test.py, which says how long each takes: which one
is taken, what is kept where, and what is refused.
"""

import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from device_test import REFOLD, ROOT, Machine, assert_near, count, run_checks  # noqa: E402

RUN = pathlib.Path(REFOLD).parent / "refold-run"
SOFTMAX = ["examples/softmax.fold", "--shape", "m=3,n=40"]


def launched(calls):
    return [call.split()[1] for call in calls if call.startswith("cuLaunchKernel ")]


def timed(text):
    """Entries of the table that a tool prints, and the words behind each."""
    return dict(re.findall(r"^ +[\d.-]+ +[\d.]+  ([\w]+)(?:, \d+ blocks)?(.*)$", text, re.MULTILINE))


class Tuning:
    """A folder with a cache of its own, and a package."""

    def __init__(self, machine, program="examples/softmax.fold"):
        self.machine = machine
        self.folder = tempfile.TemporaryDirectory()
        os.chmod(self.folder.name, 0o700)
        self.package = pathlib.Path(self.folder.name) / "model.rfx"
        machine.answers("compile", "--target", "cuda-sm90", program, "-o", self.package)
        self.file = pathlib.Path(f"{self.package}.tuned")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def refold(self, *flags, **environment):
        return self.machine.answers("run", "--target", "cuda", *SOFTMAX, *flags, REFOLD_CACHE_DIR=self.folder.name, **environment)

    def run(self, *flags, shape="m=3,n=40", **environment):
        code, text, calls = self.machine.run(RUN, self.package, "--shape", shape, *flags, **environment)
        assert code == 0, text
        return text, calls


def usual_of(tuning):
    return launched(tuning.run()[1])[-1]


def another_of(tuning):
    """A way that is timed beside the default."""
    usual = usual_of(tuning)
    text, _ = tuning.run("--tune")
    tuning.file.unlink()
    ways = timed(text)
    assert usual in ways and "(default)" in ways[usual] and 2 <= len(ways) <= 6, text
    return usual, next(way for way in ways if way != usual)


def check_taken(machine):
    """The quickest is taken and kept; without --tuned nothing of it is known, with it nothing is timed."""
    with Tuning(machine) as tuning:
        usual, other = another_of(tuning)
        quick = {"FAKE_CUDA_TIMES": f"{other}=0.5"}
        for run in (tuning.run, tuning.refold):
            text, calls = run("--tune", **quick)
            assert "(taken)" in timed(text)[other] and count(calls, "cuGraphLaunch") > 0, text
            assert launched(calls)[-1] == other, calls
            assert launched(run()[1])[-1] == usual
            for flag in ("--tuned", "--tune"):
                text, calls = run(flag)
                assert set(launched(calls)) == {other} and count(calls, "cuEventElapsedTime") == 0, (flag, calls)
                assert "warning" not in text and (flag == "--tuned") != ("kept, " + other in text), text
        # Another shape, another driver and another GPU know nothing of it.
        assert launched(tuning.run("--tuned", shape="m=4,n=40")[1]) == [usual]
        assert launched(tuning.refold("--tuned", FAKE_CUDA_VERSION="12030")[1]) == [usual]


def check_noise(machine):
    """A way that is quicker by less than 2 % is none; one that is so once only neither."""
    with Tuning(machine) as tuning:
        usual, other = another_of(tuning)
        text, calls = tuning.run("--tune", FAKE_CUDA_TIMES=f"{other}=0.99")
        assert "(taken)" in timed(text)[usual] and launched(calls)[-1] == usual, text
        text, calls = tuning.run("--tune")
        assert f"kept, {usual}" in text and set(launched(calls)) == {usual}, text


def check_another_answer(machine):
    """A way that gives another answer is told of and never taken, however quick."""
    with Tuning(machine) as tuning:
        usual, other = another_of(tuning)
        text, calls = tuning.run("--tune", FAKE_CUDA_TIMES=f"{other}=0.1", FAKE_CUDA_IDLE=other)
        assert "another answer" in timed(text)[other] and launched(calls)[-1] == usual, text


def check_answers(machine):
    """What a tuned run computes is what it is without, of rows, several blocks, tiles, products and several kernels."""
    attention = ["--dtype", "bf16", "--dim", "d=64,e=64", "examples/attention.fold", "--shape", "b=1,h=1,m=150,n=70"]
    for arguments, bound in ((["examples/variance.fold", "--shape", "m=2,n=20000"], 1e-5), (attention, 0.05),
                             (["--fuse", "never", "examples/entropy.fold", "--shape", "m=3,n=40"], 1e-4),
                             (["--dtype", "bf16", "test/Target/CUDA/Inputs/product.fold", "--shape", "m=20,n=72,k=64"], 0.05)):
        text, calls = machine.answers("run", "--target", "cuda", *arguments, "--tune")
        expected, _ = machine.answers("run", "--target", "cuda", *arguments)
        assert len(set(launched(calls))) > 1, calls
        text = text[text.index("\n" + expected.split(":")[0] + ": ") + 1:] if not text.startswith(expected.split(":")[0] + ": ") else text
        assert_near(text, expected, bound)


def check_predicted(machine):
    """Packages rank by what explain says of each entry, for sizes that nobody named when they were made."""
    for program, flags, shape in (("examples/softmax.fold", [], "m=3,n=40"), ("examples/variance.fold", ["--dtype", "bf16"], "m=2,n=20000"),
                                  ("examples/layernorm.fold", ["--dtype", "bf16"], "m=6,n=3000"),
                                  ("examples/attention.fold", ["--dtype", "bf16", "--dim=d=64,e=64"], "b=1,h=2,m=20,n=130"),
                                  ("test/Target/CUDA/Inputs/router.fold", [], "m=3,n=100"),
                                  ("test/Target/CUDA/Inputs/product.fold", ["--dtype", "bf16"], "m=20,n=72,k=64")):
        explained = json.loads(machine.answers("explain", "--target", "cuda", program, *flags, "--shape", shape, "--format", "json")[0])
        launch, = (step["launch"] for step in explained["steps"])
        expected = {entry["name"]: entry["predicted_ms"] for entry in launch["entries"] if entry["predicted_ms"] is not None}
        text, _ = machine.answers("run", "--target", "cuda", program, *flags, "--shape", shape, "--tune", REFOLD_CACHE_DIR=str(machine.folder / "predicted"))
        found = {name: float(ms) for ms, name in re.findall(r"^ +[\d.-]+ +([\d.]+)  (\w+)(?: \(|:|$)", text, re.MULTILINE)}
        assert found and set(found) <= set(expected), (found, expected)
        assert all(abs(ms - expected[name]) <= 0.02 * expected[name] + 1e-5 for name, ms in found.items()), (program, found, expected)
        # Those that were timed are the soonest.
        others = [ms for name, ms in expected.items() if name not in found]
        assert not others or max((ms for name, ms in found.items() if name != launch["entry"]), default=0) <= min(others) + 1e-5, (program, found, expected)


def checksum(data):
    """That of lib/Package/PackageFile.cpp."""
    prime, mask = 0x9e3779b97f4a7c15, (1 << 64) - 1
    total = len(data) * prime & mask
    for at in range(0, len(data), 8):
        word, = struct.unpack("<Q", data[at:at + 8].ljust(8, b"\0"))
        total = (total ^ word) * prime & mask
        total = (total << 29 | total >> 35) & mask
    return f"{total:016x}"


def check_files(machine):
    """A damaged file, one of another machine and one that asks for what is not legal: a message at most, and the default."""
    with Tuning(machine) as tuning:
        usual, other = another_of(tuning)
        tuning.run("--tune", FAKE_CUDA_TIMES=f"{other}=0.5")
        good = tuning.file.read_bytes()
        head, body = good.split(b"\n", 1)
        assert head.endswith(checksum(body).encode()), head

        def refuses(data, word, flag="--tuned"):
            tuning.file.write_bytes(data)
            text, calls = tuning.run(flag)
            assert text.count("warning: ") == 1 and word in text and "ignored" in text, text
            assert launched(calls)[-1] == usual, calls

        refuses(good[:-2] + b"x\n", "damaged")
        refuses(good[:20], "no file of choices")
        refuses(b"", "no file of choices")
        other_body = body.replace(b"Fake GPU", b"Other \x1b GPU")
        refuses(head[:-16] + checksum(other_body).encode() + b"\n" + other_body, "Other ? GPU")
        refuses(head[:-16] + checksum(body + b"x y\n").encode() + b"\n" + body + b"x y\n", "expected a choice")
        # With --tune it is made anew.
        refuses(good[:-2] + b"x\n", "damaged", flag="--tune")
        assert "warning" not in tuning.run("--tuned")[0]
        code, text, _ = machine.run(RUN, tuning.package, "--shape", "m=3,n=40", "--tuned-file", "/no/such")
        assert code == 0 and "warning: /no/such: " in text, text

        # Rows of 41 are no whole vectors: an entry that needs them is not launched, whoever says so.
        tuning.file.unlink()
        tuning.run("--tune", shape="m=3,n=41")
        lines = tuning.file.read_text().splitlines()
        vectors = next(name for name in (usual, other) if name.endswith("x4"))
        for blocks in ("0", "7", "-1", "9999999999"):
            fields = lines[-1].split()[:3] + [blocks, vectors]
            changed = "\n".join([*lines[1:-1], " ".join(fields)]) + "\n"
            tuning.file.write_text(lines[0][:-16] + checksum(changed.encode()) + "\n" + changed)
            text, calls = tuning.run("--tuned", shape="m=3,n=41")
            assert "warning" not in text and launched(calls) == launched(tuning.run(shape="m=3,n=41")[1]), (text, calls)
            assert vectors not in launched(calls), calls


def check_no_graphs(machine):
    """A driver without graphs is timed by launches."""
    with Tuning(machine) as tuning:
        usual, other = another_of(tuning)
        text, calls = tuning.run("--tune", FAKE_CUDA_TIMES=f"{other}=0.5", REFOLD_LIBCUDA=str(machine.build("-DFAKE_CUDA_WITHOUT_GRAPHS")))
        assert "(taken)" in timed(text)[other] and count(calls, "cuGraphLaunch") == 0, text


def check_failures(machine):
    """Calls of a graph that fail: one message."""
    for call in ("cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch"):
        code, text, _ = machine.refold("run", "--target", "cuda", *SOFTMAX, "--tune", FAKE_CUDA_FAIL=f"{call}=999",
                                       REFOLD_CACHE_DIR=str(machine.folder / "failures"))
        assert code == 70 and text.count("error: ") == 1 and call.split("_")[0].removesuffix("WithFlags") in text, text


def check_bench(machine):
    text, calls = machine.answers("bench", "--target", "cuda", "--tune", "examples/softmax.fold", "--shape", "m=4,n=64")
    assert "ways timed" in text and "speedup" in text, text


def check_no_cache(machine):
    """What cannot be kept is said."""
    text, _ = machine.answers("run", "--target", "cuda", *SOFTMAX, "--tune", REFOLD_CACHE_DIR="")
    assert "ways timed" in text and text.count("warning: found no cache") == 1, text


def check_refused(machine):
    """Without a device, and for a CPU."""
    machine.refuses(4, ["found no CUDA driver", "no-such.so"], "run", "--target", "cuda-sm90", *SOFTMAX, "--tune", REFOLD_LIBCUDA="/no-such.so")
    machine.refuses(4, ["found no CUDA driver", "no-such.so"], "bench", "--target", "cuda-sm90", *SOFTMAX, "--tune", REFOLD_LIBCUDA="/no-such.so")
    for command, target in (("run", []), ("bench", ["--target", "avx2"]), ("run", ["--target", "cuda-emulated"])):
        machine.refuses(2, ["found --tune with the target", "refold tune"], command, *SOFTMAX, *target, "--tune")
    machine.refuses(2, ["refold run --tune"], "tune", *SOFTMAX, "--target", "cuda-sm90")
    with Tuning(machine) as tuning:
        code, text, _ = machine.run(RUN, tuning.package, "--shape", "m=3,n=40", "--tune", REFOLD_LIBCUDA="/no-such.so")
        assert code == 4 and "found no CUDA driver" in text, text
        cpu = pathlib.Path(tuning.folder.name) / "cpu.rfx"
        machine.answers("compile", "--target", "cpu", "examples/softmax.fold", "-o", cpu)
        code, text, _ = machine.run(RUN, cpu, "--shape", "m=3,n=40", "--tune")
        assert code == 2 and "made for the CPU" in text, text


CHECKS = [check_taken, check_noise, check_another_answer, check_answers, check_predicted, check_files, check_no_graphs, check_failures, check_bench, check_no_cache, check_refused]

if __name__ == "__main__":
    wanted = sys.argv[1:]
    sys.exit(run_checks(Machine, [check for check in CHECKS if not wanted or check.__name__ in wanted]))
