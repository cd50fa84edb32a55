#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the small tokenizers beside this file and records what PyPI's tokenizers 0.23.3 makes of texts with them.

Usage: record_golden.py, in an environment with that package. Not a part of the tests: they read what it wrote.
"""

import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = pathlib.Path(__file__).parent
CORPUS = ['In the beginning was the word, and the word was with us; the words were many.',
          "It's 1984 and we'll see that they've been there: 12 34 5678 times!", 'Größe, naïve café, él, Ελλάδα, Москва',
          '你好,世界。日本語のテキスト 한국어', 'a\nb\r\n\n  c\t\td   e', '👨\u200d👩\u200d👧 emoji 🇩🇪 joined']
TEXTS = CORPUS + [
    '', ' ', '  ', '\n', '\r\n', 'a', ' a', 'a ', '  a  b ', 'the', ' the', 'theword', 'The Word', "'s 'S 'LL", '   \n  x',
    '\u3000x\xa0y\u2028z\u180ew', 'e\u0301\u0316 \u0316\u0301', 'ﬁ ℌ Å ｆｕｌｌ', '0x1F 3.14 ²½ Ⅷ ٣٤', 'xxxxxxxxxxxxxxxxx',
    '\u200d\u200d\u200d', '\x00\x01\x7f', '\ufffd', '<s>', '<|im_end|>', 'a<|im_end|>b', ' <|im_end|> <|im_end|>', '<mask>',
    'a <mask> b', '  <mask>  x', 'word<word>', 'in<word>in', '<word>', ' <word> ', '<0x0A>', '▁', '▁▁a ▁', '𝔘𝔫𝔦', '\u0489',
    '<tool>', 'x<tool>y', '\U0001fabf \U00011de0 \ua7dc']


def tokens():
    return [AddedToken('<|im_start|>', special=True, normalized=False),
            AddedToken('<|im_end|>', special=True, normalized=False),
            AddedToken('<mask>', special=True, normalized=False, lstrip=True),
            AddedToken('<word>', special=False, normalized=False, single_word=True),
            AddedToken('<tool>', special=False, normalized=True, rstrip=True)]


def byte_level():
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.Sequence([])
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.ByteLevel()
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=380, show_progress=False, special_tokens=['<s>'],
                                                         initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return made


def byte_level_prefix():
    made = byte_level()
    made.normalizer = normalizers.NFC()
    pattern = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), 'isolated'),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)])
    made.model.ignore_merges = True
    made.post_processor = processors.TemplateProcessing(single='<s> $A', special_tokens=[('<s>', 0)])
    return made


def sentencepiece():
    made = Tokenizer(models.BPE(unk_token='<unk>', fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend('▁'), normalizers.Replace(' ', '▁')])
    made.decoder = decoders.Sequence([decoders.Replace('▁', ' '), decoders.ByteFallback(), decoders.Fuse(),
                                      decoders.Strip(' ', 1, 0)])
    made.pre_tokenizer = pre_tokenizers.Split('▁', 'merged_with_next')
    special = ['<unk>', '<s>', '</s>'] + [f'<0x{i:02X}>' for i in range(256)]
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=420, limit_alphabet=60, show_progress=False,
                                                         special_tokens=special))
    made.pre_tokenizer = None
    return made


def unknowns():
    """No byte fallback, unknown characters one by one, all behaviours of Split."""
    made = Tokenizer(models.BPE(unk_token='<unk>', fuse_unk=False))
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex('\\s+'), 'removed'), pre_tokenizers.Split('e', 'merged_with_previous'),
        pre_tokenizers.Split(Regex('[,;:.]'), 'merged_with_next'), pre_tokenizers.Split(Regex('\\w'), 'contiguous'),
        pre_tokenizers.Split(Regex('[a-z]+'), 'isolated', invert=True), pre_tokenizers.Digits(individual_digits=False)])
    made.decoder = decoders.Fuse()
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=90, limit_alphabet=40, show_progress=False,
                                                         special_tokens=['<unk>']))
    return made


def metaspace():
    made = Tokenizer(models.BPE(unk_token='<unk>', byte_fallback=False, fuse_unk=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme='first', split=True)
    made.decoder = decoders.Metaspace(prepend_scheme='first', split=True)
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=160, show_progress=False, special_tokens=['<unk>']))
    return made


def unigram():
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme='always', split=True)
    made.decoder = decoders.Metaspace(prepend_scheme='always', split=True)
    made.train_from_iterator(CORPUS[:3], trainers.UnigramTrainer(vocab_size=120, special_tokens=['<unk>'], unk_token='<unk>',
                                                                 show_progress=False))
    return made


def main():
    lines = []
    for make in (byte_level, byte_level_prefix, sentencepiece, unknowns, metaspace, unigram):
        made = make()
        made.add_tokens(tokens())
        name = make.__name__
        # Byte tokens are of the model in real files, which the trainer has no way to say.
        file = json.loads(made.to_str())
        file['added_tokens'] = [token for token in file['added_tokens'] if not token['content'].startswith('<0x')]
        (FOLDER / f'{name}.json').write_text(json.dumps(file, ensure_ascii=False, separators=(',', ':')) + '\n')
        made = Tokenizer.from_file(str(FOLDER / f'{name}.json'))
        for text in TEXTS:
            ids = {}
            for special in (True, False):
                made.encode_special_tokens = not special
                ids[special] = made.encode(text, add_special_tokens=False).ids
            # What is no UTF-8 is replaced there for a whole run of byte tokens, here as it comes.
            lines.append(json.dumps({'tokenizer': name, 'text': text, 'special': ids[True], 'plain': ids[False],
                                     'shown': made.decode(ids[True], skip_special_tokens=False),
                                     'skipped': made.decode(ids[True], skip_special_tokens=True)}))
    (FOLDER / 'golden.jsonl').write_text('\n'.join(lines) + '\n')


main()
