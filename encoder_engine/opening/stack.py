"""Reads modules with weights: dense layers, norms, and the mixing of layers before pooling.

Each is computed as sentence-transformers 6.2 does. Dimensions: K features in, N features out.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.errors import (
    CheckpointFileError,
    ConfigError,
    NonFiniteWeightsError,
    UnsupportedFeatureError,
)
from encoder_engine.families.checkpoints.arrays import widen
from encoder_engine.families.checkpoints.files import open_tensor_file, open_tensors
from encoder_engine.opening.json_files import read_value
from encoder_engine.packing.module_stack import (
    DenseModule,
    LayerNormModule,
    ModuleStack,
    NormalizeModule,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    Vectors = np.ndarray[Any, np.dtype[np.float32]]
    from encoder_engine.families.checkpoints.files import StoredTensor
    from encoder_engine.json_values import JsonValue
    from encoder_engine.opening.modules import Module
    from encoder_engine.packing.module_stack import StackActivation, StackModule

__all__ = [
    "SENTENCE",
    "TOKENS",
    "check_normalize",
    "read_dense",
    "read_layer_mix",
    "read_linear",
    "read_sparse_pooling",
    "read_stack",
]

# The names under which modules pass on a text's vector, and the vectors of its tokens.
SENTENCE, TOKENS = "sentence_embedding", "token_embeddings"
_DENSE_KEYS = (
    "in_features",
    "out_features",
    "bias",
    "activation_function",
    "module_input_name",
    "module_output_name",
    "use_residual",
)
# Classes of torch.nn with their default arguments. A directory names one by its path; a name that
# is not here is refused and never imported.
_CLASSES: dict[str, StackActivation] = {
    "ELU": "elu",
    "GELU": "gelu",
    "Hardtanh": "hardtanh",
    "LeakyReLU": "leaky_relu",
    "Mish": "mish",
    "ReLU": "relu",
    "ReLU6": "relu6",
    "SiLU": "silu",
    "Sigmoid": "sigmoid",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Tanh": "tanh",
}
ACTIVATIONS: dict[str, StackActivation] = {
    f"torch.nn.{place}{name}": activation
    for name, activation in _CLASSES.items()
    for place in ("modules.activation.", "")
} | {"torch.nn.modules.linear.Identity": "identity", "torch.nn.Identity": "identity"}


def read_stack(
    modules: Sequence[Module], *, reads: str = SENTENCE, writes: str | None = None
) -> ModuleStack:
    """Read the weights of the modules after pooling, or after an encoder; Dropout is ignored.

    reads: the name of the value that each module must read and write.
    writes: the name of the value that the last module, if it is a Dense, must write; None:
        ``reads``.

    Raises :class:`ConfigError` for a malformed file, :class:`UnsupportedFeatureError` for a setting
    that is not implemented, :class:`CheckpointFileError` for weights that do not fit the settings,
    and :class:`NonFiniteWeightsError`.
    """
    found: list[StackModule] = []
    for module in modules:
        if module.kind == "Dense":
            last = writes if module is modules[-1] else None
            found.append(read_dense(module.folder, reads=reads, writes=last))
        elif module.kind == "LayerNorm":
            found.append(_read_layer_norm(module.folder))
        elif module.kind == "Normalize":
            check_normalize(module.folder, reads=reads)
            found.append(NormalizeModule())
        else:
            assert module.kind == "Dropout", module.kind
    return ModuleStack(tuple(found))


def read_dense(folder: Path, *, reads: str, writes: str | None = None) -> DenseModule:
    """Read a module's dense layer; ``reads``, ``writes`` and exceptions: see :func:`read_stack`."""
    config = read_value(folder / "config.json")
    config.only_keys(_DENSE_KEYS)
    _check_names(config, reads, writes=writes)
    columns, rows = (config.get(key).positive() for key in ("in_features", "out_features"))
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (rows, columns)}
    if config.get("bias").boolean(default=True):
        shapes["linear.bias"] = (rows,)
    is_residual = config.get("use_residual").boolean(default=False)
    if is_residual and rows != columns:
        shapes["residual.weight"] = (rows, columns)
    weights = _read_weights(folder, shapes)
    return DenseModule(
        weight_NK=weights["linear.weight"],
        bias_N=weights.get("linear.bias"),
        activation=_read_activation(config.get("activation_function")),
        residual=weights.get("residual.weight", "input") if is_residual else None,
    )


