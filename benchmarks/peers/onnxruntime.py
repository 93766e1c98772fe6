"""onnxruntime with its transformer optimizer's fused graph; int8 by its dynamic quantization."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.padded import BATCH_SIZES, embed_sorted, export_onnx
from benchmarks.peers import EmbeddingPeer, Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.case import EmbeddingJob


def load(job: EmbeddingJob) -> Callable[[int], Any]:
    """Convert and load the model; the result embeds all texts in batches of a given size."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    with tempfile.TemporaryDirectory() as folder:
        path = _optimized(job, folder)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return embed_sorted(
        job,
        lambda ids, mask: session.run(None, {"input_ids": ids, "attention_mask": mask})[0],
    )


def _optimized(job: EmbeddingJob, folder: str) -> str:
    from onnxruntime.transformers.optimizer import optimize_model

    config = json.loads((Path(job.directory) / "config.json").read_text("utf-8"))
    fused = optimize_model(
        export_onnx(job, folder),
        model_type="bert",
        num_heads=config["num_attention_heads"],
        hidden_size=config["hidden_size"],
        opt_level=0,
    )
    path = f"{folder}/fused.onnx"
    fused.save_model_to_file(path)
    if job.precision == "float32":
        return path
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantized = f"{folder}/int8.onnx"
    quantize_dynamic(path, quantized, weight_type=QuantType.QInt8, per_channel=True)
    return quantized


PEER = Peer(
    name="onnxruntime",
    modules={"onnxruntime": "onnxruntime", "onnx": "onnx"},
    embedding=(
        EmbeddingPeer(
            name="onnxruntime",
            load=load,
            batch_sizes=BATCH_SIZES,
            precisions=frozenset({"float32", "int8"}),
        ),
    ),
    environment="embedding",
    only_there=True,
)
