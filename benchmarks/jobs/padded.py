"""Functions for peers that pad: batches sorted by length, and the mean over tokens.

Peers import it in their own environments, so it needs only numpy, and what its functions import.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.environments import peers_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from benchmarks.measuring.case import EmbeddingJob

    Ids = npt.NDArray[np.int64]
    Vectors = npt.NDArray[np.float32]
    # (input_ids [b, L], attention_mask [b, L]) to unit vectors [b, D].
    EmbedBatch = Callable[[Ids, Ids], Vectors]

# One text at a time pads nothing.
BATCH_SIZES = (1, 4, 8, 16, 32, 64)


def load_tokenizer(job: EmbeddingJob) -> Any:
    """Load Hugging Face's own tokenizer; it cuts to the job's limit and pads nothing."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(job.directory) / "tokenizer.json"))
    tokenizer.enable_truncation(job.max_length)
    tokenizer.no_padding()
    return tokenizer


def sorted_rows(tokenizer: Any, job: EmbeddingJob) -> tuple[list[list[int]], list[int]]:
    """Tokenize all texts; return their ids, and their indices from the longest to the shortest."""
    ids = [encoding.ids for encoding in tokenizer.encode_batch(list(job.texts))]
    return ids, sorted(range(len(ids)), key=lambda row: -len(ids[row]))


def padded_batches(
    ids: list[list[int]], order: list[int], batch_size: int
) -> Iterator[tuple[list[int], Ids, Ids]]:
    """Yield for each batch the texts' indices, the padded ids [B, L] and the mask [B, L]."""
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        shape = (len(rows), len(ids[rows[0]]))
        padded, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for place, row in enumerate(rows):
            length = len(ids[row])
            padded[place, :length] = ids[row]
            mask[place, :length] = 1
        yield rows, padded, mask


def embed_sorted(job: EmbeddingJob, embed: EmbedBatch) -> Callable[[int], Vectors]:
    """Return a function from a batch size to the vectors of all the job's texts.

    ``embed``: computes the vectors of a padded batch from ids and mask.
    """
    tokenizer = load_tokenizer(job)

    def encode(batch_size: int) -> Vectors:
        ids, order = sorted_rows(tokenizer, job)
        found = None
        for rows, padded, mask in padded_batches(ids, order, batch_size):
            vectors = embed(padded, mask)
            if found is None:
                found = np.empty((len(ids), vectors.shape[1]), np.float32)
            found[rows] = vectors
        assert found is not None
        return found

    return encode


def mean_vectors(hidden_BLD: Vectors, mask_BL: Ids) -> Vectors:
    """Average the hidden states of each text's tokens and divide the mean by its L2 norm."""
    weights = mask_BL[:, :, None].astype(np.float32)
    sums = (hidden_BLD * weights).sum(axis=1)
    vectors: Vectors = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    return vectors


def pooled_module(job: EmbeddingJob, dtype: str = "float32", *, traceable: bool = False) -> Any:
    """Load the model by transformers, as a module from ids and mask to vectors or probabilities.

    transformers chooses the attention: MPNet and DeBERTa have no scaled dot products of PyTorch's.

    traceable: for ONNX export, compute a decoder's mask and positions here: the exporter fails in
    transformers' own mask, and onnxruntime refuses its positions, one row for all texts.
    """
    import torch
    from transformers import AutoModel

    torch.set_num_threads(job.threads)
    if job.classified:
        return _classifier(job, dtype)
    model = AutoModel.from_pretrained(job.directory, dtype=getattr(torch, dtype))

    causal = traceable and any(getattr(part, "is_causal", False) for part in model.modules())

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
            if causal:
                places = torch.arange(input_ids.shape[1])
                earlier_LL = places[:, None] >= places
                inputs["attention_mask"] = earlier_LL & (attention_mask[:, None, None, :] > 0)
                inputs["position_ids"] = places.expand(input_ids.shape[0], -1)
            hidden = self.model(**inputs)[0]
            weights = attention_mask[:, :, None].to(hidden.dtype)
            mean = (hidden * weights).sum(1) / weights.sum(1)
            return torch.nn.functional.normalize(mean, dim=-1)

    return Pooled().eval()


def _classifier(job: EmbeddingJob, dtype: str) -> Any:
    """Load a sequence classifier as a module from ids and mask to class probabilities."""
    import torch
    from transformers import AutoModelForSequenceClassification

    kind = AutoModelForSequenceClassification
    model = kind.from_pretrained(job.directory, dtype=getattr(torch, dtype))

    class Classified(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            logits = self.model(input_ids=input_ids, attention_mask=attention_mask)[0]
            return logits.float().softmax(-1)

    return Classified().eval()


def kept(job: EmbeddingJob, name: str, make: Callable[[str], None]) -> str:
    """Return a folder of the model in a peer's format; the first call makes it by ``make(folder)``.

    The timed process loads that folder, so its peak memory does not include the conversion.
    """
    weights = Path(job.directory) / "model.safetensors"
    identity = f"{weights.resolve()} {weights.stat().st_size} {weights.stat().st_mtime_ns} {name}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]
    folder = peers_folder() / "converted" / f"{name}-{key}"
    if not folder.is_dir():
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
        unfinished.mkdir(parents=True)
        make(str(unfinished))
        unfinished.replace(folder)
    return str(folder)


def export_onnx(job: EmbeddingJob, folder: str) -> None:
    """Export the model with its pooling as ``model.onnx`` in ``folder``."""
    import torch

    names = ["input_ids", "attention_mask"]
    torch.onnx.export(
        pooled_module(job, traceable=True),
        (torch.ones(2, 8, dtype=torch.long),) * 2,
        f"{folder}/model.onnx",
        input_names=names,
        output_names=["vectors"],
        dynamic_axes={name: {0: "batch", 1: "length"} for name in names},
        opset_version=17,
        dynamo=False,
    )


def onnx_file(job: EmbeddingJob) -> str:
    """Return the path of the model with its pooling as ONNX, which the first call exports."""
    folder = kept(job, "onnx", partial(export_onnx, replace(job, precision="float32")))
    return f"{folder}/model.onnx"
