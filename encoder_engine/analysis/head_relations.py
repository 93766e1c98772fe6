"""Finds attention heads for syntactic relations, compared with fixed offsets (Clark et al. 2019).

How it works: the attention of a word to another is summed over the other's subwords, and averaged
over its own. An attention head finds a dependent's syntactic head where the dependent attends to
that word most, the word itself and special tokens left out; or, in the other direction, it finds
the dependent from its syntactic head.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from encoder_engine.analysis.edges import EdgeSet
    from encoder_engine.analysis.subject import Subject, WordBatch

__all__ = ["RelationScore", "points_over_offset", "score_relations"]

# Tokens of a batch, whose attention matrices are in memory together.
BATCH_TOKENS = 1024


class RelationScore(NamedTuple):
    """The best attention head of a syntactic relation, and the best fixed offset.

    Accuracies are in percent of the ``number`` pairs of words in the relation.
    ``from_dependent``: the head attends from the dependent to the syntactic head; False: the
    reverse.
    ``offset``: the position of the syntactic head minus the dependent's, in words.
    ``accuracies``: of every attention head, [layer][head], in its better direction.
    """

    relation: str
    number: int
    layer: int
    head: int
    from_dependent: bool
    accuracy: float
    offset: int
    offset_accuracy: float
    accuracies: tuple[tuple[float, ...], ...]


def score_relations(subject: Subject, edges: EdgeSet, *, least: int = 50) -> list[RelationScore]:
    """Return the best attention head of each syntactic relation, the most frequent relation first.

    ``edges``: pairs of a word and its syntactic head, labelled by their relation. ``least``:
    relations of fewer pairs are left out.
    """
    pairs: dict[int, list[tuple[int, int, str]]] = {}
    for edge in edges.edges:
        (dependent, _), (head, _) = edge.spans
        pairs.setdefault(edge.sentence, []).append((dependent, head, edge.label))
    # Layers of a pruned model have different numbers of heads: these are counted one after another.
    heads = [(layer, h) for layer, n in enumerate(subject.num_heads) for h in range(n)]
    right: dict[str, npt.NDArray[np.int64]] = {}
    offsets: dict[str, Counter[int]] = {}
    for batch in subject.word_batches(edges.sentences, batch_tokens=BATCH_TOKENS):
        for sentence, words, best in _most_attended(subject, batch):
            place_of = {word: place for place, word in enumerate(words)}
            for dependent, head, label in pairs.get(sentence, ()):
                if dependent not in place_of or head not in place_of:
                    continue
                d, h = place_of[dependent], place_of[head]
                found = np.stack([best[:, d] == h, best[:, h] == d], 1)
                right[label] = right.get(label, 0) + found.astype(np.int64)
                offsets.setdefault(label, Counter())[head - dependent] += 1
    scores = [_score(label, heads, right[label], counts) for label, counts in offsets.items()]
    return sorted((s for s in scores if s.number >= least), key=lambda s: -s.number)


def _score(
    label: str,
    heads: Sequence[tuple[int, int]],
    right: npt.NDArray[np.int64],
    offsets: Counter[int],
) -> RelationScore:
    number = offsets.total()
    best, way = (int(n) for n in np.unravel_index(right.argmax(), right.shape))
    layer, head = heads[best]
    accuracies: dict[int, list[float]] = {}
    for (of_layer, _), accuracy in zip(heads, 100.0 * right.max(1) / number, strict=True):
        accuracies.setdefault(of_layer, []).append(float(accuracy))
    offset, times = offsets.most_common(1)[0]
    return RelationScore(
        relation=label,
        number=number,
        layer=layer,
        head=head,
        from_dependent=way == 0,
        accuracy=100.0 * float(right[best, way]) / number,
        offset=offset,
        offset_accuracy=100.0 * times / number,
        accuracies=tuple(map(tuple, accuracies.values())),
    )


def points_over_offset(scores: Sequence[RelationScore]) -> dict[tuple[int, int], float]:
    """Return, by (layer, head), how far an attention head surpasses fixed offsets, in points.

    It is the greatest lead, over all relations, of its accuracy over that of the best fixed offset.
    A head counts as finding a relation where the lead is at least 10 (Voita et al. 2019).
    """
    found: dict[tuple[int, int], float] = {}
    for score in scores:
        for layer, heads in enumerate(score.accuracies):
            for head, accuracy in enumerate(heads):
                over = accuracy - score.offset_accuracy
                found[layer, head] = max(over, found.get((layer, head), over))
    return found


def _most_attended(
    subject: Subject, batch: WordBatch
) -> Iterator[tuple[int, Sequence[int], npt.NDArray[np.int64]]]:
    """Yield, per sentence, its index, its words' indices, and the word each attends to most.

    The last are int64 [heads, words]: places in the list of words. A long sentence is yielded once
    for each window, with the words of the window.
    """
    with torch.no_grad():
        output = subject.encoder(batch.batch, output_attentions=True, output_pooled=False)
    offsets = batch.batch.sequences.offsets
    of_token = np.searchsorted(offsets, batch.tokens, side="right") - 1
    for sequence in range(len(offsets) - 1):
        read = np.flatnonzero(of_token == sequence)
        if not len(read):
            continue
        numbers, places = np.unique(batch.owners[read], return_inverse=True)
        length = int(offsets[sequence + 1] - offsets[sequence])
        member = torch.zeros(length, len(numbers))
        member[torch.from_numpy(batch.tokens[read] - offsets[sequence]), places] = 1.0
        weights = torch.cat([a[sequence, :, :length, :length] for a in output.attentions])
        member = member.to(weights)
        words = (member / member.sum(0)).T @ weights @ member
        words.diagonal(dim1=1, dim2=2).fill_(-1.0)
        sentence = int(batch.sentences[numbers[0]])
        yield sentence, batch.words[numbers].tolist(), words.argmax(2).cpu().numpy()
