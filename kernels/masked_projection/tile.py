"""The steps that the masked projection's kernels share: a tile of logits, and its gradient."""

import triton
import triton.language as tl


@triton.jit
def logits_tile(
    hidden_pointer,  # [M, E]
    weight_pointer,  # [V, E]
    bias_pointer,  # [V] or null
    rows,
    columns,
    num_rows,
    vocab_size,
    width,
    WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_WIDTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Return ``hidden @ weight.T + bias``, float32 [rows, columns], -inf beyond the vocabulary.

    Rows and columns beyond the end load the last one, which is cheaper than a mask. ``width`` is
    WIDTH, as a constant or, where the loop must not be unrolled, as a number known at run time.
    """
    features = tl.arange(0, BLOCK_WIDTH)
    safe_rows = tl.minimum(rows, num_rows - 1).to(tl.int64)
    safe_columns = tl.minimum(columns, vocab_size - 1).to(tl.int64)
    hidden_places = hidden_pointer + safe_rows[:, None] * WIDTH + features[None, :]
    weight_places = weight_pointer + safe_columns[:, None] * WIDTH + features[None, :]
    logits = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], dtype=tl.float32)
    for start in tl.range(0, width, BLOCK_WIDTH):
        if WIDTH % BLOCK_WIDTH == 0:
            hidden = tl.load(hidden_places + start)
            weight = tl.load(weight_places + start)
        else:
            inside = (start + features < WIDTH)[None, :]
            hidden = tl.load(hidden_places + start, mask=inside, other=0.0)
            weight = tl.load(weight_places + start, mask=inside, other=0.0)
        logits = tl.dot(hidden, tl.trans(weight), logits, input_precision=PRECISION)
    # A bias of -inf beyond the vocabulary: one addition a logit instead of a selection more.
    inside = columns < vocab_size
    if HAS_BIAS:
        bias = tl.load(bias_pointer + columns, mask=inside, other=-float("inf")).to(tl.float32)
    else:
        bias = tl.where(inside, 0.0, -float("inf"))
    return logits + bias[None, :]


@triton.jit
def exponentials(logits, shift):
    """Return exp(logits - shift): one FFMA and one ex2.approx.ftz; tl.exp takes four more."""
    LOG2E: tl.constexpr = 1.4426950408889634
    return tl.exp2(tl.fma(logits, LOG2E, -shift * LOG2E))


@triton.jit
def logits_gradient(logits, lse, hits, vocab_size, label_smoothing, z_loss):
    """Return the gradient of the row losses by the logits; ``hits``: true at the label."""
    p = exponentials(logits, lse) * (1.0 + 2.0 * z_loss * lse)
    return p - tl.where(hits, 1.0 - label_smoothing, 0.0) - label_smoothing / vocab_size
