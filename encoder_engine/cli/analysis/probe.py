"""``encoder-engine probe``: linear probes and control tasks, by layer."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.analysis.common import analysis_options, load_subject, write_result
from encoder_engine.cli.common import count

if TYPE_CHECKING:
    from encoder_engine.analysis.probing import LayerProbe, MixProbe
    from encoder_engine.pages.report import Part


@click.command()
@option.model
@click.argument("train", metavar="TRAIN")
@click.argument("test", metavar="[TEST]", required=False)
@option.value(
    "--label-column",
    "A column of CoNLL-U: upos, xpos, or deprel, of a word and its head. Tags of .conll and "
    "targets of .jsonl have no other.",
    "upos",
    to="label",
)
@option.number("--train-rows", "Sentences read.  [default: all]")
@option.number("--test-rows", "Sentences read.  [default: all]")
@option.number("--hidden", "Features of a hidden layer; 0: linear probes.", 0, least=0)
@click.option("--no-control", is_flag=True, help="Leave out the control tasks.")
@click.option("--mix", is_flag=True, help="Probe mixes of layers 0 to l too.")
@option.number("--steps", "Of L-BFGS, most.", 300)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the control labels.")
@analysis_options
def probe(model: str, train: str, test: str | None, **options: Any) -> None:
    """Predict labels of words from each layer, by probes.

    The probes train on TRAIN and predict the labels of TEST. Without TEST, the sentences of TRAIN
    after the first --train-rows are the test.

    Files: .conllu, .conll with tags, or .jsonl of edge probing (text, targets).
    """
    subject = load_subject(model, options)
    from encoder_engine.analysis.edges import read_edges, split_edges
    from encoder_engine.analysis.probing import ProbeData, probe_layers, probe_mixes

    label, num_train, num_test = (options[n] for n in ("label", "train_rows", "test_rows"))
    if test is None:
        if num_train is None:
            raise click.UsageError("without TEST, --train-rows says where the test begins")
        most = None if num_test is None else num_train + num_test
        sets = split_edges(read_edges(train, label, most), num_train)
    else:
        sets = read_edges(train, label, num_train), read_edges(test, label, num_test)
    data = ProbeData.measure(subject, *sets, options["seed"])
    fitting = {"hidden": options["hidden"], "steps": options["steps"]}
    layers = probe_layers(data, control=not options["no_control"], **fitting)
    mix = probe_mixes(data, **fitting) if options["mix"] else None
    kind = f"hidden layer of {options['hidden']}" if options["hidden"] else "linear"
    summary = (
        f"Probes: {kind}. {count(data.train.shape[1])} training edges, "
        f"{count(data.test.shape[1])} test edges, {len(data.labels)} labels; the most frequent has "
        f"{data.most_frequent:.1f}% of the test. Layer 0 is the embeddings."
    )
    stopped = [str(found.layer) for found in layers if not found.converged]
    if stopped:
        summary += f" Unconverged after {options['steps']} steps: layers {', '.join(stopped)}."
    values = {
        "model": model,
        "label": sets[0].label,
        "train": data.train.shape[1],
        "test": data.test.shape[1],
        "labels": len(data.labels),
        "most_frequent": data.most_frequent,
        "layers": [asdict(found) | {"selectivity": found.selectivity} for found in layers],
        "mix": mix,
    }
    parts = _parts(layers, mix)
    write_result(f"Probes of {model}: {sets[0].label}", summary, parts, values, options)


def _parts(layers: tuple[LayerProbe, ...], mix: MixProbe | None) -> list[Part]:
    from encoder_engine.pages.drawings import draw_lines
    from encoder_engine.pages.report import Bars, Drawing, Table

    with_control = layers[0].control == layers[0].control
    rows = [
        (
            str(found.layer),
            f"{found.accuracy:.1f}",
            f"{found.control:.1f}" if with_control else "",
            f"{found.selectivity:.1f}" if with_control else "",
            "" if found.converged else "unconverged",
        )
        for found in layers
    ]
    lines = {"accuracy": [found.accuracy for found in layers]}
    if with_control:
        lines["control task"] = [found.control for found in layers]
    parts: list[Part] = [
        Table(
            title="Accuracy, percent",
            columns=("layer", "accuracy", "control", "selectivity", "note"),
            rows=rows,
        ),
        Drawing(
            title="Accuracy by layer", svg=draw_lines(lines, [str(found.layer) for found in layers])
        ),
    ]
    if mix is not None:
        expected = "none" if mix.expected_layer is None else f"{mix.expected_layer:.2f}"
        parts += [
            Table(
                title="Mixes of layers 0 to l",
                columns=("l", "accuracy"),
                rows=[(str(n), f"{value:.1f}") for n, value in enumerate(mix.accuracies)],
                note=f"Expected layer {expected}, where a loss counts as 0; centre of the weights "
                f"{mix.centre:.2f}." + ("" if mix.converged else " Unconverged."),
            ),
            Bars(
                title="Weights of the mix of all layers",
                labels=[f"layer {n}" for n in range(len(mix.weights))],
                values=mix.weights,
            ),
        ]
    return parts
