"""The forward kernels of the masked projection: stored logits, and tiles of logits.

How it works: the loss of a row needs four numbers of its V logits: the log-sum-exp, the label's
logit, their sum (label smoothing) and the arg max. *Stored*: cuBLAS writes the logits [M, V]; a
program a row reads them once, with the online softmax's ``m_i`` and ``l_i``, and writes their
gradient in their place for backward. *Tiled* (Cut Cross-Entropy, Wijmans et al. 2024): a program
multiplies a block of rows by tile after tile of the vocabulary and keeps the four numbers alone, so
that no logit reaches memory. With few rows the vocabulary is split among programs
(:func:`~.config.tiles_of_a_split`) and their log-sum-exps are joined. Rows of stored logits begin
at multiples of 64 elements: V = 30,522 takes 30,528 columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from ..common.launch import cdiv, next_power_of_2, num_processors, on_device
from .config import (
    BLOCK_LOGITS,
    LOGITS_WARPS,
    padded,
    statistics_launch,
    tiles_of_a_split,
    whole_vectors,
)
from .label_logits import label_logits
from .terms import Found, Statistics
from .tile import exponentials, logits_gradient, logits_tile

if TYPE_CHECKING:
    from .terms import Given, Terms


@triton.jit
def _load_logits(
    logits_pointer,
    bias_pointer,
    columns,
    vocab_size,
    row_stride,
    HAS_BIAS: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Load logits in float32, with the bias; if MASKED, -inf beyond the vocabulary.

    The row stride is a multiple of 8, the vocabulary size need not be. The load is masked by the
    stride, so that it takes whole vectors; columns beyond the vocabulary are replaced afterwards.
    """
    if not MASKED:
        x = tl.load(logits_pointer + columns).to(tl.float32)
        if HAS_BIAS:
            x += tl.load(bias_pointer + columns).to(tl.float32)
        return x
    inside = columns < vocab_size
    x = tl.load(logits_pointer + columns, mask=columns < row_stride, other=0.0).to(tl.float32)
    x = tl.where(inside, x, -float("inf"))
    if HAS_BIAS:
        x += tl.load(bias_pointer + columns, mask=inside, other=0.0).to(tl.float32)
    return x


