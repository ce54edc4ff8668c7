#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the nearest pairs of sentences by the cosine of their embeddings.

    nearest.py embedding.npy sentences.txt [--pairs N]
"""

import argparse
import pathlib

import numpy as np


def nearest_pairs(embedding, count):
    """[(cosine, i, j)], best first, i < j."""
    unit = embedding.astype(np.float64)
    unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-12)
    cosine = unit @ unit.T
    first, second = np.triu_indices(len(unit), 1)
    order = np.argsort(-cosine[first, second], kind="stable")[:count]
    return [(cosine[first[p], second[p]], first[p], second[p]) for p in order]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("embedding", type=pathlib.Path, help="an .npy file, one row a sentence")
    parser.add_argument("sentences", type=pathlib.Path, help="the sentences, one a line")
    parser.add_argument("--pairs", type=int, default=6, help="how many pairs to print")
    options = parser.parse_args()
    embedding = np.load(options.embedding)
    lines = [line for line in options.sentences.read_text(encoding="utf-8").splitlines() if line.strip()]
    if embedding.ndim != 2 or len(embedding) != len(lines):
        parser.error(f"{options.embedding} has shape {embedding.shape}; expected {len(lines)} rows, one a sentence")
    for cosine, first, second in nearest_pairs(embedding, options.pairs):
        print(f"{cosine:.3f}  {lines[first]}  |  {lines[second]}")


if __name__ == "__main__":
    main()
