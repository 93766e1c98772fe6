"""The tasks of ``embed``: the options of each task, and the function that loads its model."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import pooling_modes
from encoder_engine.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from encoder_engine.jobs.job import DatasetJob
    from encoder_engine.kinds.kind import Kind

__all__ = ["EmbedTask", "open_task"]

# The options of vectors [N, D], which the other tasks do not have.
_OF_VECTORS = ("pooling", "normalize_embeddings", "truncate_dim", "max_seq_length")
_OWN = {"kind": "tokens", "max_active_dims": "sparse", "pair_column": "scores"}


@dataclass(frozen=True, kw_only=True)
class EmbedTask:
    """The work of the verb ``embed``: a job over files, and a function that loads its model.

    load: maps the model's name to the :class:`Kind` that computes the results.
    """

    job: DatasetJob
    load: Callable[[str], Kind]


def open_task(inputs: tuple[str, ...], output: str, options: dict[str, Any]) -> EmbedTask:
    """Check a task's options, its inputs and its output, before a model is loaded.

    Raises ``click.UsageError`` for an option that the task does not support.
    """
    from encoder_engine.jobs.job import DatasetOptions, open_job

    task = options["task"]
    _check_options(task, options)
    options = {**options, "kind": options["kind"] or "document"}
    chosen = {f.name: options[f.name] for f in fields(DatasetOptions) if f.name in options}
    if task == "scores":
        chosen["column"] = options["column"] or "query"
        chosen["pair_column"] = options["pair_column"] or "text"
    job = open_job(inputs, output, DatasetOptions(**chosen, encode=_call(task, options)))
    return EmbedTask(job=job, load=lambda model: _load(task, model, options))


def _check_options(task: str, options: dict[str, Any]) -> None:
    for name, owner in _OWN.items():
        if options[name] is not None and task != owner:
            raise click.UsageError(f"--{name.replace('_', '-')} is an option of --task {owner}")
    if task == "dense":
        return
    for name in _OF_VECTORS:
        if options[name] is not None:
            option = "normalize" if name == "normalize_embeddings" else name.replace("_", "-")
            raise click.UsageError(f"--{option} is an option of --task dense")
    if options["precision"] != "float32":
        raise click.UsageError("--precision is an option of --task dense")
    if task == "tokens" and (options["prompt"] or options["prompt_name"]):
        raise click.UsageError("--task tokens has the prompts of --kind; leave --prompt out")


def _call(task: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return those options that are keyword arguments of the task's :meth:`Kind.resolve`."""
    names = ["batch_tokens", "on_truncation"]
    if task != "tokens":
        names += ["prompt", "prompt_name"]
    own = {
        "dense": ["normalize_embeddings", "truncate_dim", "precision"],
        "sparse": ["max_active_dims"],
    }
    call = {name: options[name] for name in [*names, *own.get(task, ())]}
    if task == "tokens":
        call |= {"prompt_name": options["kind"], "route": options["kind"]}
    return call | ({"route": "document"} if task == "sparse" else {})


def _load(task: str, name: str, options: dict[str, Any]) -> Kind:
    from encoder_engine.embedding import MultiVectorEmbedder, SparseEmbedder
    from encoder_engine.embedding.any_model import load_dense, load_ranker

    loading: dict[str, Any] = {
        "device": options["device"],
        "dtype": options["dtype"],
        "quantization": options["quantization"],
        "num_threads": options["threads"],
        "engine": options["engine"],
        **option.hub_keywords(options),
    }
    if task == "sparse":
        return SparseEmbedder.from_pretrained(name, **loading).kind
    if task == "scores":
        return load_ranker(name, **loading).kind
    if task == "tokens":
        return MultiVectorEmbedder.from_pretrained(name, **loading).kind
    model = load_dense(
        name,
        pooling=pooling_modes(options["pooling"]),
        max_seq_length=options["max_seq_length"],
        **loading,
    )
    return model.kind
