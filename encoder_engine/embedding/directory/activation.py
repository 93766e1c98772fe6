"""The activation of a cross-encoder's logits, as its directory states it."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from encoder_engine.embedding.directory.json_files import read_value
from encoder_engine.embedding.directory.recipe import CONFIG
from encoder_engine.embedding.engines.engine import Activation
from encoder_engine.errors import InputError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.adapters import weights_directory

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ACTIVATION_KEY", "ACTIVATION_NAMES", "check_activation", "read_activation"]

ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
# The keys under which sentence-transformers states the activation, the newest first.
ACTIVATION_KEY = "activation_fn"
_OLD_KEY = "sbert_ce_default_activation_function"
# The names under which sentence-transformers writes them.
ACTIVATION_NAMES: dict[Activation, str] = {
    "identity": "torch.nn.modules.linear.Identity",
    "sigmoid": "torch.nn.modules.activation.Sigmoid",
}


def check_activation(activation: str) -> Activation:
    """Return an activation. Raises :class:`InputError` for one that there is not."""
    for known in ACTIVATIONS:
        if activation == known:
            return known
    raise InputError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")


def read_activation(directory: Path, folder: Path) -> Activation | None:
    """Read the activation that the directory states, in any dialect of sentence-transformers."""
    stated: object = None
    path = directory / CONFIG
    if path.is_file():
        stated = read_value(path).get(ACTIVATION_KEY).value
    if stated is None:
        path = weights_directory(folder) / "config.json"
        config = read_value(path).object()
        nested = config.get("sentence_transformers")
        stated = nested.get(ACTIVATION_KEY) if isinstance(nested, dict) else None
        stated = config.get(_OLD_KEY) if stated is None else stated
    if stated is None:
        return None
    name = stated.rpartition(".")[2].lower() if isinstance(stated, str) else ""
    if name not in ACTIVATIONS or not str(stated).startswith("torch."):
        raise UnsupportedFeatureError(
            f"{path} states the activation {stated!r}, which is not implemented; pass activation="
        )
    return check_activation(name)
