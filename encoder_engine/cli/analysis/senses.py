"""``encoder-engine senses``: measures how well a model's token vectors tell word senses apart.

Each test word gets the sense of its lemma whose mean training vector has the greatest cosine. For
pairs of sentences (WiC), the cosine of the word's two vectors decides if its sense is the same.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.analysis.common import analysis_options, load_subject, write_result

if TYPE_CHECKING:
    from encoder_engine.analysis.senses import SenseWord
    from encoder_engine.pages.report import Part

# The static vectors of a word, and whether its sentence has a part in them.
KINDS = {", static word": False, ", static sentence": True}


@click.command()
@option.model
@click.argument("files", metavar="DATA...", nargs=-1, required=True)
@click.option(
    "--test", multiple=True, metavar="FILE", help="Words to decide; DATA then trains.  Repeatable."
)
@option.number(
    "--rows", "Words drawn of each file, half of which train; without --test.", 600, least=2
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the draw.")
@click.option(
    "--standardise", metavar="FILE", help="Standardise features by this .conllu or text file."
)
@option.number("--standardise-rows", "Sentences read of it.", 600)
@click.option(
    "--static",
    metavar="PATH",
    help="Compare with static vectors: a word2vec or GloVe text file, or a static model's folder.",
)
@analysis_options
def senses(model: str, files: tuple[str, ...], **options: Any) -> None:
    """Decide the senses of words by the nearest sense vector.

    DATA: lexical samples (Senseval XML), files of the unified format (NAME.data.xml, with
    NAME.gold.key.txt beside it), or .jsonl of word, s1, s2, label (WiC).
    """
    from encoder_engine.inputs.conll import plain_suffix

    samples = [file for file in files if plain_suffix(file) != ".jsonl"]
    if options["test"] and not samples:
        raise click.UsageError("--test decides words by those of DATA, and DATA is pairs alone")
    subject = load_subject(model, options)
    from encoder_engine.analysis.context_pairs import PairScores, read_pairs, score_pairs
    from encoder_engine.analysis.corpus import measure_corpus
    from encoder_engine.analysis.sense_page import (
        neighbour_table,
        pair_table,
        sense_map,
        sense_table,
    )
    from encoder_engine.analysis.senses import (
        SenseScores,
        draw_halves,
        read_words,
        score_senses,
        word_vectors,
    )
    from encoder_engine.analysis.static_words import StaticWords
    from encoder_engine.inputs.senses import read_senses
    from encoder_engine.inputs.tables import read_table

    static = None if options["static"] is None else StaticWords.open(options["static"])
    zscore = None
    if options["standardise"]:
        zscore = measure_corpus(subject, options["standardise"], options["standardise_rows"])
    found: dict[str, SenseScores] = {}
    pairs: dict[str, PairScores] = {}
    left_out: dict[str, int] = {}
    drawings: list[Part] = []
    splits: dict[str, tuple[list[SenseWord], list[SenseWord]]] = {}
    for file in files:
        if file not in samples:
            read, left_out[file] = read_pairs(list(read_table(file)))
            pairs[file] = score_pairs(partial(word_vectors, subject), read, zscore, options["seed"])
            if static is not None:
                for kind, whole in KINDS.items():
                    vectors_of = partial(static.vectors, with_sentence=whole)
                    pairs[file + kind] = score_pairs(vectors_of, read, None, options["seed"])
                    left_out[file + kind] = left_out[file]
        elif not options["test"]:
            words = read_words(list(read_senses(file)))
            splits[file] = draw_halves(words, options["rows"], options["seed"])
    if options["test"]:
        train = [word for file in samples for word in read_words(list(read_senses(file)))]
        splits = {name: (train, read_words(list(read_senses(name)))) for name in options["test"]}
    for name, (train, test) in splits.items():
        vectors = word_vectors(subject, train), word_vectors(subject, test)
        found[name] = score_senses(train, test, *vectors, zscore)
        shown = vectors[1] if zscore is None else zscore.apply(vectors[1])
        of_one_lemma = len({word.lemma for word in test}) == 1
        if of_one_lemma:
            drawings.append(sense_map(name, test, shown))
        if static is not None:
            for kind, whole in KINDS.items():
                known, tested = (static.vectors(w, with_sentence=whole) for w in (train, test))
                found[name + kind] = score_senses(train, test, known, tested)
                if of_one_lemma and whole:
                    drawings.append(sense_map(name, test, tested, kind=kind))
        drawings.append(neighbour_table(name, test, shown, static))
    parts: list[Part] = []
    if found:
        parts.append(sense_table(found, with_zscore=zscore is not None))
    if pairs:
        parts.append(pair_table(pairs))
    summary = (
        "A word's vector is the mean of its subwords, of the last four layers summed; it gets the "
        "sense of its lemma whose mean training vector has the greatest cosine."
    )
    if static is not None:
        tested_words = [word for _, test in splits.values() for word in test]
        known_words = f"{static.num_known(tested_words)} of {len(tested_words)} test"
        summary += (
            f" Static vectors of {options['static']}: the word alone, the same for every sense, "
            f"and the mean of its sentence. {known_words} words have one."
        )
    for file, number in left_out.items():
        if any(file.endswith(kind) for kind in KINDS):
            continue
        summary += f" {number} pairs of {file} were left out: a sentence has no form of the word."
    values = {
        "model": model,
        "senses": found,
        "pairs": {
            name: asdict(scores) | {"left_out": left_out[name]} for name, scores in pairs.items()
        },
        "dead_features": None if zscore is None else zscore.num_dead,
    }
    if options["html"]:
        parts += drawings
    write_result(f"Word senses of {model}", summary, parts, values, options)