@triton.jit
def _reduce_logits(
    logits_pointer,
    bias_pointer,
    m_i,
    l_i,
    logit_sum,
    place,
    start,
    vocab_size,
    row_stride,
    BLOCK: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    SMOOTHED: tl.constexpr,
    PREDICT: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Return the arguments ``m_i``, ``l_i``, ``logit_sum`` and ``place``, updated by a block.

    They are the logits' maximum, sum of exponentials, sum, and arg max.
    """
    columns = start + tl.arange(0, BLOCK)
    x = _load_logits(
        logits_pointer, bias_pointer, columns, vocab_size, row_stride, HAS_BIAS, MASKED
    )
    if SMOOTHED:
        logit_sum += tl.sum(tl.where(columns < vocab_size, x, 0.0), axis=0)
    largest = tl.max(x, axis=0)
    if PREDICT:
        first = tl.min(tl.where(x == largest, columns, vocab_size), axis=0)
        place = tl.where(largest > m_i, first, place)
    m_new = tl.maximum(m_i, largest)
    # The first columns may all have a bias of -inf: subtract 0, because -inf + inf is NaN.
    m_finite = tl.where(m_new == -float("inf"), 0.0, m_new)
    l_i = l_i * tl.exp(m_i - m_finite) + tl.sum(exponentials(x, m_finite), axis=0)
    return m_new, l_i, logit_sum, place


@triton.jit
def _replace_logits(
    logits_pointer,
    bias_pointer,
    start,
    label,
    lse,
    vocab_size,
    row_stride,
    label_smoothing,
    z_loss,
    BLOCK: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Write the loss's gradient over a block of logits; MASKED: zeros beyond the vocabulary."""
    columns = start + tl.arange(0, BLOCK)
    x = _load_logits(
        logits_pointer, bias_pointer, columns, vocab_size, row_stride, HAS_BIAS, MASKED
    )
    hits = columns == label
    grad = logits_gradient(x, lse, hits, vocab_size, label_smoothing, z_loss)
    kind = logits_pointer.dtype.element_ty
    if MASKED:
        grad = tl.where(columns < vocab_size, grad, 0.0)
        tl.store(logits_pointer + columns, grad.to(kind), mask=columns < row_stride)
    else:
        tl.store(logits_pointer + columns, grad.to(kind))


@triton.jit
def _stored_logits_kernel(
    logits_pointer,  # [M, row_stride]; with KEEP overwritten by their gradient, then zeros
    bias_pointer,  # [V] or null
    labels_pointer,  # int64 [M]
    lse_pointer,  # float32 [M]
    label_logit_pointer,  # float32 [M]
    logit_sum_pointer,  # float32 [M] or null
    predictions_pointer,  # int64 [M] or null
    row_stride,
    vocab_size,
    label_smoothing,
    z_loss,
    BLOCK: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    SMOOTHED: tl.constexpr,
    PREDICT: tl.constexpr,
    KEEP: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    logits_pointer += row * row_stride
    label = tl.load(labels_pointer + row)
    # Read before the first reduction, which synchronises the warps: KEEP overwrites the logits.
    # A label outside the vocabulary makes the loss NaN.
    known = (label >= 0) & (label < vocab_size)
    label_logit = tl.load(logits_pointer + label, mask=known, other=float("nan")).to(tl.float32)
    if HAS_BIAS:
        label_logit += tl.load(bias_pointer + label, mask=known, other=0.0).to(tl.float32)
    m_i = tl.full([], -float("inf"), dtype=tl.float32)
    l_i = tl.full([], 0.0, dtype=tl.float32)
    logit_sum = tl.full([], 0.0, dtype=tl.float32)
    place = tl.full([], 0, dtype=tl.int32)
    whole = vocab_size // BLOCK * BLOCK
    for start in tl.range(0, whole, BLOCK):
        m_i, l_i, logit_sum, place = _reduce_logits(
            logits_pointer, bias_pointer, m_i, l_i, logit_sum, place, start, vocab_size, row_stride,
            BLOCK, HAS_BIAS, SMOOTHED, PREDICT, False,
        )  # fmt: skip
    if whole < vocab_size:
        m_i, l_i, logit_sum, place = _reduce_logits(
            logits_pointer, bias_pointer, m_i, l_i, logit_sum, place, whole, vocab_size, row_stride,
            BLOCK, HAS_BIAS, SMOOTHED, PREDICT, True,
        )  # fmt: skip
    lse = m_i + tl.log(l_i)
    tl.store(lse_pointer + row, lse)
    tl.store(label_logit_pointer + row, label_logit)
    if SMOOTHED:
        tl.store(logit_sum_pointer + row, logit_sum)
    if PREDICT:
        tl.store(predictions_pointer + row, place.to(tl.int64))
    if KEEP:
        for start in tl.range(0, whole, BLOCK):
            _replace_logits(
                logits_pointer, bias_pointer, start, label, lse, vocab_size, row_stride,
                label_smoothing, z_loss, BLOCK, HAS_BIAS, False,
            )  # fmt: skip
        if whole < row_stride:
            _replace_logits(
                logits_pointer, bias_pointer, whole, label, lse, vocab_size, row_stride,
                label_smoothing, z_loss, BLOCK, HAS_BIAS, True,
            )  # fmt: skip


@triton.jit
def _tiled_statistics_kernel(
    hidden_pointer,  # [M, E]
    weight_pointer,  # [V, E]
    bias_pointer,  # [V] or null
    lse_pointer,  # float32 [splits, M]
    logit_sum_pointer,  # float32 [splits, M] or null
    best_pointer,  # float32 [splits, M] or null
    predictions_pointer,  # int64 [splits, M] or null
    num_rows,
    vocab_size,
    tiles_of_a_split,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    SMOOTHED: tl.constexpr,
    PREDICT: tl.constexpr,
    PRECISION: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    in_batch = rows < num_rows
    m_i = tl.full([BLOCK_ROWS], -float("inf"), dtype=tl.float32)
    l_i = tl.zeros([BLOCK_ROWS], dtype=tl.float32)
    logit_sum = tl.zeros([BLOCK_ROWS], dtype=tl.float32)
    place = tl.zeros([BLOCK_ROWS], dtype=tl.int32)
    first = tl.program_id(1) * tiles_of_a_split * BLOCK_COLUMNS
    last = tl.minimum(first + tiles_of_a_split * BLOCK_COLUMNS, vocab_size)
    # One loop for the compiler: the next tile's loads are under way while this one is reduced.
    for start in tl.range(first, last, BLOCK_COLUMNS, flatten=True):
        columns = start + tl.arange(0, BLOCK_COLUMNS)
        x = logits_tile(
            hidden_pointer, weight_pointer, bias_pointer, rows, columns, num_rows, vocab_size,
            WIDTH, WIDTH, BLOCK_ROWS, BLOCK_COLUMNS, BLOCK_WIDTH, HAS_BIAS, PRECISION,
        )  # fmt: skip
        if SMOOTHED:
            logit_sum += tl.sum(tl.where((columns < vocab_size)[None, :], x, 0.0), axis=1)
        largest = tl.max(x, axis=1)
        if PREDICT:
            # Takes fewer registers than tl.argmax; of equal logits the first wins.
            best = tl.where(x == largest[:, None], columns[None, :], vocab_size)
            place = tl.where(largest > m_i, tl.min(best, axis=1), place)
        m_new = tl.maximum(m_i, largest)
        m_finite = tl.where(m_new == -float("inf"), 0.0, m_new)
        l_i = l_i * tl.exp(m_i - m_finite) + tl.sum(exponentials(x, m_finite[:, None]), axis=1)
        m_i = m_new
    places = tl.program_id(1).to(tl.int64) * num_rows + rows
    tl.store(lse_pointer + places, m_i + tl.log(l_i), mask=in_batch)
    if SMOOTHED:
        tl.store(logit_sum_pointer + places, logit_sum, mask=in_batch)
    if PREDICT:
        tl.store(best_pointer + places, m_i, mask=in_batch)
        tl.store(predictions_pointer + places, place.to(tl.int64), mask=in_batch)


@on_device
def stored_statistics(given: Given, terms: Terms, *, predict: bool, keep: bool) -> Found:
    """Compute logits by cuBLAS; a kernel computes their statistics and, if ``keep``, gradient."""
    hidden_ME, weight_VE, bias_V, labels_M = given
    num_rows, vocab_size = len(hidden_ME), len(weight_VE)
    logits = hidden_ME.new_empty(num_rows, padded(vocab_size))
    smoothed = terms.label_smoothing > 0.0
    lse = torch.empty(num_rows, dtype=torch.float32, device=hidden_ME.device)
    label_logit, logit_sum = torch.empty_like(lse), torch.empty_like(lse)
    predictions = labels_M.new_empty(num_rows if predict else 0)
    if num_rows > 0:
        for columns in whole_vectors(vocab_size, logits.element_size()):
            torch.mm(hidden_ME, weight_VE[columns].T, out=logits[:, columns])
        _stored_logits_kernel[(num_rows,)](
            logits,
            bias_V,
            labels_M,
            lse,
            label_logit,
            logit_sum if smoothed else None,
            predictions if predict else None,
            logits.stride(0),
            vocab_size,
            terms.label_smoothing,
            terms.z_loss,
            BLOCK=min(BLOCK_LOGITS, next_power_of_2(vocab_size)),
            HAS_BIAS=bias_V is not None,
            SMOOTHED=smoothed,
            PREDICT=predict,
            KEEP=keep,
            num_warps=LOGITS_WARPS,
        )
    kept = logits if keep else logits.new_empty(0, 0)
    return Found(Statistics(lse, label_logit, logit_sum, predictions), kept)


@on_device
def tiled_statistics(given: Given, terms: Terms, *, predict: bool) -> Statistics:
    """Launch the kernel that computes logits tile by tile; join its splits of the vocabulary."""
    hidden_ME, weight_VE, bias_V, labels_M = given
    (num_rows, width), vocab_size = hidden_ME.shape, len(weight_VE)
    launch = statistics_launch(hidden_ME.element_size())
    row_blocks = cdiv(num_rows, launch.block_rows)
    num_tiles = cdiv(vocab_size, launch.block_columns)
    tiles = tiles_of_a_split(row_blocks, num_tiles, num_processors(hidden_ME))
    splits = cdiv(num_tiles, tiles)
    smoothed = terms.label_smoothing > 0.0
    lse = torch.empty(splits, num_rows, dtype=torch.float32, device=hidden_ME.device)
    logit_sum, best = torch.empty_like(lse), torch.empty_like(lse)
    predictions = labels_M.new_empty(splits, num_rows if predict else 0)
    if num_rows > 0:
        _tiled_statistics_kernel[(row_blocks, splits)](
            hidden_ME,
            weight_VE,
            bias_V,
            lse,
            logit_sum if smoothed else None,
            best if predict else None,
            predictions if predict else None,
            num_rows,
            vocab_size,
            tiles,
            WIDTH=width,
            BLOCK_ROWS=launch.block_rows,
            BLOCK_COLUMNS=launch.block_columns,
            BLOCK_WIDTH=launch.block_width,
            HAS_BIAS=bias_V is not None,
            SMOOTHED=smoothed,
            PREDICT=predict,
            PRECISION="ieee",
            num_warps=launch.num_warps,
            num_stages=launch.num_stages,
        )
    if predict:
        predictions = predictions.gather(0, best.argmax(dim=0, keepdim=True))
    return Statistics(
        torch.logsumexp(lse, dim=0),
        label_logits(given),
        logit_sum.sum(dim=0),
        predictions.flatten(),
    )
