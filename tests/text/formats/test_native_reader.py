"""The native reader of tokenizer.json beside the exact one: the same specification or refusal."""

from __future__ import annotations

import json
import pickle
import random
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.errors import TokenizerFileError
from encoder_engine.text import Tokenizer
from encoder_engine.text.extension import extension
from encoder_engine.text.formats.json_reading import parse_json
from encoder_engine.text.formats.tokenizer_json import read_exactly, read_tokenizer_json
from encoder_engine.text.formats.vocab_txt import read_vocab_txt
from encoder_engine.text.vocabulary import NativePieces, NativeScores, NativeVocabulary
from tests.text.drawn_files import FileMaker, write_json
from tests.text.formats.test_file_faults import change_bytes, change_leaf
from tests.text.unigram_files import unpack_unigram

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.text.spec.tokenizer import TokenizerSpec

WORDPIECE = '{"type": "WordPiece", "unk_token": "u", "continuing_subword_prefix": "##", '
WORDPIECE += '"max_input_chars_per_word": 100, "vocab": %s}'
UNIGRAM = '{"type": "Unigram", "unk_id": 0, "byte_fallback": false, "vocab": %s}'
FILE = '{"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "BertPreTokenizer"}, %s}'
# Values of model.vocab, most of them wrong in one place.
OBJECTS = (
    *('{"u": 0, "a": 1}', '{"u":0,"a":2}', ' {\n\t"u" :0\r, "a": 5 } ', '{"u": 16777215}'),
    *('{"u": 1, "a": 0}', '{"u": 0, "a": 0}', '{"u": 0, "u": 1}', '{"a": 0, "\\u0061": 1, "u": 2}'),
    *('{"u": 16777216}', '{"u": -0}', '{"u": -1}', '{"u": 00}', '{"u": 01}', '{"u": 1.0}'),
    *('{"u": 1e0}', '{"u": 0x1}', '{"u": "0"}', '{"u": null}', '{"u": true}', '{"u": 99999999999}'),
    *('{"u": 0,}', '{"u": 0 "a": 1}', '{"u" 0}', "{u: 0}", "{'u': 0}", '{"u": 0', '{"u": 0]', "{}"),
    *('{"u": 0, "\\ud800": 1}', '{"u": 0, "\\udc00\\ud800": 1}', '{"u": 0, "\\ud83d\\ude00": 1}'),
    *('{"u": 0, "\\ud83dx": 1}', '{"u": 0, "\\ud83d\\u0041": 1}', '{"u": 0, "\\uD83D\\uDE00": 1}'),
    *('{"u": 0, "\\x": 1}', '{"u": 0, "\\u12g4": 1}', '{"u": 0, "\\u12": 1}', '{"u": 0, "\\'),
    *('{"u": 0, "\\"\\\\\\/\\b\\f\\n\\r\\t": 1}', '{"u": 0, "a\nb": 1}', '{"u": 0, "\\u0000": 1}'),
    *('{"u": 0, "": 1}', '{"u": 0, "é中😀": 1}', '{"u": 0, "\x7f": 1}', '{"u": 0, "\x1f": 1}'),
    *('{"u": 0, "a": {}}', "[]", "null", "0", '"u"', "[[]]", '{"u": 0} {"u": 0}', '{"u": 0}}'),
)
ARRAYS = (
    *('[["u", 0]]', '[["u", -1.5], ["a", -2]]', '[["u", 0], ["u", -1]]', '[["u", 0], ["", -1]]'),
    *('[["u", -0]]', '[["u", -0.0]]', '[["u", 1e5]]', '[["u", 1E+5]]', '[["u", 1e-400]]'),
    *('[["u", 0.1e]]', '[["u", .5]]', '[["u", 5.]]', '[["u", +5]]', '[["u", 1e]]', '[["u", -]]'),
    *('[["u", 1e999]]', '[["u", -1e999]]', '[["u", NaN]]', '[["u", -Infinity]]', '[["u", 01.5]]'),
    *('[["u", 123456789012345678]]', '[["u", 999999999999999]]', '[["u", 0x10]]', '[["u", null]]'),
    *(f'[["u", {10**400}]]', f'[["u", {10**308}]]', f'[["u", {"1" * 5000}]]', '[["u", true]]'),
    *(
        '[["u", "0"]]',
        '[["u"]]',
        '[["u", 0, 0]]',
        "[[]]",
        "[]",
        '[["u", 0],]',
        '[["u", 0] ["a", 0]]',
    ),
    *('[[0, "u"]]', '[{"u": 0}]', '[["u", [0]]]', '[["\\ud800", 0]]', '[["u", 0]', '[["u", 0}]'),
    *('[["u", 0.1234567890123456789012345678901234567890]]', '[["u", 18446744073709551616.5]]'),
    *('[["é中😀", 0], ["\\u00e9", -1], ["a\\u0000", -2], ["a", -3]]', '{"u": 0}', "null"),
)
# Bytes around the value: of strings, of nesting and of encodings.
SHAPES = (
    '"model": %s',
    '"model": %s, "normalizer": null',
    '"decoder": null, "model": %s',
    '"model": %s, "model": null',
    '"model": null, "model": %s',
    '"mod\\u0065l": %s',
    '"normalizer": {"model": {"vocab": {"z": 1}}}, "model": %s',
    '"padding": null, "model": %s, "truncation": {]',
    '"padding": "\\"model\\": \\\\", "model": %s',
    '"model": %s, "padding": {"pad_id": nul}',
    '"model" %s',
    '"model": %s "padding": null',
)


