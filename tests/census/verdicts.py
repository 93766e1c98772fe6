"""Decides for each repository of the census whether it loads, by the readers that loading uses.

``python -m tests.census.verdicts`` writes verdicts.json, of which docs/make_models.py makes a page.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import encoder_engine.embedding
from encoder_engine.embedding.causal_ranker import PairTemplate, open_causal_directory
from encoder_engine.errors import (
    EncoderEngineError,
    UnknownConfigKeyWarning,
    UnsupportedFeatureError,
)
from encoder_engine.families.config import read_config, spec_from_config
from encoder_engine.families.heads import count_outputs, find_layout
from encoder_engine.families.registry import find_family
from encoder_engine.inference import CompiledEncoder
from encoder_engine.opening.late_interaction import open_late_interaction
from encoder_engine.opening.modules import RANKER_ORDER, SPARSE_ORDER
from encoder_engine.opening.opening import open_directory, open_embedder
from encoder_engine.opening.router import read_query_weights
from encoder_engine.opening.stack import read_linear
from tests.census.directories import Repository, read_repositories, write_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from encoder_engine.families.facts.head_layout import Task
    from encoder_engine.families.facts.spec import EncoderSpec

VERDICTS = Path(__file__).parent / "verdicts.json"
Verdict = dict[str, str]


def verdict(repository: Repository, folder: Path) -> Verdict:
    """Return ``{"as": ...}`` for a repository that loads, or ``{"refused": ...}`` with the reason.

    A configuration with a key that no family knows is refused too: its vectors are not certain.
    """
    directory = write_directory(repository, folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UnknownConfigKeyWarning)
            parts = LOADERS[repository["loader"]](directory, repository)
    except (EncoderEngineError, UnknownConfigKeyWarning) as error:
        message = str(error).replace(f"{folder}/", "").replace(str(folder), "the directory")
        return {"refused": message}
    return {"as": ", ".join(parts)}


def _spec(directory: Path) -> EncoderSpec:
    return spec_from_config(read_config(directory))


def _family(directory: Path, task: Task | None = None) -> list[str]:
    """Return the family, and what the head is; raise where there is no such head."""
    config = read_config(directory)
    spec = spec_from_config(config)
    found = [spec.model_type]
    if CompiledEncoder.supports(spec) is not None:
        found.append("by PyTorch alone")
    if task is not None:
        layout = find_layout(spec.model_type, task)
        if task == "sequence-classification":
            count = count_outputs(layout, spec, config)
            found.append(f"{count} label{'s' if count > 1 else ''}")
    return found


def _embedder(directory: Path, _: Repository) -> list[str]:
    opened = open_embedder(directory)
    recipe = opened.read_recipe(None)
    spec = _spec(opened.encoder_folder)
    mismatch = recipe.modules.mismatch(spec.width * len(recipe.pooling))
    assert mismatch is None, mismatch
    pooling = "+".join(recipe.pooling) + (" by default" if recipe.default_pooling else "")
    modules = [repr(module) for module in recipe.modules.modules]
    return [*_family(opened.encoder_folder), pooling, *modules, *["normalized"] * recipe.normalized]


def _hybrid(directory: Path, repository: Repository) -> list[str]:
    width = repository["config"]["hidden_size"]
    for name, rows in (("sparse_linear", 1), ("colbert_linear", width)):
        zeros = {"weight": torch.zeros(rows, width), "bias": torch.zeros(rows)}
        torch.save(zeros, directory / f"{name}.pt")
        assert read_linear(directory / f"{name}.pt").width == rows
    return [*_embedder(directory, repository), "sparse weights", "token vectors"]


def _multi_vector(directory: Path, _: Repository) -> list[str]:
    found = open_late_interaction(directory)
    spec = _spec(found.opened.encoder_folder)
    mismatch = found.modules.mismatch(spec.width)
    assert mismatch is None, mismatch
    expansion = found.expansion
    kind = "no expansion"
    if expansion is not None:
        attended = "attended" if expansion.attended else "unattended"
        kind = f"queries of {expansion.length} tokens, {attended}"
    modules = [repr(module) for module in found.modules.modules]
    return [*_family(found.opened.encoder_folder), *modules, kind]


def _sparse(directory: Path, _: Repository) -> list[str]:
    opened = open_directory(
        directory, "SparseEncoder", SPARSE_ORDER, task="fill-mask", reads="logits"
    )
    found = _family(opened.encoder_folder, "masked-lm")
    queries = read_query_weights(opened.routes)
    if queries is not None:
        assert len(queries.weights_V) == _spec(opened.encoder_folder).embedding.vocab_size
        found.append("weights for a query")
    return found


def _ranker(directory: Path, _: Repository) -> list[str]:
    opened = open_directory(directory, "CrossEncoder", RANKER_ORDER)
    return _family(opened.encoder_folder, "sequence-classification")


def _causal_ranker(directory: Path, _: Repository) -> list[str]:
    spec = _spec(directory)
    if not spec.is_causal or find_family(spec.model_type).vocabulary is None:
        raise UnsupportedFeatureError(f"a {spec.model_type} is no causal model")
    found = open_causal_directory(directory)
    words = "Qwen3-Reranker's" if isinstance(found.template, PairTemplate) else "the directory's"
    return [spec.model_type, f"the logits of two tokens after {words} template"]


def _static(directory: Path, repository: Repository) -> list[str]:
    kind: Any = getattr(encoder_engine.embedding, "StaticEmbedder", None)
    if kind is None:
        return _embedder(directory, repository)
    write_static(directory, model2vec=repository.get("model2vec", False))
    # Its width is that of the small table written here, not the repository's.
    assert kind.from_pretrained(directory).dimension
    return ["a table of vectors"]


def write_static(directory: Path, *, model2vec: bool) -> None:
    """Write a small static model in the layout of model2vec, or of sentence-transformers."""
    import numpy as np
    import tokenizers
    from safetensors.numpy import save_file

    from tests.embedding.tiny_model import VOCABULARY, write_json

    place = directory if model2vec else directory / "0_StaticEmbedding"
    place.mkdir(exist_ok=True)
    words = {token: number for number, token in enumerate(VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(words, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.save(str(place / "tokenizer.json"))
    for name in ("vocab.txt", "tokenizer_config.json"):
        (directory / name).unlink(missing_ok=True)
    table = np.ones((len(words), 8), np.float32)
    name = "embeddings" if model2vec else "embedding.weight"
    save_file({name: table}, place / "model.safetensors")
    if model2vec:
        settings = {"model_type": "model2vec", "architectures": ["StaticModel"], "hidden_dim": 8}
        write_json(place / "config.json", settings | {"normalize": True, "seq_length": 1000000})
    else:
        kind = "sentence_transformers.models.StaticEmbedding"
        listed = [{"idx": 0, "name": "0", "path": "0_StaticEmbedding", "type": kind}]
        write_json(directory / "modules.json", listed)


def _encoder(directory: Path, _: Repository) -> list[str]:
    return _family(directory)


LOADERS: dict[str, Callable[[Path, Repository], list[str]]] = {
    "CausalRanker": _causal_ranker,
    "Embedder": _embedder,
    "Encoder": _encoder,
    "HybridEmbedder": _hybrid,
    "MultiVectorEmbedder": _multi_vector,
    "Ranker": _ranker,
    "SparseEmbedder": _sparse,
    "StaticEmbedder": _static,
}


def decide_all() -> dict[str, Verdict]:
    """Return the verdict of every repository by its id."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            name: verdict(repository, Path(folder) / name)
            for name, repository in read_repositories().items()
        }


if __name__ == "__main__":
    VERDICTS.write_text(json.dumps(decide_all(), indent=0) + "\n", encoding="utf-8")
