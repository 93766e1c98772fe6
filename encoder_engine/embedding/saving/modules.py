"""Writes the modules after pooling in sentence-transformers' format, each in its own folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import OutputError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.adapters import check_no_leftovers
from encoder_engine.families.checkpoints.writing import write_tensors
from encoder_engine.files import write_atomically, writing
from encoder_engine.opening.modules import MODULES
from encoder_engine.opening.recipe import CONFIG
from encoder_engine.opening.stack import ACTIVATIONS
from encoder_engine.packing.module_stack import DenseModule, LayerNormModule

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from encoder_engine.packing.module_stack import ModuleStack, StackModule

__all__ = [
    "check_writable",
    "class_path",
    "open_target",
    "write_json",
    "write_module",
    "write_modules_json",
    "write_transformer_settings",
]

# The name of each activation: the full one of the two names of its class, which comes first in
# ACTIVATIONS.
_NAMES = {activation: name for name, activation in reversed(ACTIVATIONS.items())}
# The classes of modules that only one kind of model has; all versions know the paths of the others.
_CLASSES = {
    "MultiVectorMask": "multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
    "SparseStaticEmbedding": "sparse_encoder.models.SparseStaticEmbedding",
    "SpladePooling": "sparse_encoder.models.SpladePooling",
}
# The input and the output of a module that follows the encoder token by token.
_OF_TOKENS = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
# The epsilon of torch.nn.LayerNorm, which the module of sentence-transformers does not state.
_EPSILON = 1e-5


def open_target(
    directory: str | os.PathLike[str],
    own: str | os.PathLike[str] | None,
    *,
    of_head: str | None = None,
) -> Path:
    """Create the directory that a model is saved to, and return its path.

    An old ``modules.json`` is removed: until the new one is written, the directory has no model.

    own: the directory that the model was loaded from.
    of_head: the quantization of a model with a head; None: no head, or no quantization.

    Raises :class:`OutputError` where both directories are the same, and for left-over files that
    would change the saved model, and :class:`UnsupportedFeatureError` for a quantized model with a
    head.
    """
    if of_head is not None:
        raise UnsupportedFeatureError(
            "an encoder in 8-bit integers cannot be saved with a head; load it without quantization"
        )
    folder = Path(directory)
    source = None if own is None else Path(own)
    if source is not None and folder.exists() and source.exists() and folder.samefile(source):
        raise OutputError(
            f"{folder} holds the files that this embedder reads; name another directory"
        )
    check_no_leftovers(folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # A directory without this file is not a model, so that new parts are never loaded with old
        # ones.
        (folder / MODULES).unlink(missing_ok=True)
    return folder


def check_writable(stack: ModuleStack) -> None:
    """Raise :class:`UnsupportedFeatureError` for a LayerNorm of another epsilon than PyTorch's."""
    for module in stack.modules:
        if isinstance(module, LayerNormModule) and module.epsilon != _EPSILON:
            raise UnsupportedFeatureError(
                f"a LayerNorm of sentence-transformers has the epsilon {_EPSILON}, this one has "
                f"{module.epsilon}"
            )


def write_module(folder: Path, module: StackModule, *, of_tokens: bool = False) -> str:
    """Write the settings and weights of a module to its folder; return its class's name.

    of_tokens: the module computes the vectors of tokens, not those of texts. A Normalize module of
        texts has no files.
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


def class_path(kind: str) -> str:
    """Return the import path of a module's class in sentence-transformers."""
    return f"sentence_transformers.{_CLASSES.get(kind, f'models.{kind}')}"


def write_modules_json(path: Path, kinds: Mapping[str, str]) -> None:
    """Write ``modules.json``: the class of sentence-transformers for each folder, in order."""
    listed = [
        {
            "idx": n,
            "name": str(n),
            "path": place,
            "type": class_path(kind),
        }
        for n, (place, kind) in enumerate(kinds.items())
    ]
    write_json(path, listed)


def write_transformer_settings(
    folder: Path,
    stated: Mapping[str, Any],
    *,
    max_seq_length: int | None,
    root: Path | None = None,
    **transformer: Any,
) -> None:
    """Write the Transformer module's settings to ``folder``, and those of the model to ``root``.

    stated: the model's type, prompts and further settings.
    max_seq_length: the most tokens of a text; None: no limit.
    root: the model's directory; None: ``folder``.
    transformer: further settings of the Transformer.
    """
    # Lower-casing is a part of the tokenizer that was saved.
    settings = {"max_seq_length": max_seq_length, "do_lower_case": False, **transformer}
    write_json(folder / "sentence_bert_config.json", settings)
    write_json((folder if root is None else root) / CONFIG, stated)


def write_json(path: Path, value: object) -> None:
    """Write a JSON file; it appears complete or not at all."""
    content = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, content.encode("utf-8"))
