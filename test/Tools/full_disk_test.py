#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A full disk, a folder that is closed and a kill in the middle of a write lose no earlier file."""

import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REFOLD = os.environ["REFOLD"]
IDENTITY = "test/Support/Inputs/identity.mlir"
EARLIER = b"what was there before"


def command(shape, *arguments):
    return [REFOLD, "run", IDENTITY, f"--shape={shape}", *map(str, arguments)]


def run(arguments, **more):
    """(exit code, stderr)"""
    done = subprocess.run(arguments, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, **more)
    return done.returncode, done.stderr.decode("utf-8", "replace")


def judge(what, code, message, wanted_code, wanted_message, folder, kept):
    """What is wrong after a write that failed, or None."""
    if code != wanted_code or wanted_message not in message:
        return f"{what}: found exit code {code} and '{message.strip()}', expected {wanted_code} and '{wanted_message}'"
    left = sorted(p.name for p in folder.iterdir())
    if left != sorted(p.name for p in kept) or any(p.read_bytes() != EARLIER for p in kept):
        return f"{what}: found {left}, expected the earlier file and nothing else"
    return None


def file_limit(folder):
    """The file may not grow beyond 64 KiB: half of the array is written."""
    files = [folder / "y.npy", folder / "all.npz"]
    for file in files:
        file.write_bytes(EARLIER)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))

    for file, flag in zip(files, (f"--output=y={files[0]}", f"--outputs-to={files[1]}")):
        code, message = run(command("m=128,n=256", flag), preexec_fn=limit)
        wrong = judge("a file that may not grow", code, message, 5, f"{file}: not written: file too large", folder,
                      files)
        if wrong:
            return wrong
    return None


def small_disk(folder):
    """A file system of 256 KiB, where one may be mounted."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if mounted.returncode:
        return "skipped: no file system may be mounted here"
    try:
        file = folder / "y.npy"
        file.write_bytes(EARLIER)
        code, message = run(command("m=512,n=256", f"--output=y={file}"))
        return judge("a full disk", code, message, 5, "not written: no space left on device", folder, [file])
    finally:
        subprocess.run(["umount", str(folder)], check=True)


EMULATED = [REFOLD, "verify", "examples/softmax.fold", "--target", "cuda-emulated", "--seeds=1", "--splits=0", "--first-seeds=1"]


def emulate(folder, **more):
    environment = {name: value for name, value in os.environ.items() if name != "REFOLD_EMULATOR_DIR"}
    return run(EMULATED, env=dict(environment, TMPDIR=str(folder)), **more)


def limited_emulator(folder):
    """Files where emulated kernels are compiled may not grow: headers, then what the compiler makes."""
    for most in (1 << 14, 1 << 16):
        code, message = emulate(folder, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))
        wrong = judge(f"an emulator of {most} bytes a file", code, message, 5, "not written: file too large", folder, [])
        if wrong:
            return wrong
    return None


def small_emulator(folder):
    """A file system with no room for the headers of emulated kernels, with none for what the compiler makes, and with enough."""
    for size, code in (("256k", 5), ("560k", 5), ("700k", 5), ("64m", 0)):
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if mounted.returncode:
            return "skipped: no file system may be mounted here"
        try:
            found, message = emulate(folder)
            wanted = "not written: no space left on device" if code else ""
            wrong = judge(f"an emulator with {size}", found, message, code, wanted, folder, [])
            if wrong:
                return wrong
        finally:
            subprocess.run(["umount", str(folder)], check=True)
    return None


def closed_folder(folder):
    """A folder in which nothing may be made: one without the right to, for root one of the kernel's."""
    closed = pathlib.Path("/proc") if os.geteuid() == 0 else folder
    if closed == folder:
        folder.chmod(0o555)
    try:
        code, message = run(command("m=2,n=3", f"--output=y={closed}/y.npy"))
    finally:
        folder.chmod(0o755)
    return judge("a closed folder", code, message, 1, f"{closed}/y.npy: not written: ", folder, [])


def full_stdout(folder):
    """What is printed into a full disk is no success."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run([REFOLD, "explain", "examples/softmax.fold"], cwd=ROOT, stdout=full,
                              stderr=subprocess.PIPE)
    return judge("full standard output", done.returncode, done.stderr.decode("utf-8", "replace"), 5,
                 "standard output: not written: no space left on device", folder, [])


def killed(folder):
    """Killed while the file beside the earlier one grows."""
    file = folder / "y.npy"
    file.write_bytes(EARLIER)
    for _ in range(20):
        process = subprocess.Popen(command("m=4096,n=4096", f"--output=y={file}"), cwd=ROOT,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and len(os.listdir(folder)) < 2:
            time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            return f"killed: found exit code {process.returncode} before the kill"
        if file.read_bytes() == EARLIER:
            return None
        if file.stat().st_size != 4096 * 4096 * 4 + 128:
            return f"killed: found {file.stat().st_size} bytes, expected the earlier file or the whole array"
        file.write_bytes(EARLIER)  # the kill came after the new name
    return "killed: found the whole array every time, expected a kill before the end"


def main():
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for case in (file_limit, small_disk, limited_emulator, small_emulator, closed_folder, full_stdout, killed):
        with tempfile.TemporaryDirectory() as folder:
            wrong = case(pathlib.Path(folder))
        verdict = "passed" if wrong is None else "skipped" if wrong.startswith("skipped") else "failed"
        counts[verdict] += 1
        if wrong:
            print(wrong)
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    return int(counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
