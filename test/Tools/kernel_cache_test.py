#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cache of kernels on disk never changes a result, and nothing that happens to its folder stops a program."""

import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REFOLD = os.environ["REFOLD"]
# A cascade with a certificate, and two kernels of another kind.
PROGRAM = "examples/attention_causal.fold"
SHAPE = "b=1,h=2,m=37,n=53,d=19,e=23"


def environment(cache, **more):
    result = {key: value for key, value in os.environ.items() if not key.startswith(("REFOLD_CACHE", "XDG_CACHE"))}
    return dict(result, REFOLD_CACHE_DIR=str(cache), **more)


def start(cache, output, *flags, fuse="auto", **more):
    env = environment(cache, **more.pop("env", {}))
    return subprocess.Popen([REFOLD, "run", PROGRAM, f"--shape={SHAPE}", "--seed=7", f"--fuse={fuse}",
                             f"--outputs-to={output}", "--format=json", *flags],
                            cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **more)


def run(cache, *flags, **more):
    """(bytes of the outputs, kernels, kernels from the cache)"""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "out.npz"
        process = start(cache, output, *flags, **more)
        stdout, stderr = process.communicate()
        if process.returncode:
            raise AssertionError(f"exit code {process.returncode}: {stderr.decode().strip()}")
        counters = json.loads(stdout)["counters"]
        return output.read_bytes(), counters["kernels"], counters["cached_kernels"]


def entries(cache):
    return sorted(path for path in cache.rglob("*") if path.is_file())


def expect(what, found, expected):
    if found != expected:
        raise AssertionError(f"{what}: found {found}, expected {expected}")


def fresh(folder):
    """What comes out without any cache: the outputs and the number of kernels."""
    bits, kernels, cached = run("", fuse="auto")
    expect("cached kernels without a cache", cached, 0)
    return bits, kernels


def same_bits(folder):
    for fuse in ("auto", "never"):
        for cpu in ("", "baseline"):
            env = {"REFOLD_CPU": cpu} if cpu else {}
            cache = folder / "kernels"
            without = run(cache, "--no-cache", fuse=fuse, env=env)
            expect("cached kernels with --no-cache", without[2], 0)
            first, kernels, cached = run(cache, fuse=fuse, env=env)
            expect(f"cached kernels at first ({fuse}, {cpu})", cached, 0)
            second, _, cached = run(cache, fuse=fuse, env=env)
            expect("cached kernels then", cached, kernels)
            expect("bits", first == without[0] and second == without[0], True)


