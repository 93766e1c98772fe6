"""Draws calls of a tokenizer, and compares their whole results with those of transformers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from encoder_engine.errors import EncoderEngineError, InputError
from tests.text.parity.test_bpe import make

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

MERGES = "t h, e r, o n, i n, Ġ t, Ġt h, Ġth e, Ġ a, l l, e ll, Ġ w, Ġw o, x x, xx xx"
FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
FLAGS |= {"special": True}
UNIGRAM: dict[str, Any] = {
    "version": "1.0",
    **dict.fromkeys(("truncation", "padding", "normalizer", "decoder")),
    "pre_tokenizer": {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "always",
        "split": True,
    },
    "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False},
}
ROLES = {"unk": "<unk>", "pad": "<pad>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
TEXTS = (
    "a b",
    "",
    "the quick brown fox jumps over the lazy dog, doesn't it?",
    "unaffable [MASK] naïve  café ☃ 中文字",
    "x" * 30,
    "Hello <mask> world ",
    " leading and trailing ",
)
STRATEGIES = ("longest_first", "only_first", "only_second", "do_not_truncate")
# The values of each setting; LEFT_OUT is twice there where most calls leave the setting out.
LEFT_OUT = object()
SETTINGS: dict[str, tuple[Any, ...]] = {
    "padding": (LEFT_OUT, True, False, "longest", "max_length", "do_not_pad"),
    "truncation": (LEFT_OUT, True, False, *STRATEGIES),
    "max_length": (LEFT_OUT, 4, 9, 12, 16, 64),
    "stride": (LEFT_OUT, LEFT_OUT, 0, 1, 3),
    "return_tensors": (LEFT_OUT, LEFT_OUT, "np", "pt"),
    "return_token_type_ids": (LEFT_OUT, LEFT_OUT, True, False),
    "return_attention_mask": (LEFT_OUT, LEFT_OUT, True, False),
    "return_overflowing_tokens": (LEFT_OUT, LEFT_OUT, True),
    "return_special_tokens_mask": (LEFT_OUT, True),
    "return_offsets_mapping": (LEFT_OUT, True),
    "return_length": (LEFT_OUT, True),
    "add_special_tokens": (LEFT_OUT, LEFT_OUT, True, False),
    "padding_side": (LEFT_OUT, LEFT_OUT, "left", "right"),
    "pad_to_multiple_of": (LEFT_OUT, LEFT_OUT, LEFT_OUT, 4, 8),
}
ROW = (
    *("type_ids", "ids", "tokens", "offsets", "attention_mask", "special_tokens_mask"),
    *("word_ids", "sequence_ids", "n_sequences"),
)
LIBRARY_ERRORS = {"Exception", "PanicException"}
Call = tuple[tuple[Any, ...], dict[str, Any]]


def draw_calls(rng: random.Random, count: int) -> Iterator[Call]:
    """Draw arguments: texts, pairs or words, one or many, with any settings."""
    for _ in range(count):
        words = rng.random() < 0.25
        pool: list[Any] = [text.split() for text in TEXTS] if words else list(TEXTS)
        size = rng.choice((1, 2, 3, 7))
        firsts, seconds = rng.choices(pool, k=size), rng.choices(pool, k=size)
        forms: list[tuple[Any, ...]] = [
            (firsts[0],),
            (firsts,),
            (firsts[0], seconds[0]),
            (firsts, seconds),
            (list(zip(firsts, seconds, strict=True)),),
        ]
        settings: dict[str, Any] = {"is_split_into_words": True} if words else {}
        drawn = {name: rng.choice(values) for name, values in SETTINGS.items()}
        settings |= {name: value for name, value in drawn.items() if value is not LEFT_OUT}
        yield rng.choice(forms), settings


def result_of(tokenizer: Any, call: Call) -> Any:
    """Return everything in the result of a call, or the error in its place."""
    texts, settings = call
    try:
        found = tokenizer(*texts, **settings)
    except Exception as error:
        return error
    except BaseException as error:
        # The library panics where stride leaves no room.
        if type(error).__name__ != "PanicException":
            raise
        return error
    fields = {name: _in_lists(values) for name, values in found.items()}
    return (
        list(found),
        fields,
        found.n_sequences,
        [
            # The library gives segment 1 to the second text of every overflow row.
            _row(row, ROW[1:] if settings.get("return_overflowing_tokens") else ROW)
            for row in found.encodings
        ],
    )


def _in_lists(values: Any) -> Any:
    if isinstance(values, np.ndarray) and values.dtype == object:
        return [_in_lists(row) for row in values]
    if isinstance(values, np.ndarray | torch.Tensor):
        return type(values), str(values.dtype), tuple(values.shape), values.tolist()
    return values


def _row(row: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return what one row says of itself, of its first tokens, and of some characters and words."""
    found = {name: getattr(row, name) for name in names}
    for place in (0, 1, 2, 5):
        if place < len(row.ids):
            asked = (row.token_to_sequence, row.token_to_word, row.token_to_chars)
            found[f"token {place}"] = [ask(place) for ask in asked]
        for text in (0, 1):
            inner = (row.char_to_token, row.char_to_word, row.word_to_tokens, row.word_to_chars)
            found[f"text {text}, place {place}"] = [ask(place, text) for ask in inner]
    return found


