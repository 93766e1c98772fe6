"""Writes answers_golden.json: answers of transformers' question-answering pipeline of 4.57.

Run with that version beside this project: ``PYTHONPATH=. python tests/golden/answers_golden.py``.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.prediction.question_models import KINDS, QUESTIONS, SETTINGS, write_reader

TARGET = Path(__file__).parent / "answers_golden.json"


def answers(folder: Path) -> list[list[Any]]:
    """Return the answers of each setting to each question, as the pipeline gives them."""
    import transformers

    make: Any = transformers.pipeline
    pipe = make("question-answering", str(folder), device="cpu")
    return [
        [pipe(question=question, context=context, **setting) for question, context in QUESTIONS]
        for setting in SETTINGS
    ]


def main() -> None:
    """Write the file."""
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {"transformers": version("transformers"), "answers": {}}
    with tempfile.TemporaryDirectory() as name:
        for kind in KINDS:
            found["answers"][kind] = answers(write_reader(Path(name) / kind, kind))
    TARGET.write_text(json.dumps(found, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
