"""Checks a model directory file by file, and embeds a text, for ``doctor --model``."""

from __future__ import annotations

import warnings
from math import prod
from typing import TYPE_CHECKING, Any

from encoder_engine.cli.checks.findings import Finding
from encoder_engine.cli.common import binary_size
from encoder_engine.errors import (
    EncoderEngineError,
    MissingDependencyError,
    UnsupportedFeatureError,
    install_command,
)
from encoder_engine.families.checkpoints.parameters import encoder_shapes
from encoder_engine.files import recorded_checksums
from encoder_engine.text.spec.library import LibrarySpec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from encoder_engine.embedding import Embedder, StaticEmbedder

_PROBE = "The quick brown fox jumps over the lazy dog."
_MEND = "fetch the directory again, whole"
_MEND_UNSUPPORTED = "choose a model that is computed here; docs/embedding.md says what is"


def check_model(name: str) -> tuple[dict[str, Any], list[Finding]]:
    """Load a model as ``embed`` would; return facts about it, and findings, such as a failure."""
    from encoder_engine.embedding.any_model import load_dense
    from encoder_engine.families.checkpoints.files import resolve_directory

    facts: dict[str, Any] = {"name": name}
    try:
        directory = resolve_directory(name)
        facts["directory"] = str(directory)
        facts["files"] = _files(directory)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            embedder: Any = load_dense(directory)
        if embedder.engine.name == "static":
            described, num_vectors = _describe_table(embedder), embedder.model.table.num_ids
            folders = [directory]
        else:
            described, num_vectors = _describe(embedder), embedder.engine.spec.embedding.vocab_size
            folders = [directory, embedder.recipe.encoder_directory]
        facts.update(described)
        facts["first_vector"] = _first_vector(embedder)
    except EncoderEngineError as error:
        what = f"the model does not work: {' '.join(str(error).split())}"
        mend = _MEND_UNSUPPORTED if isinstance(error, UnsupportedFeatureError) else _MEND
        if isinstance(error, MissingDependencyError):
            mend = install_command(error.library, error.extra)
        return facts, [Finding("problem", what, mend)]
    return facts, [*_warnings(caught), *_judge(embedder, num_vectors, folders)]


def _files(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): binary_size(path.stat().st_size)
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.relative_to(directory).parts[0].startswith(".")
    }


def _describe(embedder: Embedder) -> dict[str, Any]:
    engine, spec, recipe = embedder.engine, embedder.engine.spec, embedder.recipe
    known, table = embedder.tokenizer.vocab_size, spec.embedding.vocab_size
    return {
        "family": spec.model_type,
        "blocks": len(spec.blocks),
        "width": spec.width,
        "dimension": embedder.dimension,
        "parameters": sum(prod(shape) for shape in encoder_shapes(spec).values()),
        "dtype": engine.dtype,
        "engine": _describe_engine(embedder),
        "pooling": ", ".join(recipe.pooling),
        "normalized": recipe.normalized,
        "prompts": {name: prompt for name, prompt in recipe.prompts.items() if prompt},
        "tokenizer": _describe_tokenizer(embedder),
        "vocabulary": f"tokenizer {known}, model {table}",
        "truncation": (
            f"at {embedder.max_seq_length} tokens; the model has {spec.max_length} positions"
        ),
    }


def _describe_tokenizer(embedder: Embedder | StaticEmbedder) -> str:
    model = embedder.tokenizer.spec.model
    if not isinstance(model, LibrarySpec):
        return model.description
    return f"{model.description}, some 80 times as slow as the engine: {model.reason}"


def _describe_table(embedder: StaticEmbedder) -> dict[str, Any]:
    table, settings, limit = embedder.model.table, embedder.model.settings, embedder.max_seq_length
    return {
        "family": f"a static table, by the rules of {settings.rules}",
        "dimension": embedder.dimension,
        "dtype": table.dtype,
        "normalized": settings.normalized,
        "prompts": {name: prompt for name, prompt in settings.prompts.items() if prompt},
        "tokenizer": _describe_tokenizer(embedder),
        "vocabulary": f"tokenizer {embedder.tokenizer.vocab_size}, table {table.num_ids}",
        "truncation": "none" if limit is None else f"at {limit} tokens",
    }


def _describe_engine(embedder: Embedder) -> str:
    """Return the name of an embedder's engine, and why it is not the compiled engine."""
    from encoder_engine.engine.choosing import EngineRequest, refuse_compiled

    engine = embedder.engine
    described = f"{engine.name} on {engine.device}"
    if engine.name == "compiled":
        return described
    reason = refuse_compiled(embedder.recipe.encoder_directory, EngineRequest())
    return described if reason is None else f"{described}; the compiled one: {reason}"


def _first_vector(embedder: Embedder | StaticEmbedder) -> str:
    vector = embedder.encode(_PROBE, prompt="")
    norm = float((vector.astype("float64") ** 2).sum() ** 0.5)
    return f"{len(vector)} features, length {norm:.6f}"


def _warnings(caught: Sequence[warnings.WarningMessage]) -> list[Finding]:
    return [Finding("advice", str(w.message), "decide whether that is meant") for w in caught]


def _judge(
    embedder: Embedder | StaticEmbedder, num_vectors: int, folders: Sequence[Path]
) -> list[Finding]:
    found = []
    known = embedder.tokenizer.vocab_size
    if known < 0.9 * num_vectors:
        found.append(
            Finding(
                "advice",
                f"the tokenizer knows {known} tokens, the model has vectors for {num_vectors}",
                "make sure that the tokenizer files are this model's",
            )
        )
    probe = embedder.tokenizer.encode(_PROBE)
    if len(set(probe.tolist())) <= 3:
        found.append(
            Finding(
                "problem",
                "an English sentence becomes the same token over and over",
                "the vocabulary is not this model's, or damaged; fetch it again",
            )
        )
    if not any(map(recorded_checksums, folders)):
        found.append(
            Finding(
                "note",
                f"{folders[0]} records no checksums, so silent damage would go unseen",
                "when you trust its files: sha256sum *.safetensors *.json *.txt > SHA256SUMS",
            )
        )
    return found
