"""Calls of a Tokenizer, and of an accelerated tokenizer, give what transformers gives."""

from __future__ import annotations

import copy
import pickle
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import AddedToken, normalizers, processors
from transformers.tokenization_utils_tokenizers import TokenizersBackend

from encoder_engine.errors import EncoderEngineWarning, InputError, UnsupportedFeatureError
from encoder_engine.integrations.transformers import accelerate, restore
from encoder_engine.text import Tokenizer
from tests.text.parity.drawn_calls import (
    TEXTS,
    draw_calls,
    is_documented,
    result_of,
    same,
    write_tokenizer,
)

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ("wordpiece", "bpe", "unigram")
NUM_CALLS = 150
MORE_SEEDS = [pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 16)]
pytestmark = pytest.mark.filterwarnings("ignore:.max_length. is ignored:UserWarning")


@pytest.fixture(scope="module", params=KINDS)
def folder(
    request: pytest.FixtureRequest, minilm: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Give the directory of a tokenizer of each native model."""
    if request.param == "wordpiece":
        return minilm
    return write_tokenizer(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture
def plain(folder: Path) -> Any:
    """Load transformers' tokenizer."""
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def fast(plain: Any) -> Any:
    """Accelerate a copy of it."""
    return accelerate(copy.deepcopy(plain))


@pytest.mark.parametrize("seed", [0, *MORE_SEEDS])
@pytest.mark.filterwarnings("ignore:max_length changes nothing")
def test_drawn_calls_give_what_transformers_gives(
    plain: Any, fast: Any, folder: Path, seed: int
) -> None:
    own = Tokenizer.from_pretrained(folder)
    rng = random.Random(seed)
    for call in draw_calls(rng, NUM_CALLS):
        plain.truncation_side = fast.truncation_side = rng.choice(("left", "right"))
        expected = result_of(plain, call)
        assert same(expected, found := result_of(fast, call)), (call, expected, found)
        texts, settings = call
        settings = settings | {"truncation_side": plain.truncation_side}
        found = result_of(own, (texts, settings))
        assert same(expected, found) or is_documented(call, expected, found), (
            call,
            expected,
            found,
        )


def test_accelerated_calls_do_without_transformers(
    plain: Any, fast: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = plain(list(TEXTS), padding=True, return_tensors="np").input_ids

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("transformers encodes")

    monkeypatch.setattr(TokenizersBackend, "_encode_plus", refuse)
    monkeypatch.setattr(TokenizersBackend, "_pad", refuse)
    found = fast(list(TEXTS), padding=True, return_tensors="np")
    np.testing.assert_array_equal(found.input_ids, expected)
    assert type(found) is transformers.BatchEncoding
    assert 0 in found.word_ids(0)
    rows = [fast(text) for text in TEXTS]
    np.testing.assert_array_equal(fast.pad(rows, return_tensors="np").input_ids, expected)
    with pytest.raises(AssertionError, match="transformers encodes"):
        restore(fast)(list(TEXTS))


@pytest.mark.parametrize("settings", [{}, {"padding": "max_length", "max_length": 99}])
@pytest.mark.parametrize("tensors", [None, "np", "pt"])
@pytest.mark.parametrize("multiple", [None, 8])
def test_padding_of_rows_is_transformers(
    plain: Any, fast: Any, folder: Path, settings: dict[str, Any], tensors: str, multiple: int
) -> None:
    own = Tokenizer.from_pretrained(folder)
    rows = [dict(plain(text, return_special_tokens_mask=True)) for text in TEXTS]
    for row, values in enumerate(rows):
        values |= {"labels": row, "weight": row / 2}
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    arrays = [{name: np.asarray(values) for name, values in row.items()} for row in rows]
    bare = [{"input_ids": row["input_ids"]} for row in rows]
    for given in (rows, columns, arrays, bare, bare[2]):
        options = settings | {"pad_to_multiple_of": multiple, "return_tensors": tensors}
        expected = plain.pad(copy.deepcopy(given), **options)
        for tokenizer in (fast, own):
            found = tokenizer.pad(given, **options)
            assert list(found) == list(expected)
            for name, values in expected.items():
                assert type(found[name]) is type(values)
                np.testing.assert_array_equal(found[name], values)
                assert getattr(found[name], "dtype", None) == getattr(values, "dtype", None)


def test_collators_and_methods_give_what_they_gave(plain: Any, fast: Any, folder: Path) -> None:
    own = Tokenizer.from_pretrained(folder)
    rows = [plain(text) for text in TEXTS]
    collators: list[Any] = [transformers.DataCollatorWithPadding]
    collators += [transformers.DataCollatorForLanguageModeling]
    for collator in collators:
        torch.manual_seed(0)
        expected = collator(plain)(copy.deepcopy(rows))
        for tokenizer in (fast, own):
            torch.manual_seed(0)
            found = collator(tokenizer)(copy.deepcopy(rows))
            assert all(torch.equal(found[name], expected[name]) for name in expected)
    vocabulary = plain.get_vocab()
    assert own.get_vocab() == vocabulary
    assert len(own) == len(plain) == len(vocabulary)
    assert own.model_input_names == plain.model_input_names
    for text in TEXTS:
        assert fast.encode(text) == plain.encode(text)
        assert fast.tokenize(text) == plain.tokenize(text)
        ids = plain(text)["input_ids"]
        tokens = plain.convert_ids_to_tokens(ids)
        assert own.convert_ids_to_tokens(ids) == tokens
        assert own.convert_tokens_to_ids(tokens) == ids
        assert own.batch_decode([ids], skip_special_tokens=False) == [plain.decode(ids)]
        mask = plain.get_special_tokens_mask(ids, already_has_special_tokens=True)
        assert own.get_special_tokens_mask(ids, already_has_special_tokens=True) == mask
    for pair in (False, True):
        assert own.num_special_tokens_to_add(pair) == plain.num_special_tokens_to_add(pair)
    assert own.convert_tokens_to_ids("no token") == plain.convert_tokens_to_ids("no token")


def test_targets_become_labels(plain: Any, fast: Any, folder: Path) -> None:
    expected = dict(plain(["a", "the"], text_target=["b", "a b"]))
    for tokenizer in (fast, Tokenizer.from_pretrained(folder)):
        assert dict(tokenizer(["a", "the"], text_target=["b", "a b"])) == expected


def change_normalizer(tokenizer: Any) -> None:
    tokenizer._tokenizer.normalizer = normalizers.Lowercase()


def change_template(tokenizer: Any) -> None:
    token = tokenizer.mask_token
    tokenizer._tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{token} $A",
        pair=f"{token} $A $B",
        special_tokens=[(token, tokenizer.mask_token_id)],
    )


def add_flags(tokenizer: Any) -> None:
    tokenizer.add_tokens(AddedToken(tokenizer.unk_token, lstrip=True, rstrip=True))


CHANGES: dict[str, Any] = {
    "an added token": lambda tokenizer: tokenizer.add_tokens(["quick brown"]),
    "another flag": add_flags,
    "a normalizer": change_normalizer,
    "a template": change_template,
    "the padding": lambda tokenizer: setattr(tokenizer, "pad_token", tokenizer.mask_token),
    "the side": lambda tokenizer: setattr(tokenizer, "padding_side", "left"),
    "the limit": lambda tokenizer: setattr(tokenizer, "model_max_length", 7),
    "special tokens as text": lambda tokenizer: setattr(tokenizer, "split_special_tokens", True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_tokenizer_may_change_after_it_was_accelerated(
    plain: Any, fast: Any, change: str
) -> None:
    texts = [*TEXTS, f"The {plain.unk_token} Quick Brown"]
    fast(texts)
    for tokenizer in (plain, fast):
        CHANGES[change](tokenizer)
    settings = {"padding": True, "truncation": True}
    assert dict(fast(texts, **settings)) == dict(plain(texts, **settings))


def test_copies_and_pickles_are_accelerated(plain: Any, fast: Any, tmp_path: Path) -> None:
    expected = dict(plain(list(TEXTS)))
    assert dict(fast(list(TEXTS))) == expected
    for copied in (copy.copy(fast), copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert copied._encode_plus.__self__._tokenizer is copied
        assert dict(copied(list(TEXTS))) == expected
        copied.padding_side = "left"
        assert copied(list(TEXTS), padding=True)["attention_mask"][0][0] == 0
    assert fast.padding_side == plain.padding_side
    with pytest.raises(TypeError, match="pad_to_multiple_off"):
        fast.pad(fast(list(TEXTS)), pad_to_multiple_off=8)
    fast.save_pretrained(tmp_path)
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert "_encode_plus" not in vars(loaded)
    assert vars(restore(fast)).keys() == vars(plain).keys()
    rows = pickle.loads(pickle.dumps(fast(list(TEXTS)))).encodings
    assert [row.tokens for row in rows] == [plain(text).tokens() for text in TEXTS]


def test_what_the_engine_does_not_encode_is_refused(plain: Any) -> None:
    class OfItsOwn(type(plain)):  # type: ignore[misc]
        def _encode_plus(self, *_: Any, **__: Any) -> Any:
            return {}

    plain.__class__ = OfItsOwn
    with pytest.raises(UnsupportedFeatureError, match="_encode_plus of its own"):
        accelerate(plain)
    with pytest.raises(UnsupportedFeatureError, match="takes a model of transformers, got str"):
        accelerate("a tokenizer")
    slow: Any = transformers.CanineTokenizer
    with pytest.raises(UnsupportedFeatureError, match="not a fast tokenizer"):
        accelerate(slow())


def test_a_pipeline_has_both_accelerated(minilm: Path) -> None:
    made: Any = transformers.pipeline("feature-extraction", model=str(minilm), device="cpu")
    expected = made("a text of words", return_tensors=True)
    accelerate(made)
    assert "_encode_plus" in vars(made.tokenizer)
    assert "forward" in vars(made.model)
    found = made("a text of words", return_tensors=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    restore(made)
    assert "_encode_plus" not in vars(made.tokenizer)
    made.tokenizer._tokenizer.normalizer = normalizers.Replace("a", "b")
    made.tokenizer.__class__ = type("Own", (type(made.tokenizer),), {"__call__": lambda *_: {}})
    with pytest.warns(EncoderEngineWarning, match="stays transformers' own"):
        accelerate(made)


@pytest.mark.parametrize(
    ("texts", "settings"),
    [
        ((None,), {}),
        ((3,), {}),
        (([3],), {}),
        (("a\ud800",), {}),
        ((["a"], "c"), {}),
        ((["a", "b"], ["c"]), {}),
        ((["a"],), {"padding": "longst"}),
        ((["a"],), {"truncation": "first", "max_length": 9}),
        ((["a"],), {"padding": True, "padding_side": "up"}),
        ((["a"],), {"return_tensors": "tf"}),
        ((["a"],), {"max_length": 3.5, "truncation": True}),
        ((["a"],), {"max_length": -1, "truncation": True}),
        ((["a"],), {"padding": True, "truncation": True, "max_length": 9, "pad_to_multiple_of": 4}),
        ((["a", "a b c d"],), {"return_tensors": "pt"}),
    ],
)
def test_what_transformers_refuses_is_refused(
    plain: Any, folder: Path, texts: tuple[Any, ...], settings: dict[str, Any]
) -> None:
    with pytest.raises((ValueError, TypeError, OverflowError)):
        plain(*texts, **settings)
    with pytest.raises(InputError):
        Tokenizer.from_pretrained(folder)(*texts, **settings)
