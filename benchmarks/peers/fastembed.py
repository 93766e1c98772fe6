"""fastembed on the exported model; it keeps the order of the texts, and pads each batch."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.jobs.padded import BATCH_SIZES, kept, onnx_file
from benchmarks.peers import EmbeddingPeer, embedding_library

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measuring.case import EmbeddingJob

DEFAULT_BATCH_SIZE = 256
NAME = "exported"


def load(job: EmbeddingJob) -> Callable[[int], Any]:
    """Export and load the model; the result embeds all texts in batches of a given size."""
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    folder = kept(job, f"fastembed-{job.max_length}", partial(_export, job))
    config = json.loads((Path(folder) / "config.json").read_text("utf-8"))
    # A second call in a process finds it; the exported graph pools and normalizes.
    if all(known["model"] != NAME for known in TextEmbedding.list_supported_models()):
        TextEmbedding.add_custom_model(
            model=NAME,
            pooling=PoolingType.DISABLED,
            normalization=False,
            sources=ModelSource(hf=NAME),
            dim=config["hidden_size"],
            model_file="model.onnx",
        )
    model = TextEmbedding(NAME, threads=job.threads, cuda=False, specific_model_path=folder)
    texts = list(job.texts)
    return lambda batch_size: np.stack(list(model.embed(texts, batch_size=batch_size)))


def _export(job: EmbeddingJob, folder: str) -> None:
    directory = Path(job.directory)
    for name in ("tokenizer.json", "config.json"):
        shutil.copy(directory / name, folder)
    written = directory / "tokenizer_config.json"
    settings = json.loads(written.read_text("utf-8")) if written.is_file() else {}
    settings["model_max_length"] = job.max_length
    (Path(folder) / written.name).write_text(json.dumps(settings), "utf-8")
    (Path(folder) / "model.onnx").symlink_to(onnx_file(job))


PEERS = (
    embedding_library(
        "fastembed",
        {"fastembed": "fastembed", "onnxruntime": "onnxruntime"},
        EmbeddingPeer(
            name="fastembed", load=load, batch_sizes=(DEFAULT_BATCH_SIZE,), keep_slow=True
        ),
        EmbeddingPeer(
            name="fastembed tuned", load=load, batch_sizes=(*BATCH_SIZES, DEFAULT_BATCH_SIZE)
        ),
    ),
)
