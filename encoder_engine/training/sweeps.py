"""Trains models over combinations of settings and seeds, and tabulates their scores.

A sweep's folder holds a folder for each combination of settings, in it one for each seed, and
``sweep.json``. Every run is resumable, so the same call resumes a sweep.
"""

from __future__ import annotations

import json
import re
from itertools import product
from typing import TYPE_CHECKING, TypeVar

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError, NonFiniteLossError
from encoder_engine.files import write_atomically
from encoder_engine.metrics.intervals import Interval, seed_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["SweepCell", "read_sweep", "run_sweep", "summarise_seeds", "sweep_table"]

SEEDS, SWEEP = "seeds.json", "sweep.json"
Recipe = TypeVar("Recipe")
# The longest name of a file on most file systems.
NAME_BYTES = 255


@dataclass(frozen=True, kw_only=True)
class SweepCell:
    """The scores of one combination of settings, over all seeds.

    ``settings``: values by key, such as ``{"run.steps": "100"}``.
    ``scores``: means over the seeds; ``intervals``: their t intervals, empty for a single seed.
    ``diverged``: the message of the first run whose loss was not finite, if any: then ``scores`` is
    empty.
    """

    settings: dict[str, str]
    scores: dict[str, float]
    intervals: dict[str, Interval]
    diverged: str | None = None


def read_sweep(given: Sequence[str]) -> list[dict[str, str]]:
    """Return every combination of the values in ``key=a,b`` strings; the last key varies fastest.

    Commas within brackets do not separate. Raises :class:`ConfigError` for a string of another
    form, and for a key or a value that is given twice.
    """
    values: dict[str, list[str]] = {}
    for text in given:
        key, equals, listed = text.partition("=")
        parts = [part.strip() for part in _split(listed)]
        if not key or not equals or not all(parts):
            raise ConfigError(f"sweep={text}: expected KEY=A,B, such as run.steps=100,200")
        if key in values or len(set(parts)) < len(parts):
            raise ConfigError(f"sweep={text} repeats a key or a value; name each once")
        values[key] = parts
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def run_sweep(
    directory: Path,
    combinations: Sequence[Mapping[str, str]],
    num_seeds: int,
    *,
    read: Callable[[list[str]], Recipe],
    run: Callable[[Recipe, int, Path], Mapping[str, float]],
) -> list[SweepCell]:
    """Run every combination with every seed, and write ``sweep.json``.

    ``read``: a function from settings ``key=value`` to a recipe. All recipes are read before the
    first run, so that a wrong value of the last combination does not end a sweep after hours.
    ``run``: a function from a recipe, the seed's index and the run's folder to the run's scores. If
    a run of a combination diverges, the combination has no scores; the others are still run. Raises
    :class:`ConfigError` if two combinations would get the same folder name, or one a name that is
    too long for a file system, and what ``read`` raises.
    """
    names = [_folder_name(settings) for settings in combinations]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(
            f"two combinations of the sweep would share the folder {twice}, because their values "
            "differ only in punctuation; run them as two sweeps with different outputs"
        )
    longest = max((len(name.encode()) for name in names), default=0)
    if longest > NAME_BYTES:
        raise ConfigError(
            f"a folder of the sweep would have a name of {longest} bytes, from its settings; the "
            f"limit is {NAME_BYTES}: shorten the values, or sweep fewer keys at a time"
        )
    recipes = [
        read([f"{key}={value}" for key, value in settings.items()]) for settings in combinations
    ]
    cells = []
    for name, settings, recipe in zip(names, combinations, recipes, strict=True):
        folder = directory / name if name else directory
        try:
            scores = [
                dict(run(recipe, seed, folder / f"seed-{seed}" if num_seeds > 1 else folder))
                for seed in range(num_seeds)
            ]
        except NonFiniteLossError as error:
            cells.append(
                SweepCell(settings=dict(settings), scores={}, intervals={}, diverged=str(error))
            )
            continue
        intervals = summarise_seeds(folder, scores) if num_seeds > 1 else {}
        means = {key: found.mean for key, found in intervals.items()} or scores[0]
        cells.append(SweepCell(settings=dict(settings), scores=means, intervals=intervals))
    rows = [
        {
            "settings": cell.settings,
            "scores": cell.scores,
            "intervals": {key: found._asdict() for key, found in cell.intervals.items()},
            "diverged": cell.diverged,
        }
        for cell in cells
    ]
    content = json.dumps({"seeds": num_seeds, "rows": rows}, indent=1) + "\n"
    write_atomically(directory / SWEEP, content.encode())
    return cells


def summarise_seeds(directory: Path, scores: Sequence[Mapping[str, float]]) -> dict[str, Interval]:
    """Return mean, deviation and t interval of each score over the seeds; write ``seeds.json``."""
    found = {name: seed_interval([run[name] for run in scores]) for name in scores[0]}
    values = {name: interval._asdict() for name, interval in found.items()}
    content = json.dumps({"seeds": len(scores), "scores": values}, indent=1) + "\n"
    write_atomically(directory / SEEDS, content.encode())
    return found


def sweep_table(cells: Sequence[SweepCell], digits: int = 3) -> list[list[str]]:
    """Return header and rows of a table: settings, then each score with half its interval's width.

    A score that a combination does not have is ``-``.
    """
    keys = list(dict.fromkeys(key for cell in cells for key in cell.settings))
    names = list(dict.fromkeys(name for cell in cells for name in cell.scores))
    table = [[*keys, *(name.replace("_", " ") for name in names)]]
    for cell in cells:
        row = [cell.settings.get(key, "-") for key in keys]
        for name in names:
            if name not in cell.scores:
                row.append("-")
                continue
            shown = f"{cell.scores[name]:.{digits}f}"
            interval = cell.intervals.get(name)
            if interval is not None:
                shown += f" \u00b1 {interval.high - interval.mean:.{digits}f}"
            row.append(shown)
        table.append(row)
    return table


def _split(listed: str) -> list[str]:
    """Split a string at the commas outside of brackets and braces."""
    parts, depth = [""], 0
    for character in listed:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _folder_name(settings: Mapping[str, str]) -> str:
    text = ",".join(f"{key}={value}" for key, value in settings.items())
    return re.sub(r"[^\w.=,+-]+", "_", text)
