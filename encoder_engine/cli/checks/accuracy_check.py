"""Compares a model's precisions on texts, for ``doctor --accuracy``."""

from __future__ import annotations

import warnings
from itertools import islice
from typing import TYPE_CHECKING, Any

from encoder_engine.cli.checks.findings import Finding
from encoder_engine.errors import EncoderEngineError, MissingDependencyError, install_command

if TYPE_CHECKING:
    from encoder_engine.embedding.accuracy import Accuracy

# The mean over more texts hardly differs, and float64 is slow.
MOST_TEXTS = 1000
# The default texts, of several kinds and lengths.
EXAMPLES = (
    "No.",
    "Where is the nearest pharmacy?",
    "The quick brown fox jumps over the lazy dog.",
    "How do I cancel my subscription before the free month is over?",
    "The parcel arrived two days late, but the glass inside was not broken.",
    "def mean(values: list[float]) -> float:\n    return sum(values) / len(values)",
    "Water boils at a lower temperature on a mountain, because the air presses less on it.",
    "ERROR 2024-11-03 07:14:52 worker 7: connection refused by 10.0.0.12:5432, retrying in 30 s",
    "Die Bahn hatte wieder Verspätung, also haben wir den Anschluss in Hannover verpasst.",
    "La receta pide tres huevos, una taza de harina y la cáscara rallada de un limón.",
    "The court held that the contract was void, since one party had been misled about its subject.",
    "Mix the flour with the butter, add the eggs one by one, and let the dough rest for an hour in "
    "a cool place. Meanwhile heat the oven to 180 degrees and slice the apples thinly.",
    "Researchers followed 2,140 adults for twelve years and found that those who slept fewer than "
    "six hours a night were more often ill, even when age, weight, smoking and income were taken "
    "into account. The authors warn that such a study cannot show what causes what.",
    "The valley was settled late. For centuries only shepherds came, with the snow behind them in "
    "spring and before them in autumn; then, when the road was built, an inn, a mill and at last a "
    "church followed within a single generation. Today most of its houses stand empty for ten "
    "months of the year, and the school, which once had three teachers, was closed in 1998.",
)


def check_accuracy(
    name: str, source: str | None, column: str | None = None
) -> tuple[dict[str, Any], list[Finding]]:
    """Compare the vectors of a model's precisions with float64; return facts and findings.

    An inaccurate precision becomes a finding.
    ``source``: a file of texts, of which the first are read; None: the examples.
    ``column``: the column of the texts.
    Raises :class:`ReadError` for a file without texts.
    """
    from encoder_engine.embedding.accuracy import measure_accuracy

    texts = list(EXAMPLES) if source is None else _read_texts(source, column)
    facts: dict[str, Any] = {
        "name": name,
        "texts": f"{len(texts)} examples" if source is None else f"{len(texts)} of {source}",
    }
    try:
        with warnings.catch_warnings():
            # doctor --model reports them.
            warnings.simplefilter("ignore")
            measured = measure_accuracy(name, texts)
    except EncoderEngineError as error:
        what = f"the precisions cannot be compared: {' '.join(str(error).split())}"
        mend = f"see encoder-engine doctor --model {name}"
        if isinstance(error, MissingDependencyError):
            mend = install_command(error.library, error.extra)
        return facts, [Finding("problem", what, mend)]
    for found in measured:
        facts[found.precision] = {
            "min_cosine": found.min_cosine,
            "mean_cosine": found.mean_cosine,
            "worst_text": texts[found.worst_row][:60],
            "accurate": found.failure is None,
        }
    return facts, [_finding(found) for found in measured if found.failure is not None]


def _read_texts(source: str, column: str | None) -> list[str]:
    from encoder_engine.inputs.readers import open_inputs

    return [row.text for row in islice(open_inputs([source], column=column), MOST_TEXTS)]


def _finding(found: Accuracy) -> Finding:
    plain = found.precision == "float32"
    return Finding(
        "problem" if plain else "advice",
        f"{found.precision} is too far from the float64 vectors: {found.failure}",
        "check the weights with encoder-engine doctor --model"
        if plain
        else "load this model in float32, or compare on more of your own texts (--texts)",
    )


def accuracy_lines(facts: dict[str, Any]) -> dict[str, str]:
    """Format the facts of :func:`check_accuracy` as lines of text, by the line's title."""
    lines = {}
    for name, value in facts.items():
        if not isinstance(value, dict):
            lines[name] = str(value)
            continue
        verdict = "accurate" if value["accurate"] else "too far off"
        lines[name] = (
            f"{verdict}: cosine with float64 {value['mean_cosine']:.6f} on average, at least "
            f"{value['min_cosine']:.6f}\n(least: {value['worst_text']!r})"
        )
    return lines
