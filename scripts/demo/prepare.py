#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes train.bin and val.bin for train.py from two public-domain texts: bytes, one zero byte after each document.

The texts come from Debian packages (bible-kjv, bible-kjv-text, r-cran-janeaustenr):

    bible -f -l 1000 gen1:1-rev22:21 > kjv.txt
    Rscript -e 'writeLines(as.character(janeaustenr::austen_books()$text), "austen.txt")'
    prepare.py --kjv kjv.txt --austen austen.txt --out data

A document is a chapter. Long lines are not wrapped: one verse or one paragraph per line.
"""
import argparse
import pathlib
import random
import re

SHORTEST_DOCUMENT = 200  # bytes; below it is a title page or a table of contents
VERSE = re.compile(r"(\S+?)(\d+):(\d+) (.*)")  # "Gen1:1 In the beginning ..."
HEADING = re.compile(r"(CHAPTER|VOLUME)\b", re.IGNORECASE)


def bible_chapters(text):
    """The output of `bible -f`, one verse a line, as one string a chapter."""
    chapters = {}
    for line in text.splitlines():
        verse = VERSE.match(line)
        if verse:
            book, chapter, _, words = verse.groups()
            chapters.setdefault((book, chapter), []).append(words.strip())
    return ["\n".join(verses) + "\n" for verses in chapters.values()]


def novel_chapters(text):
    """Paragraphs are separated by blank lines; a short one that begins with CHAPTER or VOLUME starts a document."""
    chapters = [[]]
    for paragraph in re.split(r"\n\s*\n", text):
        line = " ".join(paragraph.split())
        if HEADING.match(line) and len(line) < 40:
            chapters.append([])
        elif line:
            chapters[-1].append(line)
    return ["\n".join(lines) + "\n" for lines in chapters]


def join(documents):
    return b"".join(document + b"\0" for document in documents)


def main():
    parser = argparse.ArgumentParser(description="makes train.bin and val.bin")
    parser.add_argument("--kjv", type=pathlib.Path, required=True, help="output of `bible -f -l 1000`")
    parser.add_argument("--austen", type=pathlib.Path, required=True, help="the novels as plain text")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("data"))
    parser.add_argument("--held-out", type=int, default=50, help="one document in so many is held out")
    parser.add_argument("--seed", type=int, default=7, help="of the shuffle")
    args = parser.parse_args()

    documents = bible_chapters(args.kjv.read_text(encoding="latin-1"))
    documents += novel_chapters(args.austen.read_text(encoding="utf-8"))
    documents = [text.encode("ascii", "ignore") for text in documents]
    documents = [text for text in documents if len(text) > SHORTEST_DOCUMENT]
    random.Random(args.seed).shuffle(documents)

    held_out = max(1, len(documents) // args.held_out)
    args.out.mkdir(parents=True, exist_ok=True)
    for name, part in (("val.bin", documents[:held_out]), ("train.bin", documents[held_out:])):
        data = join(part)
        (args.out / name).write_bytes(data)
        print(f"{name}: {len(part)} documents, {len(data)} bytes")


if __name__ == "__main__":
    main()
