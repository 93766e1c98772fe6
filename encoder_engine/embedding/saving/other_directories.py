"""Writes sparse and late-interaction models as directories of sentence-transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.embedding.directory.modules import MODULES
from encoder_engine.embedding.saving.card import write_card
from encoder_engine.embedding.saving.modules import (
    write_json,
    write_module,
    write_modules_json,
    write_transformer_settings,
)
from encoder_engine.files import writing
from encoder_engine.packing.module_stack import DenseModule, NormalizeModule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from encoder_engine.families.facts.spec import EncoderSpec

__all__ = ["write_late_interaction_settings", "write_splade_settings"]


def write_late_interaction_settings(
    folder: Path,
    spec: EncoderSpec,
    projection_ND: npt.NDArray[np.float32],
    *,
    prompts: Mapping[str, str],
    max_seq_length: int | None,
    query_length: int,
    document_length: int | None,
    attend_expansion: bool | None,
    skipped_words: Sequence[str],
) -> None:
    """Write what a ``MultiVectorEncoder`` has beside the encoder and the tokenizer, and the card.

    attend_expansion: whether tokens attend to those that queries are padded with; None: queries are
    not padded.
    """
    expansion = None
    if attend_expansion is not None:
        expansion = {"strategy": "fixed", "length": query_length, "attend": attend_expansion}
    write_transformer_settings(
        folder,
        _stated("MultiVectorEncoder", prompts),
        max_seq_length=max_seq_length,
        query_length=query_length,
        document_length=document_length,
        query_expansion=expansion,
    )
    kinds = {"": "Transformer"}
    kinds["1_Dense"] = write_module(
        folder / "1_Dense", DenseModule(weight_NK=projection_ND), of_tokens=True
    )
    kinds["2_MultiVectorMask"] = "MultiVectorMask"
    words = {"skiplist_words": list(skipped_words), "skiplist_tasks": ["document"]}
    _write_config(folder / "2_MultiVectorMask", words | {"keep_only_token_ids": None})
    kinds["3_Normalize"] = write_module(folder / "3_Normalize", NormalizeModule(), of_tokens=True)
    write_card(
        folder,
        loader="MultiVectorEmbedder",
        method="encode_documents",
        vectors="a vector for each token,",
        dimension=len(projection_ND),
        base_model=None,
        facts={
            "encoder": f"{spec.model_type}, {spec.num_layers} layers",
            "similarity": "MaxSim",
            "tokens of a query": str(query_length),
        },
    )
    # Last, because its presence marks a complete model.
    write_modules_json(folder / MODULES, kinds)


def write_splade_settings(
    folder: Path, spec: EncoderSpec, *, prompts: Mapping[str, str], max_seq_length: int | None
) -> None:
    """Write what a ``SparseEncoder`` has beside the masked LM and the tokenizer, and the card."""
    write_transformer_settings(
        folder,
        _stated("SparseEncoder", prompts),
        max_seq_length=max_seq_length,
        transformer_task="fill-mask",
    )
    pooling = {"pooling_strategy": "max", "activation_function": "relu"}
    vocab_size = spec.embedding.vocab_size
    _write_config(folder / "1_SpladePooling", pooling | {"embedding_dimension": vocab_size})
    write_card(
        folder,
        loader="SparseEmbedder",
        vectors="sparse vectors",
        dimension=vocab_size,
        base_model=None,
        facts={"encoder": f"{spec.model_type}, {spec.num_layers} layers", "similarity": "dot"},
    )
    write_modules_json(folder / MODULES, {"": "Transformer", "1_SpladePooling": "SpladePooling"})


def _stated(model_type: str, prompts: Mapping[str, str]) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "prompts": {"query": "", "document": ""} | dict(prompts),
        "default_prompt_name": None,
        "similarity_fn_name": None,
    }


def _write_config(folder: Path, config: Mapping[str, Any]) -> None:
    with writing(folder):
        folder.mkdir(exist_ok=True)
    write_json(folder / "config.json", config)