def exactly(content: bytes, path: Path) -> TokenizerSpec | str:
    """Read a file with the exact reader: what it makes of it, or why it refuses it."""
    try:
        top = parse_json(content, path, parse_float=extension().read_json_number)
        return read_exactly(top)
    except TokenizerFileError as error:
        return str(error)


def check_alike(content: bytes, path: Path) -> bool:
    """Compare the readers on a file; whether the native one took its vocabulary."""
    path.write_bytes(content)
    expected = exactly(content, path)
    try:
        found: TokenizerSpec | str = read_tokenizer_json(path)
    except TokenizerFileError as error:
        found = str(error)
    assert found == expected, content[:400]
    if isinstance(found, str):
        return False
    assert not isinstance(expected, str)
    assert list(found.model.vocab.items()) == list(expected.model.vocab.items())
    return isinstance(found.model.vocab, NativeVocabulary)


def check_uses(path: Path) -> None:
    """Compare what tokenizers of both specifications answer and encode."""
    ours = Tokenizer.from_pretrained(path)
    exact = exactly(path.read_bytes(), path)
    assert not isinstance(exact, str)
    theirs = Tokenizer(exact)
    assert ours.vocab_size == theirs.vocab_size
    tokens = [*list(theirs.spec.model.vocab)[:50], "", "\ud800", "no such token"]
    assert [ours.token_to_id(t) for t in tokens] == [theirs.token_to_id(t) for t in tokens]
    numbers = [*range(-2, 60), ours.vocab_size, 2**24, 2**31, 2**40, 10**30]
    assert [ours.id_to_token(i) for i in numbers] == [theirs.id_to_token(i) for i in numbers]
    texts = [" ".join(filter(str.isprintable, tokens[:20])), "a b ab", "é中😀"]
    rows = [tok.encode_batch(texts, return_offsets=True) for tok in (ours, theirs)]
    assert rows[0].tolist() == rows[1].tolist()
    assert rows[0].offsets.tolist() == rows[1].offsets.tolist()
    assert pickle.loads(pickle.dumps(ours)).spec == theirs.spec


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("model", "values"), [(WORDPIECE, OBJECTS), (UNIGRAM, ARRAYS)])
def test_every_form_of_a_vocabulary(
    tmp_path: Path, model: str, values: tuple[str, ...], shape: str
) -> None:
    path = tmp_path / "tokenizer.json"
    for value in values:
        text = FILE % (shape % (model % value))
        if model is UNIGRAM:
            text = text.replace('{"type": "BertPreTokenizer"}', "null")
        taken = check_alike(text.encode(), path)
        if taken:
            check_uses(path)
        if shape == SHAPES[0] and value in values[:3]:
            assert taken, value


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b" ", b"{", b"{}", b"[]", b"null", b'{"model": {"vocab": {"u": 0}}', b"\xff{}"),
        b"\xef\xbb\xbf" + (FILE % ('"model": ' + WORDPIECE % '{"u": 0}')).encode(),
        (FILE % ('"model": ' + WORDPIECE % '{"u": 0}')).encode("utf-16"),
        (FILE % ('"model": ' + WORDPIECE % '{"u": 0, "X": 1}')).encode().replace(b"X", b"\xc3"),
        (FILE % ('"model": ' + WORDPIECE % '{"u": 0, "X": 1}'))
        .encode()
        .replace(b"X", b"\xed\xa0\x80"),
        (FILE % ('"model": ' + WORDPIECE % '{"u": 0, "X": 1}')).encode().replace(b"X", b"\xc0\x80"),
        (FILE % ('"model": ' + WORDPIECE % '{"u": 0, "X": 1}'))
        .encode()
        .replace(b"X", b"\xf4\x90\x80\x80"),
        (FILE % ('"x": ' + "[" * 100_000)).encode(),
        (FILE % ('"model": ' + WORDPIECE % ('{"u": ' + '{"u": ' * 100_000))).encode(),
        (FILE % ('"model": ' + WORDPIECE % '{"u": 0}' + ', "padding": ' + "[" * 100_000)).encode(),
    ],
)
def test_files_that_are_none(tmp_path: Path, content: bytes) -> None:
    assert not check_alike(content, tmp_path / "tokenizer.json")


