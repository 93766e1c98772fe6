"""OpenVINO with several asynchronous requests at once, as float32, bfloat16 and int8.

int8 is NNCF's post-training quantization, calibrated on some of the texts to embed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.jobs.padded import (
    BATCH_SIZES,
    kept,
    load_tokenizer,
    onnx_file,
    padded_batches,
    sorted_rows,
)
from benchmarks.peers import EmbeddingPeer, embedding_library

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measuring.case import EmbeddingJob

NUM_CALIBRATED = 128
HINTS = {"float32": "f32", "bfloat16": "bf16", "int8": "f32"}


def load(job: EmbeddingJob) -> Callable[[int], Any]:
    """Convert and load the model; return a function from a batch size to the texts' vectors."""
    import openvino

    kind = "int8" if job.precision == "int8" else "float"
    folder = kept(job, f"openvino-{kind}", partial(_convert, job))
    model = openvino.Core().read_model(f"{folder}/model.xml")
    tokenizer = load_tokenizer(job)
    compiled = openvino.compile_model(
        model,
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": HINTS[job.precision],
            "PERFORMANCE_HINT": "THROUGHPUT" if len(job.texts) > 1 else "LATENCY",
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


def _convert(job: EmbeddingJob, folder: str) -> None:
    import nncf
    import openvino

    model = openvino.convert_model(onnx_file(job))
    if job.precision == "int8":
        ids, order = sorted_rows(load_tokenizer(job), job)
        spread = order[:: max(1, len(order) // NUM_CALIBRATED)]
        inputs = [
            {"input_ids": padded, "attention_mask": mask}
            for _, padded, mask in padded_batches(ids, spread, 1)
        ]
        model = nncf.quantize(model, nncf.Dataset(inputs), model_type=nncf.ModelType.TRANSFORMER)
    openvino.save_model(model, f"{folder}/model.xml", compress_to_fp16=False)


WAY = EmbeddingPeer(
    name="OpenVINO",
    load=load,
    batch_sizes=BATCH_SIZES,
    precisions=frozenset({"float32", "bfloat16", "int8"}),
)
PEERS = (embedding_library("OpenVINO", {"openvino": "openvino", "nncf": "nncf"}, WAY),)
