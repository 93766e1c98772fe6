"""Labelled spans and span pairs ("edges"), whose labels probes predict (Tenney et al. 2019).

An edge is one span of words, or two, with a label: a word with its tag, a word and its head with
their relation, or a target of edge probing's JSON lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from encoder_engine.errors import InputError
from encoder_engine.inputs.conll import CONLL_SUFFIXES, plain_suffix, read_conll, read_conllu
from encoder_engine.inputs.records import read_span
from encoder_engine.inputs.tables import read_table

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from encoder_engine.analysis.subject import Subject
    from encoder_engine.inputs.records import Record

    Span = tuple[int, int]

__all__ = ["Edge", "EdgeSet", "edge_states", "read_edges", "split_edges"]


class Edge(NamedTuple):
    """A labelled span, or pair of spans, of a sentence, of which a probe predicts the label.

    ``sentence``: its index in the set; ``spans``: ranges of words, end exclusive.
    """

    sentence: int
    spans: tuple[Span, ...]
    label: str


class EdgeSet(NamedTuple):
    """Sentences of words, and their edges (labelled spans): all of one span, or all of two.

    ``label``: the column of the labels.
    """

    sentences: list[list[str]]
    edges: list[Edge]
    label: str = ""

    def word_type(self, edge: Edge) -> str:
        """Return the words of an edge's spans: the control task gives equal words one label."""
        words = self.sentences[edge.sentence]
        return "\t".join(" ".join(words[start:stop]) for start, stop in edge.spans)


def read_edges(
    path: str | os.PathLike[str], column: str = "upos", num_rows: int | None = None
) -> EdgeSet:
    """Read labelled spans, or pairs of spans, from a file.

    ``.conllu``: each word has its ``upos``, ``xpos`` or another column; ``deprel`` labels the pair
    of a word and its head, without the root. ``.conll``: each word has its tag. ``.jsonl``: edge
    probing's rows with ``text`` and ``targets`` of ``span1``, ``span2`` and ``label``, or rows with
    lists of ``words`` and of their labels in ``column``.

    num_rows: the number of sentences to read; None: all.

    Raises :class:`RowError` for a row without the column or with a malformed target, and
    :class:`InputError` where there is no edge or only some have two spans.
    """
    suffix = plain_suffix(path)
    records = (
        read_conllu(path)
        if suffix == ".conllu"
        else read_conll(path)
        if suffix in CONLL_SUFFIXES
        else read_table(path)
    )
    sentences: list[list[str]] = []
    edges: list[Edge] = []
    name = "tags" if suffix in CONLL_SUFFIXES else column
    for record in records:
        if num_rows is not None and len(sentences) == num_rows:
            break
        number = len(sentences)
        if record.has("targets"):
            name, words = "targets", record.text("text").split()
            edges += [Edge(number, *target) for target in _targets(record, len(words))]
        else:
            words = record.names_of("words")
            edges += [
                Edge(number, *edge)
                for edge in _word_edges(record._replace(keywords={name: "label="}), name)
            ]
        sentences.append(words)
    if len({len(edge.spans) for edge in edges}) != 1:
        raise InputError(f"{path} has no edge, or edges of one span beside edges of two")
    return EdgeSet(sentences, edges, name)


def _word_edges(record: Record, column: str) -> Iterator[tuple[tuple[Span, ...], str]]:
    labels = record.names_of(column)
    if column != "deprel":
        for place, label in enumerate(labels):
            yield ((place, place + 1),), label
        return
    for place, (label, head) in enumerate(zip(labels, record.names_of("head"), strict=True)):
        if head.isdecimal() and 0 < int(head) <= len(labels):
            yield ((place, place + 1), (int(head) - 1, int(head))), label


def _targets(record: Record, num_words: int) -> Iterator[tuple[tuple[Span, ...], str]]:
    targets = record.get("targets")
    if isinstance(targets, str | Mapping) or not hasattr(targets, "__len__"):
        record.refuse(f"targets must be a list of objects, got {targets!r:.60}")
    for place, target in enumerate(targets):
        name = f"targets[{place}]"
        if not isinstance(target, Mapping):
            record.refuse(f"{name} must be an object of span1 and label, got {target!r:.60}")
        spans = [side for side in ("span1", "span2") if target.get(side) is not None]
        if "span1" not in spans:
            record.refuse(f"{name} has no span1, got {target!r:.60}")
        label = target.get("label")
        if isinstance(label, list):
            # Labels beyond the first belong to tasks of several, which are not probed.
            label = label[0] if label else None
        if isinstance(label, bool) or not isinstance(label, str | int):
            record.refuse(f"{name}.label must be a name, or a list of names, got {label!r:.60}")
        yield (
            tuple(
                read_span(record, f"{name}.{side}", target[side], num_words, "words")
                for side in spans
            ),
            str(label),
        )


def split_edges(edges: EdgeSet, num_train: int) -> tuple[EdgeSet, EdgeSet]:
    """Return the edges of the first ``num_train`` sentences, and those of the others.

    Raises :class:`InputError` if either part has no edge.
    """
    parts = [[e for e in edges.edges if (e.sentence < num_train) == first] for first in (1, 0)]
    if not all(parts):
        raise InputError(
            f"{len(edges.sentences)} sentences leave no edge to train, or none to test, after the "
            f"first {num_train}"
        )
    return edges._replace(edges=parts[0]), edges._replace(edges=parts[1])


def edge_states(subject: Subject, edges: EdgeSet) -> tuple[npt.NDArray[np.float32], list[Edge]]:
    """Return every layer's vectors of n edges, float32 [L + 1, n, spans * D], and these edges.

    A span's vector is the mean of its words'; edges with a span that has no token are left out.
    """
    of_sentence: dict[int, list[Edge]] = {}
    for edge in edges.edges:
        of_sentence.setdefault(edge.sentence, []).append(edge)
    kept: list[Edge] = []
    found: list[npt.NDArray[np.float32]] = []
    for batch in subject.word_states(edges.sentences):
        rows = {
            (sentence, word): row
            for row, (sentence, word) in enumerate(
                zip(batch.sentences.tolist(), batch.words.tolist(), strict=True)
            )
        }
        here = [e for s in dict.fromkeys(batch.sentences.tolist()) for e in of_sentence.get(s, ())]
        spans = [[_rows(rows, edge.sentence, span) for span in edge.spans] for edge in here]
        whole = [number for number, parts in enumerate(spans) if all(parts)]
        if whole:
            kept += [here[number] for number in whole]
            sides = [
                _span_means(batch.states, [spans[number][side] for number in whole])
                for side in range(len(here[whole[0]].spans))
            ]
            found.append(np.concatenate(sides, axis=2))
    return np.concatenate(found, axis=1), kept


def _rows(rows: dict[tuple[int, int], int], sentence: int, span: Span) -> list[int]:
    places = ((sentence, word) for word in range(*span))
    return [rows[place] for place in places if place in rows]


def _span_means(
    states: npt.NDArray[np.float32], spans: Sequence[Sequence[int]]
) -> npt.NDArray[np.float32]:
    lengths = np.array([len(span) for span in spans])
    starts = np.r_[0, np.cumsum(lengths)[:-1]]
    joined = np.concatenate([np.asarray(span, np.int64) for span in spans])
    sums = np.add.reduceat(states[:, joined], starts, axis=1)
    means: npt.NDArray[np.float32] = (sums / lengths[None, :, None]).astype(np.float32)
    return means
