"""Runs calls of other libraries: ``their_process.py JOBS RESULTS``.

Runs in their environment, and imports nothing of this project. JOBS is a JSON list; a job has:

- ``library``, and ``paths``, the directories of its models by name;
- ``values``: what else the calls name;
- ``calls``: expressions;
- ``make``: the arguments with which the library makes and saves a model first; may be absent.

RESULTS is a pickle: for each job, a dict from a call to its values in float32 and in float64.
"""

from __future__ import annotations

import json
import pickle
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

# fastembed's names of models of these kinds; a folder given beside them is read in their place.
SPLADE, COLBERT = "prithivida/Splade_PP_en_v1", "colbert-ir/colbertv2.0"
OWN = "own"


class Graph(torch.nn.Module):
    """A model of transformers as the graph of an ONNX file: from ids and mask to one output."""

    def __init__(self, kind: str, directory: str) -> None:
        super().__init__()
        import transformers

        loader = {
            "masked": transformers.AutoModelForMaskedLM,
            "ranking": transformers.AutoModelForSequenceClassification,
        }.get(kind, transformers.AutoModel)
        self.model = loader.from_pretrained(directory, attn_implementation="eager").eval()
        self.projection: torch.Tensor | None = None
        if kind == "late":
            from safetensors.torch import load_file

            weights = load_file(Path(directory) / "model.safetensors")
            self.projection = torch.nn.Parameter(weights["linear.weight"])

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        names = ("input_ids", "attention_mask", "token_type_ids")
        found: torch.Tensor = self.model(**dict(zip(names, inputs, strict=False)))[0]
        if self.projection is None:
            return found
        return torch.nn.functional.normalize(found @ self.projection.T, dim=-1)


class ExactSession:
    """A graph in float64, in the place of a session of onnxruntime."""

    def __init__(self, graph: Graph, names: list[str]) -> None:
        self.graph, self.names = graph.double(), names

    def get_inputs(self) -> list[SimpleNamespace]:
        """Name the inputs."""
        return [SimpleNamespace(name=name) for name in self.names]

    def run(self, _outputs: object, feed: dict[str, Any]) -> list[Any]:
        """Compute the output."""
        with torch.no_grad():
            return [self.graph(*(torch.from_numpy(feed[name]) for name in self.names)).numpy()]


def load_fastembed(kind: str, directory: str, loader: Any, name: str, *, exact: bool) -> Any:
    """Write a model and its tokenizer as fastembed reads them, beside it, and load them."""
    from transformers import AutoTokenizer

    folder = Path(f"{directory}-{kind}-onnx")
    names = ["input_ids", "attention_mask", "token_type_ids"][: 3 if kind == "ranking" else 2]
    graph = Graph(kind, directory)
    if not folder.is_dir():
        AutoTokenizer.from_pretrained(directory).save_pretrained(folder)
        torch.onnx.export(
            graph,
            tuple(torch.ones(2, 8, dtype=torch.long) for _ in names),
            str(folder / "model.onnx"),
            input_names=names,
            output_names=["output"],
            dynamic_axes={one: {0: "batch", 1: "length"} for one in names},
            opset_version=17,
            dynamo=False,
        )
    model = loader(name, cuda=False, specific_model_path=str(folder))
    if exact:
        model.model.model = ExactSession(graph, names)
    return model


def fastembed_names(paths: dict[str, str], *, exact: bool) -> dict[str, Any]:
    """Return what calls of fastembed name."""
    from fastembed import LateInteractionTextEmbedding, SparseTextEmbedding, TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType
    from fastembed.rerank.cross_encoder import TextCrossEncoder

    if not exact:
        own: dict[str, Any] = {
            "model": OWN,
            "sources": ModelSource(hf=OWN),
            "model_file": "model.onnx",
        }
        # The models are pooled by mean, and their vectors normalized.
        TextEmbedding.add_custom_model(**own, pooling=PoolingType.MEAN, normalization=True, dim=1)
        TextCrossEncoder.add_custom_model(**own)
    kinds = {
        "model": ("path", TextEmbedding, OWN),
        "sparse": ("masked", SparseTextEmbedding, SPLADE),
        "colbert": ("late", LateInteractionTextEmbedding, COLBERT),
        "ranker": ("ranking", TextCrossEncoder, OWN),
    }
    return {
        key: load_fastembed(kind, paths[kind], loader, name, exact=exact)
        for key, (kind, loader, name) in kinds.items()
    }


