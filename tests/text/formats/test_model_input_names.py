"""Token types are given where transformers' tokenizer gives them, and are 0 elsewhere."""

from __future__ import annotations

import json
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import pytest
import transformers
from transformers.models.auto.tokenization_auto import (
    TOKENIZER_MAPPING_NAMES,
    tokenizer_class_from_name,
)

from encoder_engine.text import Tokenizer
from encoder_engine.text.formats.classes import CLASSES, TYPED_CLASSES

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = "tokenizer_config.json"
TYPED = ["input_ids", "token_type_ids", "attention_mask"]
UNTYPED = ["input_ids", "attention_mask"]
KINDS = ("BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "PreTrainedTokenizerFast")


def expected_types(folder: Path) -> list[list[int]]:
    """Give the types that a model of transformers gets: zeros where the tokenizer gives none."""
    rows = transformers.AutoTokenizer.from_pretrained(folder)(["low", "a"], ["want", "a b"])
    zeros = [[0] * len(ids) for ids in rows["input_ids"]]
    return [list(types) for types in rows.get("token_type_ids", zeros)]


def found_types(tokenizer: Tokenizer) -> list[list[int]]:
    """Give the types of the same pairs."""
    found = tokenizer.encode_batch(["low", "a"], ["want", "a b"])
    ends = found.cu_seqlens.tolist()
    types = found.type_ids.tolist()
    return [types[start:stop] for start, stop in pairwise(ends)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "kind"),
    # transformers reads no vocab.txt by the last class.
    [*product(["tokenizer.json"], [*KINDS, None]), *product(["vocab.txt"], [*KINDS[:-1], None])],
)
@pytest.mark.parametrize("names", [TYPED, UNTYPED, None], ids=["typed", "untyped", "unstated"])
def test_types_are_those_of_transformers(
    toy_folder: Path, tmp_path: Path, layout: str, kind: str | None, names: list[str] | None
) -> None:
    folder = tmp_path / "model"
    if layout == "vocab.txt":
        toy_folder.rename(folder)
    else:
        Tokenizer.from_pretrained(toy_folder).save(folder)
        (folder / "vocab.txt").unlink()
    config: dict[str, Any] = {"do_lower_case": True, "tokenizer_class": kind}
    config |= {} if names is None else {"model_input_names": names}
    config = {key: value for key, value in config.items() if value is not None}
    (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    (folder / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    ours = Tokenizer.from_pretrained(folder)
    assert found_types(ours) == expected_types(folder)
    # A saved tokenizer says itself which types it gives.
    ours.save(tmp_path / "saved")
    (tmp_path / "saved" / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    again = Tokenizer.from_pretrained(tmp_path / "saved")
    assert found_types(again) == found_types(ours) == expected_types(tmp_path / "saved")


def test_a_file_by_itself_gives_the_types_of_its_template(toy_folder: Path) -> None:
    tokenizer = Tokenizer.from_pretrained(toy_folder)
    tokenizer.save(toy_folder)
    (toy_folder / CONFIG).write_text(json.dumps({"model_input_names": UNTYPED}))
    assert not any(map(any, found_types(Tokenizer.from_pretrained(toy_folder))))
    alone = Tokenizer.from_pretrained(toy_folder / "tokenizer.json")
    assert found_types(alone) == found_types(tokenizer)


def test_the_classes_are_those_of_transformers() -> None:
    names = {*TOKENIZER_MAPPING_NAMES.values(), *TYPED_CLASSES, *CLASSES.values()}
    for name in sorted(filter(None, names)):
        found = tokenizer_class_from_name(name)
        inputs = getattr(found, "model_input_names", None)
        # Tokenizers of pictures, letters and tables have no file that is read here.
        if inputs is not None and found.__module__.split(".")[-2] not in (
            *("canine", "layoutlmv2", "markuplm", "tapas"),
        ):
            assert ("token_type_ids" in inputs) == (name in TYPED_CLASSES), name
    for model_type, name in CLASSES.items():
        theirs = TOKENIZER_MAPPING_NAMES.get(model_type)
        assert theirs in (name, None, "TokenizersBackend"), model_type
