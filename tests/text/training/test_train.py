"""Trained vocabularies: they load here and in transformers, and the same input gives the same."""

from __future__ import annotations

import ctypes
import io
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.errors import InputError, OutputError, ReadError
from encoder_engine.text import Tokenizer, TrainingOptions, train_tokenizer
from encoder_engine.text.training.unigram import train_with_sentencepiece, train_with_tokenizers

pytest.importorskip("tokenizers", reason="the extra train is not installed")
sentencepiece: Any = pytest.importorskip("sentencepiece", reason="the extra train is missing")

if TYPE_CHECKING:
    from collections.abc import Iterator

LATIN = "ka ke ki lo lu ma mi na no ra ri sa so ta te to va za sch"
SYLLABLES = [*LATIN.split(), *"\u00f6\u00fc\u00e9\u00df\u6771\u4eac\u306b\u306f\u0928\u092e"]
OPTIONS = TrainingOptions(vocab_size=300)
UNIGRAM = TrainingOptions(model="unigram", vocab_size=200)
PROBES = [
    "Kasoma lote.",
    "  two  spaces ",
    "Übermäßig! 東京には",
    "नम \U0001f600 x",
    "",
    "[MASK] <mask>",
]


def make_texts(count: int = 1500) -> list[str]:
    """Make words of syllables, some far more often than others."""
    generator = random.Random(1)
    words = ["".join(generator.choices(SYLLABLES, k=generator.randint(1, 4))) for _ in range(400)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    return [
        " ".join(generator.choices(words, weights, k=8)).capitalize() + "." for _ in range(count)
    ]


TEXTS = make_texts()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a WordPiece vocabulary."""
    folder = tmp_path_factory.mktemp("trained") / "wordpiece"
    train_tokenizer(TEXTS, folder, replace(OPTIONS, special_tokens=("[DOC]",)))
    return folder


def assert_same_as_transformers(folder: Path) -> None:
    """Compare the ids of both, with pairs."""
    from transformers import AutoTokenizer

    ours, theirs = Tokenizer.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    for text in [*TEXTS[:200], *PROBES]:
        assert ours.encode(text).tolist() == theirs(text)["input_ids"]
    pairs = ours.encode_batch(TEXTS[:9], TEXTS[9:18]).tolist()
    assert pairs == theirs(TEXTS[:9], TEXTS[9:18])["input_ids"]
    assert ours.vocab_size == len(theirs)


def test_wordpiece_loads_here_and_in_transformers(trained: Path) -> None:
    assert_same_as_transformers(trained)
    tokenizer = Tokenizer.from_pretrained(trained)
    assert tokenizer.vocab_size == 300
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[DOC]"]
    assert [tokenizer.token_to_id(name) for name in names] == list(range(6))
    assert tokenizer.encode("[DOC]", add_special_tokens=False).tolist() == [5]


def test_wordpiece_spells_what_it_has_seen(trained: Path) -> None:
    tokenizer = Tokenizer.from_pretrained(trained)
    unknown = tokenizer.unk_token_id
    ids = tokenizer.encode_batch(TEXTS).ids
    assert not (ids == unknown).any()
    assert len(ids) < 0.7 * sum(len(text.replace(" ", "")) for text in TEXTS)


def test_case_and_accents_are_kept_on_request(tmp_path: Path) -> None:
    options = replace(OPTIONS, lowercase=False, strip_accents=False)
    train_tokenizer(TEXTS, tmp_path / "cased", options)
    tokenizer = Tokenizer.from_pretrained(tmp_path / "cased")
    text = next(text for text in TEXTS if not re.search("[\u3000-\u9fff]", text))
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert_same_as_transformers(tmp_path / "cased")


def test_character_coverage_leaves_the_rarest_out(tmp_path: Path) -> None:
    texts = [*TEXTS, "\u0416"]
    train_tokenizer(texts, tmp_path / "all", replace(OPTIONS, character_coverage=1.0))
    train_tokenizer(texts, tmp_path / "most", replace(OPTIONS, character_coverage=0.999))
    held = [
        Tokenizer.from_pretrained(tmp_path / name).token_to_id("\u0436") for name in ("all", "most")
    ]
    assert held[0] is not None
    assert held[1] is None


def test_a_pair_must_be_frequent_enough(tmp_path: Path) -> None:
    texts = ["kato"] * 5 + ["zumi"] * 3
    folder = tmp_path / "frequent"
    train_tokenizer(texts, folder, TrainingOptions(vocab_size=100, min_frequency=4))
    tokenizer = Tokenizer.from_pretrained(folder)
    assert tokenizer.token_to_id("kato") is not None
    assert tokenizer.token_to_id("zumi") is None
    assert tokenizer.vocab_size < 100


def test_unigram_of_sentencepiece_loads_here_and_in_transformers(tmp_path: Path) -> None:
    train_tokenizer(TEXTS, tmp_path / "unigram", UNIGRAM)
    assert_same_as_transformers(tmp_path / "unigram")


def test_unigram_spells_unknown_characters_by_bytes(tmp_path: Path) -> None:
    options = replace(UNIGRAM, vocab_size=450, byte_fallback=True)
    train_tokenizer(TEXTS, tmp_path / "bytes", options)
    assert_same_as_transformers(tmp_path / "bytes")
    tokenizer = Tokenizer.from_pretrained(tmp_path / "bytes")
    ids = tokenizer.encode("\U0001f600")
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids).strip() == "\U0001f600"


def test_unigram_of_tokenizers_loads_here_and_in_transformers(tmp_path: Path) -> None:
    train_tokenizer(TEXTS, tmp_path / "unigram", replace(UNIGRAM, trainer="tokenizers"))
    assert_same_as_transformers(tmp_path / "unigram")


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_the_layout_of_unigram_agrees_with_the_model(lowercase: bool, byte_fallback: bool) -> None:
    from tokenizers import Tokenizer as Library

    size = 450 if byte_fallback else 200
    result = train_with_sentencepiece(
        TEXTS,
        vocab_size=size,
        extra_tokens=("<doc>",),
        lowercase=lowercase,
        byte_fallback=byte_fallback,
        coverage=0.9995,
        max_length=4096,
    )
    library = Library.from_str(result.tokenizer_json)
    assert result.sentencepiece_model is not None
    model = sentencepiece.SentencePieceProcessor(model_proto=result.sentencepiece_model)
    assert library.get_vocab_size() == size
    for text in [*TEXTS[:200], "Übermäßig! 東京には", "नम x"]:
        expected = [number + 1 if number else 3 for number in model.encode(text)]
        assert library.encode(text).ids == [0, *expected, 2]
    assert library.encode("a <doc>").tokens[-2] == "<doc>"
    assert library.token_to_id("<mask>") == size - 1


def test_the_layout_of_tokenizers_own_unigram() -> None:
    from tokenizers import Tokenizer as Library

    result = train_with_tokenizers(TEXTS, vocab_size=200, extra_tokens=(), lowercase=True)
    library = Library.from_str(result.tokenizer_json)
    assert library.get_vocab_size() <= 200
    assert library.decode(library.encode("Kasoma  lote.").ids) == "kasoma lote."


def test_summary_says_what_was_left_out(tmp_path: Path) -> None:
    texts = [*TEXTS, "", "  ", "x" * 5000, "a\u2585b"]
    found = train_tokenizer({"en": texts, "de": TEXTS[:300]}, tmp_path / "out", OPTIONS)
    assert found.vocab_size == 300
    assert found.corpora["en"].num_texts == len(texts)
    assert found.corpora["de"].num_read > 300
    assert found.reproducible
    assert found.num_lines > 0
    single = train_tokenizer(texts, tmp_path / "single", OPTIONS)
    assert (single.num_blank, single.num_cut, single.num_reserved) == (2, 1, 1)
    assert single.corpora[""].num_read == len(texts)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "bpe"}, "model is 'bpe'"),
        ({"trainer": "spm"}, "trainer is 'spm'"),
        ({"trainer": "sentencepiece"}, "trains no WordPiece"),
        ({"model": "unigram", "min_frequency": 3}, "min_frequency is WordPiece's"),
        ({"model": "unigram", "strip_accents": True}, "strip_accents is WordPiece's"),
        ({"byte_fallback": True}, "byte_fallback needs"),
        ({"model": "unigram", "trainer": "tokenizers", "byte_fallback": True}, "byte_fallback"),
        (
            {"model": "unigram", "trainer": "tokenizers", "character_coverage": 0.9},
            "character_coverage needs",
        ),
        ({"vocab_size": 9}, "at least 10"),
        ({"min_frequency": 0}, "at least 1"),
        ({"character_coverage": 0.0}, "above 0"),
        ({"character_coverage": 1.1}, "above 0"),
        ({"max_sentence_length": 15}, "at least 16"),
        ({"input_limit": 0}, "at least 1"),
        ({"alpha": -0.1}, "from 0 to 1"),
        ({"alpha": float("nan")}, "from 0 to 1"),
        ({"special_tokens": ("[CLS]",)}, "model's own"),
        ({"special_tokens": (" a",)}, "padded"),
        ({"special_tokens": ("a", "a")}, "named twice"),
        ({"vocab_size": 20}, "alphabet alone"),
        ({"model": "unigram", "vocab_size": 20}, "sentencepiece could not train"),
        ({"model": "unigram", "vocab_size": 50_000}, "sentencepiece could not train"),
        (
            {"model": "unigram", "trainer": "tokenizers", "vocab_size": 20},
            "tokenizers could not train: The vocabulary is not large enough",
        ),
    ],
)
def test_wishes_that_cannot_be_met_are_named(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        train_tokenizer(TEXTS, tmp_path / "out", replace(OPTIONS, **changes))
    assert list(tmp_path.iterdir()) == []


def test_an_output_is_replaced_only_on_request_and_only_a_tokenizer(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    train_tokenizer(TEXTS, folder, OPTIONS)
    with pytest.raises(OutputError, match="exists"):
        train_tokenizer(TEXTS, folder, OPTIONS)
    smaller = replace(OPTIONS, vocab_size=200)
    assert train_tokenizer(TEXTS, folder, smaller, overwrite=True).vocab_size == 200
    assert Tokenizer.from_pretrained(folder).vocab_size == 200
    (folder / "config.json").write_text("{}")
    with pytest.raises(OutputError, match=r"config\.json, which is not a tokenizer's file"):
        train_tokenizer(TEXTS, folder, OPTIONS, overwrite=True)
    with pytest.raises(OutputError, match="is a file"):
        train_tokenizer(TEXTS, folder / "config.json", OPTIONS)
    with pytest.raises(OutputError, match="make it first"):
        train_tokenizer(TEXTS, tmp_path / "no" / "out", OPTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    "options", [OPTIONS, UNIGRAM, replace(UNIGRAM, trainer="tokenizers")], ids=lambda o: o.model
)
def test_texts_that_cannot_be_read_again_are_the_error(
    tmp_path: Path, options: TrainingOptions
) -> None:
    """They were an InputError: sentencepiece could not train."""

    class Texts:
        times = 0

        def __iter__(self) -> Iterator[str]:
            self.times += 1
            for row, text in enumerate(TEXTS):
                if self.times == 2 and row == 900:
                    raise ReadError("the file is gone")
                yield text

    with pytest.raises(ReadError, match="the file is gone"):
        train_tokenizer(Texts(), tmp_path / "t", options)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_between_the_folders_loses_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no system call exchanges them, the former tokenizer is renamed away for a moment."""
    folder = tmp_path / "t"
    train_tokenizer(TEXTS, folder, OPTIONS)
    former = (folder / "vocab.txt").read_bytes()
    rename = Path.rename
    renamed: list[Path] = []

    def interrupted(self: Path, target: Path) -> Path:
        if renamed:
            raise KeyboardInterrupt
        renamed.append(target)
        return rename(self, target)

    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_tokenizer(TEXTS, folder, replace(OPTIONS, vocab_size=200), overwrite=True)
    kept = [path.read_bytes() for path in tmp_path.glob("*/vocab.txt")]
    assert kept == [former]


def test_the_stages_are_told(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []
    train_tokenizer(
        TEXTS, tmp_path / "out", OPTIONS, watch=lambda stage, done: seen.append((stage, done))
    )
    assert list(dict.fromkeys(stage for stage, _ in seen)) == ["count", "read", "train"]
    assert ("read", len(TEXTS)) in seen


def test_tokenizer_files_are_json_that_is_readable(trained: Path) -> None:
    written = json.loads((trained / "tokenizer.json").read_text(encoding="utf-8"))
    assert len(written["model"]["vocab"]) == 300
    assert io.StringIO((trained / "SHA256SUMS").read_text()).readline().endswith(".json\n")
