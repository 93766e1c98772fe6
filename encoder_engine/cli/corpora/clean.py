"""``encoder-engine clean``: drops duplicates and masks personal data of a corpus."""

from __future__ import annotations

import importlib.metadata
import json
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import (
    count,
    engine_version,
    file_version,
    line_due,
    print_facts,
    print_json,
    resumable,
)
from encoder_engine.files import check_apart, write_atomically

if TYPE_CHECKING:
    from encoder_engine.data.hygiene.cleaning import CleanCounts, Cleaner

FORMAT = "encoder_engine clean 1"
COSINE = 0.95


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--output", "-o", required=True, metavar="FILE", help="The .jsonl file to write.")
@option.overwrite
@click.option("--column", default="text", show_default=True, help="The column of the texts.")
@click.option("--keep-exact", is_flag=True, help="Keep texts of equal normal form.")
@option.value(
    "--near",
    "Drop texts whose runs of words have this Jaccard similarity with a kept one; 0: none.",
    0.8,
    kind=click.FloatRange(0, 1),
)
@option.number("--shingle-words", "Words of a run.", 5)
@click.option("--semantic", metavar="MODEL", help="Drop texts by vectors of this embedder, too.")
@option.value(
    "--cosine",
    "With --semantic: the least cosine of duplicates.",
    COSINE,
    kind=click.FloatRange(0, 1, min_open=True),
)
@option.choice(
    "--personal",
    ["mask", "drop", "keep"],
    "Addresses and numbers of people: mask them, drop their texts, or do not look.",
    "mask",
)
@click.option("--label-languages", is_flag=True, help="Add a column of them.  [extra: clean]")
@click.option("--languages", metavar="A,B", help="Keep texts of these, such as en,de.")
@click.option(
    "--language-column",
    default="language",
    show_default=True,
    metavar="NAME",
    help="The column that takes the labels.",
)
@option.number("--least-characters", "Of a text.", 1, least=0)
@click.option("--dropped", metavar="FILE", help="Write a .jsonl of dropped rows' numbers.")
@option.number("--seed", "Of the hash functions.", 0, least=0)
@click.option("--device", default="auto", show_default=True, help="Of --semantic.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one line of JSON.")
@resumable()
def clean(inputs: tuple[str, ...], output: str, **options: Any) -> None:
    """Drop duplicates of texts, and mask personal data.

    Both are counted. The first of duplicates is kept, with all columns of its row. Only --column is
    masked: the others are written as they are. OUTPUT.manifest.json records settings and counts;
    encoder-engine card makes a datasheet of it. No text is printed. The same command resumes an
    interrupted run, whose rows are in _OUTPUT.partial, and ends in the same bytes.
    """
    from encoder_engine.data.hygiene.run import CleanJob, check_targets, clean_rows
    from encoder_engine.inputs.tables import read_table

    target = Path(output)
    if target.suffix != ".jsonl":
        raise click.BadParameter(f"{output} must end in .jsonl", param_hint="--output")
    if options["cosine"] != COSINE and not options["semantic"]:
        raise click.UsageError("--cosine compares vectors: name their model with --semantic")
    dropped = Path(options["dropped"]) if options["dropped"] else None
    if dropped is not None and dropped.absolute() == target.absolute():
        raise click.UsageError(f"--output and --dropped are both {output}; name another file")
    check_apart([target, *filter(None, [dropped])], [Path(name) for name in inputs])
    check_targets(target, dropped, overwrite=options["overwrite"])
    cleaner, model = _cleaner(options)
    job = CleanJob(
        output=target,
        dropped=dropped,
        column=options["column"],
        language_column=options["language_column"],
        begun=_begun(inputs, cleaner, options, model),
        overwrite=options["overwrite"],
    )
    due = line_due()

    def watch(counts: CleanCounts) -> None:
        if due():
            click.echo(f"Cleaning  {count(counts.read)} texts", err=True)

    def finish(sha256: str) -> None:
        manifest = {
            "format": FORMAT,
            "version": engine_version(),
            "inputs": [_described(name) for name in inputs],
            "settings": asdict(cleaner.settings)
            | {"semantic_model": options["semantic"] and Path(options["semantic"]).name},
            "counts": cleaner.counts.values(),
            "sha256": sha256,
        }
        encoded = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
        write_atomically(target.with_name(f"{target.name}.manifest.json"), encoded.encode())

    read = partial(read_table, keywords={options["column"]: "column="})
    records = chain.from_iterable(map(read, inputs))
    clean_rows(records, cleaner, job, finish=finish, watch=watch)
    counts = cleaner.counts
    if options["as_json"]:
        print_json(counts.values())
        return
    facts = {"read": count(counts.read), "kept": count(counts.kept)}
    facts |= {f"dropped: {reason}": count(n) for reason, n in counts.dropped.most_common()}
    facts |= {f"found: {kind}": count(n) for kind, n in counts.personal.most_common()}
    print_facts(f"Cleaned texts in {output}", facts)


def _begun(
    inputs: tuple[str, ...], cleaner: Cleaner, options: dict[str, Any], model: dict[str, Any] | None
) -> dict[str, Any]:
    """Return what the output depends on besides the rows, as JSON; to resume, it must be equal."""
    from encoder_engine.data.hygiene.cleaning import CLEANING
    from encoder_engine.inputs.sources import find_sources

    found = {
        "format": FORMAT,
        "cleaning": CLEANING,
        "version": engine_version(),
        "inputs": [
            [source.name, source.format, *file_version(Path(source.name))]
            for source in find_sources(list(inputs), None)
        ],
        "column": options["column"],
        "dropped": options["dropped"],
        "label_languages": options["label_languages"],
        "language_column": options["language_column"],
        "settings": asdict(cleaner.settings),
        "model": model,
        "versions": _versions(),
    }
    values: dict[str, Any] = json.loads(json.dumps(found))
    return values


def _versions() -> dict[str, str | None]:
    """Return the versions of the libraries that clean texts; None for one that is missing."""
    found: dict[str, str | None] = {}
    for name in ("numpy", "py3langid"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def _cleaner(options: dict[str, Any]) -> tuple[Cleaner, dict[str, Any] | None]:
    """Return the cleaner for the options, and a description of the model of ``--semantic``."""
    from encoder_engine.data.hygiene.cleaning import Cleaner, CleanSettings
    from encoder_engine.data.hygiene.languages import LanguageLabeller

    named = (options["languages"] or "").split(",")
    languages = tuple(name.strip() for name in named if name.strip())
    encode = label = described = None
    if options["semantic"]:
        from encoder_engine.embedding.any_model import load_dense
        from encoder_engine.kinds.plan import describe_results

        model = load_dense(options["semantic"], device=options["device"])
        encode = model.encode
        described = describe_results(model.kind, model.kind.resolve())
    if options["label_languages"] or languages:
        labeller = LanguageLabeller()
        labeller.check(languages)
        label = labeller.label
    settings = CleanSettings(
        exact=not options["keep_exact"],
        near=options["near"] or None,
        shingle_size=options["shingle_words"],
        semantic=options["cosine"] if options["semantic"] else None,
        personal=options["personal"],
        languages=languages,
        least_characters=options["least_characters"],
        seed=options["seed"],
    )
    return Cleaner(settings, encode=encode, label=label), described


def _described(name: str) -> dict[str, Any]:
    """Return the name of an input file without its folder, and its size."""
    path = Path(name)
    return {"name": path.name, "bytes": path.stat().st_size if path.is_file() else None}
