#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fits the coefficients of the cost model (lib/Schedule/CostModel.cpp) to measured steps.

    fit_cost_model.py collect build/release/bin/refold STEPS.jsonl [--only softmax,decode] [--half 0|1]
    fit_cost_model.py recount build/release/bin/refold STEPS.jsonl
    fit_cost_model.py fit build/release/bin/refold STEPS.jsonl

`collect` times every step of every workload of the suite, fused whatever is predicted and unfused, on one thread;
shapes are divided into two halves by their place in the suite, so that one can judge what was fitted to the other.
`recount` keeps the times and takes the counts of a compiler whose kernels are the same and whose counts are not.
`fit` prints the table that brings the predictions nearest to the times of the steps, with the share within 25 %
before and after. The model is written here a second time; `fit` ends with an error where the two disagree.
"""

import argparse
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys

import contest
import suite

SOURCE = suite.ROOT / "lib/Schedule/CostModel.cpp"
NEAR = 0.25
#: Steps that take less of their program say nothing.
LEAST_SHARE = 0.05
#: Weight of a coefficient's own logarithm beside that of a step.
PULL = 0.03


def machine_of(refold):
    done = subprocess.run([refold, "doctor", "--format", "json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["machine"]


def key_of(step):
    return (step["kernel"], step["operations"], step["bytes_read"], step["bytes_written"])


def steps_of(refold, workload, shape, dtype):
    command = [refold, "bench", workload["program"], *suite.stated_flags(workload, shape), "--shape", suite.shape_text(shape), "--fuse",
               "always", "--kernels", "--pairs", "3", "--format", "json"]
    if pathlib.Path(workload["program"]).suffix == ".fold":
        command += ["--dtype", dtype]
    for name, recipe in (workload.get("inputs") or {}).items():
        if recipe.startswith("uniform"):
            command += ["--input", f"{name}={recipe}"]
    done = subprocess.run(command, cwd=suite.ROOT, capture_output=True, text=True)
    if done.returncode:
        print(f"{workload['name']} {suite.shape_text(shape)}: {done.stderr.strip()}", file=sys.stderr)
        return []
    answer = json.loads(done.stdout)
    if not answer["checked"]:
        return []
    lines = []
    for form, steps in answer["kernels"].items():
        groups = {}
        for step in steps:  # the layers of a model are one step
            groups.setdefault(key_of(step), []).append(step)
        for group in groups.values():
            step = dict(group[0], ms=statistics.median(one["ms"] for one in group))
            step["share"] = sum(one["share"] for one in group)
            lines.append({"workload": workload["name"], "shape": shape, "dtype": dtype, "form": form, **step})
    return lines


def collect(options):
    wanted = suite.parse_wanted(options.only) if options.only else []
    place = 0
    for workload in suite.load(wanted):
        for shape in workload["shapes"]:
            place += 1
            if options.half is not None and place % 2 != options.half:
                continue
            for dtype in workload["dtypes"]:
                if not suite.is_wanted(wanted, workload, shape, dtype):
                    continue
                holder = contest.hold_machine(options.hold)
                lines = steps_of(options.refold, workload, shape, dtype)
                contest.release_machine(holder)
                with options.steps.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(dict(line, half=place % 2)) + "\n" for line in lines)
                print(workload["name"], suite.shape_text(shape), dtype, f"{len(lines)} steps", flush=True)


def recount(options):
    """Steps are known by what they are called and what they move."""
    lines = [json.loads(line) for line in options.steps.read_text(encoding="utf-8").splitlines()]
    workloads = {one["name"]: one for one in suite.load()}
    known, found = {}, []
    for line in lines:
        case = (line["workload"], suite.shape_text(line["shape"]), line["dtype"], line["form"])
        if case not in known:
            workload = workloads[case[0]]
            command = [options.refold, "explain", workload["program"], *suite.stated_flags(workload, line["shape"]),
                       "--shape", case[1], "--format", "json", "--fuse", "always" if case[3] == "fused" else "never"]
            if pathlib.Path(workload["program"]).suffix == ".fold":
                command += ["--dtype", case[2]]
            done = subprocess.run(command, cwd=suite.ROOT, capture_output=True, text=True, check=True)
            known[case] = {key_of(step): step for step in json.loads(done.stdout)["steps"]}
        step = known[case].get(key_of(line))
        if step:
            found.append(dict(line, counts=step["counts"], predicted_ms=step["predicted_ms"]))
    print(f"{len(found)} of {len(lines)} steps are still there")
    options.steps.write_text("".join(json.dumps(line) + "\n" for line in found), encoding="utf-8")


def coefficients():
    """The table of the source, in its order."""
    table = re.search(r"struct Coefficients \{(.*?)\n\};", SOURCE.read_text(encoding="utf-8"), re.DOTALL).group(1)
    return {name: float(value) for name, value in re.findall(r"double (\w+) = ([-+.e\d]+);", table)}


class Model:
    """`predict` of CostModel.cpp for one thread."""

    def __init__(self, machine, lanes=16):
        rates = machine["per_ms"]
        self.flops, self.tile_flops, self.exponentials = rates["flops"], rates["tile_flops"], rates["exponentials"]
        self.pair_share = rates["flops"] / rates["bf16_flops"] if rates["bf16_flops"] else 0.5
        self.read = [rates[f"read_{level}"] for level in ("l1", "l2", "l3", "memory")]
        self.read_around = [rates[f"read_{share}_l3"] for share in ("half", "whole", "twice")]
        self.write, self.read_all, self.copy = rates["write"], rates["read_all"], rates["copy"]
        self.int8_flops = rates["int8_flops"] or 4.0 * rates["tile_flops"]
        self.multiplies_tiles = "amx-tile" in machine["features"]
        self.shares_ports = "(sapphirerapids)" in machine["processor"] and lanes == 16
        self.caches, self.lanes = machine["cache_bytes"], lanes

    @staticmethod
    def served(size, cache):
        return min(max(1.5 - size / cache, 0.0), 1.0) if cache > 0 else 0.0

    def served_by_shared(self, size):
        memory, cache = 1.0 / self.read[3], 1.0 / self.read[2]
        if self.caches[2] <= 0 or cache >= memory:
            return 0.0
        size, begin, share = size / self.caches[2], 0.25, 1.0
        for rate in self.read_around:
            after = min(max((memory - 1.0 / rate) / (memory - cache), 0.0), share)
            if size <= 2.0 * begin:
                return share + (after - share) * max(size / begin - 1.0, 0.0)
            begin, share = 2.0 * begin, after
        return share * min(max(2.0 - size / begin, 0.0), 1.0)

    def read_ms_per_byte(self, c, size):
        left, ms = 1.0, 0.0
        for level in range(3):
            share = left * (self.served(size, self.caches[level]) if level < 2 else self.served_by_shared(size))
            ms += (1.0 if level < 2 else c["far"]) * share / self.read[level]
            left -= share
        return ms + c["far"] * left / min(self.read[3], max(self.read_all, self.read[3]))

    def traffic(self, c, working_set):
        read_ms = self.read_ms_per_byte(c, working_set)
        served = self.served_by_shared(working_set)
        write_ms = served * read_ms / c["writeInCache"] + (1.0 - served) / self.write
        saved = (1.0 - served) * max(read_ms + 1.0 / self.write - 2.0 / self.copy, 0.0)
        past_saved = served * (1.0 - c["pastApart"]) * min(read_ms, 1.0 / self.write)
        return lambda reads, writes, past=0.0: reads * read_ms - min(reads, past) * past_saved + (writes - past) * write_ms + past / self.write - min(reads, writes) * saved

    @staticmethod
    def join(apart, arithmetic, memory, overhead, beside=0.0):
        return max(arithmetic, memory) + apart * min(arithmetic - beside, memory) + overhead

    def predict(self, step, c):
        if step["kind"] == "copy":
            memory = self.traffic(c, step["working_set"])(step["bytes_read"], step["bytes_read"])
            return self.join(c["apart"], 0.0, memory, c["launchMs"])
        work = step["counts"]
        return self.product(step, work, c) if "depth" in work else self.kernel(step, work, c)

    def kernel(self, step, work, c):
        register_ms, shared = 2.0 * self.lanes / self.flops, c["shared"] if self.shares_ports else 1.0
        power_ms = shared * c["power"] / self.exponentials

        def ms_of(counts):
            return shared * register_ms / self.lanes * (c["simple"] * counts["simple"] + c["division"] * counts["divisions"] +
                                               c["conversion"] * counts["conversions"]) + \
                power_ms * (counts["exponentials"] + counts["lagging"]) + c["function"] * counts["functions"] / self.exponentials
        live = min(c["liveShare"], work["walked"]) if step["skips_tiles"] else 1.0
        arithmetic = live * ms_of(work["stream"]) + c["rowOperation"] * self.lanes * (ms_of(work["rows"]) + ms_of(work["moves"]))
        arithmetic += live * 2.0 / self.tile_flops * (
            c["nest"] * (work["nest_steps"] + c["nestSum"] * work["nest_sums"] + c["nestOther"] * work["nest_others"]) +
            (c["tile"] if self.multiplies_tiles else c["pair"]) * self.pair_share * work["pair_steps"])
        arithmetic += live * register_ms / self.lanes * (
            c["thin"] * work["thin_steps"] + c["thinLoad"] * work["thin_loads"] + c["compared"] * work["compared"] +
            c["searched"] * work["searched"] + c["placed"] * work["placed"] + c["sumAcross"] * work["sums_across"] + c["turned"] * work["turned"])
        arithmetic += c["enteredMs"] * work["entered"] + c["listMs"] * work["lists"] + c["movedMs"] * work["moved"] + \
            c["gatheredMs"] * work["gathered"] + c["visitMs"] * work["visits"] + c["tailMs"] * work["tails"] + \
            c["mergeMs"] * work["merges"] + c["extremeMs"] * work["extremes"] + \
            live * (c["byteTile"] * 2.0 / self.int8_flops * work["byte_steps"] + c["tileSumMs"] * work["tile_sums"])
        memory = self.traffic(c, step["working_set"])(step["bytes_read"], step["bytes_written"], work.get("bytes_past", 0.0))
        memory += sum(again["bytes"] * self.read_ms_per_byte(c, again["between"]) for again in work["rereads"])
        beside = live * power_ms * work["stream"]["lagging"]
        return self.join(c["apart"], arithmetic, memory, c["launchMs"] + c["itemMs"] * work["items"], beside)

    def product(self, step, work, c):
        padded = math.ceil(work["columns"] / self.lanes) * self.lanes
        depth = work["depth"] + (0.0 if work["is_integer"] else c["productSum"])
        steps = work["batch"] * work["rows"] * depth * padded
        rate = c["integerProduct"] * self.flops if work["is_integer"] else self.flops / c["product"]
        written = step["bytes_written"]
        memory = self.traffic(c, step["working_set"])(step["bytes_read"] + c["productWrite"] * written, written)
        turned = c["productTurned"] * work["turned"] * min(1.0, work["rows"] / 16.0)
        converted = c["fromF16"] * work["from_f16"] + c["fromOthers"] * work["from_others"]
        return self.join(c["productApart"], 2.0 * (steps / rate + (turned + converted) / self.flops), memory, c["productMs"] * work["batch"])


def distance(model, steps, c, start):
    """Of the logarithms, with little weight for what is far off: a kernel that the model does not describe. What the
    steps say little of stays where it was."""
    total = sum(PULL * math.log(c[name] / start[name]) ** 2 for name in c)
    for step in steps:
        error = abs(math.log(model.predict(step, c) / step["ms"]))
        total += min(step["share"], 1.0) * (error * error if error < 0.5 else error - 0.25)
    return total


def improve(model, steps, c):
    """Each coefficient in turn, by smaller and smaller factors."""
    start = dict(c)
    best = distance(model, steps, c, start)
    factor = 1.6
    while factor > 1.01:
        changed = False
        for name in c:
            for way in (factor, 1.0 / factor):
                trial = dict(c, **{name: c[name] * way})
                if name in ("apart", "productApart", "pastApart", "liveShare") and trial[name] > 1.0:
                    continue
                found = distance(model, steps, trial, start)
                if found < best * (1.0 - 1e-5):
                    best, c, changed = found, trial, True
        if not changed:
            factor = math.sqrt(factor)
    return c


def near(model, steps, c):
    return sum(abs(model.predict(step, c) / step["ms"] - 1.0) <= NEAR for step in steps) / max(len(steps), 1)


def fit(options):
    with options.steps.open(encoding="utf-8") as file:
        steps = [json.loads(line) for line in file]
    steps = [step for step in steps if step["counts"] and step["share"] >= LEAST_SHARE and step["ms"] > 0]
    model, c = Model(machine_of(options.refold)), coefficients()
    for step in steps if options.same else []:
        said = model.predict(step, c)
        if abs(said / step["predicted_ms"] - 1.0) > 1e-3:
            sys.exit(f"error: {step['workload']} {step['shape']} '{step['name']}': found {said} ms here and "
                     f"{step['predicted_ms']} in the compiler, expected the same model")
    kept = [step for step in steps if options.half is None or step["half"] == options.half]
    others = [step for step in steps if step not in kept]
    found = improve(model, kept, c)
    for name, value in found.items():
        print(f"{name:16} {c[name]:10.3g} -> {value:10.3g}")
    print(f"steps within {NEAR:.0%}: {near(model, kept, c):.0%} -> {near(model, kept, found):.0%} of {len(kept)} fitted; "
          f"{near(model, others, c):.0%} -> {near(model, others, found):.0%} of {len(others)} others")
    if options.write:
        text = SOURCE.read_text(encoding="utf-8")
        for name, value in found.items():
            text = re.sub(rf"(  double {name} = )[-+.e\d]+;", rf"\g<1>{value:.3g};", text)
        SOURCE.write_text(text, encoding="utf-8")
    if options.worst:
        for step in sorted(steps, key=lambda one: -abs(math.log(model.predict(one, found) / one["ms"])))[:options.worst]:
            print(f"{model.predict(step, found) / step['ms']:6.2f} of {step['ms']:9.3f} ms  {step['workload']} "
                  f"{suite.shape_text(step['shape'])} {step['dtype']} {step['form']} {step['name']} {step['share']:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("collect", "recount", "fit"))
    parser.add_argument("refold", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("steps", type=pathlib.Path)
    parser.add_argument("--only", default="", help="names of workloads, as run.py takes them")
    parser.add_argument("--half", type=int, choices=(0, 1), help="the half of the shapes that is timed or fitted to; all without it")
    parser.add_argument("--same", action="store_true", help="the steps were timed by this compiler: hold the two models against each other")
    parser.add_argument("--write", action="store_true", help="puts the fitted table into the source")
    parser.add_argument("--worst", type=int, default=0, help="prints so many of the steps that are predicted worst")
    parser.add_argument("--hold", help="a command that keeps a shared machine quiet from its first line until its stdin ends")
    options = parser.parse_args()
    {"collect": collect, "recount": recount, "fit": fit}[options.what](options)


if __name__ == "__main__":
    main()
