#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every cascade of this folder: what `refold explain` says of it, and that it runs as double precision does.

    catalogue_test.py [--write] [--explain-only] [--jobs N] [name ...]

theory_* are the cascades of the table in docs/math that a derivation is measured by, catalogue_NN_* are cascades from
the field, as their users write them (catalogue_rows.py names the rows); the others ask for one ability each.
Inputs/verdicts.json holds what is expected, docs/generated/cascades.md the same for people;
--write brings both up to date.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

from catalogue_rows import OUTSIDE, ROWS
from policies import POLICIES

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VERDICTS = HERE / "Inputs/verdicts.json"
PAGE = ROOT / "docs/generated/cascades.md"
REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))
FIELDS = ["verdict", "passes", "repair_passes", "unfused_passes", "state_size", "single_product"]
ACCURACY = "## Accuracy"
LENGTHS = "0,1,2,17,100"
OBSTACLES = {"axis-change", "escapes", "not-a-reduction", "unsupported-access", "unsupported-op"}
# One pass over the elements, and the rest over lists of them.
LISTS = "lists-of-groups"
# What random inputs must be for the formula as written to have digits, or a class, of its own.
OPTIONS = {
    # Exponentials without a maximum overflow as written and not as fused.
    "guards_softmax_without_max_swept": ["--inputs", "normal,ninf,nan"],
    "theory_softmax_without_max": ["--inputs", "normal,ninf,nan"],
    "masks_no_maximum_of_masked_elements": ["--inputs", "normal,ninf,nan"],
    # The cube of a distance is summed from powers, which cancel where the weights differ much.
    "facts_cube_of_a_distance": ["--input", "w=normal"],
    # Logarithms and roots of rounding errors.
    **{name: ["--inputs", "normal,ninf,nan,growing"] for name in
       ["partial_best_logarithms", "partial_largest_logarithm", "partial_smallest_root"]},
    # 16900 squares in one sum: 4.4 times the error of the unfused sum, which is all but exact.
    "catalogue_31_batch_norm": ["--inputs", "ninf,nan,offset,const,growing"],
    # As many equal values in 130 keyed sums: up to 8 times the error of the unfused sum, 1.5e-6.
    "axes_shares_of_channels": ["--inputs", "normal,ninf,nan,offset,growing"],
    # 350740 rows of scores, each in 8 segments: 17 GB at 130, and at 40 two thirds of the time clears pages.
    "catalogue_17_normalised_queries": ["--broad-length", "24"],
    # States of which an element touches one place have no blocks: 64350 elements in tiles of 1 would be one chain.
    "axes_extremes_of_places": ["--broad-length", "130"],
    # Digits cancel as rows grow longer (2.1e-2 against 3.2e-3 at 4290); a product of thousands leaves the range of
    # f32 in one order and not in another.
    **{name: ["--broad-length", "130"] for name in ["catalogue_61_gyration", "theory_product_of_ratios"]},
}
# (x - lo)/(hi - lo + 1e-6)·w of elements below 2^-70 has all digits as written, and x·w has none: of results below 2^-100
# nothing is owed (docs/math/irregular-rows.md), and a second pass for them is not made.
NOT_TINY = {"theory_min_max_normalise"}
# Unfused, this is a product whose operand may lie in memory as no library reads it.
NOT_RUN = {"axes_group_norm_and_product"}


