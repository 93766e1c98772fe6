"""The public names are the contract: all there, sorted, and documented."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import TYPE_CHECKING

import pytest

import encoder_engine as ee
from encoder_engine import errors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# What code outside the repository may rely on.
CONTRACT = {
    "encoder_engine": ["EmbedBatch", "Embedder", "Encoder", "PackedBatch", "Tokenizer", "ops"],
    "encoder_engine.ops": [
        "attention",
        "bias_gelu",
        "embedding",
        "explain",
        "layer_norm",
        "masked_cross_entropy",
        "use",
    ],
}
TOKENIZER = "encode encode_batch decode token_to_id id_to_token vocab_size save from_pretrained"
ENCODING = (
    "ids cu_seqlens type_ids tolist offsets word_ids special_tokens_mask overflow_to_sample "
    "to_padded to_packed"
)


@pytest.mark.parametrize(("module", "names"), CONTRACT.items())
def test_the_contract_is_kept(module: str, names: list[str]) -> None:
    found = importlib.import_module(module)
    assert set(names) <= set(found.__all__)


def test_tokenizer_and_encoding_have_their_public_members(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n")
    tokenizer = ee.Tokenizer.from_pretrained(tmp_path / "vocab.txt", lowercase=True)
    encoding = tokenizer.encode_batch(["word"], return_offsets=True)
    assert [name for name in TOKENIZER.split() if not hasattr(tokenizer, name)] == []
    assert [name for name in ENCODING.split() if not hasattr(encoding, name)] == []


def test_signatures_of_the_contract() -> None:
    encode = list(inspect.signature(ee.Embedder.encode).parameters)[1:]
    assert encode[:9] == [
        "texts",
        "prompt",
        "prompt_name",
        "normalize_embeddings",
        "truncate_dim",
        "precision",
        "batch_tokens",
        "show_progress_bar",
        "output",
    ]
    batch = list(inspect.signature(ee.Tokenizer.encode_batch).parameters)[1:]
    assert batch[:8] == [
        "texts",
        "pairs",
        "add_special_tokens",
        "max_length",
        "truncation",
        "stride",
        "return_offsets",
        "num_threads",
    ]
    for loader in (ee.Encoder.from_pretrained, ee.Embedder.from_pretrained):
        names = list(inspect.signature(loader).parameters)
        assert names[:4] == ["path_or_hub_id", "device", "dtype", "quantization"]


def test_the_contract_can_be_called_by_position() -> None:
    calls: list[tuple[Callable[..., object], tuple[object, ...]]] = [
        (ee.Tokenizer.from_pretrained, ("path",)),
        (ee.Tokenizer.encode_batch, ("self", [], None, True, None, "longest_first", 0, False, 1)),
        (ee.Tokenizer.decode, ("self", [], True)),
        (ee.Encoding.to_padded, ("self", None, "right", None)),
        (ee.Encoding.to_packed, ("self", "cpu")),
        (ee.Encoder.from_pretrained, ("path", "cpu", "float32", None)),
        (ee.Encoder.forward, ("self", "batch", False, False)),
        (ee.Embedder.from_pretrained, ("path", "cpu", "float32", None)),
        (ee.Embedder.encode, ("self", [], None, None, None, None, "float32", None, False, "numpy")),
    ]
    for function, arguments in calls:
        inspect.signature(function).bind(*arguments)


def modules() -> list[str]:
    walked = pkgutil.walk_packages(ee.__path__, "encoder_engine.")
    return [info.name for info in walked if not info.name.endswith(("__main__", "_native"))]


@pytest.mark.parametrize("name", ["encoder_engine", *modules()])
def test_modules_say_what_they_are_for_and_list_sorted_names_that_exist(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except errors.MissingDependencyError as error:
        pytest.skip(str(error))
    assert module.__doc__, f"{name} has no docstring"
    listed = getattr(module, "__all__", [])
    assert all(hasattr(module, exported) for exported in listed)
    if module.__file__ and module.__file__.endswith("__init__.py"):
        by_ruff = sorted(listed, key=lambda n: (not n.isupper(), not n[:1].isupper(), n))
        assert listed == by_ruff, f"{name}.__all__ is not sorted"
    for exported in listed:
        value = getattr(module, exported)
        if inspect.isfunction(value) or inspect.isclass(value):
            assert inspect.getdoc(value), f"{name}.{exported} has no docstring"


def test_the_error_tree_in_the_docstring_is_the_tree() -> None:
    assert errors.__doc__
    for name in errors.__all__:
        error = getattr(errors, name)
        assert issubclass(error, (errors.EncoderEngineError, errors.EncoderEngineWarning))
        assert name in errors.__doc__, f"{name} is not drawn in the tree"
    classes = {n for n, v in vars(errors).items() if inspect.isclass(v) and not n.startswith("_")}
    assert classes == set(errors.__all__)
