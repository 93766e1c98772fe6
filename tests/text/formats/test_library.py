"""BPE and WordLevel through the library tokenizers: the same face, exact with transformers."""

from __future__ import annotations

import json
import pickle
import random
import re
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from encoder_engine.errors import (
    ChecksumError,
    InputError,
    MissingDependencyError,
    TextError,
    TokenIdError,
    TokenizerFileError,
)
from encoder_engine.text import Tokenizer
from tests.text.parity.peers import Peer, Settings, draw_settings
from tests.text.strings import StringMaker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

TEXTS = [
    "Hello world, hello there.",
    " leading and trailing ",
    "double  spaces\tand\nlines\n\n",
    "na\u00efve caf\u00e9 \u6771\u4eac \U0001f600\U0001f468\u200d\U0001f469",
    "",
    "   ",
    "<mask> in <mask>the [MASK] text</s>",
    "we'll don't I'm 1234 5,678.90",
    "a" * 300,
]
CORPUS = [f"{text} {i} hello world the there in and we'll" for i in range(60) for text in TEXTS]


def make_roberta(
    folder: Path, *, prefixed: bool = False, corpus: Sequence[str] = tuple(CORPUS)
) -> Path:
    """Train a small byte-level BPE, laid out as RoBERTa's."""
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefixed)
    library.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(corpus, trainer)
    library.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=prefixed
    )
    written = json.loads(library.to_str())
    for token in written["added_tokens"]:
        token["lstrip"] = token["content"] == "<mask>"
    return write(folder / f"roberta{'_prefixed' if prefixed else ''}.json", written)


def make_modernbert(folder: Path) -> Path:
    """Lay the same model out as ModernBERT's: NFC, a template, added tokens behind it."""
    written = json.loads(make_roberta(folder).read_text(encoding="utf-8"))
    size = len(written["model"]["vocab"])
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    names = ["[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    more = {"|||IP|||": {"normalized": True}, "   ": {"normalized": True}}
    written["added_tokens"] = [
        {"id": size + i, "content": name, **flags, "special": True, "lstrip": name == "[MASK]"}
        for i, name in enumerate(names)
    ] + [
        {"id": size + len(names) + i, "content": name, **flags, **changes}
        for i, (name, changes) in enumerate(more.items())
    ]
    written["normalizer"] = {"type": "NFC"}

    def special(name: str) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": 0}}

    def text(name: str) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": 0}}

    single = [special("[CLS]"), text("A"), special("[SEP]")]
    written["post_processor"] = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B"), special("[SEP]")],
        "special_tokens": {
            name: {"id": name, "ids": [size + i], "tokens": [name]}
            for i, name in enumerate(names[:2])
        },
    }
    return write(folder / "modernbert.json", written)