def flag_names(paths: dict[str, str], *, exact: bool) -> dict[str, Any]:
    """Return what calls of FlagEmbedding name."""
    import FlagEmbedding

    def on_cpu(kind: Any) -> Callable[..., Any]:
        def load(path: str, **options: Any) -> Any:
            model = kind(path, devices="cpu", **options)
            if exact:
                model.model.double()
            return model

        return load

    names = {
        name: on_cpu(getattr(FlagEmbedding, name))
        for name in ("FlagModel", "BGEM3FlagModel", "FlagReranker")
    }
    found = dict(names)
    if "path" in paths:
        options = {"pooling_method": "cls", "normalize_embeddings": True}
        found["model"] = names["FlagModel"](paths["path"], use_fp16=False, **options)
    if "m3_path" in paths:
        found["m3"] = names["BGEM3FlagModel"](paths["m3_path"], use_fp16=False)
    return found


def pylate_names(paths: dict[str, str], *, exact: bool) -> dict[str, Any]:
    """Return what calls of PyLate name."""
    from pylate import models, rank, scores

    model = models.ColBERT(paths["late"], device="cpu")
    return {"model": model.double() if exact else model, "rank": rank, "scores": scores}


def model2vec_names(_paths: dict[str, str], *, exact: bool) -> dict[str, Any]:
    """Return what the call of model2vec names that needs an extra; ``exact`` changes nothing."""
    from model2vec.distill import distill

    return {"distill": distill}


def make_flag(source: str, folder: str) -> None:
    """Put new layers on an encoder, and save the model as FlagEmbedding's training does."""
    from FlagEmbedding.finetune.embedder.encoder_only.m3 import (
        EncoderOnlyEmbedderM3Model,
        EncoderOnlyEmbedderM3Runner,
    )
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source)
    parts = EncoderOnlyEmbedderM3Runner.get_model(source)
    EncoderOnlyEmbedderM3Model(parts, tokenizer=tokenizer).save(folder)
    tokenizer.save_pretrained(folder)


def make_pylate(source: str, folder: str, **options: Any) -> None:
    """Put a new projection on an encoder, and save the model."""
    from pylate import models

    model = models.ColBERT(source, embedding_size=6, device="cpu", **options)
    model.save_pretrained(folder, create_model_card=False)


NAMES: dict[str, Callable[..., dict[str, Any]]] = {
    "fastembed": fastembed_names,
    "FlagEmbedding": flag_names,
    "PyLate": pylate_names,
    "model2vec": model2vec_names,
}
MAKERS: dict[str, Callable[..., None]] = {"FlagEmbedding": make_flag, "PyLate": make_pylate}


def plain(value: Any) -> Any:
    """Return a result as numbers and arrays in lists and dicts."""
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if hasattr(value, "as_dict"):
        value = value.as_dict()
    if isinstance(value, dict):
        return {key: float(number) for key, number in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Run a job: each call's values in float32 and in float64."""
    torch.manual_seed(6)
    if "make" in job:
        MAKERS[job["library"]](**job["make"])
    found = []
    evaluate: Callable[..., Any] = eval
    rounded = torch.Tensor.float
    for exact in (False, True):
        # The libraries round scores to float32.
        torch.Tensor.float = torch.Tensor.double if exact else rounded  # type: ignore[method-assign]
        names = job["values"] | job["paths"] | NAMES[job["library"]](job["paths"], exact=exact)
        found.append([plain(evaluate(call, dict(names))) for call in job["calls"]])
    torch.Tensor.float = rounded  # type: ignore[method-assign]
    return dict(zip(job["calls"], zip(*found, strict=True), strict=True))


def main(jobs: Path, results: Path) -> None:
    """Run all jobs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [run(job) for job in json.loads(jobs.read_text("utf-8"))]
    results.write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
