"""Selection of the layers to pool: the last, the mean of several, or a weighted sum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from encoder_engine.errors import InputError

__all__ = ["Layers", "layer_weights"]

# Numbers of layers, whose mean is taken; or their weights. 0: the embeddings; -1: the last layer.
Layers = Sequence[int] | Mapping[int, float]


def layer_weights(layers: object, num_layers: int) -> tuple[tuple[int, float], ...]:
    """Return the selected layers with their weights, in ascending order; 0 are the embeddings.

    Raises :class:`InputError` for a layer that does not exist or is named twice, and for a weight
    that is not finite.
    """
    if isinstance(layers, Mapping):
        pairs = list(layers.items())
    elif isinstance(layers, Sequence) and not isinstance(layers, str):
        pairs = [(layer, 1.0 / len(layers)) for layer in layers]
    else:
        raise InputError(f"layers must list numbers of layers, or map them to weights: {layers!r}")
    found: dict[int, float] = {}
    for layer, weight in pairs:
        if isinstance(layer, bool) or not isinstance(layer, int):
            raise InputError(f"a layer is a whole number, got {layer!r}")
        if not -num_layers - 1 <= layer <= num_layers:
            raise InputError(
                f"there is no layer {layer}; 0 are the embeddings, {num_layers} or -1 the last"
            )
        number = layer % (num_layers + 1)
        if number in found:
            raise InputError(f"layer {number} is named twice")
        if not isinstance(weight, (int, float)) or not math.isfinite(weight):
            raise InputError(f"the weight of layer {layer} must be a finite number, got {weight!r}")
        found[number] = float(weight)
    if not found:
        raise InputError("layers is empty; name at least one")
    return tuple(sorted(found.items()))
