"""Every tokenizer.json that the library reads is read: natively where exact, or by the library."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from encoder_engine.errors import MissingDependencyError, TextError, TokenizerFileError
from encoder_engine.text import Tokenizer
from encoder_engine.text.spec.library import LibrarySpec
from encoder_engine.text.spec.tokenizer import WordPieceSpec
from tests.text.conftest import TOY_TOKENS
from tests.text.parity.peers import Peer, Settings

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["want low, un1 a22b", "É à LOW!", "wanted\tb  c", "", "[MASK] low", "中 a|b"]
WORDPIECE = {token: number for number, token in enumerate((*TOY_TOKENS, "low,", "1", "22", "LOW"))}
PIECES = [("<unk>", 0.0), ("▁", -2.0), ("▁low", -3.1234567890123457), ("a", -2.5), ("l", -4.0)]
PIECES += [(letter, -5.0 - ord(letter) / 97.3) for letter in "bcdeowntÉLOW1!,|"]
TWO = ["low a", "a b low"]
PRE_TOKENIZERS: dict[str, Any] = {
    "Whitespace": pre_tokenizers.Whitespace(),
    "WhitespaceSplit": pre_tokenizers.WhitespaceSplit(),
    "Digits": pre_tokenizers.Digits(individual_digits=True),
    "Punctuation": pre_tokenizers.Punctuation(),
    "Split": pre_tokenizers.Split("|", "isolated"),
    "Sequence": pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=False)]
    ),
    "null": None,
}
NORMALIZERS: dict[str, Any] = {
    "Lowercase": normalizers.Lowercase(),
    "NFD": normalizers.NFD(),
    "Nmt": normalizers.Nmt(),
    "Sequence": normalizers.Sequence(
        [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]
    ),
    "empty": normalizers.Sequence([]),
}


def write(path: Path, library: Library, **model: Any) -> Path:
    """Save a tokenizer, with members of its model replaced; None leaves one out."""
    top = json.loads(library.to_str())
    top["model"] |= model
    top["model"] = {key: value for key, value in top["model"].items() if value != "absent"}
    path.write_text(json.dumps(top), encoding="utf-8")
    return path


def make(model: Any, pre_tokenizer: str = "", normalizer: str = "") -> Library:
    """Make a tokenizer of these parts; by default BERT's."""
    library = Library(model)
    library.pre_tokenizer = PRE_TOKENIZERS.get(pre_tokenizer, pre_tokenizers.BertPreTokenizer())
    library.normalizer = NORMALIZERS.get(normalizer, normalizers.BertNormalizer(lowercase=False))
    return library


def wordpiece(unknown: str = "[UNK]") -> Any:
    """Make a WordPiece model."""
    return models.WordPiece(WORDPIECE, unk_token=unknown)


def unigram(unknown: int | None = 0) -> Any:
    """Make a Unigram model."""
    return models.Unigram(PIECES, unk_id=unknown, byte_fallback=False)


def check(path: Path, folder: Path) -> Tokenizer:
    """Compare a file with the library, before and after it is saved."""
    for place in (path, folder / "saved" / "tokenizer.json"):
        peer = Peer(place.name, place)
        assert peer.compare(TEXTS, None, Settings()) is None
        assert peer.compare(TEXTS, TEXTS[::-1], Settings(max_length=7)) is None
        peer.ours.save(folder / "saved")
    return Tokenizer.from_pretrained(path)


@pytest.mark.parametrize("model", [wordpiece, unigram])
@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_every_pre_tokenizer(tmp_path: Path, model: Any, name: str) -> None:
    tokenizer = check(write(tmp_path / "t.json", make(model(), name, "NFD")), tmp_path)
    if isinstance(tokenizer.spec.model, LibrarySpec):
        assert "is not supported with" in tokenizer.spec.model.reason
    else:
        assert name in ("WhitespaceSplit", "null")


@pytest.mark.parametrize("model", [wordpiece, unigram])
@pytest.mark.parametrize("name", NORMALIZERS)
def test_every_normalizer(tmp_path: Path, model: Any, name: str) -> None:
    check(write(tmp_path / "t.json", make(model(), "WhitespaceSplit", name)), tmp_path)
    check(write(tmp_path / "t.json", make(model(), "", name)), tmp_path)


@pytest.mark.parametrize("model", [wordpiece, unigram])
def test_other_members_of_the_models(tmp_path: Path, model: Any) -> None:
    library = make(model())
    library.decoder = decoders.BPEDecoder()
    tokenizer = check(write(tmp_path / "t.json", library, more=1), tmp_path)
    ids = tokenizer.encode("low a").tolist()
    assert tokenizer.decode(ids) == Library.from_file(str(tmp_path / "t.json")).decode(ids)


