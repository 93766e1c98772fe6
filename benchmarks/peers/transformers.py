"""transformers: AutoModel in float32 with SDPA, length-sorted batches and mean pooling by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.peers import EmbeddingPeer, Peer
from benchmarks.tuning import fastest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    from benchmarks.case import Call, EmbeddingJob, Settings

BATCH_SIZES = (4, 8, 16, 32)


def _load(job: EmbeddingJob, dtype: str = "float32") -> Callable[[int], Any]:
    import torch
    from transformers import AutoModel, AutoTokenizer

    torch.set_num_threads(job.threads)
    tokenizer = AutoTokenizer.from_pretrained(job.directory)
    model = AutoModel.from_pretrained(job.directory, dtype=getattr(torch, dtype)).eval()
    texts = list(job.texts)

    def encode(batch_size: int) -> npt.NDArray[np.floating]:
        ids = tokenizer(texts, truncation=True, max_length=job.max_length)["input_ids"]
        order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
        vectors = torch.empty(len(ids), model.config.hidden_size, dtype=model.dtype)
        with torch.inference_mode():
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                vectors[rows] = _mean_vectors(model, tokenizer, [ids[row] for row in rows])
        return vectors.numpy()

    return encode


def _mean_vectors(model: Any, tokenizer: Any, ids: Sequence[Sequence[int]]) -> Any:
    import torch.nn.functional as F  # noqa: N812

    batch = tokenizer.pad({"input_ids": ids}, return_tensors="pt")
    hidden = model(**batch).last_hidden_state
    mask = batch["attention_mask"][:, :, None].to(hidden.dtype)
    return F.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)


def build(job: EmbeddingJob, *, batch_size: int = 16) -> Call:
    """Load the model; a call embeds all texts."""
    encode = _load(job)
    return lambda: encode(batch_size)


def tune(job: EmbeddingJob) -> Settings:
    """Find the best batch size."""
    return {"batch_size": fastest(BATCH_SIZES, _load(job))}


def float64_vectors(job: EmbeddingJob) -> npt.NDArray[np.float64]:
    """Compute the truth the gates hold everyone to: the same in float64, one text at a time."""
    vectors: npt.NDArray[np.float64] = _load(job, "float64")(1)
    return vectors


PEER = Peer(
    name="transformers",
    modules={"transformers": "transformers", "tokenizers": "tokenizers"},
    embedding=(EmbeddingPeer(name="transformers sorted", build=build, tune=tune),),
)