def make_bytelevel(folder: Path) -> Path:
    """Trim offsets, and set no tokens."""
    written = json.loads(make_roberta(folder).read_text(encoding="utf-8"))
    level = {"add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    written["post_processor"] = {"type": "ByteLevel", **level}
    return write(folder / "bytelevel.json", written)


def make_sequence(folder: Path) -> Path:
    """Trim offsets first, then fill a template, both in one sequence."""
    written = json.loads(make_modernbert(folder).read_text(encoding="utf-8"))
    level = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    processors_of = [{"type": "ByteLevel", **level}, written["post_processor"]]
    written["post_processor"] = {"type": "Sequence", "processors": processors_of}
    return write(folder / "sequence.json", written)


def make_wordlevel(folder: Path) -> Path:
    """Give every word an id."""
    library = Library(models.WordLevel({"[UNK]": 0, "hello": 1, "world": 2, ",": 3}, "[UNK]"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.normalizer = normalizers.Lowercase()
    return write(folder / "wordlevel.json", json.loads(library.to_str()))


def write(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


MAKERS: dict[str, Callable[[Path], Path]] = {
    "roberta": make_roberta,
    "prefixed": lambda folder: make_roberta(folder, prefixed=True),
    "modernbert": make_modernbert,
    "bytelevel": make_bytelevel,
    "sequence": make_sequence,
    "wordlevel": make_wordlevel,
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("library")
    return {name: make(folder) for name, make in MAKERS.items()}


@pytest.fixture(scope="module")
def roberta(paths: dict[str, Path]) -> Tokenizer:
    return Tokenizer.from_pretrained(paths["roberta"])


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_everything_agrees_with_the_library(paths: dict[str, Path], name: str) -> None:
    peer = Peer(name, paths[name])
    rng = random.Random(name)
    maker = StringMaker(rng, [*peer.theirs.get_vocab()])
    pool = [*TEXTS, *(maker.text() for _ in range(120))]
    for paired in (False, True):
        pairs = rng.sample(pool, len(pool)) if paired else None
        assert (found := peer.compare(pool, pairs, Settings())) is None, str(found)
        for _ in range(15):
            settings = draw_settings(rng, peer, paired=paired, short=False)
            rows = rng.choices(pool, k=8)
            others = rng.choices(pool, k=8) if paired else None
            assert (found := peer.compare(rows, others, settings)) is None, str(found)


@pytest.mark.parametrize("name", MAKERS)
def test_ids_are_those_of_transformers(paths: dict[str, Path], tmp_path: Path, name: str) -> None:
    from transformers import PreTrainedTokenizerFast

    ours = Tokenizer.from_pretrained(paths[name])
    theirs: Any = PreTrainedTokenizerFast(tokenizer_file=str(paths[name]))  # type: ignore[no-untyped-call]
    for text in TEXTS:
        assert ours.encode(text).tolist() == theirs(text)["input_ids"]
    batch = ours.encode_batch(TEXTS, TEXTS[::-1], max_length=12)
    expected = theirs(TEXTS, TEXTS[::-1], max_length=12, truncation=True)
    assert batch.tolist() == expected["input_ids"]
    ours.save(tmp_path)
    again = Tokenizer.from_pretrained(tmp_path)
    found = again.encode_batch(TEXTS, return_offsets=True)
    before = ours.encode_batch(TEXTS, return_offsets=True)
    assert found.tolist() == before.tolist()
    assert np.array_equal(found.offsets, before.offsets)
    assert not (tmp_path / "vocab.txt").exists()


def test_a_saved_tokenizer_loads_in_transformers(paths: dict[str, Path], tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    ours = Tokenizer.from_pretrained(paths["modernbert"])
    ours.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert ours.encode(text).tolist() == theirs(text)["input_ids"]


@pytest.mark.parametrize("name", MAKERS)
def test_decoding_is_the_librarys(paths: dict[str, Path], name: str) -> None:
    ours = Tokenizer.from_pretrained(paths[name])
    theirs = Library.from_file(str(paths[name]))
    for text in TEXTS:
        ids = theirs.encode(text).ids
        for skip in (False, True):
            expected = theirs.decode(ids, skip_special_tokens=skip)
            assert ours.decode(ids, skip_special_tokens=skip) == expected
    assert ours.vocab_size == theirs.get_vocab_size()
    with pytest.raises(TokenIdError):
        ours.decode([ours.vocab_size])


def test_roberta_knows_its_parts(roberta: Tokenizer) -> None:
    assert (roberta.cls_token_id, roberta.pad_token_id, roberta.sep_token_id) == (0, 1, 2)
    assert roberta.mask_token_id == 4
    assert repr(roberta).startswith("Tokenizer(BPE of bytes, ")
    padded = roberta.encode_batch(["a", "hello world"]).to_padded()
    assert padded["input_ids"][0, -1] == 1
    assert not padded["token_type_ids"].any()


def test_words_are_encoded_one_by_one(paths: dict[str, Path]) -> None:
    ours = Tokenizer.from_pretrained(paths["prefixed"])
    theirs = Library.from_file(str(paths["prefixed"]))
    words = [["Hello", "world", "", "na\u00efve"], []]
    found = ours.encode_batch(words, is_split_into_words=True, return_offsets=True)
    for row, expected in enumerate(theirs.encode_batch(words, is_pretokenized=True)):
        start, stop = found.cu_seqlens[row : row + 2]
        assert found.ids[start:stop].tolist() == expected.ids
        assert [tuple(o) for o in found.offsets[start:stop].tolist()] == expected.offsets
        word_ids = [-1 if word is None else word for word in expected.word_ids]
        assert found.word_ids[start:stop].tolist() == word_ids
    with pytest.raises(TextError, match="row 1") as caught:
        ours.encode_batch([["a"], ["b", None]], is_split_into_words=True)  # type: ignore[list-item]
    assert caught.value.row == 1


def test_lower_cased_texts(roberta: Tokenizer, paths: dict[str, Path]) -> None:
    from dataclasses import replace

    for name in ("roberta", "modernbert", "wordlevel"):
        tokenizer = Tokenizer.from_pretrained(paths[name])
        model = tokenizer.spec.model.lowercased()
        lowered = Tokenizer(replace(tokenizer.spec, model=model))
        assert lowered.encode("Hello WORLD").tolist() == tokenizer.encode("hello world").tolist()
        assert model.lowercased().description == model.description


def test_pickled_and_shared_between_threads(roberta: Tokenizer) -> None:
    copy = pickle.loads(pickle.dumps(roberta))
    expected = {limit: copy.encode_batch(TEXTS, max_length=limit).tolist() for limit in (4, 7, 99)}
    failures: list[object] = []

    def work(limit: int) -> None:
        try:
            for _ in range(60):
                found = roberta.encode_batch(TEXTS, max_length=limit, num_threads=limit % 3 or None)
                if found.tolist() != expected[limit]:
                    failures.append(limit)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(limit,)) for limit in (4, 7, 99) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


WRONG: list[Any] = [None, b"a", bytearray(b"a"), 3, 1.5, ["a"], ("a",), {"a": 1}, True, "\ud800"]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_wrong_texts_are_refused_in_the_words_of_the_native_encoder(
    roberta: Tokenizer, toy_folder: Path, wrong: Any
) -> None:
    native = Tokenizer.from_pretrained(toy_folder)
    for arguments in ((["a", wrong],), (["a", wrong], ["a", "b"]), (["a", "b"], ["a", wrong])):
        errors = []
        for tokenizer in (native, roberta):
            with pytest.raises(TextError) as caught:
                tokenizer.encode_batch(*arguments)
            errors.append((str(caught.value), caught.value.row))
        assert errors[0] == errors[1]
    for tokenizer in (native, roberta):
        with pytest.raises(TextError) as caught:
            tokenizer.encode(wrong)
        assert caught.value.row is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"pairs": ["b b b b"], "max_length": 6, "truncation": "only_first"},
        {"pairs": ["b b b b"], "max_length": 6, "truncation": "only_second"},
        {"max_length": 2, "return_overflow": True},
        {"pairs": ["b b b b b b b"], "max_length": 9, "stride": 3},
    ],
)
def test_rows_that_cannot_be_cut_are_refused_in_the_same_words(
    toy_folder: Path, paths: dict[str, Path], arguments: dict[str, Any]
) -> None:
    # A template of two tokens for a text and three for a pair, as the toy's.
    errors = []
    for path in (toy_folder, paths["modernbert"]):
        tokenizer = Tokenizer.from_pretrained(path)
        with pytest.raises(InputError) as caught:
            tokenizer.encode_batch(["a b a b a b a"], **arguments)
        # How many tokens a text has is the vocabulary's affair.
        errors.append((re.sub(r"least \d+", "least", str(caught.value)), caught.value.row))
    assert errors[0] == errors[1]


def test_without_the_library_the_extra_is_named(
    paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingDependencyError, match=r"pip install '\.\[bpe\]"):
        Tokenizer.from_pretrained(paths["wordlevel"])
    roberta = Tokenizer.from_pretrained(paths["roberta"])
    assert roberta.decode(roberta.encode("Hello you", add_special_tokens=False)) == "Hello you"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda top: top["model"].update(dropout=0.1), "dropout makes every encoding different"),
        (
            lambda top: top["model"].update(merges=[["q", "nope"]]),
            "a part that is not in the vocab",
        ),
        (lambda top: top["model"].update(vocab={"a": -1}), "must be an integer"),
        (lambda top: top["model"].update(vocab={"a": 1, "b": 1}), "share an id"),
        (lambda top: top.update(pre_tokenizer={"type": "Nonsense"}), "refuses the file"),
        (lambda top: top["post_processor"].update(sep=["</s>", 9]), "has the id 9 here"),
        (lambda top: top["post_processor"].update(more=1), "unknown .*: 'more'"),
        (lambda top: top["post_processor"].update(type="Other"), "post-processor Other is not"),
        (
            lambda top: top.update(
                post_processor={"type": "Sequence", "processors": [top["post_processor"]] * 2}
            ),
            "two post-processors",
        ),
        (lambda top: top["model"].update(type="Other"), "a Other model is not supported"),
    ],
)
def test_files_that_are_wrong_are_named(
    paths: dict[str, Path], tmp_path: Path, spoil: Callable[[dict[str, Any]], None], words: str
) -> None:
    top = json.loads(paths["roberta"].read_text(encoding="utf-8"))
    spoil(top)
    with pytest.raises(TokenizerFileError, match=words):
        Tokenizer.from_pretrained(write(tmp_path / "tokenizer.json", top))


