"""transformers: AutoModel with SDPA, length-sorted batches and mean pooling by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.peers import EmbeddingPeer, Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    from benchmarks.measuring.case import EmbeddingJob

# One text at a time pads nothing.
BATCH_SIZES = (1, 4, 8, 16, 32)


def load(job: EmbeddingJob, dtype: str | None = None) -> Callable[[int], Any]:
    """Load the model; return a function from a batch size to the texts' vectors."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    torch.set_num_threads(job.threads)
    tokenizer = AutoTokenizer.from_pretrained(job.directory)
    model = AutoModel.from_pretrained(
        job.directory, dtype=getattr(torch, dtype or job.precision)
    ).eval()
    model.to(job.device)
    texts = list(job.texts)

    def encode(batch_size: int) -> npt.NDArray[np.floating]:
        ids = tokenizer(texts, truncation=True, max_length=job.max_length)["input_ids"]
        order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
        vectors = torch.empty(
            len(ids), model.config.hidden_size, dtype=model.dtype, device=job.device
        )
        with torch.inference_mode():
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                vectors[rows] = _mean_vectors(model, tokenizer, [ids[row] for row in rows])
        return (vectors if dtype is not None else vectors.float()).cpu().numpy()

    return encode


def _mean_vectors(model: Any, tokenizer: Any, ids: Sequence[Sequence[int]]) -> Any:
    import torch.nn.functional as F  # noqa: N812

    batch = tokenizer.pad({"input_ids": ids}, return_tensors="pt").to(model.device)
    hidden = model(**batch).last_hidden_state
    mask = batch["attention_mask"][:, :, None].to(hidden.dtype)
    return F.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)


def float64_vectors(job: EmbeddingJob) -> npt.NDArray[np.float64]:
    """Embed a job's texts by transformers in float64, one at a time; return the vectors, [N, D].

    Before a candidate is timed, its output is compared with these vectors.
    """
    vectors: npt.NDArray[np.float64] = load(job, "float64")(1)
    return vectors


PEER = Peer(
    name="transformers",
    modules={"transformers": "transformers", "tokenizers": "tokenizers"},
    embedding=(
        EmbeddingPeer(
            name="transformers sorted",
            load=load,
            batch_sizes=BATCH_SIZES,
            precisions=frozenset({"float32", "bfloat16"}),
        ),
    ),
)
PEERS = (PEER,)
