"""Reads words with senses: lexical samples of Senseval, and the unified format of all words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from encoder_engine.errors import ReadError
from encoder_engine.inputs.opening import open_source, shown_name
from encoder_engine.inputs.records import Record

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

__all__ = ["read_senses"]


def read_senses(
    path: str | os.PathLike[str], keys: str | os.PathLike[str] | None = None
) -> Iterator[Record]:
    """Yield the instances of a file of senses, each with the words of its context.

    Two formats are read. A lexical sample (Senseval) has ``lexelt`` elements whose instances hold
    an answer and a context with one ``head``. The unified format (Raganato et al. 2017) has
    sentences of ``wf`` and ``instance`` elements, and a file of gold keys.

    keys: the file of gold keys; None: ``NAME.gold.key.txt`` beside the file ``NAME.data.xml``.

    Columns: ``id``, ``words``, ``place`` (the index of the word that has the senses), ``lemma``,
    ``pos``, and ``senses``, a list of gold keys, all of which are right. Raises :class:`ReadError`
    where the file is not XML of either format, and :class:`RowError` for an instance without a gold
    key.
    """
    name = shown_name(str(path))
    root = _parse(path, name)
    if root.find("lexelt") is not None:
        yield from _lexical_sample(root, name)
        return
    if root.find(".//sentence") is None:
        raise ReadError(f"{name} has neither a lexelt nor a sentence; it is not a file of senses")
    yield from _all_words(root, name, _read_keys(_keys_of(path) if keys is None else keys))


def _parse(path: str | os.PathLike[str], name: str) -> ElementTree.Element:
    with open_source(str(path)) as stream:
        content = stream.read()
    # Entities can expand without bound, and these formats have none.
    if b"<!ENTITY" in content:
        raise ReadError(f"{name} declares entities, which are not read; replace them in the file")
    try:
        return ElementTree.fromstring(content)
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise ReadError(f"{name} is not XML: {error}") from error


def _lexical_sample(root: ElementTree.Element, name: str) -> Iterator[Record]:
    row = 0
    for lexelt in root.iter("lexelt"):
        item = lexelt.get("item", "")
        lemma, _, pos = item.rpartition("-") if "-" in item else (item, "", "")
        for instance in lexelt.iter("instance"):
            values: dict[str, Any] = {"id": instance.get("id", ""), "lemma": lemma, "pos": pos}
            record = Record(values, name, row + 1, row, "instance")
            senses = [found.get("senseid", "") for found in instance.iter("answer")]
            if not any(senses):
                record.refuse("no answer has a senseid")
            heads = {id(word) for head in instance.iter("head") for word in head.iter("wf")}
            elements = [word for word in instance.iter("wf") if (word.text or "").strip()]
            places = [place for place, word in enumerate(elements) if id(word) in heads]
            if len(places) != 1:
                record.refuse(f"{len(places)} words are in a head; expected one")
            values["words"] = [(word.text or "").strip() for word in elements]
            values["place"], values["senses"] = places[0], senses
            yield record
            row += 1


def _all_words(
    root: ElementTree.Element, name: str, keys: dict[str, list[str]]
) -> Iterator[Record]:
    row = 0
    for sentence in root.iter("sentence"):
        elements = [word for word in sentence if (word.text or "").strip()]
        words = [(word.text or "").strip() for word in elements]
        for place, word in enumerate(elements):
            if word.tag != "instance":
                continue
            values: dict[str, Any] = {"id": word.get("id", ""), "words": words, "place": place}
            values |= {"lemma": word.get("lemma", ""), "pos": word.get("pos", "")}
            record = Record(values, name, row + 1, row, "instance")
            if values["id"] not in keys:
                record.refuse(f"the gold keys have no {values['id']!r}; name their file")
            values["senses"] = keys[values["id"]]
            yield record
            row += 1


def _keys_of(path: str | os.PathLike[str]) -> Path:
    """Return the path of the gold key file that belongs to a file of the unified format."""
    stem = Path(path).name.partition(".data.xml")[0]
    return Path(path).with_name(f"{stem}.gold.key.txt")


def _read_keys(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    with open_source(str(path)) as stream:
        lines = stream.read().decode("utf-8-sig", "replace").splitlines()
    fields = [line.split() for line in lines if line.strip()]
    return {first: senses for first, *senses in fields if senses}
