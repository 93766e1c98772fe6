"""Writes the modules after pooling as sentence-transformers writes them, each in its folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from encoder_engine.embedding.directory.recipe import CONFIG
from encoder_engine.embedding.directory.stack import ACTIVATIONS
from encoder_engine.errors import UnsupportedFeatureError
from encoder_engine.families.checkpoints.writing import write_tensors
from encoder_engine.files import write_atomically, writing
from encoder_engine.packing.module_stack import DenseModule, LayerNormModule

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from encoder_engine.packing.module_stack import ModuleStack, StackModule

__all__ = [
    "check_writable",
    "write_json",
    "write_module",
    "write_modules_json",
    "write_transformer_settings",
]

# Of the two names of each class of torch.nn, the full one, which comes first in ACTIVATIONS.
_NAMES = {activation: name for name, activation in reversed(ACTIVATIONS.items())}
# Modules that only one kind of model has; the others stand at a path that all versions know.
_CLASSES = {
    "MultiVectorMask": "multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
    "SpladePooling": "sparse_encoder.models.SpladePooling",
}
# What a module reads and writes that follows the encoder token by token.
_OF_TOKENS = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
# The epsilon of torch.nn.LayerNorm, which the module of sentence-transformers does not state.
_EPSILON = 1e-5


def check_writable(stack: ModuleStack) -> None:
    """Raise :class:`UnsupportedFeatureError` for a module that the layout cannot state."""
    for module in stack.modules:
        if isinstance(module, LayerNormModule) and module.epsilon != _EPSILON:
            raise UnsupportedFeatureError(
                f"a LayerNorm of sentence-transformers has the epsilon {_EPSILON}, this one has "
                f"{module.epsilon}"
            )


def write_module(folder: Path, module: StackModule, *, of_tokens: bool = False) -> str:
    """Write the settings and weights of a module to its folder; return its class's name.

    of_tokens: the module computes the vectors of tokens, not those of texts.
    """
    config: dict[str, Any]
    if isinstance(module, DenseModule):
        rows, columns = module.weight_NK.shape
        config = {
            "in_features": columns,
            "out_features": rows,
            "bias": module.bias_N is not None,
            "activation_function": _NAMES[module.activation],
        }
        if module.residual is not None:
            config["use_residual"] = True
        names = {"weight": "linear.weight", "bias": "linear.bias", "residual": "residual.weight"}
    elif isinstance(module, LayerNormModule):
        config = {"dimension": len(module.weight_K)}
        names = {"weight": "norm.weight", "bias": "norm.bias"}
    elif of_tokens:
        with writing(folder):
            folder.mkdir(exist_ok=True)
        write_json(folder / "config.json", _OF_TOKENS)
        return "Normalize"
    else:
        return "Normalize"
    if of_tokens:
        config |= _OF_TOKENS
    with writing(folder):
        folder.mkdir(exist_ok=True)
    arrays = {names[name]: array for name, array in module.arrays().items()}
    write_tensors(folder / "model.safetensors", arrays)
    write_json(folder / "config.json", config)
    return "Dense" if isinstance(module, DenseModule) else "LayerNorm"


def write_modules_json(path: Path, kinds: Mapping[str, str]) -> None:
    """Write ``modules.json``: the class of sentence-transformers for each folder, in order."""
    listed = [
        {
            "idx": n,
            "name": str(n),
            "path": place,
            "type": f"sentence_transformers.{_CLASSES.get(kind, f'models.{kind}')}",
        }
        for n, (place, kind) in enumerate(kinds.items())
    ]
    write_json(path, listed)


def write_transformer_settings(
    folder: Path, stated: Mapping[str, Any], *, max_seq_length: int | None, **transformer: Any
) -> None:
    """Write the settings of a model, and those of its Transformer.

    stated: the model's type, prompts and others.
    max_seq_length: the most tokens of a text; None: no limit.
    transformer: further settings of the Transformer.
    """
    # Lower-casing is a part of the tokenizer that was saved.
    settings = {"max_seq_length": max_seq_length, "do_lower_case": False, **transformer}
    write_json(folder / "sentence_bert_config.json", settings)
    write_json(folder / CONFIG, stated)


def write_json(path: Path, value: object) -> None:
    """Write a file of JSON, which appears complete or not at all."""
    content = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, content.encode("utf-8"))