def explain(path):
    command = [REFOLD, "explain", "--accuracy", "--format", "json", str(path), *POLICIES.get(path.stem, [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return {"error": done.stderr.strip()}, []
    answer = json.loads(done.stdout)
    cascades = answer["cascades"]
    if not cascades:  # nothing to fuse, or something in the way
        return {"notes": sorted({n["key"] for n in answer["notes"]} & (OBSTACLES | {LISTS}))}, []
    return [{**{f: c[f] for f in FIELDS}, "reasons": [r["key"] for r in c["reasons"]]} for c in cascades], cascades


def verify(path):
    command = [REFOLD, "verify", str(path), "--first-seeds", "1", "--seeds", "16", "--splits", "1"]
    options = OPTIONS.get(path.stem, []) + POLICIES.get(path.stem, [])
    command += options if "--lengths" in options else ["--lengths", LENGTHS, *options]
    tiny = command[:3] + ["--inputs", "tiny", "--lengths", "17", "--broad-length", "0", "--first-seeds", "1", "--seeds", "8",
                          "--splits", "0", *POLICIES.get(path.stem, [])]
    wrong = ""
    for own in [command] + ([] if path.stem in NOT_TINY else [tiny]):
        done = subprocess.run(own, cwd=ROOT, capture_output=True, text=True)
        wrong += "" if done.returncode == 0 else " ".join(own) + "\n" + done.stdout + done.stderr
    return wrong


def examine(path, runs):
    found, cascades = explain(path)
    wrong = verify(path) if runs and path.stem not in NOT_RUN else ""
    return path.stem, found, cascades, wrong + inaccurate(path.stem, cascades)


def inaccurate(name, cascades):
    """Fused cascades whose f32 error is beyond twice the unfused one, and beyond its a-priori bound too."""
    return "".join(f"{name}: the f32 error of '{c['name']}' is beyond its bound\n"
                   for c in cascades if c["accuracy"] and not c["accuracy"]["holds"])


def figure(value):
    """Two digits; what changes in the last bits of libm should not change the page."""
    value = float(value)
    return f"{value:.1f}" if value < 9.95 else f"{value:.0e}".replace("e+0", "e").replace("e+", "e")


def accuracy(cascade):
    """The columns of a row: the orders, the bound where it is needed, and two ways to keep less."""
    found = cascade["accuracy"]
    if not found:
        return [""] * 7
    share, grown = float(found["share_of_bound"]), float(found["amplification"])
    return [*(figure(found[order]) for order in ("stream", "tiles", "tree")), figure(grown) if share else "",
            f"{share:.2f}" if share else "", figure(found["dropped"]), figure(found["raw"])]


def title(name):
    return (HERE / f"{name}.fold").read_text(encoding="utf-8").splitlines()[0].lstrip("# ").rstrip(".")


def page(answers):
    """The table for people."""
    lines = ["<!-- Generated by test/Catalogue/catalogue_test.py --write; do not edit. -->", "# Cascades", "",
             "The programs of `test/Catalogue/`, as `refold explain` derives them. Passes: traversals of the stream before",
             "outputs, and as written. State: accumulators of all passes. Rank 1: every stage is one product of a part in",
             "elements and one in results (for an extreme: or their sum), which is all that a test for rank 1 would fuse.", "",
             "| cascade | verdict | passes | state | rank 1 | why it is cut, and how that is known |", "|---|---|---|---|---|---|"]
    for name, _, cascades, _ in answers:
        for c in cascades:
            why = "; ".join(f"`{r['key']}`" + (f": {r['evidence']}" if r.get("evidence") else "") for r in c["reasons"])
            lines.append(f"| {title(name)} (`{name}`) | {c['verdict']} | {c['passes']} of {c['unfused_passes']} | {c['state_size']} | {'yes' if c['single_product'] else 'no'} | {why} |")
    fused = sum(c["verdict"] == "fused" for _, _, cascades, _ in answers for c in cascades)
    total = sum(len(cascades) for _, _, cascades, _ in answers)
    single = sum(c["verdict"] == "fused" and c["single_product"] for _, _, cascades, _ in answers for c in cascades)
    lines += ["", f"{fused} of {total} in one pass; {single} of them of rank 1.", "", *rows(answers), "", ACCURACY, "",
              "Errors in f32 arithmetic over the unfused ones + 1 ulp, worst row of eight families (docs/numerics.md says how, and",
              "what the bound is): element after element, in tiles of 16 merged as a tree, as a tree. Where a ratio is above 2, every",
              "row is held to the bound that follows from the amplification; the part of the bound that was reached follows. The last",
              "two columns are programs that keep less, and show that the measurement can fail: without the first moments, with raw",
              "moments.", "",
              "| cascade | stream | tiles | tree | amplification | of the bound | no first moments | raw |",
              "|---|---|---|---|---|---|---|---|"]
    for name, _, cascades, _ in answers:
        lines += [f"| `{name}` | " + " | ".join(accuracy(c)) + " |" for c in cascades if c["accuracy"]]
    chosen = [f"- `{name}`: {text}" for name, _, cascades, _ in answers for c in cascades for text in c["choices"]]
    return "\n".join([*lines, "", "Chosen for accuracy:", "", *chosen]) + "\n"


def verdicts_of(text):
    """What does not depend on the last bits of a machine's exp."""
    return text.split(ACCURACY)[0]


def rows(answers):
    """The table of the field's cascades: what each row asks, and what comes out."""
    lines = ["## Cascades from the field", "",
             "Rows of a catalogue of cascades found in public code and papers. *Plain*: no reduction reads another one over the",
             "same axis, so that one pass is what was written. *Apart*: several kernels, for the reason named. Where a row is cut,",
             "the table above says why; where a form of it is outside of the language, the last column does.", "",
             "| row | program | verdict | passes | outside |", "|---|---|---|---|---|"]
    written = answered = 0
    for number, name in ROWS.items():
        own = [(program, found, cascades) for program, found, cascades, _ in answers
               if program.startswith(f"catalogue_{number:02}_")]
        cells = []
        for program, found, cascades in own:
            notes = ", ".join(f"`{n}`" for n in ([] if cascades else found["notes"]))
            verdicts = "; ".join(c["verdict"] for c in cascades) or (f"apart: {notes}" if notes else "plain")
            if not cascades and LISTS in found["notes"]:
                cells.append((f"`{program[13:]}`", f"one pass, then lists: {notes}", "1 of 2"))
                continue
            passes = "; ".join(f"{c['passes']} of {c['unfused_passes']}" for c in cascades) or ("" if notes else "1 of 1")
            cells.append((f"`{program[13:]}`", verdicts, passes))
        written += bool(cells)
        answered += any(not verdict.startswith("apart") for _, verdict, _ in cells)
        outside = OUTSIDE.get(number, "")
        for i, cell in enumerate(cells or [("", "", "")]):
            lines.append(f"| {f'{number} {name}' if i == 0 else ''} | {' | '.join(cell)} | {outside if i == 0 else ''} |")
    return lines + ["", f"{written} of {len(ROWS)} rows have programs, {answered} one that is derived as one pass or cut with its reason."]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--explain-only", action="store_true", help="run nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    paths = [p for p in sorted(HERE.glob("*.fold")) if not options.names or p.stem in options.names]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        answers = list(pool.map(lambda path: examine(path, not options.explain_only), paths))
    found = {name: verdict for name, verdict, _, _ in answers}
    if options.write and not options.names:
        VERDICTS.parent.mkdir(exist_ok=True)
        VERDICTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(answers), encoding="utf-8")
    expected = json.loads(VERDICTS.read_text(encoding="utf-8"))
    failed = 0
    for name, verdict, _, wrong in answers:
        if verdict != expected.get(name):
            wrong += f"{name}: found {verdict}, expected {expected.get(name)}\n"
        failed += bool(wrong)
        print(wrong, end="")
    if not options.names and (set(expected) - set(found) or verdicts_of(PAGE.read_text(encoding="utf-8")) != verdicts_of(page(answers))):
        failed += 1
        print("verdicts.json or docs/generated/cascades.md is not up to date; run with --write")
    print(f"{len(answers) - min(failed, len(answers))} passed, {failed} failed, 0 skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
