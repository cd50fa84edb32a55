#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares greedy answers with llama.cpp's choices on the same GGUF file.

Usage: compare_with_llama_cpp.py FILE.gguf PROMPTS ANSWERS [--margin NATS]

PROMPTS and ANSWERS have one line of ids each (tl-tokenize, tl-generate --temperature 0 --only-new). llama.cpp reads prompt
and answer and says at each position of the answer which id it would have taken. It rounds activations to 8 bits, so
close calls may fall otherwise: a position counts against us only where its best id is ahead of ours by more than the
margin. Ends with 1 if there is any. Needs the PyPI package llama-cpp-python.
"""

import argparse
import sys

import numpy
from llama_cpp import Llama


def lines_of(path):
    return [[int(word) for word in line.split()] for line in open(path)]


def main():
    parser = argparse.ArgumentParser(description='Compares greedy answers with llama.cpp.')
    parser.add_argument('file')
    parser.add_argument('prompts')
    parser.add_argument('answers')
    parser.add_argument('--margin', type=float, default=1.0, help='nats by which its best id may be ahead of ours')
    options = parser.parse_args()
    prompts, answers = lines_of(options.prompts), lines_of(options.answers)
    if len(prompts) != len(answers):
        sys.exit(f'{options.prompts} has {len(prompts)} lines, {options.answers} {len(answers)}')
    context = max(len(prompt) + len(answer) for prompt, answer in zip(prompts, answers))
    model = Llama(options.file, n_ctx=context + 8, logits_all=True, verbose=False)
    positions = same = far = 0
    worst = 0.0
    for prompt, answer in zip(prompts, answers):
        model.reset()
        model.eval(prompt + answer)
        for i, ours in enumerate(answer):
            logits = model.scores[len(prompt) + i - 1]
            behind = float(numpy.max(logits) - logits[ours])
            positions += 1
            same += behind == 0.0
            far += behind > options.margin
            worst = max(worst, behind)
    print(f'{positions} positions: {same} have the same best id, in the others ours is at most {worst:.3f} nats behind; '
          f'{far} beyond the margin of {options.margin}')
    sys.exit(1 if far else 0)


if __name__ == '__main__':
    main()
