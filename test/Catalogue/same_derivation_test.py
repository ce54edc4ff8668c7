#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One program, three front ends, one derivation: each program of the catalogue and of examples/ as `.fold`, as
linalg (`refold compile --emit program`) and as ONNX (`fold_to_onnx`) must give the same cascades: the same stages,
passes, states and formulas up to names, and the same reasons.

    same_derivation_test.py [--jobs N] [name ...]

ONNX names the result of every operation. Where that decides what is stored between kernels, the `.fold` program that
names them too (fold_text.split) is what has to agree: OPERATION_BY_OPERATION. No formula is left out.

What ONNX cannot say is counted as skipped and listed in NOT_IN_ONNX.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import fold_text
from policies import POLICIES

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REFOLD = os.environ.get("REFOLD", str(ROOT / "build/dev/bin/refold"))

NOT_IN_ONNX = {
    "best_of_fewer_elements": "more places than elements",
    "attention_decode": "an axis over the front of a longer dimension",
    "attention_gqa": "a computed subscript",
    "attention_latent": "an axis over the front of a longer dimension",
    "cross_entropy": "a computed subscript",
    "policies_scaled_by_a_power_of_two": "a binary logarithm",
    "policies_shared_exponent": "a binary logarithm",
    **{name: "a computed subscript" for name in
       ["catalogue_02_grouped_query_attention", "catalogue_05_bucketed_bias", "catalogue_19_cross_entropy",
        "catalogue_19_cross_entropy_backward", "catalogue_25_token_statistics", "catalogue_44_grouped_routing",
        "catalogue_44_sigmoid_routing", "catalogue_46_gumbel_sampling"]},
    "catalogue_40_ternary_weights": "the translation knows no clip",
    "catalogue_49_top_p_of_the_best": "an axis without an input",
}
# Programs whose ONNX form is compared with the `.fold` one that names the result of every operation.
OPERATION_BY_OPERATION = {"axes_columns_of_shares", "catalogue_32_layer_norm_backward", "catalogue_56_mixture_step",
                          "catalogue_66_chi_square"}
# What ONNX says in other words, in the formulas of both forms: a distance of positions is converted where it is read, and
# a masked array that has a name is read as one.
READ_ALIKE = {"catalogue_05_pair_bias": (r"f32\((max\([^()]*\([^()]*\)\))\)", r"\1"),
              "policies_masked_rows": (r"where\(live, [^,()]+, -∞\)", "masked"),
              # ONNX has indices less a constant as sums.
              "masks_low_number_in_a_window": (r"\+ -(\d)", r"- \1"),
              "masks_lowest_number_in_an_attention": (r"\+ -(\d)", r"- \1")}
WORDS = {"sum", "max", "min", "any", "all", "prod", "topk", "where", "and", "or", "not", "of"}
RELATIVE = ", kept relative to "


def anonymous(text):
    """Names by the order in which they first appear; words before '(' are functions, lines that are not indented titles."""
    numbers = {}

    def number(match):
        if match[0] in WORDS or match[0].startswith("(law ") or match[0] == RELATIVE:
            return match[0]
        return f"${numbers.setdefault(match[0], len(numbers))}"

    def line(own):
        # Not the e of 1e-09, nor what tells the parts of a state apart (m.a, mu.centre).
        return re.sub(rf"\(law [\w-]+\)|{RELATIVE}|(?<![\w.])[A-Za-z_]\w*(?!\w*\()", number, own)
    return "\n".join(line(own) if own.startswith(" ") else own for own in text.split("\n"))


def without_output_names(formula):
    """Outputs are written by place: what they are called is no part of a derivation."""
    body, title, finish = formula.partition("finish\n")
    return body + title + re.sub(r"^  \w+ = ", "  = ", finish, flags=re.MULTILINE)


