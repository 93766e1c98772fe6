"""``encoder-engine card``: a corpus' datasheet or a model's card, from recorded manifests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli.common import debug_option
from encoder_engine.errors import InputError
from encoder_engine.files import PendingFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    Facts = dict[str, Mapping[str, Any]]


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True, path_type=Path))
@click.option("--output", "-o", metavar="FILE", help="The .md file to write.  [default: print it]")
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
@debug_option
def card(path: Path, output: str | None, overwrite: bool) -> None:
    """Write the datasheet of a corpus, or the card of a trained model, in Markdown.

    PATH: FILE.manifest.json that clean wrote, a folder of prepare, or a run's folder of finetune
    or pretrain. What they do not record, the page asks: harms first of all.
    """
    page = _page(path)
    if output is None:
        click.echo(page, nl=False)
        return
    pending = PendingFile(Path(output), overwrite=overwrite)
    try:
        pending.stream.write(page.encode())
        pending.publish()
    finally:
        pending.discard()


def _page(path: Path) -> str:
    from encoder_engine.pages.cards import datasheet, model_card

    if path.is_file():
        return datasheet(path.name.removesuffix(".manifest.json"), _cleaned(path))
    if (path / "recipe.json").is_file():
        return model_card(path.name, _run(path))
    if (path / "manifest.json").is_file():
        return datasheet(path.name, _prepared(path))
    raise InputError(
        f"{path} has neither recipe.json nor manifest.json; name a run's folder, a folder of "
        "prepare, or a manifest of clean"
    )


def _cleaned(path: Path) -> Facts:
    value = _read(path)
    counts = value.get("counts", {})
    if "read" not in counts:
        raise InputError(f"{path} is no manifest of clean: it has no counts of texts")
    # Files of several folders may share a name.
    files = {
        f"{number}. {one['name']}": "size unknown"
        if one["bytes"] is None
        else f"{one['bytes']:,} bytes"
        for number, one in enumerate(value["inputs"], 1)
    }
    numbers = {name: counts[name] for name in ("read", "kept", "characters", "with_personal")}
    return {
        "Sources": files,
        "Composition": numbers,
        "Dropped texts, by reason": counts["dropped"],
        "Languages of kept texts": counts["languages"],
        "Personal data that patterns found": counts["personal"],
        "Cleaning": value["settings"],
        "Integrity": {"SHA-256 of the kept rows": value["sha256"], "version": value["version"]},
    }


def _prepared(folder: Path) -> Facts:
    from encoder_engine.data.shards import Corpus

    corpus = Corpus.open(folder, verify=False)
    return {
        "Composition": {
            "documents": corpus.num_documents,
            "sentences": corpus.num_sentences,
            "tokens": corpus.num_tokens,
            "shards": len(corpus.shards),
            "languages": list(corpus.languages),
        },
        "Vocabulary": {
            "size": corpus.vocabulary.size,
            "SHA-256 of the tokenizer": corpus.vocabulary.fingerprint,
        },
    }


def _run(folder: Path) -> Facts:
    recipe = _read(folder / "recipe.json")
    facts: Facts = {
        f"Recipe: {section}": {name: _name(value) for name, value in values.items()}
        for section, values in recipe.items()
        if isinstance(values, dict)
    }
    if (folder / "data.json").is_file():
        facts["Data"] = {
            f"{part}, {name}": _name(value)
            for part, values in _read(folder / "data.json").items()
            if isinstance(values, dict)
            for name, value in values.items()
        }
    if (folder / "report.json").is_file():
        report = _read(folder / "report.json")
        intervals = report.get("intervals", {})
        facts["Scores on dev, which chose the checkpoint"] = {
            name: _score(value, intervals.get(name)) for name, value in report["scores"].items()
        }
        facts["Warnings"] = {"degenerate": report.get("degenerate"), "notes": report.get("notes")}
    return facts


def _read(path: Path) -> dict[str, Any]:
    from encoder_engine.json_values import read_value

    return read_value(path, InputError).object()


def _name(value: object) -> object:
    """Return paths without their folders, which may name people."""
    if isinstance(value, str):
        return value.rsplit("/", 1)[-1]
    return [_name(one) for one in value] if isinstance(value, list) else value


def _score(value: float, interval: Mapping[str, float] | None) -> str:
    if interval is None:
        return f"{value:.4g}"
    return f"{value:.4g} ({interval['low']:.4g} to {interval['high']:.4g})"
