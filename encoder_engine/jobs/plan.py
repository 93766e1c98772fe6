"""The plan of a run: all values that decide the bytes it writes; only an equal plan is resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.kinds.plan import describe_results, library_versions
from encoder_engine.records import describe_changes

if TYPE_CHECKING:
    from encoder_engine.jobs.job import DatasetJob
    from encoder_engine.kinds.kind import Kind
    from encoder_engine.records import Difference

# The keywords of calls whose values have another name in the plan.
_KEYWORDS = {
    "normalized": "normalize_embeddings",
    "dimension": "truncate_dim",
    "sparse_pooling": "pooling",
}
_FINGERPRINTS = {"model.fingerprint": "model", "tokenizer.fingerprint": "tokenizer"}
_SHOWN_DIGITS = 12


def make_plan(kind: Kind, job: DatasetJob, resolved: Any) -> dict[str, Any]:
    """Return a run's plan: model, tokenizer, options of call and job, versions, as JSON values.

    The plan leaves out workers, ``on_error``, and the names of the inputs, whose rows are compared
    by their digests. ``resolved``: the options of the call, as for :func:`describe_results`.
    """
    options, found = job.options, describe_results(kind, resolved)
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
            # Left out where they have their defaults.
            **({} if options.task == "dense" else {"task": options.task}),
            **({} if options.pair_column is None else {"pair_column": options.pair_column}),
            **({"keep": list(options.keep)} if options.keep else {}),
        },
        "versions": library_versions(job.shard_format) | found["versions"],
    }


def plan_changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Describe how a run's plan differs from a folder's; empty: the run may resume."""
    return describe_changes(before, now, _describe_change)


def _describe_change(found: Difference) -> str:
    """Describe a difference: an option by its name, with both values."""
    if found.name in _FINGERPRINTS:
        digits = [str(value)[:_SHOWN_DIGITS] for value in (found.before, found.now)]
        shown = f"its SHA-256 was {digits[0]}..., is {digits[1]}..."
        return f"another {_FINGERPRINTS[found.name]} ({shown})"
    group, _, key = found.name.partition(".")
    if group in ("model", "options") and "." not in key:
        return str(found._replace(name=f"{_KEYWORDS.get(key, key)}="))
    return str(found)
