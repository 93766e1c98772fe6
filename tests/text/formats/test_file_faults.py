"""Damaged tokenizer files: named where checksums are recorded, and always an error of ours."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.errors import ChecksumError, TokenizerFileError, UnsupportedFeatureError
from encoder_engine.files import write_checksums
from encoder_engine.text import Tokenizer
from tests.text.conftest import TOY_TOKENS
from tests.text.formats.test_companion_tokens import CONFIG, MAP, decoder, typed

if TYPE_CHECKING:
    from pathlib import Path

OURS = (TokenizerFileError, ChecksumError, UnsupportedFeatureError)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31 - 1, 2**31, 2**63, 10**30, -(10**30), 0.5, 1e30, -1e300),
    *(
        float("nan"),
        float("inf"),
        float("-inf"),
        "",
        " ",
        "a",
        "[CLS]",
        "\ud800",
        "a\udfff",
        "\x00",
    ),
    *("\u0301", "x" * 300, [], [[]], [None], {}, {"content": None}, {"a": 1}, {"content": "[E1]"}),
)
NAMES = ("tokenizer.json", "vocab.txt", CONFIG, MAP, "added_tokens.json")


def write_models(folder: Path) -> list[Path]:
    """Write a directory by vocab.txt and one by tokenizer.json, each with all companions."""
    config = {
        "do_lower_case": True,
        "model_max_length": 512,
        "padding_side": "right",
        "additional_special_tokens": [typed("a", special=True)],
        "bos_token": "b",
        "added_tokens_decoder": decoder(),
        "tokenizer_class": "BertTokenizer",
    }
    special = {"cls_token": "[CLS]", "mask_token": {"content": "[MASK]", "lstrip": False}}
    source = folder / "vocab"
    source.mkdir()
    (source / "vocab.txt").write_text("\n".join(TOY_TOKENS) + "\n", encoding="utf-8")
    (source / CONFIG).write_text(json.dumps(config))
    (source / MAP).write_text(json.dumps(special))
    Tokenizer.from_pretrained(source).save(folder / "json")
    path = folder / "json/tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["truncation"] = {"max_length": 8, "strategy": "LongestFirst", "stride": 0}
    content["padding"] = {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": 8}
    content["padding"] |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    path.write_text(json.dumps(content))
    return [source, folder / "json"]


def places(value: Any) -> list[tuple[Any, Any]]:
    """List every member of every object and array, with what holds it."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    found = [(value, key) for key in keys]
    inner = [value[key] for key in keys if isinstance(value[key], dict | list)]
    return found + [place for item in inner for place in places(item)]


def change_leaf(rng: random.Random, content: bytes) -> bytes:
    """Set, drop or rename one member of a JSON file."""
    value = json.loads(content)
    holder, key = rng.choice(places(value))
    if rng.random() < 0.8:
        holder[key] = rng.choice(VALUES)
    elif isinstance(holder, dict):
        moved = holder.pop(key)
        if rng.random() < 0.5:
            holder[rng.choice(("", "\ud800", "x_token", "[NEW]"))] = moved
    else:
        del holder[key]
    return json.dumps(value).encode()


def change_bytes(rng: random.Random, content: bytes) -> bytes:
    """Flip, cut, insert or repeat some bytes."""
    at = rng.randrange(len(content))
    size = rng.choice((1, 1, 2, 20))
    kind = rng.randrange(5)
    if kind == 0:
        return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
    if kind == 1:
        return content[:at]
    if kind == 2:
        return content[:at] + rng.randbytes(size) + content[at:]
    if kind == 3:
        return content[:at] + content[at : at + size] + content[at:]
    return content[:at] + content[at + size :]


def run_mutations(folder: Path, count: int, seed: int) -> tuple[int, int]:
    """Damage one file at a time; count what was refused and what could still be used."""
    rng = random.Random(seed)
    models = write_models(folder)
    refused = used = 0
    for _ in range(count):
        model = rng.choice(models)
        path = rng.choice([p for p in sorted(model.iterdir()) if p.name in NAMES])
        whole = path.read_bytes()
        leaf = path.suffix == ".json" and rng.random() < 0.6
        path.write_bytes(change_leaf(rng, whole) if leaf else change_bytes(rng, whole))
        try:
            tokenizer = Tokenizer.from_pretrained(model)
        except OURS:
            refused += 1
        else:
            used += 1
            encoding = tokenizer.encode_batch(["low [MASK] a\u0301", ""], ["b", "[E1] want"])
            assert len(encoding.type_ids) == len(encoding.ids)
            tokenizer.decode(encoding.ids)
            tokenizer.save(folder / "saved")
        path.write_bytes(whole)
    return refused, used


@pytest.mark.slow
def test_damaged_files_raise_errors_of_ours_or_can_be_used(tmp_path: Path) -> None:
    refused, used = run_mutations(tmp_path, 600, 7)
    assert refused > 200
    assert used > 50


@pytest.mark.parametrize("name", NAMES[:-1])
def test_a_file_that_differs_from_its_recorded_checksum_is_named(tmp_path: Path, name: str) -> None:
    vocab, whole = write_models(tmp_path)
    model = vocab if name == "vocab.txt" else whole
    names = [path.name for path in model.iterdir()]
    (model / "model.safetensors").write_bytes(b"weights")
    write_checksums(model, [*names, "model.safetensors"])
    (model / "model.safetensors").write_bytes(b"other weights: not the tokenizer's to compare")
    Tokenizer.from_pretrained(model)
    path = model / name
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(ChecksumError, match=name):
        Tokenizer.from_pretrained(model)
    if name in ("vocab.txt", "tokenizer.json"):
        with pytest.raises(ChecksumError, match=name):
            Tokenizer.from_pretrained(path)


def test_a_recorded_file_that_is_missing_is_named(tmp_path: Path) -> None:
    model = write_models(tmp_path)[1]
    write_checksums(model, [path.name for path in model.iterdir()])
    (model / MAP).unlink()
    with pytest.raises(ChecksumError, match=MAP):
        Tokenizer.from_pretrained(model)
