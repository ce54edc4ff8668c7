#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns sentences, one a line, into input_ids.npy and attention_mask.npy.

    tokenise.py sentences.txt --out FOLDER [--length N]

WordPiece over the model's own vocab.txt, as BERT's uncased tokenizer does it. Shorter
sentences are padded to the longest one, or to N; longer ones are cut.
"""

import argparse
import pathlib
import unicodedata

import numpy as np

import weights

LONGEST_WORD = 100  # a longer word is [UNK], as in BERT's tokenizer


def is_chinese(char):
    code = ord(char)
    return (0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF or 0x20000 <= code <= 0x2A6DF
            or 0x2A700 <= code <= 0x2B73F or 0x2B740 <= code <= 0x2B81F
            or 0x2B820 <= code <= 0x2CEAF or 0xF900 <= code <= 0xFAFF or 0x2F800 <= code <= 0x2FA1F)


def is_punctuation(char):
    code = ord(char)
    ascii_symbol = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return ascii_symbol or unicodedata.category(char).startswith("P")


def split_words(text):
    """Lower-case words without accents; each punctuation mark is a word."""
    clean = []
    for char in text:
        if char in "\t\n\r" or unicodedata.category(char) == "Zs":
            clean.append(" ")
        elif ord(char) in (0, 0xFFFD) or unicodedata.category(char).startswith("C"):
            continue
        else:
            clean.append(f" {char} " if is_chinese(char) else char)
    plain = unicodedata.normalize("NFD", "".join(clean).lower())
    plain = "".join(char for char in plain if unicodedata.category(char) != "Mn")
    apart = "".join(f" {char} " if is_punctuation(char) else char for char in plain)
    return apart.split()


def pieces(word, vocabulary):
    """The longest known prefix, then the longest known '##' rest, and so on."""
    if len(word) > LONGEST_WORD:
        return [vocabulary["[UNK]"]]
    found, begin = [], 0
    while begin < len(word):
        prefix = "##" if begin else ""
        for end in range(len(word), begin, -1):
            piece = vocabulary.get(prefix + word[begin:end])
            if piece is not None:
                break
        else:
            return [vocabulary["[UNK]"]]
        found.append(piece)
        begin = end
    return found


def encode(sentences, vocabulary, length=None):
    """(ids, mask), int64, one row a sentence."""
    longest = length or 512
    rows = []
    for sentence in sentences:
        body = [piece for word in split_words(sentence) for piece in pieces(word, vocabulary)]
        rows.append([vocabulary["[CLS]"], *body[: longest - 2], vocabulary["[SEP]"]])
    width = length or max(map(len, rows))
    ids = np.full((len(rows), width), vocabulary["[PAD]"], np.int64)
    mask = np.zeros((len(rows), width), np.int64)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    return ids, mask


def read_vocabulary():
    text = (weights.model_folder() / "vocab.txt").read_text(encoding="utf-8")
    return {token: index for index, token in enumerate(text.splitlines())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sentences", type=pathlib.Path, help="a text file, one sentence a line")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."), help="folder of the .npy files")
    parser.add_argument("--length", type=int, help="pad or cut every row to this many tokens (at least 2)")
    options = parser.parse_args()
    if options.length is not None and not 2 <= options.length <= 512:
        parser.error(f"--length {options.length}; expected 2 to 512")
    lines = [line for line in options.sentences.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        parser.error(f"{options.sentences} has no sentence; expected one a line")
    ids, mask = encode(lines, read_vocabulary(), options.length)
    options.out.mkdir(parents=True, exist_ok=True)
    np.save(options.out / "input_ids.npy", ids)
    np.save(options.out / "attention_mask.npy", mask)
    print(f"{len(lines)} sentences, {ids.shape[1]} tokens each with padding")


if __name__ == "__main__":
    main()
