"""``encoder-engine card``: writes a corpus' datasheet or a model card from recorded manifests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import write_page
from encoder_engine.errors import InputError
from encoder_engine.json_values import JsonValue, read_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    Facts = dict[str, Mapping[str, Any]]

# The keys of recipes and of data.json whose values are files, folders or hub ids.
_PATHS = frozenset(("checkpoint", "corpus", "dev", "files", "teacher", "train", "_name_or_path"))


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True, path_type=Path))
@click.option("--output", "-o", metavar="FILE", help="The .md file to write.  [default: print it]")
@option.overwrite
def card(path: Path, output: str | None, overwrite: bool) -> None:
    """Write the datasheet of a corpus, or the card of a model.

    The page is in Markdown. PATH is the FILE.manifest.json that clean wrote, a folder of prepare,
    or a run's folder of finetune or pretrain. The page lists open questions for facts that these do
    not record, first of all harms.
    """
    page = _page(path)
    if output is None:
        click.echo(page, nl=False)
    else:
        write_page(output, page, overwrite=overwrite)


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
    value = _read(path, "; name a manifest as clean wrote it")
    if not value.get("counts").get("read").present:
        raise InputError(f"{path} is no manifest of clean: it has no counts of texts")
    counts, numbers = value.get("counts"), ("read", "kept", "characters", "with_personal")
    # Files of several folders may share a name.
    files = {
        f"{number}. {one.get('name').string(surrogates=True)}": _size(one.get("bytes"))
        for number, one in enumerate(value.get("inputs").items(), 1)
    }
    return {
        "Sources": files,
        "Composition": {name: counts.get(name).integer(most=None) for name in numbers},
        "Dropped texts, by reason": counts.get("dropped").object(),
        "Languages of kept texts": counts.get("languages").object(),
        "Personal data that patterns found": counts.get("personal").object(),
        "Cleaning": value.get("settings").object(),
        "Integrity": {
            "SHA-256 of the kept rows": value.get("sha256").string(),
            "version": value.get("version").string(),
        },
    }


def _size(value: JsonValue) -> str:
    return "size unknown" if value.is_null else f"{value.integer(most=None):,} bytes"


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
    recipe = _read(folder / "recipe.json").members()
    facts: Facts = {
        f"Recipe: {section}": {name: _named(name, inner) for name, inner in values.value.items()}
        for section, values in recipe.items()
        if isinstance(values.value, dict)
    }
    if (folder / "data.json").is_file():
        facts["Data"] = {
            f"{part}, {name}": _named(name, inner)
            for part, values in _read(folder / "data.json").members().items()
            if isinstance(values.value, dict)
            for name, inner in values.value.items()
        }
    if (folder / "report.json").is_file():
        report = _read(folder / "report.json")
        intervals = report.get("intervals").optional(JsonValue.members) or {}
        facts["Scores on dev, which chose the checkpoint"] = {
            name: _score(value, intervals.get(name))
            for name, value in report.get("scores").members().items()
        }
        facts["Warnings"] = {name: report.get(name).value for name in ("degenerate", "notes")}
    return facts


def _read(path: Path, mend: str = "; copy the folder again") -> JsonValue:
    return read_value(path, InputError, mend=mend)


def _named(name: str, value: object, *, is_path: bool = False) -> object:
    """Return a manifest's value with paths shortened to the last part: folders may name people.

    Values under the keys ``_PATHS``, and all absolute paths, are shortened, at any depth. A slash
    in another value, such as the label N/A, stays.
    """
    is_path = is_path or name in _PATHS
    if isinstance(value, str):
        path = Path(value)
        return path.name if is_path or path.is_absolute() or value.startswith("~") else value
    if isinstance(value, list):
        return [_named("", one, is_path=is_path) for one in value]
    if isinstance(value, dict):
        return {key: _named(key, one, is_path=is_path) for key, one in value.items()}
    return value


def _score(value: JsonValue, interval: JsonValue | None) -> str:
    shown = f"{value.number():.4g}"
    if interval is None:
        return shown
    low, high = (interval.get(name).number() for name in ("low", "high"))
    return f"{shown} ({low:.4g} to {high:.4g})"
