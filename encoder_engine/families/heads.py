"""Reads a head from config.json: its layout, inputs, labels and dropout."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.arrays import dtype_name
from encoder_engine.families.facts.values import config_values
from encoder_engine.families.registry import find_family

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.facts.head_layout import HeadLayout, Rows, Task
    from encoder_engine.families.facts.spec import EncoderSpec

__all__ = [
    "check_ending",
    "check_head",
    "count_labels",
    "count_outputs",
    "find_layout",
    "join_fingerprint",
    "label_function",
    "label_names",
    "read_dropout",
    "read_rows",
]

# The function of each kind of labels, by its name in transformers' configurations.
PROBLEM_TYPES: dict[str, Literal["identity", "sigmoid", "softmax"]] = {
    "regression": "identity",
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
}


def find_layout(model_type: str, task: Task) -> HeadLayout:
    """Return the layout of a family's head for a task.

    Raises :class:`UnsupportedFeatureError`, which lists the family's heads, if none is for the
    task.
    """
    family = find_family(model_type)
    layouts = {layout.task: layout for layout in family.layouts}
    if task not in layouts:
        reason = ""
        if "decoder." in family.heads and task in ("sequence-classification", "question-answering"):
            reason = (
                ": its models for that end in a decoder, which is not loaded; take those of an "
                "encoder, such as DeBERTa or ModernBERT"
            )
        raise UnsupportedFeatureError(
            f"{model_type} has no head for {task}{reason}; it has {', '.join(layouts) or 'none'}"
        )
    return layouts[task]


def check_head(layout: HeadLayout, config: Mapping[str, Any]) -> None:
    """Raise :class:`UnsupportedFeatureError` if config.json asks a head for another computation.

    Raises :class:`ConfigError` for an unknown ``problem_type`` of sequence classification.
    """
    if layout.task == "sequence-classification":
        label_function(config)
    for key, allowed in layout.required.items():
        if key in config and config[key] not in allowed:
            raise UnsupportedFeatureError(
                f"{key}={config[key]!r} is not supported for {layout.architecture}; "
                f"supported: {', '.join(map(repr, allowed))}"
            )


def check_ending(config: Mapping[str, Any], added: list[int]) -> None:
    """Raise :class:`UnsupportedFeatureError` where a head would read a padding token.

    A decoder's head reads a text's last token; in transformers, the last token that is not padding.
    The two differ if the tokenizer ends texts with the padding token, as Qwen3-Embedding's does.

    added: the token ids of an empty text, that is, the special tokens.
    """
    family, padding = find_family(config.get("model_type", "")), config.get("pad_token_id")
    reads_last = any(layout.rows == "last" for layout in family.layouts)
    if reads_last and padding is not None and added and added[-1] == padding:
        raise UnsupportedFeatureError(
            f"the tokenizer ends every text by token {padding}, pad_token_id of config.json, which "
            "transformers leaves out when it takes the last token; take the tokenizer with which "
            "the model was trained, or name the padding token that it was trained with there"
        )


def read_rows(layout: HeadLayout, config: Mapping[str, Any]) -> Rows:
    """Return which hidden states the head reads, such as each text's first."""
    for key in layout.rows_keys:
        if key in config:
            rows: Rows = config_values(config).get(key).one_of(layout.rows_names)
            return rows
    return layout.rows


def count_labels(config: Mapping[str, Any]) -> int:
    """Return the number of labels that config.json names, by default 2."""
    names, values = config.get("id2label"), config_values(config)
    if isinstance(names, dict):
        return values.at(len(names), "num_labels").positive()
    return values.get("num_labels").positive(2)


def label_names(config: Mapping[str, Any]) -> dict[int, str]:
    """Return the labels' names by index; ``LABEL_0``, ... where config.json has none.

    Raises :class:`ConfigError` for keys that are not numbers.
    """
    names = config.get("id2label")
    if isinstance(names, dict):
        wrong = next((key for key in names if not str(key).isdecimal()), None)
        if wrong is not None:
            raise ConfigError(
                f"id2label of config.json has the key {wrong!r}, expected the labels' numbers from "
                "0; correct the file, or copy it again"
            )
        return {int(number): str(name) for number, name in names.items()}
    return {number: f"LABEL_{number}" for number in range(count_labels(config))}


def label_function(config: Mapping[str, Any]) -> Literal["identity", "sigmoid", "softmax"]:
    """Return the name of the function by which transformers' pipeline makes label scores of logits.

    Raises :class:`ConfigError` for an unknown ``problem_type``.
    """
    found: Literal["identity", "sigmoid", "softmax"] = "softmax"
    if config.get("problem_type") is not None:
        found = config_values(config).get("problem_type").one_of(PROBLEM_TYPES)
    # The softmax of a single label would always be 1.
    one = found == "softmax" and count_labels(config) == 1
    return "sigmoid" if one else found


def count_outputs(layout: HeadLayout, spec: EncoderSpec, config: Mapping[str, Any]) -> int:
    """Return the number of the head's outputs: labels, or tokens of the vocabulary."""
    if layout.task == "masked-lm":
        return spec.embedding.vocab_size
    return count_labels(config) if layout.num_outputs is None else layout.num_outputs


def read_dropout(layout: HeadLayout, config: Mapping[str, Any]) -> float:
    """Return the head's dropout, from the first of the layout's keys that is present."""
    for key in layout.dropouts:
        if config.get(key) is not None:
            return config_values(config).get(key).number(least=0, below=1)
    return layout.dropout if layout.dropouts else 0.0


def join_fingerprint(
    encoder: str, layout: HeadLayout, rows: Rows, parameters: Iterable[tuple[str, Array]]
) -> str:
    """Return the SHA-256 of an encoder's fingerprint joined with a head's inputs and parameters.

    The output weight of a masked-language model is the token embeddings, which the encoder's
    fingerprint already covers.
    """
    digest = hashlib.sha256(f"{encoder} {layout.task} {rows}".encode())
    for name, array in sorted(parameters):
        if layout.task == "masked-lm" and name == "output.weight":
            continue
        digest.update(f"\0{name} {dtype_name(array.dtype)} {list(array.shape)}\0".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
