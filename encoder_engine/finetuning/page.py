"""Builds a run's report, one HTML page: scores, losses, and the task's own tables and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from encoder_engine.pages.report import Bars, Drawing, Part, Table, report_page
from encoder_engine.training.curves import draw_losses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["run_page"]


def run_page(
    name: str, report: Mapping[str, Any], log: Sequence[dict[str, Any]], recipe: Mapping[str, Any]
) -> str:
    """Return the HTML page of a fine-tuning run, made of its report, log and recipe."""
    return report_page(
        f"{name}: {report['task']}", _summary(report), [*_parts(report, log, recipe)]
    )


def _summary(report: Mapping[str, Any]) -> str:
    rows = report["rows"]
    sentences = [f"Trained on {rows['train']} rows."]
    if report["scores"]:
        sentences.append(
            f"The {rows['dev']} dev rows chose the checkpoint, so their scores flatter it."
        )
    else:
        sentences.append("There were no dev rows: nothing is scored.")
    if report["degenerate"]:
        sentences.append(f"Warning: {report['degenerate']}.")
    sentences += [f"Note: {note}." for note in report["notes"]]
    return " ".join(sentences)


def _parts(
    report: Mapping[str, Any], log: Sequence[dict[str, Any]], recipe: Mapping[str, Any]
) -> Iterator[Part]:
    if report["scores"]:
        yield Table(
            title="Scores on dev",
            columns=["score", "value", "interval"],
            rows=[
                [name, f"{value:.4g}", _interval(report["intervals"].get(name))]
                for name, value in report["scores"].items()
            ],
            note="Intervals are bootstraps over rows.",
        )
    yield Drawing(title="Training loss over tokens", svg=draw_losses(log))
    curves = [record for record in log if "evaluation" in record]
    if curves:
        names = list(curves[0]["evaluation"])[:5]
        yield Table(
            title="Evaluations",
            columns=["step", *names],
            rows=[
                [str(one["step"]), *(f"{one['evaluation'][name]:.4g}" for name in names)]
                for one in curves
            ],
        )
    yield from _details(report["details"])
    yield Table(
        title="Recipe",
        columns=["setting", "value"],
        rows=[
            [f"{section}.{key}", str(value)]
            for section, values in recipe.items()
            for key, value in values.items()
            if value not in (None, [], "", {})
        ],
    )


def _interval(value: Mapping[str, float] | None) -> str:
    return "" if value is None else f"{value['low']:.4g} to {value['high']:.4g}"


def _details(details: Mapping[str, Any]) -> Iterator[Part]:
    confusion = details.get("confusion")
    if confusion:
        labels = confusion["labels"]
        yield Table(
            title="Confusion",
            columns=["gold", *labels],
            rows=[
                [label, *map(str, counts)]
                for label, counts in zip(labels, confusion["counts"], strict=True)
            ],
            note="Columns are predictions.",
        )
    for kind, title in (("labels", "Scores of each label"), ("entities", "Scores of each type")):
        scores = details.get(kind)
        if scores:
            names = list(next(iter(scores.values())))
            yield Table(
                title=title,
                columns=["", *names],
                rows=[
                    [label, *(f"{found[name]:.4g}" for name in names)]
                    for label, found in scores.items()
                ],
            )
    reliability = details.get("reliability")
    if reliability:
        for kind, title in (("raw", "Reliability"), ("calibrated", "Reliability, calibrated")):
            fit = reliability[kind]
            there = [n for n, count in enumerate(fit["counts"]) if count]
            yield Bars(
                title=title,
                labels=[f"{fit['confidence'][n]:.2f} ({fit['counts'][n]} rows)" for n in there],
                values=[fit["accuracy"][n] for n in there],
                note=f"Accuracy by mean confidence; calibration error {fit['ece']:.2f}%.",
                form=".2f",
            )
