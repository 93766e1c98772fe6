"""The attention of one text: the strongest weights between its words, for a page or as values.

Weights to a word are summed over its subwords; weights from a word are averaged over its subwords
(Clark et al. 2019). Special tokens are words of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from encoder_engine.errors import InputError
from encoder_engine.pages.weights import HeadWeights, weights_page
from encoder_engine.text.arguments import check_integer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from encoder_engine.analysis.subject import Subject

    Integers = npt.NDArray[np.int64]
    Weights = npt.NDArray[np.float32]

__all__ = ["TextAttention", "attention_page", "measure_attention", "render_attention"]

# Cells of a thumbnail in each direction, at most.
SIDE = 22
# Bytes of weights in a page of 1 MB: base64 makes 4 / 3 of them, and the rest is text.
DATA_BYTES = 670_000


class TextAttention(NamedTuple):
    """A text's words, special tokens included, and the strongest attention weights between them."""

    words: Sequence[str]
    weights: HeadWeights


def attention_page(
    subject: Subject,
    text: str,
    *,
    top_k: int = 5,
    layers: Sequence[int] | None = None,
    title: str | None = None,
) -> str:
    """Return an HTML page of one text's attention, smaller than 1 MB and without network access.

    Arguments and errors are those of :func:`measure_attention`.
    """
    found = measure_attention(subject, text, top_k=top_k, layers=layers)
    return render_attention(found, title or "Attention")


def render_attention(found: TextAttention, title: str) -> str:
    """Return the HTML page of what :func:`measure_attention` returned."""
    kept = found.weights.keys.shape[2]
    summary = (
        "A thumbnail is a head: a row is where words look from, a column where to, and the shade "
        "the square root of the weight. The lines are the "
        f"{kept} greatest weights of each word, of 8 bits. To a word the weights of its subwords "
        "are summed, from a word their mean is taken. Layers and heads count from 0."
    )
    return weights_page(title, summary, found.words, found.weights)


def measure_attention(
    subject: Subject, text: str, *, top_k: int = 5, layers: Sequence[int] | None = None
) -> TextAttention:
    """Return the ``top_k`` greatest attention weights of each word of a text, for each head.

    There are fewer if a page would exceed 1 MB. layers: from 0; None: all.

    Raises :class:`InputError` for a text that is longer than the model takes, layers that are not
    there, ``top_k`` below 1, and more heads than a page holds.
    """
    check_integer(top_k, "top_k", least=1)
    chosen = list(range(subject.num_layers)) if layers is None else sorted(set(layers))
    wrong = [layer for layer in chosen if not 0 <= layer < subject.num_layers]
    if wrong or not chosen:
        named = wrong[0] if wrong else "none"
        raise InputError(f"layers are 0 to {subject.num_layers - 1}, got {named}")
    encoding = subject.tokenizer.encode_batch([text], return_offsets=True)
    ids: list[int] = encoding.ids.tolist()
    if len(ids) > subject.max_length:
        raise InputError(
            f"the text has {len(ids)} tokens, a page shows up to {subject.max_length}; shorten it"
        )
    owners, words = _words(subject, text, encoding.word_ids, encoding.offsets, ids)
    with torch.no_grad():
        output = subject.encoder(encoding.to_packed(subject.encoder.device), output_attentions=True)
    heads: list[tuple[int, int]] = []
    matrices: list[Weights] = []
    for layer in chosen:
        between = _between_words(output.attentions[layer][0].float().cpu().numpy(), owners)
        heads += [(layer, head) for head in range(len(between))]
        matrices.append(between)
    weights = np.concatenate(matrices)
    top_k = _affordable(len(heads), len(words), top_k)
    keys = np.argsort(-weights, axis=2, kind="stable")[:, :, :top_k]
    shares = np.rint(255.0 * np.take_along_axis(weights, keys, 2)).clip(0, 255)
    return TextAttention(
        words, HeadWeights(heads, _thumbnails(weights), keys, shares.astype(np.uint8))
    )


def _words(
    subject: Subject,
    text: str,
    word_ids: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int32],
    ids: Sequence[int],
) -> tuple[Integers, list[str]]:
    """Return the index of each token's word, ascending from 0, and the words' strings."""
    owners: list[int] = []
    spans: list[tuple[int, int] | str] = []
    before = -1
    for word, (start, stop), token in zip(word_ids.tolist(), offsets.tolist(), ids, strict=True):
        if word < 0:
            spans.append(subject.tokenizer.id_to_token(token) or "")
        elif word != before:
            spans.append((start, stop))
        else:
            last = spans[-1]
            assert not isinstance(last, str)
            spans[-1] = (min(last[0], start), max(last[1], stop))
        owners.append(len(spans) - 1)
        before = word
    words = [span if isinstance(span, str) else text[span[0] : span[1]] for span in spans]
    return np.array(owners, np.int64), words


def _between_words(weights_HLL: Weights, owners: Integers) -> Weights:
    """Return attention weights between words, [H, W, W], given those between tokens, [H, L, L].

    They are summed over a word's tokens as keys, and averaged over them as queries.
    """
    firsts = np.flatnonzero(np.diff(owners, prepend=-1))
    counts = np.bincount(owners).astype(np.float32)[:, None]
    summed = np.add.reduceat(weights_HLL, firsts, axis=2)
    between: Weights = (np.add.reduceat(summed, firsts, axis=1) / counts).astype(np.float32)
    return between


def _affordable(num_heads: int, num_words: int, top_k: int) -> int:
    """Return how many attention weights per word fit into a page of 1 MB, at most ``top_k``.

    Raises :class:`InputError` if not even one fits.
    """
    width = 2 if num_words <= 256 else 3
    room = DATA_BYTES - num_heads * min(num_words, SIDE) ** 2
    most = room // (num_heads * num_words * width)
    if most < 1:
        raise InputError(
            f"a page of less than 1 MB cannot hold {num_heads} heads of {num_words} words; choose "
            "fewer layers, or a shorter text"
        )
    return min(top_k, most, num_words)


def _thumbnails(weights: Weights) -> npt.NDArray[np.uint8]:
    """Return a map of at most SIDE x SIDE cells for each head's weights, uint8 [heads, S, S].

    A cell has the square root of its words' weights, summed over keys and averaged over queries.
    """
    num_words = weights.shape[1]
    side = min(num_words, SIDE)
    edges = np.arange(side) * num_words // side
    counts = np.diff(edges, append=num_words)
    cells = np.add.reduceat(np.add.reduceat(weights, edges, axis=2), edges, axis=1)
    found = np.sqrt(cells / counts[:, None])
    shades: npt.NDArray[np.uint8] = np.rint(255.0 * found).clip(0, 255).astype(np.uint8)
    return shades