def derivation(path, alike=None):
    """What must be the same, or the error. `alike`: an expression in formulas, and what it is read as."""
    command = [REFOLD, "explain", path, "--format=json", *POLICIES.get(pathlib.Path(path).stem, [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return f"exit code {done.returncode}: {done.stderr.strip()}"

    def formula(cascade):
        text = without_output_names(cascade["formula"])
        return re.sub(*alike, text) if alike else text
    found = [{"axes": len(c["axes"]), "stages": [(stage["op"], stage["pass"]) for stage in c["stages"]],
              "verdict": c["verdict"], "passes": c["passes"], "unfused passes": c["unfused_passes"],
              "state": c["state_size"], "gauge": anonymous(re.sub("^", " ", c["gauge"], flags=re.MULTILINE)), "formula": anonymous(formula(c)),
              "reasons": [reason["key"] for reason in c["reasons"]], "policies": c["policies"]}
             for c in json.loads(done.stdout)["cascades"]]
    return sorted(found, key=json.dumps)


def differences(one, other):
    """How two derivations differ, in a line; empty where they do not."""
    if isinstance(one, str) or isinstance(other, str):
        return "" if one == other else f"found {other}, expected {one}"
    if len(one) != len(other):
        return f"found {len(other)} cascades, expected {len(one)}"
    for a, b in zip(one, other):
        for key in a:
            if a[key] != b[key]:
                return f"{key}: found {b[key]}, expected {a[key]}"
    return ""


def spelled_out(text):
    """rsqrt, which ONNX lacks, as 1/sqrt: another rounding, so it is the program that is compared."""
    while (at := re.search(r"\brsqrt\(", text)) is not None:
        depth, end = 1, at.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        text = f"{text[:at.start()]}(1/sqrt({text[at.end():end - 1]})){text[end:]}"
    return text


def as_onnx_says_it(text, name):
    """The `.fold` program with the operations that its ONNX form has."""
    text = spelled_out(text)
    if name in OPERATION_BY_OPERATION:
        text = fold_text.printed(fold_text.split(fold_text.once(fold_text.parse(text)), splitsSums=False))
    return text


def examine(path, folder, translate):
    """[(form, what is wrong or None for skipped)]."""
    wanted = derivation(path)
    if isinstance(wanted, str):
        return [("fold", wanted)]
    linalg = pathlib.Path(folder) / f"{path.stem}.mlir"
    emitted = subprocess.run([REFOLD, "compile", path, "--emit=program", f"--output={linalg}"], cwd=ROOT,
                             capture_output=True, text=True)
    wrong = emitted.stderr if emitted.returncode else differences(wanted, derivation(linalg))
    results = [("linalg", wrong)]
    if not translate:
        return results + [("onnx", None)]
    text = path.read_text(encoding="utf-8")
    said = as_onnx_says_it(text, path.stem)
    alike = READ_ALIKE.get(path.stem)
    if said != text or alike:
        variant = pathlib.Path(folder) / path.name
        variant.write_text(said, encoding="utf-8")
        wanted = derivation(variant, alike)
    try:
        model = translate(spelled_out(text))
    except Exception as error:
        known = type(error).__name__ == "Untranslatable" and path.stem in NOT_IN_ONNX
        return results + [("onnx", None if known else f"not translated: {error!r}")]
    if path.stem in NOT_IN_ONNX:
        return results + [("onnx", "translated, but listed as what ONNX cannot say")]
    onnx = pathlib.Path(folder) / f"{path.stem}.onnx"
    onnx.write_bytes(model.SerializeToString())
    return results + [("onnx", differences(wanted, derivation(onnx, alike)))]


def self_test():
    """The comparison sees another formula, another order of stages, another pivot and an error."""
    base = [{"stages": [("max", 1), ("sum", 1)], "formula": anonymous(" s = sum(exp(x - m))")}]
    others = [[{**base[0], "formula": anonymous(" s = sum(exp(m - x)) * x")}],
              [{**base[0], "stages": [("sum", 1), ("max", 1)]}], [], "exit code 3"]
    assert not differences(base, [{**base[0], "formula": anonymous(" t = sum(exp(y - n))")}])
    assert anonymous(" a = b, kept relative to kept") == " $0 = $1, kept relative to $2"
    assert anonymous("state\n a = b, kept relative to a") != anonymous("state\n a = b, kept relative to b")
    assert all(differences(base, other) for other in others)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    self_test()
    try:
        from fold_to_onnx import translate
    except ImportError:
        print("the Python package 'onnx' is not installed: linalg only")
        translate = None
    paths = [p for folder in (HERE, ROOT / "examples") for p in sorted(folder.glob("*.fold"))
             if not options.names or p.stem in options.names]
    failures, passed, skipped = [], 0, 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for path, results in zip(paths, pool.map(lambda p: examine(p, folder, translate), paths)):
            for form, wrong in results:
                passed += wrong == ""
                skipped += wrong is None
                if wrong:
                    failures.append(f"{path.name} as {form}: {wrong}")
    print("\n".join(failures))
    print(f"{passed} passed, {len(failures)} failed, {skipped} skipped")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