@pytest.mark.slow
def test_drawn_files_and_damaged_ones(tmp_path: Path) -> None:
    rng = random.Random(11)
    path = tmp_path / "tokenizer.json"
    taken = 0
    for seed in range(100):
        content = write_json(FileMaker(random.Random(seed)).file()).encode()
        taken += check_alike(content, path)
        for _ in range(8):
            damage = change_leaf if rng.random() < 0.5 else change_bytes
            taken += check_alike(damage(rng, content), path)
    assert taken > 60


def test_published_vocabularies_are_read_natively(shared_data: Path, tmp_path: Path) -> None:
    for path in unpack_unigram(shared_data, tmp_path):
        model: Any = read_tokenizer_json(path).model
        assert isinstance(model.pieces, NativePieces)
        assert isinstance(model.scores, NativeScores)
        assert check_alike(path.read_bytes(), path)


@pytest.mark.parametrize(
    "lines",
    [
        *(
            "a\nb\nc\n",
            "a\nb\nc",
            "a\nb\n",
            "a\nb\nc\nd",
            "a\nb\nc\n\n",
            "a\r\nb\nc\n",
            "a\nc\nb\n",
            "",
        ),
        *("\ufeffa\nb\nc\n", " a\nb\nc\n", "a\nb\nc\n\n\n"),
    ],
)
@pytest.mark.parametrize(
    "tokens",
    [("a", "b", "c"), ("a", "b", "c", "b"), ("a", "b\nc"), (" a", "b", "c"), ("a", "b", "c", "")],
)
def test_lines_are_those_of_a_vocab_txt(
    tmp_path: Path, lines: str, tokens: tuple[str, ...]
) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(lines.encode())
    numbers: Any = list(range(len(tokens)))
    same = extension().Vocabulary(texts=tokens, ids=numbers).has_lines(path.read_bytes())
    try:
        expected = list(read_vocab_txt(path)) == list(tokens)
    except TokenizerFileError:
        expected = False
    # A carriage return that ends a line is left to the exact comparison.
    assert same == (expected and "\r" not in lines)


def test_vocabularies_stand_for_dicts_and_tuples(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    pieces = [["u", 0], ["a", -1.5], ["ab", -2], ["a", -3], ["", -4]]
    text = FILE.replace('{"type": "BertPreTokenizer"}', "null")
    path.write_text(text % ('"model": ' + UNIGRAM % json.dumps(pieces)), encoding="utf-8")
    model: Any = read_tokenizer_json(path).model
    assert model.pieces == ("u", "a", "ab", "a", "")
    assert model.pieces[1:3] == ("a", "ab")
    assert model.pieces[-1] == ""
    assert hash(model.pieces) == hash(tuple(model.pieces))
    assert model.scores == (0.0, -1.5, -2.0, -3.0, -4.0)
    assert model.vocab == {"u": 0, "a": 3, "ab": 2, "": 4}
    assert len(model.vocab) == 4
    assert "a" in model.vocab
    assert 1 not in model.vocab
    assert model.vocab.token_of(3) == "a"
    assert model.vocab.token_of(1) is None
    assert pickle.loads(pickle.dumps(model.vocab)) == dict(model.vocab)
    assert type(pickle.loads(pickle.dumps(model.pieces))) is tuple
    with pytest.raises(IndexError):
        model.pieces[5]
