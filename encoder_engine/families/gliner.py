"""The settings of a GLiNER model (Zaratiana et al. 2024), and the encoder within its files.

The library gliner saves one weights file, where the encoder's tensor names have a prefix, and
gliner_config.json, which contains the encoder's config.json under ``encoder_config``.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.json_values import read_value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from encoder_engine.json_values import JsonValue

__all__ = ["SETTINGS", "GlinerSettings", "encoder_config", "is_gliner", "split_encoder"]

Tensor = TypeVar("Tensor")
SETTINGS = "gliner_config.json"
_ENCODER = re.compile(r"(?:model\.)?token_rep_layer\.bert_layer\.model\.")
# By setting: its supported values, and what a model with any other value is, for messages.
_PLAIN: dict[str, tuple[tuple[Any, ...], str]] = {
    "labels_encoder": ((None,), "a bi-encoder"),
    "labels_decoder": ((None,), "a model that generates labels"),
    "decoder_config": ((None,), "a streaming decoder"),
    "relations_layer": ((None,), "a model of relations"),
    "span_mode": (("markerV0",), "a model of other spans than markerV0's"),
    "span_encoder_config": ((None,), "a model with an encoder of spans"),
    "post_fusion_schema": ((None, ""), "a model that fuses words and labels by attention"),
    "fuse_layers": ((None, False), "a model that mixes the encoder's layers"),
    "precomputed_prompts_mode": ((None, False), "a model with labels of its own"),
    "words_splitter_type": ((None, "whitespace"), "a model with a word splitter of its own"),
}
_POOLINGS = ("first", "last", "mean", "max")


@dataclass(frozen=True, kw_only=True)
class GlinerSettings:
    """The settings of the layers after the encoder, from gliner_config.json.

    width: the features of words, labels and spans.
    max_width: the most words of a span. max_words: the most words of a text computed at once.
    pooling: how a word's tokens make its vector: first, last, mean or max.
    num_layers: the layers of the LSTM over words; 0: no LSTM.
    label_token, end_token: the tokens before each label, and after the last.
    reads_marker: a label is represented by the hidden state of its marker token; False: of the
    label's own first token.
    """

    width: int
    max_width: int
    max_words: int
    pooling: str
    num_layers: int
    label_token: str
    end_token: str
    reads_marker: bool

    @classmethod
    def read(cls, directory: Path) -> GlinerSettings:
        """Read the settings from the gliner_config.json of a directory.

        Raises :class:`ConfigError` for a malformed file, and :class:`UnsupportedFeatureError` for a
        variant that is not supported.
        """
        config = _read(directory)
        for name, (plain, what) in _PLAIN.items():
            value = config.get(name)
            if name in config.object() and value.value not in plain:
                raise UnsupportedFeatureError(
                    f"{value.where} is {value.value!r}: it is {what}, and span models with one "
                    "encoder are computed here; the library gliner loads it"
                )
        text = partial(_text, config)
        pooling = text("subtoken_pooling", "first")
        if pooling not in _POOLINGS:
            raise config.get("subtoken_pooling").must_be(f"one of {', '.join(_POOLINGS)}")
        return cls(
            width=config.get("hidden_size").positive(512),
            max_width=config.get("max_width").positive(12),
            max_words=config.get("max_len").positive(384),
            pooling=pooling,
            num_layers=config.get("num_rnn_layers").integer(default=1, least=0),
            label_token=text("ent_token", "<<ENT>>"),
            end_token=text("sep_token", "<<SEP>>"),
            reads_marker=config.get("embed_ent_token").boolean(True),
        )


def is_gliner(directory: Path) -> bool:
    """Return whether a directory was saved by the gliner library."""
    return (directory / SETTINGS).is_file() and not (directory / "config.json").is_file()


def encoder_config(directory: Path) -> dict[str, Any]:
    """Return the encoder's config.json from gliner_config.json, or raise :class:`ConfigError`."""
    config = _read(directory)
    found = config.get("encoder_config")
    if found.is_null:
        raise ConfigError(
            f"{found.where} is missing, so the encoder is only named by model_name; gliner writes "
            "it: GLiNER.from_pretrained(...).save_pretrained(folder)"
        )
    encoder = dict(found.object())
    # The vocabulary with the tokens that mark labels; -1 where it is the encoder's own.
    size = config.get("vocab_size").integer(-1, least=None)
    return encoder | {"vocab_size": size} if size > 0 else encoder


def split_encoder(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the encoder's tensors, names without the prefix, and all other tensors."""
    encoder, others = {}, {}
    for name, tensor in tensors.items():
        bare = _ENCODER.sub("", name, count=1)
        if bare != name:
            encoder[bare] = tensor
        else:
            others[name.removeprefix("model.")] = tensor
    return encoder, others


def _text(config: JsonValue, name: str, default: str) -> str:
    value = config.get(name)
    return default if value.is_null else value.string()


def _read(directory: Path) -> JsonValue:
    return read_value(directory / SETTINGS, ConfigError)
