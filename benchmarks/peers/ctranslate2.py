"""CTranslate2, with a batch for each thread at once; it takes lists of ids and pads them itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.jobs.padded import (
    BATCH_SIZES,
    kept,
    load_tokenizer,
    mean_vectors,
    padded_batches,
    sorted_rows,
)
from benchmarks.peers import EmbeddingPeer, embedding_library

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measuring.case import EmbeddingJob


def load(job: EmbeddingJob) -> Callable[[int], Any]:
    """Convert and load the model; return a function from a batch size to the texts' vectors."""
    import ctranslate2

    encoder = ctranslate2.Encoder(
        kept(job, "ctranslate2", partial(_convert, job)),
        device="cpu",
        compute_type=job.precision,
        inter_threads=job.threads,
        intra_threads=1,
    )
    tokenizer = load_tokenizer(job)
    pool = ThreadPoolExecutor(job.threads)

    def encode(batch_size: int) -> Any:
        ids, order = sorted_rows(tokenizer, job)
        batches = list(padded_batches(ids, order, batch_size))

        def embed(rows: list[int], mask: Any) -> Any:
            output = encoder.forward_batch([ids[row] for row in rows])
            return mean_vectors(np.array(output.last_hidden_state), mask)

        found = list(pool.map(lambda batch: embed(batch[0], batch[2]), batches))
        vectors = np.empty((len(ids), found[0].shape[1]), np.float32)
        vectors[order] = np.concatenate(found)
        return vectors

    return encode


def _convert(job: EmbeddingJob, folder: str) -> None:
    import ctranslate2

    ctranslate2.converters.TransformersConverter(job.directory).convert(folder, force=True)


WAY = EmbeddingPeer(
    name="CTranslate2",
    load=load,
    batch_sizes=BATCH_SIZES,
    precisions=frozenset({"float32", "int8"}),
)
PEERS = (embedding_library("CTranslate2", {"ctranslate2": "ctranslate2"}, WAY),)
