"""Reads questions, contexts and answers in the JSON of SQuAD (Rajpurkar et al. 2016, 2018)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import ReadError
from encoder_engine.inputs.opening import open_source, shown_name
from encoder_engine.inputs.records import Record
from encoder_engine.json_values import JsonSource, JsonValue, parse_json

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

__all__ = ["read_squad"]


def read_squad(path: str | os.PathLike[str]) -> Iterator[Record]:
    """Yield the questions of a SQuAD file, version 1.1 or 2.0.

    Columns: ``id``, ``question``, ``context``, ``title``, ``article`` (its number in the file) and
    ``answers``, a mapping of two lists, ``text`` and ``answer_start``, as in the tables of the Hub;
    a file without answers has no such column. Raises :class:`ReadError` where the file is not JSON
    of this form, and :class:`RowError` for an id that comes twice.
    """
    name = shown_name(str(path))
    with open_source(str(path)) as stream:
        try:
            text = stream.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ReadError(
                f"{name}: byte {error.start + 1} is not UTF-8; convert the file, for example: "
                "iconv -f LATIN1 -t UTF-8"
            ) from error
    source = JsonSource(name=name, error=ReadError, mend="; it should be the JSON of SQuAD")
    whole = JsonValue(parse_json(text, Path(name), ReadError), source)
    ids: set[str] = set()
    row = 0
    for article, value in enumerate(whole.get("data").items()):
        title = value.get("title").optional(JsonValue.string)
        for paragraph in value.get("paragraphs").items():
            context = paragraph.get("context").string()
            for question in paragraph.get("qas").items():
                values = _read_question(question)
                values |= {"context": context, "title": title, "article": article}
                record = Record(values, name, row + 1, row, "question")
                if values["id"] in ids:
                    record.refuse(f"the id {values['id']!r} came before; ids are to be unique")
                ids.add(values["id"])
                yield record
                row += 1


def _read_question(question: JsonValue) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": question.get("id").string(),
        "question": question.get("question").string(),
    }
    answers = question.get("answers")
    if answers.present:
        impossible = question.get("is_impossible").boolean(default=False)
        found = [] if impossible else answers.items()
        values["answers"] = {
            "text": [answer.get("text").string() for answer in found],
            "answer_start": [answer.get("answer_start").integer() for answer in found],
        }
    return values