def every_damage(folder):
    """A flipped byte, a short file, one of another version or of another key: the kernel is compiled anew."""
    cache = folder / "kernels"
    good, kernels, _ = run(cache)
    kept = entries(cache)
    expect("entries", len(kept) > kernels, True)
    whole = {path: path.read_bytes() for path in kept}

    def flip(at):
        return lambda data: data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1:]

    damages = {"magic": flip(6), "version": lambda data: data[:7] + b"0" + data[8:], "key": flip(20),
               "checksum": flip(50), "size": flip(73), "code": flip(-200), "last byte": flip(-1),
               "half": lambda data: data[:len(data) // 2], "header only": lambda data: data[:80],
               "empty": lambda data: b"", "longer": lambda data: data + b"x",
               "zeros": lambda data: bytes(len(data))}
    for name, damage in damages.items():
        for path in kept:
            data = whole[path]
            path.write_bytes(damage(data if name != "code" or len(data) > 300 else data * 4))
        bits, _, cached = run(cache)
        expect(f"cached kernels after damage to the {name}", cached, 0)
        expect(f"bits after damage to the {name}", bits == good, True)
        expect("entries", entries(cache), kept)
    expect("cached kernels, mended", run(cache)[2], kernels)


def of_another_compiler(folder):
    """A copy of the tool with another build id finds nothing of this one's."""
    tool = pathlib.Path(REFOLD).read_bytes()
    at = tool.find(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0")
    if at < 0:
        return "skipped: the tool has no build id"
    other = folder / "refold"
    other.write_bytes(tool[:at + 20] + bytes([tool[at + 20] ^ 1]) + tool[at + 21:])
    other.chmod(0o755)
    cache = folder / "kernels"
    good, kernels, _ = run(cache)
    done = subprocess.run([str(other), "run", PROGRAM, f"--shape={SHAPE}", "--format=json"], cwd=ROOT,
                          env=environment(cache), capture_output=True, check=True)
    expect("cached kernels of another compiler", json.loads(done.stdout)["counters"]["cached_kernels"], 0)
    expect("cached kernels of this one", run(cache)[2], kernels)
    return None


def read_only(folder):
    cache = folder / "kernels"
    good, kernels, _ = run(cache)
    for path in [cache, *cache.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        bits, _, cached = run(cache)
        expect("cached kernels in a folder that is closed", cached, kernels)
        expect("bits", bits == good, True)
        run(cache, fuse="never")
    finally:
        for path in [cache, *cache.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
    for nowhere in ("/proc/kernels", "/dev/null", "/dev/null/kernels"):
        bits, _, cached = run(nowhere)
        expect(f"bits with the cache at {nowhere}", (bits == good, cached), (True, 0))


def full_disk(folder):
    """A file system on which no kernel has room; without the right to mount one, files that may not grow."""
    cache = folder / "kernels"
    cache.mkdir(mode=0o700)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,mode=700", "tmpfs", str(cache)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    try:
        for _ in range(2):
            _, _, cached = run(cache) if mounted else run(
                cache, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000)))
            expect("cached kernels on a full disk", cached, 0)
        expect("unfinished files", [p for p in entries(cache) if p.name.startswith(".")], [])
    finally:
        if mounted:
            subprocess.run(["umount", str(cache)], check=True)


def side_by_side(folder):
    """Many processes fill one cache at a time, some of them are killed."""
    cache = folder / "kernels"
    good, kernels = fresh(folder)
    for round_ in range(3):
        processes = [start(cache, folder / f"{round_}-{i}.npz") for i in range(4)]
        time.sleep(0.05 * (round_ + 1))
        processes[0].send_signal(signal.SIGKILL)
        for i, process in enumerate(processes):
            _, stderr = process.communicate()
            if process.returncode not in (0, -signal.SIGKILL):
                raise AssertionError(f"exit code {process.returncode}: {stderr.decode().strip()}")
            if process.returncode == 0:
                expect("bits", (folder / f"{round_}-{i}.npz").read_bytes() == good, True)
    bits, _, cached = run(cache)
    expect("cached kernels after all of them", (bits == good, cached), (True, kernels))


def bounded_and_cleared(folder):
    cache = folder / "kernels"

    def show(*flags, **env):
        done = subprocess.run([REFOLD, "cache", "--format=json", *flags], cwd=ROOT, env=environment(cache, **env),
                              capture_output=True, check=True)
        return json.loads(done.stdout)

    expect("an empty cache", show()["entries"], 0)
    run(cache)
    found = show()
    expect("folder and limit", (found["folder"], found["limit_bytes"]), (str(cache), 256 << 20))
    expect("entries", found["entries"], len(entries(cache)))
    expect("bytes", found["bytes"], sum(path.stat().st_size for path in entries(cache)))
    expect("removed", show("--clear")["removed"], found["entries"])
    expect("entries after --clear", entries(cache), [])
    # A kernel is larger than a sixteenth of this limit, a certificate is not.
    expect("kernels kept", [run(cache, env={"REFOLD_CACHE_MIB": "1"})[2] for _ in range(2)][0], 0)
    bad = subprocess.run([REFOLD, "cache"], env=environment(cache, REFOLD_CACHE_MIB="much"), capture_output=True)
    expect("exit code of a limit that is no number", bad.returncode, 2)
    cache.chmod(0o777)
    bad = subprocess.run([REFOLD, "cache"], env=environment(cache), capture_output=True, text=True)
    expect("a folder that others may write to",
           (bad.returncode, "found a folder that other users may write to" in bad.stderr), (1, True))
    expect("cached kernels in it", run(cache)[2], 0)


def main():
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in (same_bits, every_damage, of_another_compiler, read_only, full_disk, side_by_side,
                 bounded_and_cleared):
        with tempfile.TemporaryDirectory() as folder:
            try:
                wrong = case(pathlib.Path(folder))
            except AssertionError as error:
                wrong = f"{case.__name__}: {error}"
        verdict = "passed" if wrong is None else "skipped" if wrong.startswith("skipped") else "failed"
        counts[verdict] += 1
        if wrong:
            print(wrong)
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    return int(counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
