"""Reading model directories: both dialects of sentence-transformers, and what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.embedding import Embedder, encoder_directory, read_recipe
from encoder_engine.errors import ConfigError, EncoderEngineError, UnsupportedFeatureError
from tests.embedding.tiny_model import WIDTH, write_json, write_sentence_directory
from tests.vectors.drawn import assert_vectors_agree, load_sentence_transformer

if TYPE_CHECKING:
    from pathlib import Path

OLD = "sentence_transformers.models."
ALL_LEGACY_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
VERSION_6_TRANSFORMER = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}


def modules(*kinds: str, **first: object) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = [
        {"idx": i, "name": str(i), "path": f"{i}_{k}" if i else "", "type": OLD + k}
        for i, k in enumerate(kinds)
    ]
    entries[0].update(first)
    return entries


@pytest.mark.parametrize(("flag", "mode"), ALL_LEGACY_FLAGS.items())
def test_each_flag_of_the_older_dialect_is_a_mode(tmp_path: Path, flag: str, mode: str) -> None:
    flags = dict.fromkeys(ALL_LEGACY_FLAGS, False) | {flag: True}
    write_sentence_directory(tmp_path, pooling={"word_embedding_dimension": WIDTH, **flags})
    assert read_recipe(tmp_path).pooling == (mode,)


def test_flags_of_the_older_dialect_keep_the_order_of_concatenation(tmp_path: Path) -> None:
    flags = dict.fromkeys(reversed(ALL_LEGACY_FLAGS), True)
    write_sentence_directory(tmp_path, pooling={"word_embedding_dimension": WIDTH, **flags})
    assert read_recipe(tmp_path).pooling == tuple(ALL_LEGACY_FLAGS.values())


@pytest.mark.parametrize("mode", ["mean", ["lasttoken", "cls"]])
def test_the_newer_dialect_names_its_modes_in_order(tmp_path: Path, mode: Any) -> None:
    pooling = {"embedding_dimension": WIDTH, "pooling_mode": mode, "include_prompt": False}
    write_sentence_directory(tmp_path, pooling=pooling, transformer=VERSION_6_TRANSFORMER)
    recipe = read_recipe(tmp_path)
    assert recipe.pooling == ((mode,) if isinstance(mode, str) else tuple(mode))
    assert not recipe.include_prompt
    # Version 6 keeps the limit with the tokenizer.
    assert recipe.max_seq_length == 24


def test_a_directory_without_normalize_leaves_vectors_as_pooled(tmp_path: Path) -> None:
    write_sentence_directory(tmp_path, normalized=False)
    assert not read_recipe(tmp_path).normalized


def test_the_limit_is_the_least_of_directory_and_model(tmp_path: Path) -> None:
    write_sentence_directory(tmp_path, transformer={"max_seq_length": 512})
    assert Embedder.from_pretrained(tmp_path).max_seq_length == 32


def test_a_limit_without_room_may_be_replaced(tmp_path: Path) -> None:
    write_sentence_directory(tmp_path, transformer={"max_seq_length": 1})
    assert Embedder.from_pretrained(tmp_path, max_seq_length=3).max_seq_length == 3


def test_settings_of_the_model_are_read(tmp_path: Path) -> None:
    settings = {
        "__version__": {"sentence_transformers": "6.2.0"},
        "model_type": "SentenceTransformer",
        "prompts": {"query": "Q: ", "document": None},
        "default_prompt_name": "query",
        "similarity_fn_name": "dot",
        "truncate_dim": 4,
    }
    recipe = read_recipe(write_sentence_directory(tmp_path, settings=settings))
    assert recipe.prompts == {"query": "Q: ", "document": ""}
    assert recipe.default_prompt_name == "query"
    assert recipe.similarity == "dot"
    assert Embedder.from_pretrained(tmp_path).encode("a").shape == (4,)


def test_a_directory_without_modules_has_no_settings(tmp_path: Path) -> None:
    settings = {"prompts": {"query": "Q: "}, "model_type": "CrossEncoder"}
    write_sentence_directory(tmp_path, settings=settings, transformer={"unknown": 1})
    (tmp_path / "modules.json").unlink()
    recipe = read_recipe(tmp_path)
    assert (recipe.default_pooling, recipe.pooling, recipe.normalized) == (True, ("mean",), False)
    assert recipe.prompts == {"query": "", "document": ""}


def test_an_encoder_in_a_folder_of_its_own_is_found(tmp_path: Path) -> None:
    write_sentence_directory(tmp_path)
    inner = tmp_path / "0_Transformer"
    inner.mkdir()
    for path in list(tmp_path.iterdir()):
        if path.is_file() and path.name != "modules.json":
            path.rename(inner / path.name)
    write_json(tmp_path / "modules.json", modules("Transformer", "Pooling", path="0_Transformer"))
    assert read_recipe(tmp_path).encoder_directory == inner
    assert encoder_directory(tmp_path) == inner
    assert Embedder.from_pretrained(tmp_path).encode("a").shape == (WIDTH,)


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [True, False])
def test_lower_casing_is_done_as_sentence_transformers_does_it(
    tmp_path: Path, *, lowercase: bool
) -> None:
    write_sentence_directory(tmp_path, transformer={"do_lower_case": lowercase})
    write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": False})
    embedder = Embedder.from_pretrained(tmp_path)
    texts = ["The TEXT", "a [SEP] Row", "\N{LATIN CAPITAL LETTER E WITH ACUTE} row", "\u0130 the"]
    eager, truth = (
        load_sentence_transformer(tmp_path, dtype).encode(texts)
        for dtype in (torch.float32, torch.float64)
    )
    assert_vectors_agree(embedder.encode(texts), eager, truth, terms=3 * WIDTH)
    same = np.array_equal(embedder.encode("The TEXT"), embedder.encode("the text"))
    assert same is lowercase


# What is written over a good directory, the error it gives, and a word of its message.
BAD_DIRECTORIES: dict[str, tuple[dict[str, Any], type[EncoderEngineError], str]] = {
    "a convolution follows": (
        {"modules.json": modules("Transformer", "Pooling", "CNN")},
        UnsupportedFeatureError,
        "CNN",
    ),
    "word embeddings instead of an encoder": (
        {"modules.json": modules("WordEmbeddings", "Pooling")},
        UnsupportedFeatureError,
        "WordEmbeddings",
    ),
    "an LSTM between": (
        {"modules.json": modules("Transformer", "LSTM", "Pooling")},
        UnsupportedFeatureError,
        "LSTM",
    ),
    "a sparse model": (
        {
            "modules.json": modules(
                "Transformer", type="sentence_transformers.sparse_encoder.models.MLMTransformer"
            )
        },
        UnsupportedFeatureError,
        "MLMTransformer",
    ),
    "code of the model's own": (
        {"modules.json": modules("Transformer", "Pooling", type="custom_st.Transformer")},
        UnsupportedFeatureError,
        "custom_st.Transformer",
    ),
    "no pooling": ({"modules.json": modules("Transformer")}, UnsupportedFeatureError, "Pooling"),
    "normalize before pooling": (
        {"modules.json": modules("Transformer", "Normalize", "Pooling")},
        UnsupportedFeatureError,
        "in this order",
    ),
    "no modules": ({"modules.json": []}, UnsupportedFeatureError, "nothing"),
    "modules that are no list": ({"modules.json": {"0": "x"}}, ConfigError, "list"),
    "a module without a type": ({"modules.json": [{"path": ""}]}, ConfigError, "type"),
    "a module with arguments": (
        {"modules.json": modules("Transformer", "Pooling", kwargs=["task"])},
        UnsupportedFeatureError,
        "task",
    ),
    "a module outside the directory": (
        {"modules.json": modules("Transformer", "Pooling", path="../other")},
        ConfigError,
        "leads out",
    ),
    "a module path that is no text": (
        {"modules.json": modules("Transformer", "Pooling", path=None)},
        ConfigError,
        "path must be a string",
    ),
    "a module path with a lone surrogate": (
        {"modules.json": modules("Transformer", "Pooling", path="\ud800")},
        ConfigError,
        "path must be a string without lone surrogates",
    ),
    "a module path with a null": (
        {"modules.json": modules("Transformer", "Pooling", path="\0")},
        ConfigError,
        "not a path",
    ),
    "a module path of a thousand characters": (
        {"modules.json": modules("Transformer", "Pooling", path="a" * 1000)},
        ConfigError,
        "not a path",
    ),
    "a limit of the tokenizer that is no number": (
        {"sentence_bert_config.json": {}, "tokenizer_config.json": {"model_max_length": "16"}},
        ConfigError,
        "model_max_length",
    ),
    "a limit of the tokenizer that is NaN": (
        {
            "sentence_bert_config.json": {},
            "tokenizer_config.json": {"model_max_length": float("nan")},
        },
        ConfigError,
        "model_max_length",
    ),
    "a limit of the tokenizer that is below all": (
        {
            "sentence_bert_config.json": {},
            "tokenizer_config.json": {"model_max_length": float("-inf")},
        },
        ConfigError,
        "model_max_length",
    ),
    "arguments that are no object": (
        {"sentence_bert_config.json": {"model_args": 3}},
        ConfigError,
        "model_args",
    ),
    "a modality that is no object": (
        {"sentence_bert_config.json": {"modality_config": ["text"]}},
        ConfigError,
        "modality_config",
    ),
    "a module folder that is missing": (
        {"modules.json": modules("Transformer", "Pooling")[:1] + modules("a", "b", "Pooling")[2:]},
        ConfigError,
        "missing",
    ),
    "broken JSON": ({"modules.json": "[{"}, ConfigError, "line 1"),
    "JSON that is not UTF-8": ({"modules.json": b"\xff\xfe["}, ConfigError, "UTF-8"),
    "a pooling of another width": (
        {"1_Pooling/config.json": {"embedding_dimension": 768, "pooling_mode": "mean"}},
        ConfigError,
        "768",
    ),
    "a pooling of no width": (
        {"1_Pooling/config.json": {"pooling_mode": "mean"}},
        ConfigError,
        "embedding_dimension",
    ),
    "a pooling of two widths": (
        {
            "1_Pooling/config.json": {
                "embedding_dimension": WIDTH,
                "word_embedding_dimension": 8,
                "pooling_mode": "mean",
            }
        },
        ConfigError,
        "one embedding_dimension",
    ),
    "a pooling width that is no number": (
        {"1_Pooling/config.json": {"embedding_dimension": "16", "pooling_mode": "mean"}},
        ConfigError,
        "embedding_dimension must be an integer of at least 1",
    ),
    "an unknown pooling mode": (
        {"1_Pooling/config.json": {"embedding_dimension": WIDTH, "pooling_mode": "median"}},
        ConfigError,
        "median",
    ),
    "no pooling mode switched on": (
        {"1_Pooling/config.json": {"word_embedding_dimension": WIDTH}},
        ConfigError,
        "no pooling mode",
    ),
    "two dialects that disagree": (
        {
            "1_Pooling/config.json": {
                "embedding_dimension": WIDTH,
                "pooling_mode": "mean",
                "pooling_mode_cls_token": True,
            }
        },
        ConfigError,
        "flags say",
    ),
    "a flag that is no truth value": (
        {
            "1_Pooling/config.json": {
                "word_embedding_dimension": WIDTH,
                "pooling_mode_cls_token": "yes",
            }
        },
        ConfigError,
        "true or false",
    ),
    "a misspelt pooling key": (
        {
            "1_Pooling/config.json": {
                "embedding_dimension": WIDTH,
                "pooling_mode": "mean",
                "include_promt": False,
            }
        },
        UnsupportedFeatureError,
        "did you mean 'include_prompt'",
    ),
    "an unknown transformer key": (
        {"sentence_bert_config.json": {"max_seq_len": 128}},
        UnsupportedFeatureError,
        "did you mean 'max_seq_length'",
    ),
    "a limit that is no number": (
        {"sentence_bert_config.json": {"max_seq_length": -1}},
        ConfigError,
        "max_seq_length",
    ),
    "a limit without room for a token": (
        {"sentence_bert_config.json": {"max_seq_length": 2}},
        ConfigError,
        "at least 3",
    ),
    "a limit of the tokenizer without room for a token": (
        {"sentence_bert_config.json": {}, "tokenizer_config.json": {"model_max_length": 1}},
        ConfigError,
        "at least 3",
    ),
    "another task": (
        {"sentence_bert_config.json": {"transformer_task": "fill-mask"}},
        UnsupportedFeatureError,
        "fill-mask",
    ),
    "text fed elsewhere": (
        {
            "sentence_bert_config.json": {
                "modality_config": {
                    "text": {"method": "get_text_features", "method_output_name": "pooler_output"}
                }
            }
        },
        UnsupportedFeatureError,
        "get_text_features",
    ),
    "its own processing": (
        {"sentence_bert_config.json": {"processing_kwargs": {"text": {"max_length": 8}}}},
        UnsupportedFeatureError,
        "processing_kwargs",
    ),
    "arguments for the tokenizer": (
        {"sentence_bert_config.json": {"tokenizer_args": {"padding_side": "left"}}},
        UnsupportedFeatureError,
        "padding_side",
    ),
    "normalize of something else": (
        {"2_Normalize/config.json": {"module_input_name": "token_embeddings"}},
        UnsupportedFeatureError,
        "token_embeddings",
    ),
    "a cross-encoder": (
        {"config_sentence_transformers.json": {"model_type": "CrossEncoder"}},
        UnsupportedFeatureError,
        "CrossEncoder",
    ),
    "an unknown setting": (
        {"config_sentence_transformers.json": {"prompt": {}}},
        UnsupportedFeatureError,
        "prompts",
    ),
    "prompts that are no object": (
        {"config_sentence_transformers.json": {"prompts": ["query: "]}},
        ConfigError,
        "prompts",
    ),
    "a prompt that is no text": (
        {"config_sentence_transformers.json": {"prompts": {"query": 3}}},
        ConfigError,
        "query",
    ),
    "a default prompt nobody wrote": (
        {"config_sentence_transformers.json": {"default_prompt_name": "web"}},
        ConfigError,
        "web",
    ),
    "a default prompt that is a list": (
        {"config_sentence_transformers.json": {"default_prompt_name": []}},
        ConfigError,
        "default_prompt_name",
    ),
    "a prompt that is no character": (
        {"config_sentence_transformers.json": {"prompts": {"query": "\ud800"}}},
        ConfigError,
        "surrogate",
    ),
    "a similarity that is no name": (
        {"config_sentence_transformers.json": {"similarity_fn_name": ["cosine"]}},
        ConfigError,
        "similarity_fn_name",
    ),
    "settings that are a list": (
        {"config_sentence_transformers.json": []},
        ConfigError,
        "must be an object",
    ),
    "a vocabulary larger than the model's": (
        {"vocab.txt": "".join(f"t{i}\n" for i in range(400)) + "[UNK]\n[CLS]\n[SEP]\n[PAD]\n"},
        ConfigError,
        "different models",
    ),
}


@pytest.mark.parametrize("case", BAD_DIRECTORIES)
def test_a_directory_that_does_not_add_up_is_refused_by_name(tmp_path: Path, case: str) -> None:
    files, error, word = BAD_DIRECTORIES[case]
    write_sentence_directory(tmp_path)
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    with pytest.raises(error) as caught:
        Embedder.from_pretrained(tmp_path)
    assert type(caught.value) is error
    assert word in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [modules("Transformer", path="../other"), modules("a", path="/etc"), modules("a", path=3), []],
)
def test_the_encoders_folder_lies_in_the_directory(tmp_path: Path, content: Any) -> None:
    write_json(tmp_path / "modules.json", content)
    with pytest.raises(ConfigError, match=r"modules\.json"):
        encoder_directory(tmp_path)


@pytest.mark.parametrize("pooling", ["middle", [], ["mean", "middle"], 3])
def test_a_pooling_argument_that_makes_no_sense_is_refused(tmp_path: Path, pooling: Any) -> None:
    with pytest.raises(ConfigError, match="pooling"):
        read_recipe(tmp_path, pooling)
