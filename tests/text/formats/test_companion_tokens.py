"""Tokens that only the companion files name: as transformers reads them, or refused by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import transformers

from encoder_engine.errors import TokenizerFileError
from encoder_engine.text import Tokenizer
from tests.text.conftest import TOY_TOKENS

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = (*TOY_TOKENS, "[E1]", "e1", "new")
NUMBER = TOKENS.index("[E1]")
TEXTS = ["the [E1] low", "want [E2] e1 [MASK] low", "[e1][e2]a  [E1]  b", "a  [MASK]  b new [E3]"]
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
STRIPS = {"lstrip": True, "rstrip": True}
CONFIG, MAP = "tokenizer_config.json", "special_tokens_map.json"
LAYOUTS = [
    ("vocab.txt", "BertTokenizer"),
    ("tokenizer.json", "BertTokenizer"),
    ("tokenizer.json", "PreTrainedTokenizerFast"),
    ("tokenizer.json with [E1]", "BertTokenizer"),
    ("tokenizer.json with [E1]", "PreTrainedTokenizerFast"),
]


def token(content: str, **flags: object) -> dict[str, Any]:
    """Write an added token as the files do."""
    return {"content": content, **FLAGS, **flags}


def decoder(*more: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    """Write an added_tokens_decoder of the five special tokens and more."""
    listed = [*((i, token(name)) for i, name in enumerate(TOKENS[:5])), *more]
    return {str(number): {**one, "special": one.get("special", True)} for number, one in listed}


def typed(content: str, **flags: object) -> dict[str, Any]:
    """Write an added token as an old tokenizer_config.json does."""
    return {"__type": "AddedToken", **token(content, **flags)}


def make(folder: Path, layout: str, kind: str, files: dict[str, Any]) -> Path:
    """Write a directory with the files of a layout and those of a test."""
    source = folder / "source"
    source.mkdir()
    (source / "vocab.txt").write_text("\n".join(TOKENS) + "\n", encoding="utf-8")
    target = folder / "target"
    target.mkdir()
    if layout == "vocab.txt":
        (source / "vocab.txt").rename(target / "vocab.txt")
    else:
        (source / CONFIG).write_text('{"do_lower_case": true}')
        Tokenizer.from_pretrained(source).save(source)
        content = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
        if layout.endswith("[E1]"):
            content["added_tokens"].append({"id": NUMBER, **token("[E1]"), "special": True})
        (target / "tokenizer.json").write_text(json.dumps(content))
    config = {"do_lower_case": True, "tokenizer_class": kind, **files.get(CONFIG, {})}
    for name, value in {**files, CONFIG: config}.items():
        (target / name).write_text(json.dumps(value))
    return target


def compare(folder: Path) -> None:
    """Compare ids and offsets with transformers' AutoTokenizer."""
    ours = Tokenizer.from_pretrained(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        expected = theirs(text, return_offsets_mapping=True)
        found = ours.encode_batch([text], return_offsets=True)
        assert found.tolist() == [expected["input_ids"]], text
        assert [tuple(pair) for pair in found.offsets.tolist()] == expected["offset_mapping"], text
    for number in range(len(theirs)):
        assert ours.id_to_token(number) == theirs.convert_ids_to_tokens(number)


READ: dict[str, dict[str, Any]] = {
    "additional in the map": {MAP: {"additional_special_tokens": ["[E1]", "[E2]"]}},
    "extra in the map": {MAP: {"extra_special_tokens": ["[E1]", "[E2]"]}},
    "extra objects in the map": {MAP: {"extra_special_tokens": [token("[E1]", lstrip=True)]}},
    "extra names in the map": {MAP: {"extra_special_tokens": {"x_token": "[E1]"}}},
    "another part in the map": {MAP: {"image_token": "[E1]"}},
    "a part as an object in the map": {MAP: {"bos_token": token("[E1]", **STRIPS)}},
    "flags of the mask in the map": {MAP: {"mask_token": token("[MASK]", **STRIPS)}},
    "additional": {CONFIG: {"additional_special_tokens": ["[E2]", "[E1]"]}},
    "additional, typed": {
        CONFIG: {"additional_special_tokens": [typed("[E1]", rstrip=True, special=True)]}
    },
    "extra": {CONFIG: {"extra_special_tokens": ["[E1]"]}},
    "extra names": {CONFIG: {"extra_special_tokens": {"e_token": "[E1]", "f_token": "[E2]"}}},
    "another part": {CONFIG: {"image_token": "[E1]", "add_bos_token": True}},
    "parts before lists": {CONFIG: {"extra_special_tokens": ["[E2]"], "eos_token": "[E3]"}},
    "a part": {CONFIG: {"bos_token": "[E1]"}},
    "flags of the mask": {CONFIG: {"mask_token": typed("[MASK]", **STRIPS)}},
    "extra in both": {
        CONFIG: {"extra_special_tokens": ["[E1]"]},
        MAP: {"extra_special_tokens": ["[E2]"]},
    },
    "the same additional in both": {
        CONFIG: {"additional_special_tokens": ["[E3]", "[E2]"]},
        MAP: {"additional_special_tokens": ["[E2]", "[E3]"]},
    },
    "nothing": {},
}


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "kind"), LAYOUTS)
@pytest.mark.parametrize("shape", READ)
def test_tokens_of_the_companions_are_read_as_transformers_does(
    tmp_path: Path, shape: str, layout: str, kind: str
) -> None:
    compare(make(tmp_path, layout, kind, READ[shape]))


