# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that take turns on one machine, each a process that is asked for a few runs at a time."""

import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import threading

import suite

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PEERS = ["torch", "inductor", "onnxruntime", "openvino", "jax"]
#: The environment of a peer that has no requirements of its own.
HOME_OF = {"inductor": "torch"}
#: malloc keeps what it has, so that fresh outputs of a peer are pages that are mapped already.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 60), "MALLOC_TOP_PAD_": str(1 << 26), "MALLOC_ARENA_MAX": "1"}
TURN_MS = 50.0
#: Who takes longer for one run gets one turn: its time is known well enough, and the others are not kept waiting.
SLOW_MS = 1000.0
#: Of all others: one run of 55 ms would be timed from memory, two of 48 half from a cache.
FEWEST_RUNS = 3
MOST_RUNS = 60
#: Runs of a turn that do not count: a third cache takes in what is read over and over only after some passes. Emerald Rapids, one thread, 64 MB after
#: another process, run by run: 5.5 ms, the 9th 4.8, the 17th 3.3, from the 25th on 2.7, which is what a probe of the same arrays reads them in.
SETTLING_RUNS = 24
SETTLING_MS = 150.0


def kinds_for(workload, kinds):
    """Those of the peers that can be given a workload: a model of ONNX is read by two."""
    if workload.get("peer") == "model":
        return [kind for kind in kinds if kind in ("onnxruntime", "openvino")]
    return kinds if "peer" in workload else []


class Failed(Exception):
    """A process that gave no answer; the text says what it said instead."""


def first_cpus(threads):
    """So many of those that may be used, the same for everybody: one core of a shared machine may do half of what its neighbour does."""
    return set(sorted(os.sched_getaffinity(0))[:threads])