@pytest.mark.parametrize("model", [wordpiece("none"), unigram(None)])
def test_a_text_that_needs_a_missing_unknown_token_is_named(tmp_path: Path, model: Any) -> None:
    tokenizer = Tokenizer.from_pretrained(write(tmp_path / "t.json", make(model, "Whitespace")))
    with pytest.raises(TextError, match="text at row 1 makes the library tokenizers fail") as error:
        tokenizer.encode_batch(["low", "ж"])
    assert error.value.row == 1


@pytest.mark.parametrize("kind", ["BPE", "WordPiece", "WordLevel", "Unigram"])
@pytest.mark.parametrize("version", ["1.0", "absent"])
def test_published_files_leave_the_type_out(tmp_path: Path, kind: str, version: str) -> None:
    """Those of roberta-base and gpt2 have no type; the library tells it from the members."""
    made = {
        "BPE": models.BPE({"a": 0, "b": 1, "ab": 2, "Ġ": 3}, [("a", "b")]),
        "WordPiece": wordpiece(),
        "WordLevel": models.WordLevel(WORDPIECE, "[UNK]"),
        "Unigram": unigram(),
    }
    path = write(tmp_path / "t.json", make(made[kind], "Whitespace"), type="absent")
    top = json.loads(path.read_text("utf-8"))
    if version == "absent":
        del top["version"]
    path.write_text(json.dumps(top), encoding="utf-8")
    tokenizer = check(path, tmp_path)
    assert kind in tokenizer.spec.model.description


@pytest.mark.parametrize("kind", ["BPE", "WordPiece", "Unigram"])
def test_templates_that_use_a_text_twice(tmp_path: Path, kind: str) -> None:
    """The library truncates a text, and then lays it out as often as the template has it."""
    made = {"BPE": models.BPE({"a": 0, "b": 1, "ab": 2, "low": 3}, [("a", "b")])}
    made |= {"WordPiece": wordpiece(), "Unigram": unigram()}
    library = make(made[kind])
    library.add_special_tokens(["[S]"])
    library.post_processor = processors.TemplateProcessing(
        single="[S] $A [S] $A:1",
        pair="$B:3 [S] $A $B:1 [S] $A:2 [S]:2",
        special_tokens=[("[S]", library.token_to_id("[S]"))],
    )
    path = write(tmp_path / "t.json", library)
    tokenizer = check(path, tmp_path)
    assert isinstance(tokenizer.spec.model, LibrarySpec)
    assert kind != "WordPiece" or "a text twice" in tokenizer.spec.model.reason
    single, pair = library.encode("low a"), library.encode("low a", "a b low")
    assert tokenizer.encode_batch(["low a"]).type_ids.tolist() == single.type_ids
    found = tokenizer.encode_batch(TWO[:1], TWO[1:])
    assert found.type_ids.tolist() == pair.type_ids
    counts = np.bincount(found.sequence_ids + 1).tolist()
    # Without special tokens, too, the library has a single text twice.
    plain = [library.encode(text, add_special_tokens=False).ids for text in TWO]
    assert counts == [3, *map(len, plain)]
    assert [tokenizer.encode(text, add_special_tokens=False).tolist() for text in TWO] == plain


def test_dropout_is_refused_as_it_makes_encodings_random(tmp_path: Path) -> None:
    library = Library(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")], dropout=0.5))
    path = write(tmp_path / "t.json", library)
    again = Library.from_file(str(path))
    assert len({tuple(again.encode("ab" * 8).ids) for _ in range(50)}) > 1
    with pytest.raises(TokenizerFileError, match=r"dropout makes every encoding different; set it"):
        Tokenizer.from_pretrained(path)
    check(write(tmp_path / "t.json", library, dropout=None), tmp_path)
    check(write(tmp_path / "t.json", library, dropout=0.0), tmp_path)


def test_what_is_exact_natively_stays_native(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", make(wordpiece()), type="absent")
    assert isinstance(check(path, tmp_path).spec.model, WordPieceSpec)


def test_a_file_that_nobody_reads_has_both_reasons(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", make(wordpiece()))
    top = json.loads(path.read_text("utf-8")) | {"pre_tokenizer": {"type": "Nonsense"}}
    path.write_text(json.dumps(top), encoding="utf-8")
    with pytest.raises(TokenizerFileError, match=r"Nonsense is not .*library.* refuses"):
        Tokenizer.from_pretrained(path)


def test_without_the_library_the_reason_and_the_extra_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "t.json", make(wordpiece(), "Digits"))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingDependencyError, match=r"Digits is not supported .*\[bpe\]"):
        Tokenizer.from_pretrained(path)
