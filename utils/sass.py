# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Machine code of a cubin, read back by nvdisasm (Python package nvidia-cuda-nvdisasm): entries, their loops, and what
runs beside products under way."""

import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
LABEL = re.compile(r"^(\.L_x_\d+):")
TARGET = re.compile(r"`\((\.L_x_\d+)\)")
# Groups of products that a wait may leave; no kernel has more under way.
MOST_GROUPS = 8


def find_nvdisasm():
    """The path of nvdisasm: in .venv, in this Python, on PATH, or None."""
    for folder in [ROOT / ".venv" / "lib"] + [pathlib.Path(p) for p in sys.path if p]:
        for pattern in ("python3*/site-packages/nvidia/cu13/bin/nvdisasm", "nvidia/cu13/bin/nvdisasm"):
            for path in folder.glob(pattern):
                return str(path)
    return shutil.which("nvdisasm")


class Instruction:
    def __init__(self, address, predicate, opcode, operands):
        self.address, self.predicate, self.opcode, self.operands = address, predicate, opcode, operands.strip()

    def __str__(self):
        return f"{self.address:x}: {self.opcode} {self.operands}"


# Where it begins, what goes back there, and all places of it.
Loop = collections.namedtuple("Loop", "head latches body")


class Entry:
    """One section of code: instructions in the order of addresses, `following[i]` those that may come after the i-th."""

    def __init__(self):
        self.code, self.labels = [], {}

    def finish(self):
        joins = collections.defaultdict(list)
        for i, one in enumerate(self.code):
            if one.opcode.startswith("BSSY"):
                joins[one.operands.split(",")[0]].append((i, self._target(one)))
        self.following = [self._following(i, one, joins) for i, one in enumerate(self.code)]

    def _target(self, one):
        found = TARGET.search(one.operands)
        return self.labels.get(found[1]) if found else None

    def _following(self, i, one, joins):
        kind = one.opcode.split(".")[0]
        target = self._target(one)
        to = set()
        if kind in ("BRA", "BRX", "JMP") and target is not None:
            to.add(target)
        elif kind == "BSYNC":
            # It goes on where the BSSY before it said: the last one in the order of addresses.
            before = [t for begun, t in joins[one.operands.split(",")[0]] if begun < i and t is not None]
            to.add(before[-1] if before else i + 1)
        goes_on = kind not in ("BRA", "BRX", "JMP", "BSYNC", "EXIT", "RET") or self._is_conditional(one)
        if goes_on:
            to.add(i + 1)
        return sorted(t for t in to if t < len(self.code))

    @staticmethod
    def _is_conditional(one):
        # "BRA.DIV UR4, target", "BRA P0, target", "BRA !UP1, target"; "BRA.U UP0, target".
        return one.predicate is not None or "," in one.operands or one.opcode.startswith("BRA.DIV")

    def loops(self):
        """Loops, smaller ones first. One begins at a place that all ways to a branch back to it come by; what leaves and never
        comes back is not in it."""
        before, backward = [[] for _ in self.code], collections.defaultdict(set)
        for i, to in enumerate(self.following):
            for t in to:
                before[t].append(i)
                if t <= i:
                    backward[t].add(i)
        found = []
        for head, latches in backward.items():
            around = self._reached(0, without=head)
            latches = {i for i in latches if i not in around}
            if not latches:
                continue
            body, work = {head} | latches, [i for i in latches if i != head]
            while work:
                fresh = [i for i in before[work.pop()] if i not in body]
                body.update(fresh)
                work += fresh
            found.append(Loop(head, latches, body))
        return sorted(found, key=lambda loop: len(loop.body))

    def _reached(self, start, without, within=None):
        found, work = {start} - {without}, [start] if start != without else []
        while work:
            for t in self.following[work.pop()]:
                if t != without and t not in found and (within is None or t in within):
                    found.add(t)
                    work.append(t)
        return found

    def always_run(self, loop):
        """Those of a loop that every turn comes by: not what is behind a branch."""
        return {i for i in loop.body
                if not loop.latches & self._reached(loop.head, without=i, within=loop.body)}

    def groups_under_way(self):
        """Of each place: how many groups of products are surely begun and not waited for, on every way to it."""
        least = [None] * len(self.code)
        least[0], work = 0, [0]
        while work:
            i = work.pop()
            after = least[i]
            if "gsb0" in self.code[i].operands and self.code[i].opcode.startswith(("HGMMA", "QGMMA", "IGMMA")):
                after = min(after + 1, MOST_GROUPS)
            elif self.code[i].opcode.startswith("WARPGROUP.DEPBAR"):
                after = min(after, int(self.code[i].operands.split(",")[1], 16))
            for t in self.following[i]:
                if least[t] is None or after < least[t]:
                    least[t] = after
                    work.append(t)
        return least


def parse(text):
    """{entry: Entry} of what `nvdisasm -c` prints."""
    entries, entry = {}, None
    for line in text.splitlines():
        if found := re.match(r"\s*\.section\s+\.text\.(\w+),", line):
            entry = entries[found[1]] = Entry()
        elif entry is not None and (found := LABEL.match(line)):
            entry.labels[found[1]] = len(entry.code)
        elif entry is not None and (found := LINE.search(line)):
            entry.code.append(Instruction(int(found[1], 16), found[2], found[3], found[4]))
    for entry in entries.values():
        entry.finish()
    return entries


def disassemble(tool, cubin):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([tool, "-c", os.fspath(path)], capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"nvdisasm: {done.stderr.strip()}")
    return parse(done.stdout)