class Talker:
    """A process with which lines of JSON are exchanged."""

    def __init__(self, command, environment=None, cpus=None):
        def settle():
            if cpus:
                os.sched_setaffinity(0, cpus)
        self.process = subprocess.Popen([str(one) for one in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, cwd=ROOT, env=dict(os.environ, **(environment or {})), preexec_fn=settle)
        # What is printed beside the answers must not fill a pipe.
        self.errors = []
        self.reader = threading.Thread(target=lambda: self.errors.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def listen(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.reader.join(1)
            said = "".join(self.errors).strip().splitlines()
            raise Failed(said[-1] if said else f"ended with {self.process.returncode}")
        return json.loads(line)

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # listen says why
        return self.listen()

    def ask_on(self, threads, line):
        """As `ask`; the thread that answers, and those that it begins, run on the first CPUs."""
        try:
            os.sched_setaffinity(self.process.pid, first_cpus(threads))
        except ProcessLookupError:
            pass  # listen says why
        return self.ask(line)

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Refold:
    """Ours, fused and unfused; the answer is right once this exists."""

    def __init__(self, refold, workload, shape, dtype, inputs, expected):
        command = [refold, "bench", workload["program"], "--turns"]
        command += [] if workload["program"].endswith(".onnx") else ["--dtype", dtype]
        command += suite.stated_flags(workload, shape)
        command += [f"--input={path.stem}={path}" for path in inputs]
        command += ["--expected-to", expected] if expected else []
        self.talker = Talker(command)
        self.checked = self.talker.listen()

    def run(self, which, threads, runs):
        return self.talker.ask_on(threads, f"{which} {threads} {runs}")

    def close(self):
        self.talker.close()


class Hand:
    """A kernel by hand, in the best of its forms; its answer is right once this exists."""

    def __init__(self, path, workload, inputs):
        if not path.exists():
            raise Failed("is not built")
        self.talker = Talker([path, workload["name"], *inputs])
        self.form = None
        self.checked = self.talker.listen()
        if not self.checked["checked"]:
            self.close()
            raise Failed(self.checked.get("problem", "its answer is wrong"))

    def run(self, threads, runs):
        reply = self.talker.ask_on(threads, f"best {threads} {runs}")
        self.form = reply["form"]
        return reply

    def close(self):
        self.talker.close()


class Probe:
    def __init__(self, path):
        self.talker = Talker([path])

    def rate(self, what, threads, amount):
        """{"rate", "best"}: the median of some rounds and the best of them, units a millisecond."""
        return self.talker.ask_on(threads, f"{what} {threads} {amount}")

    def close(self):
        self.talker.close()


class Peer:
    def __init__(self, kind, threads, folder):
        self.kind, self.threads = kind, threads
        python = folder / HOME_OF.get(kind, kind) / "bin/python"
        if not python.exists():
            raise Failed("is not installed")
        environment = dict(KEEP_MEMORY, OMP_NUM_THREADS=str(threads), JAX_PLATFORMS="cpu", NPROC=str(threads))
        self.talker = Talker([python, ROOT / "benchmarks/peers/worker.py", kind], environment, first_cpus(threads))

    def ask(self, **request):
        reply = self.talker.ask(json.dumps(request))
        if "problem" in reply:
            raise Failed(reply["problem"])
        return reply

    def prepare(self, workload, dtype, inputs, dtypes, expected):
        """Loads and checks a workload; what is wrong is Failed."""
        what = {"model": str(ROOT / workload["program"]), "names": [one.stem for one in inputs]} if workload["peer"] == "model" \
            else {"program": workload["peer"]}
        found = self.ask(do="load", inputs=[str(one) for one in inputs], dtypes=dtypes, threads=self.threads, **what)
        checked = self.ask(do="check", expected=str(expected), dtype=dtype)
        if not checked["is_right"]:
            raise Failed(f"its answer errs by {checked['error']:.1e}")
        return dict(found, error=checked["error"])

    def run(self, runs):
        return self.ask(do="run", runs=runs)

    def close(self):
        self.talker.close()


class Contestant:
    """One of those that take turns: a name and `run(runs)`."""

    def __init__(self, name, run):
        self.name, self.run, self.turns, self.runs, self.problem = name, run, [], 1, None
        self.settling = 0

    def warm(self):
        found = self.run(1)["ms"]
        found += self.run(1)["ms"] if found[0] < SLOW_MS else []
        fewest = 1 if found[0] > SLOW_MS else FEWEST_RUNS
        one = max(min(found), 1e-3)
        self.runs = max(fewest, min(MOST_RUNS, math.ceil(TURN_MS / one)))
        if fewest > 1:
            self.settling = min(SETTLING_RUNS, math.ceil(SETTLING_MS / one))

    def take_turn(self):
        if self.turns and self.turns[-1]["ms"] > SLOW_MS:
            self.turns.append(self.turns[-1])
            return
        found = self.run(self.settling + self.runs)
        # The first runs of a turn bring back what the others have driven out.
        times = found["ms"][self.settling:]
        self.turns.append(dict(found, ms=statistics.median(times)))

    def result(self):
        """The median of the turns, of each number that they have."""
        return {key: self.median(key) for key in ("ms", "thread_ms", "faults")} | \
            ({"predicted_ms": self.median("predicted_ms"), "moment": self.moment()} if "predicted_ms" in self.turns[0] else {})

    def median(self, key):
        return statistics.median(turn[key] for turn in self.turns)

    def moment(self):
        return {key: statistics.median(turn["moment"][key] for turn in self.turns if key in turn["moment"]) for key in self.turns[0]["moment"]}


def hold_machine(command):
    """Starts a command that keeps the machine quiet from its first line until its stdin ends; None without one."""
    if not command:
        return None
    holder = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if not holder.stdout.readline():
        sys.exit(f"error: '{command}' ended with {holder.wait()} before its first line")
    return holder


def release_machine(holder):
    if holder:
        holder.stdin.close()
        holder.wait()


def play(contestants, probes, rounds):
    """All in turns; `probes` are (key, function) whose rates are measured once a round. Who fails is out. Two dictionaries: the medians, and the best."""
    rates = {key: [] for key, _ in probes}

    def each(action):
        for contestant in [one for one in contestants if not one.problem]:
            try:
                action(contestant)
            except Failed as problem:
                contestant.problem = str(problem)
    each(Contestant.warm)
    for _ in range(rounds):
        for key, probe in probes:
            rates[key].append(probe())
        each(Contestant.take_turn)
    return ({key: statistics.median(found["rate"] for found in each) for key, each in rates.items()},
            {key: max(found["best"] for found in each) for key, each in rates.items()})


def median_ratio(above, below):
    """Of two contestants, round by round."""
    return statistics.median(a["ms"] / b["ms"] for a, b in zip(above.turns, below.turns))
