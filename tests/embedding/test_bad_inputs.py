"""What ``encode`` is given by mistake: each a typed error that names the row and the mend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pytest
import torch

from encoder_engine.errors import ConfigError, EncoderEngineError, InputError, TextError
from encoder_engine.kinds.windows import WINDOW_TEXTS

if TYPE_CHECKING:
    from encoder_engine.embedding import Embedder


class _Frame(list[str]):
    """A list of column names, as a data frame of pandas is to those who iterate it."""

    ndim = 2


# The texts, the error, its row, and a word of its message.
BAD_TEXTS: dict[str, tuple[Any, type[EncoderEngineError], int | None, str]] = {
    "a set": ({"a", "b"}, InputError, None, "row order"),
    "a frozenset": (frozenset("ab"), InputError, None, "row order"),
    "a dict": ({"a": "b"}, InputError, None, "list(texts.values())"),
    "None": (None, TextError, None, "None"),
    "a number": (3, TextError, None, "int"),
    "bytes": (b"text", TextError, None, "decode"),
    "a module": (np, TextError, None, "module"),
    "None within": (["a", None], TextError, 1, "drop the row"),
    "bytes within": (["a", "b", b"c"], TextError, 2, "decode"),
    "NaN within": (["a", float("nan")], TextError, 1, "NaN"),
    "a number within": ([1.5], TextError, 0, "float"),
    "a list within": (["a", ["b", "c"]], TextError, 1, "one by one"),
    "a pair within": ([("a", "b")], TextError, 0, "one by one"),
    "a dict within": ([{"text": "a"}], TextError, 0, "dict"),
    "a bool within": ([True], TextError, 0, "bool"),
    "None late in a generator": (
        (None if i == WINDOW_TEXTS + 5 else "a" for i in range(WINDOW_TEXTS + 9)),
        TextError,
        WINDOW_TEXTS + 5,
        f"text {WINDOW_TEXTS + 5}",
    ),
    "numbers in an array": (np.arange(3), TextError, None, "int64"),
    "bytes in an array": (np.array([b"a"]), TextError, None, "decode"),
    "two axes of texts": (np.array([["a", "b"]]), InputError, None, "ravel"),
    "a data frame": (_Frame(["text", "id"]), InputError, None, "one column"),
    "objects that are no texts in an array": (
        np.array(["a", None], dtype=object),
        TextError,
        1,
        "None",
    ),
    "numbers of Arrow": (pyarrow.array([1]), TextError, 0, "int"),
    "a missing text of Arrow": (pyarrow.array(["a", None]), TextError, 1, "drop the row"),
    "a table of Arrow": (pyarrow.table({"text": ["a"]}), TextError, 0, "dict"),
    "a tensor": (torch.zeros(3), TextError, 0, "Tensor"),
    "a lone surrogate": (["a", "b\ud83d"], TextError, 1, "U+D83D at character 1"),
    "a lone surrogate, late": (
        ["a"] * WINDOW_TEXTS + ["\udc00"],
        TextError,
        WINDOW_TEXTS,
        f"text {WINDOW_TEXTS}",
    ),
    "a lone surrogate alone": ("\ud800", TextError, 0, "surrogate"),
}

BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "a width beyond the model's": ({"truncate_dim": 17}, "1..16"),
    "no width": ({"truncate_dim": 0}, "truncate_dim"),
    "a negative width": ({"truncate_dim": -1}, "truncate_dim"),
    "half a width": ({"truncate_dim": 2.5}, "truncate_dim"),
    "no budget": ({"batch_tokens": 0}, "batch_tokens"),
    "a budget that is no number": ({"batch_tokens": "many"}, "batch_tokens"),
    "an unknown precision": ({"precision": "float8"}, "ubinary"),
    "int8 without ranges": ({"precision": "int8"}, "ranges"),
    "uint8 without ranges": ({"precision": "uint8"}, "ranges"),
    "an unknown output": ({"output": "list"}, "torch"),
    "an unknown prompt": ({"prompt_name": "web"}, "query, document"),
    "a list of prompts": ({"prompt_name": ["query"]}, "prompt_name must be a str"),
    "a word for no": ({"normalize_embeddings": "no"}, "normalize_embeddings must be a bool"),
    "a number of texts": ({"normalize_embeddings": 1}, "normalize_embeddings must be a bool"),
    "two prompts": ({"prompt": "a", "prompt_name": "query"}, "not both"),
    "a prompt that is no text": ({"prompt": 3}, "str"),
    "a prompt that is no character": ({"prompt": "\ud800"}, "surrogate"),
    "an unknown policy": ({"on_truncation": "panic"}, "ignore"),
}


@pytest.mark.parametrize("case", BAD_TEXTS)
def test_texts_given_by_mistake_are_refused_by_row(tiny: Embedder, case: str) -> None:
    texts, error, row, word = BAD_TEXTS[case]
    with pytest.raises(error) as caught:
        tiny.encode(texts)
    assert type(caught.value) is error
    assert isinstance(caught.value, InputError)
    assert caught.value.row == row
    assert word in str(caught.value)


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_options_given_by_mistake_are_refused(tiny: Embedder, case: str) -> None:
    options, word = BAD_OPTIONS[case]
    with pytest.raises(InputError) as caught:
        tiny.encode(["a"], **options)
    assert word in str(caught.value)


def test_a_bad_row_of_a_callers_generator_stays_the_callers_error(tiny: Embedder) -> None:
    def texts() -> Any:
        yield "a"
        raise KeyError("column")

    with pytest.raises(KeyError, match="column"):
        tiny.encode(texts())


@pytest.mark.parametrize(
    ("options", "error"),
    [({"dtype": "int8"}, ConfigError), ({"quantization": "int3"}, EncoderEngineError)],
)
def test_a_number_format_nobody_computes_is_refused(
    tiny_directory: Any, options: dict[str, Any], error: type[Exception]
) -> None:
    from encoder_engine.embedding import Embedder

    with pytest.raises(error):
        Embedder.from_pretrained(tiny_directory, **options)
