"""``encoder-engine clean``: drops duplicates and personal data of a corpus, and counts them."""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli.common import (
    count,
    debug_option,
    engine_version,
    line_due,
    print_facts,
    print_json,
)
from encoder_engine.files import PendingFile, check_apart, check_target, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator

    from encoder_engine.data.hygiene.cleaning import Cleaned, Cleaner
    from encoder_engine.inputs.records import Record

# Rows that are read, cleaned and written together.
WINDOW_ROWS = 2048
FORMAT = "encoder_engine clean 1"
COSINE = 0.95


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--output", "-o", required=True, metavar="FILE", help="The .jsonl file to write.")
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
@click.option("--column", default="text", show_default=True, help="The column of the texts.")
@click.option("--keep-exact", is_flag=True, help="Keep texts of equal normal form.")
@click.option(
    "--near",
    type=click.FloatRange(0, 1),
    default=0.8,
    show_default=True,
    help="Drop texts whose runs of words have this Jaccard similarity with a kept one; 0: none.",
)
@click.option(
    "--shingle-words",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Words of a run.",
)
@click.option("--semantic", metavar="MODEL", help="Drop texts by vectors of this embedder, too.")
@click.option(
    "--cosine",
    type=click.FloatRange(0, 1, min_open=True),
    default=COSINE,
    show_default=True,
    help="With --semantic: the least cosine of duplicates.",
)
@click.option(
    "--personal",
    type=click.Choice(["mask", "drop", "keep"]),
    default="mask",
    show_default=True,
    help="Addresses and numbers of people: mask them, drop their texts, or do not look.",
)
@click.option("--label-languages", is_flag=True, help="Add a column language.  [extra: clean]")
@click.option("--languages", metavar="A,B", help="Keep texts of these, such as en,de.")
@click.option(
    "--least-characters",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Of a text.",
)
@click.option("--dropped", metavar="FILE", help="Write a .jsonl of dropped rows' numbers.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the hash functions.")
@click.option("--device", default="auto", show_default=True, help="Of --semantic.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as one line of JSON.")
@debug_option
def clean(inputs: tuple[str, ...], output: str, **options: Any) -> None:
    """Drop duplicates of the texts of INPUT..., mask personal data, and count both.

    The first of duplicates is kept, with all columns of its row. OUTPUT.manifest.json records
    settings and counts; encoder-engine card makes a datasheet of it. No text is printed.
    """
    target = Path(output)
    if target.suffix != ".jsonl":
        raise click.BadParameter(f"{output} must end in .jsonl", param_hint="--output")
    if options["cosine"] != COSINE and not options["semantic"]:
        raise click.UsageError("--cosine compares vectors: name their model with --semantic")
    named = [target, *([Path(options["dropped"])] if options["dropped"] else [])]
    if len({path.absolute() for path in named}) < len(named):
        raise click.UsageError(f"--output and --dropped are both {output}; name another file")
    check_apart(named, [Path(name) for name in inputs])
    for path in named:
        check_target(path, overwrite=options["overwrite"])
    cleaner = _cleaner(options)
    digest, due = hashlib.sha256(), line_due()
    with ExitStack() as stack:
        files: list[PendingFile] = []
        for path in named:
            files.append(PendingFile(path, overwrite=options["overwrite"]))
            stack.callback(files[-1].discard)
        for records, found in _windows(inputs, options["column"], cleaner):
            lines = b"".join(
                _line(r, c, options["column"]) for r, c in zip(records, found, strict=True)
            )
            files[0].stream.write(lines)
            digest.update(lines)
            for pending in files[1:]:
                pending.stream.writelines(_dropped(cleaner.counts.read - len(found), found))
            if due():
                click.echo(f"Cleaning  {count(cleaner.counts.read)} texts", err=True)
        for pending in files:
            pending.publish()
    manifest = {
        "format": FORMAT,
        "version": engine_version(),
        "inputs": [_described(name) for name in inputs],
        "settings": asdict(cleaner.settings)
        | {"semantic_model": options["semantic"] and Path(options["semantic"]).name},
        "counts": cleaner.counts.values(),
        "sha256": digest.hexdigest(),
    }
    encoded = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    write_atomically(target.with_name(f"{target.name}.manifest.json"), encoded.encode())
    counts = cleaner.counts
    if options["as_json"]:
        print_json(counts.values())
        return
    facts = {"read": count(counts.read), "kept": count(counts.kept)}
    facts |= {f"dropped: {reason}": count(n) for reason, n in counts.dropped.most_common()}
    facts |= {f"found: {kind}": count(n) for kind, n in counts.personal.most_common()}
    print_facts(f"Cleaned texts in {output}", facts)


def _cleaner(options: dict[str, Any]) -> Cleaner:
    from encoder_engine.data.hygiene.cleaning import Cleaner, CleanSettings
    from encoder_engine.data.hygiene.languages import LanguageLabeller

    named = (options["languages"] or "").split(",")
    languages = tuple(name.strip() for name in named if name.strip())
    encode = label = None
    if options["semantic"]:
        from encoder_engine.embedding.any_model import load_dense

        encode = load_dense(options["semantic"], device=options["device"]).encode
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
    return Cleaner(settings, encode=encode, label=label)


def _windows(
    inputs: tuple[str, ...], column: str, cleaner: Cleaner
) -> Iterator[tuple[list[Record], list[Cleaned]]]:
    from encoder_engine.inputs.tables import read_table

    records = chain.from_iterable(map(read_table, inputs))
    while window := list(islice(records, WINDOW_ROWS)):
        yield window, cleaner.clean([record.text(column) for record in window])


def _line(record: Record, cleaned: Cleaned, column: str) -> bytes:
    from encoder_engine.data.row_files import json_line

    if cleaned.text is None:
        return b""
    values = {**record.values, column: cleaned.text}
    if cleaned.language is not None:
        values["language"] = cleaned.language
    return json_line(values, default=str)


def _dropped(first: int, found: list[Cleaned]) -> Iterator[bytes]:
    from encoder_engine.data.row_files import json_line

    for number, one in enumerate(found, first):
        if one.text is None:
            yield json_line({"row": number, "reason": one.reason, "original": one.original})


def _described(name: str) -> dict[str, Any]:
    """Return the name of an input without its folder, and its size."""
    path = Path(name)
    return {"name": path.name, "bytes": path.stat().st_size if path.is_file() else None}
