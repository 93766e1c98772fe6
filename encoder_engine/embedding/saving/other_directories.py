"""Writes settings of rankers, sparse and late-interaction models as sentence-transformers does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.embedding.saving.card import write_card
from encoder_engine.embedding.saving.modules import (
    check_writable,
    class_path,
    write_json,
    write_module,
    write_modules_json,
    write_transformer_settings,
)
from encoder_engine.errors import ConfigError
from encoder_engine.families.checkpoints.writing import write_tensors
from encoder_engine.files import writing
from encoder_engine.json_values import read_json
from encoder_engine.opening.activation import ACTIVATION_KEY, ACTIVATION_NAMES
from encoder_engine.opening.modules import MODULES
from encoder_engine.packing.module_stack import NormalizeModule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from encoder_engine.engine.outputs import Activation, SparseActivation, SparsePooling
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.kinds.options import Route
    from encoder_engine.opening.recipe import Settings
    from encoder_engine.opening.router import TokenWeights
    from encoder_engine.packing.module_stack import ModuleStack

__all__ = [
    "encoder_folder",
    "write_late_interaction_settings",
    "write_ranker_settings",
    "write_splade_settings",
]


def write_ranker_settings(
    folder: Path,
    spec: EncoderSpec,
    settings: Settings,
    *,
    activation: Activation,
    num_labels: int,
    max_seq_length: int | None,
    base_model: str | None,
) -> None:
    """Write the settings, ``modules.json`` and the model card of a ``CrossEncoder``'s directory.

    The caller writes the classifier and the tokenizer.
    """
    stated = _stated("CrossEncoder", settings)
    stated[ACTIVATION_KEY] = ACTIVATION_NAMES[activation]
    write_transformer_settings(
        *(folder, stated),
        max_seq_length=max_seq_length,
        transformer_task="sequence-classification",
    )
    write_card(
        folder,
        loader="Ranker",
        subject=f"Pairs of texts to {num_labels} score{'s' * (num_labels > 1)} each.",
        call='scores = model.predict([("a query", "a text"), ("a query", "another")])',
        task="text-ranking",
        base_model=base_model,
        facts={
            "encoder": f"{spec.model_type}, {spec.num_layers} layers",
            "labels": str(num_labels),
            "activation": activation,
        },
    )
    write_modules_json(folder / MODULES, {"": "Transformer"})


def write_late_interaction_settings(
    folder: Path,
    spec: EncoderSpec,
    modules: ModuleStack,
    *,
    settings: Settings,
    max_seq_length: int | None,
    query_length: int | None,
    document_length: int | None,
    expansion: Mapping[str, Any] | None,
    skipped_words: Sequence[str],
    skipped_of: Sequence[str] = ("document",),
    kept_ids: Sequence[int] | None = None,
    normalized: bool = True,
    base_model: str | None = None,
) -> None:
    """Write the settings, the modules and the model card of a ``MultiVectorEncoder``'s directory.

    The caller writes the encoder and the tokenizer.

    modules: the modules after the encoder, for each token.
    expansion: the expansion of queries, as a Transformer states it; None: queries are not padded.
    skipped_words: the tokens that get no vector.
    skipped_of: the texts in which they get none: ``"query"``, ``"document"`` or both.
    kept_ids: the token ids of documents that keep a vector; None: all that are not skipped.
    """
    check_writable(modules)
    write_transformer_settings(
        folder,
        _stated("MultiVectorEncoder", settings) | {"similarity_fn_name": settings.similarity},
        max_seq_length=max_seq_length,
        query_length=query_length,
        document_length=document_length,
        query_expansion=None if expansion is None else dict(expansion),
    )
    kinds = {"": "Transformer"}
    for number, module in enumerate(modules.modules, start=1):
        place = f"{number}_{type(module).__name__.removesuffix('Module')}"
        kinds[place] = write_module(folder / place, module, of_tokens=True)
    place = f"{len(kinds)}_MultiVectorMask"
    kinds[place] = "MultiVectorMask"
    words = {"skiplist_words": list(skipped_words), "skiplist_tasks": list(skipped_of)}
    kept = None if kept_ids is None else list(kept_ids)
    _write_config(folder / place, words | {"keep_only_token_ids": kept})
    if normalized:
        place = f"{len(kinds)}_Normalize"
        kinds[place] = write_module(folder / place, NormalizeModule(), of_tokens=True)
    write_card(
        folder,
        loader="MultiVectorEmbedder",
        call='vectors = model.encode_documents(["a text", "another"])',
        subject=f"Texts to a vector for each token, of {modules.width(spec.width)} features.",
        base_model=base_model,
        facts={
            "encoder": f"{spec.model_type}, {spec.num_layers} layers",
            "similarity": settings.similarity or "MaxSim",
            "tokens of a query": "as of a document" if query_length is None else str(query_length),
        },
    )
    # Last, because its presence marks a complete model.
    write_modules_json(folder / MODULES, kinds)


def write_splade_settings(
    folder: Path,
    spec: EncoderSpec,
    *,
    settings: Settings,
    max_seq_length: int | None,
    pooling: SparsePooling = "max",
    activation: SparseActivation = "relu",
    queries: TokenWeights | None = None,
    default_route: Route = "document",
    base_model: str | None = None,
) -> None:
    """Write the settings, the pooling and the model card of a ``SparseEncoder``'s directory.

    The caller writes the masked LM and the tokenizer to :func:`encoder_folder`.

    queries: token weights for queries; None: none. They are written too, with a Router.
    default_route: with ``queries``, what texts are by default.
    """
    stated = _stated("SparseEncoder", settings) | {"similarity_fn_name": settings.similarity}
    if settings.max_active_dims is not None:
        stated["max_active_dims"] = settings.max_active_dims
    write_transformer_settings(
        *(encoder_folder(folder, queries), stated),
        root=folder,
        max_seq_length=max_seq_length,
        transformer_task="fill-mask",
    )
    pooled = {"pooling_strategy": pooling, "activation_function": activation}
    vocab_size = spec.embedding.vocab_size
    kinds = {"": "Transformer", "1_SpladePooling": "SpladePooling"}
    place = "1_SpladePooling"
    if queries is not None:
        kinds, place = {"": "Router"}, "document_1_SpladePooling"
        _write_router(folder, queries, default_route)
    _write_config(folder / place, pooled | {"embedding_dimension": vocab_size})
    write_card(
        folder,
        loader="SparseEmbedder",
        subject=f"Texts to sparse vectors of {vocab_size} features.",
        base_model=base_model,
        facts={
            "encoder": f"{spec.model_type}, {spec.num_layers} layers",
            "similarity": settings.similarity or "dot",
        },
    )
    write_modules_json(folder / MODULES, kinds)


def encoder_folder(folder: Path, queries: TokenWeights | None) -> Path:
    """Return the folder of the masked LM in a sparse model's directory.

    With ``queries`` the directory has a Router, and the masked LM is in the documents' part.
    """
    return folder if queries is None else folder / "document_0_Transformer"


def _write_router(folder: Path, queries: TokenWeights, default_route: Route) -> None:
    """Write the token weights of queries, their tokenizer, and ``router_config.json``."""
    place = "query_0_SparseStaticEmbedding"
    structure = {
        "query": {place: "SparseStaticEmbedding"},
        "document": {
            "document_0_Transformer": "Transformer",
            "document_1_SpladePooling": "SpladePooling",
        },
    }
    _write_config(folder / place, {"frozen": False})
    write_tensors(folder / place / "model.safetensors", {"weight": queries.weights_V})
    queries.tokenizer.save(folder / place)
    path = folder / place / "tokenizer_config.json"
    limited = read_json(path, ConfigError) if path.is_file() else {}
    write_json(path, limited | {"model_max_length": queries.max_length})
    router = {
        "types": {n: class_path(kind) for route in structure.values() for n, kind in route.items()},
        "structure": {name: list(route) for name, route in structure.items()},
        "parameters": {"default_route": default_route, "allow_empty_key": True},
    }
    write_json(folder / "router_config.json", router)


def _stated(model_type: str, settings: Settings) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "prompts": {"query": "", "document": ""} | settings.prompts,
        "default_prompt_name": settings.default_prompt_name,
    }


def _write_config(folder: Path, config: Mapping[str, Any]) -> None:
    with writing(folder):
        folder.mkdir(exist_ok=True)
    write_json(folder / "config.json", config)
