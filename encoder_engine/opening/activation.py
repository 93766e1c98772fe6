"""The activation of a cross-encoder's logits, as its model directory states it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from encoder_engine.errors import InputError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.adapters import weights_directory
from encoder_engine.opening.json_files import read_value
from encoder_engine.opening.recipe import CONFIG
from encoder_engine.opening.stack import ACTIVATIONS

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.packing.module_stack import ScoreActivation as Activation

__all__ = ["ACTIVATION_KEY", "ACTIVATION_NAMES", "check_activation", "read_activation"]

# The keys under which sentence-transformers states the activation, the newest first.
ACTIVATION_KEY = "activation_fn"
_OLD_KEY = "sbert_ce_default_activation_function"
_KNOWN: dict[str, Activation] = {
    **ACTIVATIONS,
    "torch.nn.modules.activation.Softmax": "softmax",
    "torch.nn.Softmax": "softmax",
}
# The names under which sentence-transformers writes the activations.
ACTIVATION_NAMES: dict[Activation, str] = {_KNOWN[name]: name for name in reversed(_KNOWN)}


def check_activation(activation: str) -> Activation:
    """Return ``activation`` if it is a known name; raise :class:`InputError` if not."""
    for known in ACTIVATION_NAMES:
        if activation == known:
            return known
    names = ", ".join(sorted(ACTIVATION_NAMES))
    raise InputError(f"activation must be one of {names}, got {activation!r}")


def read_activation(directory: Path, folder: Path) -> Activation | None:
    """Return the activation that a directory of sentence-transformers states, or None.

    Directories of all versions are read. ``folder``: that of the model's encoder. Raises
    :class:`UnsupportedFeatureError` for an activation that is not known.
    """
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
    if not isinstance(stated, str) or stated not in _KNOWN:
        raise UnsupportedFeatureError(
            f"{path} states the activation {stated!r}, which is not one of torch.nn's without "
            "parameters and is not run; pass activation="
        )
    return _KNOWN[stated]