def same(expected: Any, found: Any) -> bool:
    """Return whether two results are equal, or both are errors, of one meaning."""
    if isinstance(expected, BaseException):
        kinds = {type(error).__name__ for error in (expected, found)}
        # The library encodes rows in parallel, and whichever fails first gives the error.
        typed = isinstance(found, EncoderEngineError) or len(kinds) == 1 or kinds <= LIBRARY_ERRORS
        return isinstance(found, BaseException) and typed
    return not isinstance(found, BaseException) and bool(expected == found)


def is_documented(call: Call, expected: Any, found: Any) -> bool:
    """Return whether docs/tokenizers.md lists a difference of a Tokenizer from transformers.

    Segments of overflow rows; names of unknown tokens, and of those that include white space.
    """
    if isinstance(expected, BaseException):
        return "stride" in str(expected)
    if isinstance(found, InputError):
        refused = ("needs pairs", "overflow rows", "no tensor holds")
        return any(words in str(found) for words in refused)
    fields = {name for name in expected[1] if expected[1][name] != found[1].get(name)}
    rows = zip(expected[3], found[3], strict=True)
    differing = {name for theirs, ours in rows for name in theirs if theirs[name] != ours[name]}
    overflow = call[1].get("return_overflowing_tokens", False)
    return fields <= ({"token_type_ids"} if overflow else set()) and differing <= {"tokens"}


def write_tokenizer(kind: str, folder: Path) -> Path:
    """Write the directory of a small tokenizer: "bpe", of bytes, or "unigram"."""
    special: list[dict[str, Any]]
    special = [{"id": place, "content": name, **FLAGS} for place, name in enumerate(ROLES.values())]
    special[-1] |= {"lstrip": True, "normalized": kind == "bpe"}
    if kind == "bpe":
        merges = [(left, right) for left, right in map(str.split, MERGES.split(", "))]
        path = make(folder, merges, more=tuple(ROLES.values()))
    else:
        path = folder / "tokenizer.json"
        letters = [[letter, -9.0] for letter in "▁abcdefghijklmnopqrstuvwxyzH,'?"]
        words = [["▁the", -3.0], ["▁a", -3.5], ["er", -4.0], ["▁wor", -5.0], ["ll", -5.0]]
        vocab = [*([name, 0.0] for name in ROLES.values()), *letters, *words]
        path.write_text(json.dumps(UNIGRAM | {"model": {**UNIGRAM["model"], "vocab": vocab}}))
    top = json.loads(path.read_text())
    ids = {
        name: top["model"]["vocab"][name] if kind == "bpe" else place
        for place, name in enumerate(ROLES.values())
    }
    top["added_tokens"] = [token | {"id": ids[token["content"]]} for token in special]
    top["post_processor"] = {
        "type": "RobertaProcessing",
        "sep": ["</s>", ids["</s>"]],
        "cls": ["<s>", ids["<s>"]],
        "trim_offsets": True,
        "add_prefix_space": False,
    }
    path.write_text(json.dumps(top), encoding="utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 20}
    config |= {f"{role}_token": name for role, name in ROLES.items()}
    config |= {"padding_side": "left"} if kind == "bpe" else {"truncation_side": "left"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