def test_a_native_model_takes_robertas_layout_where_nothing_is_trimmed(
    toy_folder: Path, tmp_path: Path
) -> None:
    Tokenizer.from_pretrained(toy_folder).save(tmp_path)
    top = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = top["model"]["vocab"]
    top["post_processor"] = {
        "type": "RobertaProcessing",
        "sep": ["[SEP]", vocab["[SEP]"]],
        "cls": ["[CLS]", vocab["[CLS]"]],
        "trim_offsets": True,
        "add_prefix_space": True,
    }
    path = write(tmp_path / "roberta.json", top)
    peer = Peer("wordpiece", path)
    texts = ["want low", "a b", ""]
    assert peer.compare(texts, None, Settings()) is None
    assert peer.compare(texts, texts[::-1], Settings()) is None
    top["model"]["vocab"]["\u0120a"] = len(vocab)
    spaced = Peer("by the library", write(path, top))
    assert "trim_offsets would cut" in spaced.ours.spec.model.reason  # type: ignore[union-attr]
    assert spaced.compare([*texts, "\u0120a low"], None, Settings()) is None


@pytest.fixture
def two_files(paths: dict[str, Path], tmp_path: Path) -> Path:
    """Write vocab.json and merges.txt, as RoBERTa was published."""
    model = json.loads(paths["roberta"].read_text(encoding="utf-8"))["model"]
    folder = tmp_path / "two"
    folder.mkdir()
    write(folder / "vocab.json", model["vocab"])
    merges = "".join(f"{a} {b}\n" for a, b in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}", encoding="utf-8")
    write(folder / "tokenizer_config.json", {"tokenizer_class": "RobertaTokenizer"})
    write(folder / "config.json", {"model_type": "roberta"})
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"add_prefix_space": True},
        {"trim_offsets": False},
        {"tokenizer_class": None},
        {"tokenizer_class": None, "model_type": "longformer"},
        {"tokenizer_class": "BartTokenizer", "model_type": "bart"},
    ],
)
def test_vocab_and_merges_are_read_as_transformers_does(
    two_files: Path, changes: dict[str, Any]
) -> None:
    from transformers import AutoTokenizer

    config = {"tokenizer_class": "RobertaTokenizer"} | changes
    write(two_files / "config.json", {"model_type": config.pop("model_type", "roberta")})
    config = {key: value for key, value in config.items() if value is not None}
    write(two_files / "tokenizer_config.json", config)
    ours, theirs = Tokenizer.from_pretrained(two_files), AutoTokenizer.from_pretrained(two_files)
    expected = theirs(TEXTS, TEXTS[::-1], return_offsets_mapping=True)
    found = ours.encode_batch(TEXTS, TEXTS[::-1], return_offsets=True)
    assert found.tolist() == expected["input_ids"]
    offsets = [tuple(span) for row in expected["offset_mapping"] for span in row]
    assert [tuple(span) for span in found.offsets.tolist()] == offsets
    assert ours.vocab_size == len(theirs)


