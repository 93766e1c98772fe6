"""Reads a Router of sentence-transformers: separate modules for queries and documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import (
    CheckpointFileError,
    NonFiniteWeightsError,
    UnsupportedFeatureError,
)
from encoder_engine.families.checkpoints.arrays import widen
from encoder_engine.families.checkpoints.files import open_tensors
from encoder_engine.json_values import JsonValue
from encoder_engine.opening.checksums import verify_settings
from encoder_engine.opening.json_files import read_value
from encoder_engine.opening.modules import (
    EMBEDDER_ORDER,
    STATIC_ORDER,
    Module,
    ModuleOrder,
    check_module_type,
    check_order,
    module_folder,
)
from encoder_engine.opening.recipe import read_tokenizer, tokenizer_limit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from encoder_engine.text import Tokenizer

__all__ = ["DOCUMENT", "QUERY", "TokenWeights", "read_query_weights", "read_router"]

QUERY, DOCUMENT = "query", "document"
STATIC = "SparseStaticEmbedding"
_CONFIGS = ("router_config.json", "config.json")
# The modules of a route, with those before and after the Router, by the type of the model.
_ORDERS = {
    "SparseEncoder": ModuleOrder(
        f"(MLM)?Transformer SpladePooling|{STATIC}",
        ("Transformer", "MLMTransformer", "SpladePooling", STATIC),
        f"Transformer, SpladePooling, or {STATIC}",
    ),
    "SentenceTransformer": ModuleOrder(
        f"{EMBEDDER_ORDER.pattern}|{STATIC_ORDER.pattern}",
        (*EMBEDDER_ORDER.known, *STATIC_ORDER.known),
        f"{EMBEDDER_ORDER.description}, or {STATIC_ORDER.description}",
    ),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenWeights:
    """A table of token weights of which queries' sparse vectors are made, without the model.

    weights_V: the weight of each token, float32 [V].
    max_length: the most tokens of a text; None: no limit.
    """

    tokenizer: Tokenizer
    weights_V: np.ndarray[Any, np.dtype[np.float32]]
    max_length: int | None = None


def read_router(
    modules: Sequence[Module], model_type: str
) -> tuple[dict[str, tuple[Module, ...]], str]:
    """Return each route's modules, with those before and after the Router, and the default route.

    Raises :class:`UnsupportedFeatureError` for other routes than ``query`` and ``document``, and
    for other modules, :class:`CheckpointFileError` for a Router without its file of settings, and
    :class:`ConfigError` for a malformed one.
    """
    place = next(i for i, module in enumerate(modules) if module.kind == "Router")
    folder, order = modules[place].folder, _ORDERS[model_type]
    verify_settings(folder)
    path = next((folder / name for name in _CONFIGS if (folder / name).is_file()), None)
    if path is None:
        raise CheckpointFileError(f"{folder} has no {_CONFIGS[0]}, the settings of its Router")
    config = read_value(path)
    config.only_keys(("types", "structure", "parameters"))
    types, parameters = config.get("types"), config.get("parameters")
    parameters.only_keys(("default_route", "allow_empty_key", "route_mappings"))
    if parameters.get("route_mappings").value:
        raise UnsupportedFeatureError(
            f"{path} maps tasks to routes by route_mappings, which is not implemented; name the "
            f"routes {QUERY} and {DOCUMENT}"
        )
    routes: dict[str, tuple[Module, ...]] = {}
    for name, listed in config.get("structure").members().items():
        if name not in (QUERY, DOCUMENT):
            raise UnsupportedFeatureError(
                f"{path} has a route {name!r}; the engine follows {QUERY} and {DOCUMENT}"
            )
        own = (
            Module(
                kind=check_module_type(path, types.get(inner.string()).string(), order.known),
                folder=module_folder(path, inner),
            )
            for inner in listed.items()
        )
        routes[name] = (*modules[:place], *own, *modules[place + 1 :])
        check_order(path, [module.kind for module in routes[name]], order)
    if routes.keys() != {QUERY, DOCUMENT} or "Static" in routes[DOCUMENT][0].kind:
        raise UnsupportedFeatureError(
            f"{path} has the routes {', '.join(routes) or 'none'}; the engine computes a "
            f"{DOCUMENT}'s Transformer beside a {QUERY}'s modules"
        )
    is_sparse = model_type == "SparseEncoder"
    if is_sparse and routes[QUERY][0].kind != STATIC and routes[QUERY] != routes[DOCUMENT]:
        raise UnsupportedFeatureError(
            f"{path} has two transformers, one for each route; load each from a directory of its "
            "own"
        )
    stated = parameters.get("default_route").optional(JsonValue.string)
    if stated is not None and stated not in routes:
        raise parameters.fail(f"default_route={stated!r} is none of {', '.join(routes)}")
    if stated is None and not parameters.get("allow_empty_key").boolean(default=True):
        raise UnsupportedFeatureError(
            f"{path} has no default route, and allow_empty_key=false forbids to take the first; "
            f"set default_route to {QUERY} or {DOCUMENT}"
        )
    return routes, next(iter(routes)) if stated is None else stated


def read_query_weights(routes: Mapping[str, tuple[Module, ...]]) -> TokenWeights | None:
    """Return the token weights that a Router has for queries; None: a model encodes queries."""
    route = routes.get(QUERY, ())
    if not route or route == routes[DOCUMENT]:
        return None
    folder = route[0].folder
    return TokenWeights(
        tokenizer=read_tokenizer(folder, lowercase=False),
        weights_V=_read_token_weights(folder),
        max_length=tokenizer_limit(folder),
    )


def _read_token_weights(folder: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the weight of each token of a vocabulary, float32 [V], from a module's folder."""
    config = read_value(folder / "config.json")
    config.only_keys(("frozen", "path"))
    if not config.get("path").is_null:
        raise UnsupportedFeatureError(
            f"{config.where} reads weights from {config.get('path').value!r}; save the model again "
            "with sentence-transformers, which writes model.safetensors"
        )
    with open_tensors(folder) as tensors:
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        if shapes.keys() != {"weight"} or len(shapes["weight"]) != 1:
            raise CheckpointFileError(f"{folder} holds {shapes}, expected weight [V]")
        weights = np.ascontiguousarray(widen(tensors["weight"].read()), dtype=np.float32)
    if not np.isfinite(weights).all():
        raise NonFiniteWeightsError(f"the token weights in {folder} hold NaN or infinity")
    return weights