def read_linear(path: Path) -> DenseModule:
    """Read a weights file of one linear layer, ``weight`` and ``bias``, without an activation.

    Raises :class:`CheckpointFileError` for other tensors, and :class:`NonFiniteWeightsError`.
    """
    with ExitStack() as files:
        tensors = open_tensor_file(path, files)
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        shape = shapes.get("weight", ())
        if len(shape) != 2 or shapes != {"weight": shape, "bias": shape[:1]}:
            raise CheckpointFileError(
                f"{path} is not a linear layer: it holds {_described(shapes)}, expected weight "
                "[N, K] and bias [N]"
            )
        weight, bias = (_as_float32(path, name, tensors[name]) for name in ("weight", "bias"))
    return DenseModule(weight_NK=weight, bias_N=bias)


def _read_activation(stated: JsonValue) -> StackActivation:
    if not stated.present:
        return "tanh"
    name = stated.string()
    if name not in ACTIVATIONS:
        raise UnsupportedFeatureError(
            f"{stated.where} is {name!r}, which is not implemented; there are "
            f"{', '.join(sorted(ACTIVATIONS))}"
        )
    return ACTIVATIONS[name]


def _read_layer_norm(folder: Path) -> LayerNormModule:
    config = read_value(folder / "config.json")
    config.only_keys(("dimension",))
    width = config.get("dimension").positive()
    weights = _read_weights(folder, {"norm.weight": (width,), "norm.bias": (width,)})
    return LayerNormModule(weight_K=weights["norm.weight"], bias_K=weights["norm.bias"])


def check_normalize(folder: Path, *, reads: str = SENTENCE) -> None:
    """Raise UnsupportedFeatureError unless a Normalize module reads and writes ``reads``."""
    path = folder / "config.json"
    if not path.is_file():
        if reads != SENTENCE:
            raise UnsupportedFeatureError(f"{path}: Normalize must read and write {reads}")
        return
    config = read_value(path)
    config.only_keys(("module_input_name", "module_output_name"))
    _check_names(config, reads, default=SENTENCE)


def _check_names(
    config: JsonValue, reads: str, *, default: str | None = None, writes: str | None = None
) -> None:
    """Raise :class:`UnsupportedFeatureError` if a module reads or writes another value."""
    names = {"module_input_name": reads, "module_output_name": writes or reads}
    for key, name in names.items():
        stated = config.get(key)
        absent = default if default is not None and key == "module_input_name" else reads
        if (absent if stated.is_null else stated.value) != name:
            raise UnsupportedFeatureError(
                f"{config.where}: {key} must be {name!r}, got {stated.value!r}"
            )


def read_layer_mix(folder: Path) -> tuple[tuple[int, float], ...]:
    """Read the layers that WeightedLayerPooling adds up, with their weights, whose sum is 1.

    Layer 0 is the embeddings. Raises :class:`ConfigError` for weights whose sum is 0.
    """
    config = read_value(folder / "config.json")
    names = ("embedding_dimension", "word_embedding_dimension")
    config.only_keys((*names, "layer_start", "num_hidden_layers"))
    start = config.get("layer_start").integer(4)
    last = config.get("num_hidden_layers").positive(12)
    if start > last:
        raise ConfigError(f"{config.where}: layer_start={start} is beyond {last} layers")
    weights = _read_weights(folder, {"layer_weights": (last + 1 - start,)})["layer_weights"]
    total = float(weights.sum(dtype=np.float64))
    if total == 0.0:
        raise ConfigError(f"{folder}: the weights of the layers add up to 0")
    return tuple((start + place, float(weight) / total) for place, weight in enumerate(weights))


def _read_weights(folder: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, Vectors]:
    """Read a module's weights as float32; other names or shapes than these raise an error."""
    with open_tensors(folder) as tensors:
        found = {name: tensor.shape for name, tensor in tensors.items()}
        if found != shapes:
            raise CheckpointFileError(
                f"the weights in {folder} do not fit its config.json: they are "
                f"{_described(found)}, expected {_described(shapes)}"
            )
        return {name: _as_float32(folder, name, tensor) for name, tensor in tensors.items()}


def _as_float32(place: Path, name: str, tensor: StoredTensor) -> Vectors:
    """Read a tensor as float32; raise :class:`NonFiniteWeightsError` for NaN or infinity."""
    weight = np.ascontiguousarray(widen(tensor.read()), dtype=np.float32)
    if not np.isfinite(weight).all():
        raise NonFiniteWeightsError(f"{name} in {place} holds NaN or infinity")
    return weight


def _described(shapes: dict[str, tuple[int, ...]]) -> str:
    listed = (f"{name} {list(shape)}" for name, shape in sorted(shapes.items()))
    return ", ".join(listed) or "none"


def read_sparse_pooling(folder: Path) -> dict[str, Any]:
    """Return what a SpladePooling module states, under the keys ``pooling`` and ``activation``."""
    config = read_value(folder / "config.json")
    names = {"pooling_strategy": "pooling", "activation_function": "activation"}
    config.only_keys((*names, "embedding_dimension", "word_embedding_dimension"))
    return {names[key]: value for key, value in config.object().items() if key in names}
