"""onnxruntime on the graph that its transformer optimizer fuses; int8: its dynamic quantization."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.jobs.padded import BATCH_SIZES, embed_sorted, kept, onnx_file
from benchmarks.peers import EmbeddingPeer, embedding_library

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measuring.case import EmbeddingJob


def load(job: EmbeddingJob) -> Callable[[int], Any]:
    """Convert and load the model; return a function from a batch size to the texts' vectors."""
    import onnxruntime

    folder = kept(job, f"onnxruntime-{job.precision}", partial(_convert, job))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    session = onnxruntime.InferenceSession(
        f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"]
    )
    return embed_sorted(
        job, lambda ids, mask: session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
    )


def _convert(job: EmbeddingJob, folder: str) -> None:
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.optimizer import optimize_model

    config = json.loads((Path(job.directory) / "config.json").read_text("utf-8"))
    fused = optimize_model(
        onnx_file(job),
        model_type="bert",
        num_heads=config["num_attention_heads"],
        hidden_size=config["hidden_size"],
        opt_level=0,
    )
    fused.save_model_to_file(f"{folder}/model.onnx")
    if job.precision == "int8":
        Path(folder, "model.onnx").rename(f"{folder}/fused.onnx")
        quantize_dynamic(
            f"{folder}/fused.onnx",
            f"{folder}/model.onnx",
            weight_type=QuantType.QInt8,
            per_channel=True,
            # The fused nodes' types cannot be inferred.
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )


WAY = EmbeddingPeer(
    name="onnxruntime",
    load=load,
    batch_sizes=BATCH_SIZES,
    precisions=frozenset({"float32", "int8"}),
)
MODULES = {"onnxruntime": "onnxruntime", "onnx": "onnx"}
PEERS = (embedding_library("onnxruntime", MODULES, WAY),)
