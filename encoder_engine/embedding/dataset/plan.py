"""The plan of a run: every value that decides its bytes; only an equal plan may resume."""

from __future__ import annotations

import importlib.metadata
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.text.fingerprint import tokenizer_fingerprint

if TYPE_CHECKING:
    from encoder_engine.embedding.dataset.job import DatasetJob
    from encoder_engine.embedding.dataset.model import JobModel


def describe_embedding(model: JobModel, resolved: Any) -> dict[str, Any]:
    """Describe model, tokenizer, options and versions, as values of JSON: all that decides vectors.

    What changes only the speed (batches, threads) is left out. ``resolved``: the options of the
    call, as the model has resolved them.
    """
    engine = model.engine
    return {
        "model": {
            "fingerprint": engine.fingerprint(),
            "dtype": engine.dtype,
            "device": engine.device.partition(":")[0],
            "quantization": engine.quantization,
            "engine": engine.name,
            "max_seq_length": model.max_seq_length,
            **model.describe_model(),
        },
        "tokenizer": {"fingerprint": tokenizer_fingerprint(model.tokenizer)},
        "options": model.describe_options(resolved),
        "versions": _versions() | engine.versions(),
    }


def make_plan(model: JobModel, job: DatasetJob, resolved: Any) -> dict[str, Any]:
    """Describe model, tokenizer, options of call and job, and versions, as values of JSON.

    The plan leaves out workers, ``on_error``, and the names of the inputs, whose rows are compared
    by their digests. ``resolved``: as for :func:`describe_embedding`.
    """
    options, found = job.options, describe_embedding(model, resolved)
    return {
        **found,
        "options": {
            **found["options"],
            "column": job.inputs.reading.columns.text,
            "id_column": options.id_column,
            "max_characters": options.max_characters,
            "unique_ids": options.unique_ids,
            "shard_rows": job.shard_rows,
            "shard_format": job.shard_format,
            # Folders of vectors record neither.
            **({} if options.task == "dense" else {"task": options.task}),
            **({} if options.pair_column is None else {"pair_column": options.pair_column}),
            **({"keep": list(options.keep)} if options.keep else {}),
        },
        "versions": _versions(job.shard_format) | found["versions"],
    }


def _versions(shard_format: str = "npy") -> dict[str, str]:
    versions = {
        "encoder-engine": str(sys.modules["encoder_engine"].__version__),
        "numpy": np.__version__,
    }
    if shard_format != "npy":
        versions["pyarrow"] = importlib.metadata.version("pyarrow")
    if shard_format == "lance":
        versions["pylance"] = importlib.metadata.version("pylance")
    return versions