@pytest.mark.parametrize(
    ("listed", "layouts"),
    [
        (decoder((NUMBER, token("[E1]"))), [0, 3, 4]),
        (decoder((NUMBER, token("[E1]", **STRIPS))), [0]),
        (decoder((NUMBER + 1, token("e1", normalized=True, special=False))), [0]),
        (decoder(), [0, 1, 2]),
    ],
)
def test_an_added_tokens_decoder_agrees_with_transformers_or_is_refused(
    tmp_path: Path, listed: dict[str, Any], layouts: list[int]
) -> None:
    for index, (layout, kind) in enumerate(LAYOUTS):
        folder = tmp_path / str(index)
        folder.mkdir()
        target = make(folder, layout, kind, {CONFIG: {"added_tokens_decoder": listed}})
        if index in layouts:
            compare(target)
        else:
            with pytest.raises(TokenizerFileError, match=r"added token.*'\[?[eE]1|lacks '\[E1\]'"):
                Tokenizer.from_pretrained(target)


def test_a_list_beside_an_added_tokens_decoder_is_read(tmp_path: Path) -> None:
    listed = {"added_tokens_decoder": decoder(), "additional_special_tokens": ["[E1]"]}
    for index, (layout, kind) in enumerate(LAYOUTS):
        folder = tmp_path / str(index)
        folder.mkdir()
        compare(make(folder, layout, kind, {CONFIG: listed}))


OVERRULED = r"special_tokens_map.*names '\[E[12]\]', but another file takes precedence"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a map behind a decoder": (
        {
            CONFIG: {"added_tokens_decoder": decoder()},
            MAP: {"additional_special_tokens": ["[E1]"]},
        },
        OVERRULED,
    ),
    "a map behind an empty list": (
        {CONFIG: {"additional_special_tokens": []}, MAP: {"additional_special_tokens": ["[E1]"]}},
        OVERRULED,
    ),
    "a map behind null": (
        {CONFIG: {"additional_special_tokens": None}, MAP: {"additional_special_tokens": ["[E1]"]}},
        OVERRULED,
    ),
    "a map behind a shorter list": (
        {
            CONFIG: {"additional_special_tokens": ["[E1]"]},
            MAP: {"additional_special_tokens": ["[E1]", "[E2]"]},
        },
        OVERRULED,
    ),
    "added_tokens.json": ({"added_tokens.json": {"[E1]": NUMBER}}, "added_tokens.json"),
    "added_tokens.json and a map": (
        {"added_tokens.json": {"[E1]": NUMBER}, MAP: {"additional_special_tokens": ["[E1]"]}},
        "added_tokens.json",
    ),
    "a list of numbers": (
        {MAP: {"additional_special_tokens": [3]}},
        r"additional_special_tokens\[0\] must be a string",
    ),
    "a list that is none": (
        {CONFIG: {"extra_special_tokens": "[E1]"}},
        "extra_special_tokens must be a list",
    ),
    "an empty token": ({CONFIG: {"extra_special_tokens": [""]}}, "a special token is empty"),
    "an unknown flag": ({MAP: {"bos_token": token("a", rank=1)}}, "unknown .*: 'rank'"),
}


@pytest.mark.parametrize("layout", ["vocab.txt", "tokenizer.json"])
@pytest.mark.parametrize("shape", REFUSED)
def test_companions_that_contradict_are_refused_by_name(
    tmp_path: Path, shape: str, layout: str
) -> None:
    files, message = REFUSED[shape]
    with pytest.raises(TokenizerFileError, match=message):
        Tokenizer.from_pretrained(make(tmp_path, layout, "BertTokenizer", files))


def test_objects_that_transformers_5_fails_on_are_read_as_version_4_did(tmp_path: Path) -> None:
    for index, name in enumerate((CONFIG, MAP)):
        folder = tmp_path / str(index)
        folder.mkdir()
        listed = {name: {"additional_special_tokens": [token("[E1]", special=True)]}}
        found = Tokenizer.from_pretrained(make(folder, "vocab.txt", "BertTokenizer", listed))
        assert found.encode("[E1]").tolist() == [2, NUMBER, 3]


def test_a_new_token_beside_a_missing_mask_has_no_certain_id(tmp_path: Path) -> None:
    lines = [name for name in TOKENS if name != "[MASK]"]
    (tmp_path / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / MAP).write_text('{"additional_special_tokens": ["[E2]"]}')
    with pytest.raises(TokenizerFileError, match=r"'\[E2\]' is not in the vocabulary"):
        Tokenizer.from_pretrained(tmp_path)
