"""OpenVINO with requests in flight; int8 by NNCF's quantization, calibrated on the texts."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.padded import BATCH_SIZES, export_onnx, load_tokenizer, padded_batches, sorted_rows
from benchmarks.peers import EmbeddingPeer, Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.case import EmbeddingJob

NUM_CALIBRATED = 128
HINTS = {"float32": "f32", "bfloat16": "bf16", "int8": "f32"}


def load(job: EmbeddingJob) -> Callable[[int], Any]:
    """Convert and load the model; the result embeds all texts in batches of a given size."""
    import openvino

    with tempfile.TemporaryDirectory() as folder:
        model = openvino.convert_model(export_onnx(job, folder))
    tokenizer = load_tokenizer(job)
    if job.precision == "int8":
        model = _quantized(model, job, tokenizer)
    compiled = openvino.compile_model(
        model,
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": HINTS[job.precision],
            "PERFORMANCE_HINT": "THROUGHPUT",
            "INFERENCE_NUM_THREADS": job.threads,
        },
    )
    queue = openvino.AsyncInferQueue(compiled)
    width = model.outputs[0].get_partial_shape()[1].get_length()

    def encode(batch_size: int) -> Any:
        ids, order = sorted_rows(tokenizer, job)
        vectors = np.empty((len(ids), width), np.float32)

        def keep(request: Any, rows: list[int]) -> None:
            vectors[rows] = request.get_output_tensor().data

        queue.set_callback(keep)
        for rows, padded, mask in padded_batches(ids, order, batch_size):
            queue.start_async({"input_ids": padded, "attention_mask": mask}, rows)
        queue.wait_all()
        return vectors

    return encode


def _quantized(model: Any, job: EmbeddingJob, tokenizer: Any) -> Any:
    import nncf

    ids, order = sorted_rows(tokenizer, job)
    spread = order[:: max(1, len(order) // NUM_CALIBRATED)]
    inputs = [
        {"input_ids": padded, "attention_mask": mask}
        for _, padded, mask in padded_batches(ids, spread, 1)
    ]
    return nncf.quantize(model, nncf.Dataset(inputs), model_type=nncf.ModelType.TRANSFORMER)


PEER = Peer(
    name="OpenVINO",
    modules={"openvino": "openvino", "nncf": "nncf"},
    embedding=(
        EmbeddingPeer(
            name="OpenVINO",
            load=load,
            batch_sizes=BATCH_SIZES,
            precisions=frozenset({"float32", "bfloat16", "int8"}),
        ),
    ),
    environment="embedding",
    only_there=True,
)
