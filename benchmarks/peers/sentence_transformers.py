"""sentence-transformers with its torch backend in float32, as most people embed texts today."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.jobs.padded import kept
from benchmarks.peers import EmbeddingPeer, Peer, embedding_library
from benchmarks.peers.openvino import HINTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measuring.case import EmbeddingJob

# Its default is 32; it sorts by length itself.
DEFAULT_BATCH_SIZE = 32
BATCH_SIZES = (8, 16, 32, 64)
Backend = Literal["torch", "onnx", "openvino"]


def load(job: EmbeddingJob, *, backend: Backend = "torch") -> Callable[[int], Any]:
    """Load the model; return a function from a batch size to the texts' vectors."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(job.threads)
    directory = job.directory
    if backend != "torch":
        directory = kept(job, f"sentence-transformers-{backend}", partial(_export, job, backend))
    options: dict[str, Any] = {}
    if backend == "openvino":
        # By default OpenVINO computes a float32 model in bfloat16 on processors that have it.
        options = {"ov_config": {"INFERENCE_PRECISION_HINT": HINTS[job.precision]}}
    if job.device != "cpu":
        options = {"torch_dtype": job.precision}
    model = SentenceTransformer(directory, device=job.device, backend=backend, model_kwargs=options)
    model.max_seq_length = job.max_length
    texts = list(job.texts)
    return lambda batch_size: model.encode(texts, batch_size=batch_size, show_progress_bar=False)


def _export(job: EmbeddingJob, backend: Backend, folder: str) -> None:
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(job.directory, device="cpu", backend=backend).save_pretrained(folder)


PEER = Peer(
    name="sentence-transformers",
    modules={
        "sentence_transformers": "sentence-transformers",
        "transformers": "transformers",
        "tokenizers": "tokenizers",
    },
    embedding=(
        EmbeddingPeer(
            name="sentence-transformers",
            load=load,
            batch_sizes=(DEFAULT_BATCH_SIZE,),
            keep_slow=True,
        ),
    ),
)
# With its other CPU backends, as its documentation recommends.
BACKENDS: tuple[Backend, ...] = ("onnx", "openvino")
PEERS = (
    PEER,
    embedding_library(
        "sentence-transformers 5",
        {"sentence_transformers": "sentence-transformers", "optimum": "optimum"},
        *(
            EmbeddingPeer(
                name=f"sentence-transformers {backend}",
                load=partial(load, backend=backend),
                batch_sizes=BATCH_SIZES,
                precisions=frozenset({"float32", "bfloat16"}),
            )
            for backend in BACKENDS
        ),
    ),
)
