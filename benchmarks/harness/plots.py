#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws results as SVG.

    plots.py results.jsonl FOLDER [--derivation derivation.jsonl] [--png]

ratio.svg       how many times faster than the best peer, per workload
bound.svg       share of the machine's bound, per workload
row_length.svg  share of the bound against the length of a row
compile.svg     CPU time of the compiler against the nodes of a graph
"""

import argparse
import json
import pathlib
import statistics

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

import report  # noqa: E402
import suite  # noqa: E402

COLORS = {1: "#3b6ea5", 2: "#d9822b"}
BEHIND, GREY = "#b5403a", "#8a8a8a"
TICKS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 15, 20, 30, 50, 100)


def style():
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "refold",
                         "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left", "figure.dpi": 100})


def save(figure, folder, name, is_png):
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
    if is_png:
        figure.savefig(folder / f"{name}.png", dpi=110, bbox_inches="tight")
    plt.close(figure)


def by_family(lines):
    """Rows of a picture: (label, {threads: value line}) in the order of families."""
    order = {}
    for line in lines:
        key = (line["family"], line["workload"], line["dtype"], report.shape_of(line))
        order.setdefault(key, {})[line["threads"]] = line
    return sorted(order.items(), key=lambda item: item[0][:3])


def label(key):
    _, workload, dtype, shape = key
    return f"{workload}{'' if dtype == 'f32' else ' ' + dtype}  {shape}"


def commit_of(lines):
    return f"{lines[0]['machine']['processor']}, {lines[0]['commit'][:7]}"


def draw_cases(lines, value, title, mark, folder, name, is_png, is_log):
    cases = by_family(lines)
    figure, axis = plt.subplots(figsize=(8.5, 0.19 * len(cases) + 1.4))
    families, last = [], None
    for row, (key, found) in enumerate(cases):
        points = {threads: value(line) for threads, line in found.items()}
        if len(points) > 1:
            axis.plot(list(points.values()), [row] * len(points), color="#cccccc", lw=1.2, zorder=1)
        for threads, point in points.items():
            axis.scatter(point, row, s=20, color=COLORS.get(threads, GREY), zorder=2, label=f"{threads} thread{'s' if threads > 1 else ''}")
        if key[0] != last:
            families.append(row)
            last = key[0]
    for row in families[1:]:
        axis.axhline(row - 0.5, color="#dddddd", lw=0.8)
    values = [value(line) for line in lines]
    if is_log:
        least, most = min(values + [0.8]) / 1.1, max(values + [1.5]) * 1.1
        axis.set_xscale("log")
        axis.set_xlim(least, most)
        ticks = [one for one in TICKS if least <= one <= most]
        axis.set_xticks(ticks, [f"{one:g}x" for one in ticks])
        axis.minorticks_off()
        axis.axvspan(least, mark, color=BEHIND, alpha=0.06, lw=0)
    else:
        axis.set_xlim(0, max(1.05, 1.02 * max(values)))
        axis.xaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0))
    axis.axvline(mark, color=BEHIND if is_log else GREY, lw=1, ls="--")
    axis.set_yticks(range(len(cases)), [label(key) for key, _ in cases], fontsize=7)
    axis.set_ylim(len(cases) - 0.4, -0.6)
    axis.grid(axis="x", color="#eeeeee", lw=0.8)
    axis.set_axisbelow(True)
    handles = dict(zip(*reversed(axis.get_legend_handles_labels())))
    axis.legend(handles.values(), handles.keys(), loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(handles), frameon=False, borderaxespad=0.2)
    axis.set_title(title)
    figure.text(0.99, 0.0, commit_of(lines), ha="right", va="top", fontsize=7, color=GREY)
    save(figure, folder, name, is_png)


def draw_row_length(lines, folder, is_png):
    sweeps = {one["name"]: one["sweep"] for one in suite.load() if "sweep" in one}
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    names = sorted({line["workload"] for line in lines if line["workload"] in sweeps})
    colors = plt.get_cmap("tab20").colors
    for axis, threads in zip(axes, (1, 2)):
        for i, name in enumerate(names):
            points = sorted((line["shape"][sweeps[name]], line["bound"]["share"]) for line in lines
                            if line["workload"] == name and line["threads"] == threads and line["dtype"] == "f32")
            if len(points) > 1:
                axis.plot(*zip(*points), marker="o", ms=3, lw=1.4, color=colors[i % 20], label=name)
        axis.set_xscale("log", base=2)
        ticks = sorted({line["shape"][sweeps[line["workload"]]] for line in lines if line["workload"] in sweeps})
        axis.set_xticks(ticks, [f"{n >> 20}M" if n >= 1 << 20 else f"{n >> 10}k" if n >= 1024 else str(n) for n in ticks])
        axis.set_ylim(0, 1.1)
        axis.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1.0))
        axis.grid(color="#eeeeee", lw=0.8)
        axis.set_title(f"{threads} thread{'s' if threads > 1 else ''}")
        axis.set_xlabel("elements of a row, 64 MB in all")
    axes[0].set_ylabel("share of the bound")
    if axes[1].lines:
        axes[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    save(figure, folder, "row_length", is_png)


def draw_compile(results, folder, is_png):
    found = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    summaries = [line["summary"] for line in found if "summary" in line]
    graphs = {int(nodes): ms for nodes, ms in summaries[-1]["graphs_ms"].items()}
    totals = {int(nodes): ms for nodes, ms in summaries[-1].get("graphs_total_ms", {}).items()}
    figure, axis = plt.subplots(figsize=(5.5, 3.6))
    for points, name, color in ((graphs, "derivation", COLORS[1]), (totals, "from the file to the report", COLORS[2])):
        if points:
            axis.plot(list(points), list(points.values()), marker="o", ms=4, color=color, label=name)
    axis.set_xlim(0)
    axis.set_ylim(0)
    axis.set_xlabel("nodes of an ONNX graph")
    axis.set_ylabel("CPU time, ms")
    axis.grid(color="#eeeeee", lw=0.8)
    axis.legend(frameon=False)
    axis.set_title("Compile time against nodes")
    save(figure, folder, "compile", is_png)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--derivation", type=pathlib.Path)
    parser.add_argument("--png", action="store_true")
    options = parser.parse_args()
    style()
    lines = [line for line in report.load(options.results) if line["checked"]]
    compared = [line for line in lines if "ratio" in line]
    if compared:
        middle = statistics.median(line["ratio"] for line in compared)
        draw_cases(compared, lambda line: line["ratio"], f"Faster than the best peer (median {middle:.2f}x)", 1, options.folder, "ratio", options.png, True)
    draw_cases(lines, lambda line: line["bound"]["share"], "Share of the machine's bound", 1, options.folder, "bound", options.png, False)
    draw_row_length(lines, options.folder, options.png)
    if options.derivation:
        draw_compile(options.derivation, options.folder, options.png)


if __name__ == "__main__":
    main()