def test_two_files_of_an_unknown_class_or_damaged_are_refused(two_files: Path) -> None:
    cases: list[tuple[str, object, str]] = [
        ("tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer"}, "of GPT2Tokenizer"),
        ("vocab.json", {"a": 0}, "lacks '<unk>'"),
    ]
    for name, value, words in cases:
        before = (two_files / name).read_text(encoding="utf-8")
        write(two_files / name, value)
        with pytest.raises(TokenizerFileError, match=words):
            Tokenizer.from_pretrained(two_files)
        (two_files / name).write_text(before, encoding="utf-8")
    (two_files / "tokenizer_config.json").unlink()
    for kind, words in (("gpt2", "of a gpt2 model"), (None, "without a tokenizer_class")):
        write(two_files / "config.json", {"model_type": kind})
        with pytest.raises(TokenizerFileError, match=words):
            Tokenizer.from_pretrained(two_files)
    write(two_files / "config.json", {"model_type": "roberta"})
    (two_files / "merges.txt").write_text("a b c\n", encoding="utf-8")
    with pytest.raises(TokenizerFileError, match="line 1 is not two pieces"):
        Tokenizer.from_pretrained(two_files)
    (two_files / "SHA256SUMS").write_text(f"{'0' * 64}  merges.txt\n")
    with pytest.raises(ChecksumError, match=r"merges\.txt"):
        Tokenizer.from_pretrained(two_files)


def test_a_companion_that_contradicts_the_pre_tokenizer_is_refused(
    paths: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "tokenizer.json").write_bytes(paths["roberta"].read_bytes())
    write(tmp_path / "tokenizer_config.json", {"add_prefix_space": True})
    with pytest.raises(TokenizerFileError, match="add_prefix_space=True"):
        Tokenizer.from_pretrained(tmp_path)
    write(tmp_path / "tokenizer_config.json", {"add_prefix_space": False})
    assert Tokenizer.from_pretrained(tmp_path).vocab_size > 0
