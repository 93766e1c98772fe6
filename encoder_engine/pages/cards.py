"""Datasheets of corpora and model cards, in Markdown, made from manifests.

The sections follow Gebru et al. (2021) and Mitchell et al. (2019). Questions that no manifest can
answer are listed with an empty answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["datasheet", "model_card"]

_UNKNOWN = "*not recorded: answer here*"
_CORPUS_QUESTIONS = {
    "Motivation": (
        "For what task was the corpus gathered, by whom, and who paid?",
        "Who wrote the texts, and did they know that models would be trained on them?",
    ),
    "Rights": (
        "Under what licence or law are the texts used, and may the corpus be passed on?",
        "How can a person have their text removed, and from the models trained on it?",
    ),
    "Harms": (
        "Whose language, dialect or view is missing or rare, and who decided so?",
        "What insults, stereotypes or false claims do the texts hold? Who looked, and how?",
        "Patterns find addresses and numbers alone. Which names, health or other private facts "
        "remain?",
        "Did a filter above drop the language of a group more often than that of others?",
        "For what use would the corpus do harm, and what keeps it from that use?",
    ),
}
_MODEL_QUESTIONS = {
    "Intended use": (
        "Who is to use the model, for what decision, and who answers for the decision?",
        "For what use is it not fit?",
    ),
    "Harms": (
        "For which groups of people or texts was the score measured apart, and where is it lower?",
        "What happens to a person whom a wrong prediction concerns, and how can they object?",
        "Which associations of names, genders, origins or dialects did a test look for?",
        "Can the model repeat private facts of its training texts? Who tried?",
        "How will it be noticed that the texts of use differ from those of training?",
    ),
}


def datasheet(name: str, facts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a corpus' datasheet in Markdown; ``facts``: recorded values, by section and name."""
    return _page(f"Datasheet of {name}", facts, _CORPUS_QUESTIONS)


def model_card(name: str, facts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the card of a model in Markdown; ``facts``: recorded values, by section and name."""
    return _page(f"Model card of {name}", facts, _MODEL_QUESTIONS)


def _page(
    title: str, facts: Mapping[str, Mapping[str, Any]], questions: Mapping[str, Sequence[str]]
) -> str:
    lines = [f"# {_plain(title)}", "", "Tables are recorded values. Questions wait for an answer."]
    for section, values in facts.items():
        lines += ["", f"## {_plain(section)}", "", *(_table(values) if values else [_UNKNOWN])]
    for section, listed in questions.items():
        lines += ["", f"## {section}", ""]
        lines += [f"- {question} {_UNKNOWN}" for question in listed]
    return "\n".join(lines) + "\n"


def _table(values: Mapping[str, Any]) -> Iterator[str]:
    yield from ("| what | recorded |", "|---|---|")
    for name, value in values.items():
        yield f"| {_plain(name)} | {_plain(_shown(value))} |"


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_shown, value)) or "none"
    return "none" if value is None else str(value)


def _plain(text: str) -> str:
    """Escape a text, in which Markdown and HTML then see no markup and no new table cell."""
    for mark in "\\`*_[]<>|#":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
