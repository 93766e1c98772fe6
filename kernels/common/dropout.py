"""Dropout without a stored mask: the mask is a pure function of seed, row and column.

How it works: Philox 4x32 (Salmon et al. 2011) turns a counter into four random words, and backward
draws the words of forward again. A call costs about 35 instructions, so the places that one thread
holds share it: 16 attention weights, or 8 features of a row. Each place reads a whole word, rotated
by 8 or 16 bits from that of its neighbour. The keep probability is thus exact to 2^-32. Two places
that share a word are independent except in a fraction 2^-8 of the draws (2^-16 for features), where
the leading bits do not decide.

Seven rounds pass every test of TestU01's BigCrush (the paper's table 2); FlashAttention-2 uses as
many.
"""

import triton
import triton.language as tl

NUM_ROUNDS = tl.constexpr(7)


@triton.jit
def rotated(word, bit, BITS: tl.constexpr):
    """Return a word rotated left by BITS where ``bit`` is set."""
    return tl.where(bit == 0, word, (word << BITS) | (word >> (32 - BITS)))


@triton.jit
def is_kept(word, dropout):
    """Return whether dropout keeps a feature, by its random word: with probability 1 - dropout."""
    return word >= tl.full([], dropout * 4294967296.0, tl.float32).to(tl.uint32)


@triton.jit
def _without_bits(place):
    """Clear bits 0 and 3 of a position, by subtraction.

    LLVM folds the subtractions at each of many uses, but not a mask.
    """
    place -= place & 8
    return place - (place & 1)


@triton.jit
def keep_weights(seed, stream, rows, keys, dropout):
    """Return whether attention weights are kept: bool, ``rows`` broadcast with ``keys``.

    ``stream``: the sequence and head, as one number. ``rows``, ``keys``: positions, each as a pair
    of a multiple of 16 and offsets from it. The 16 weights of rows and keys that differ in bits 0
    and 3 share one call: bits 3 choose the word and bits 0 the rotation. A thread holds 8 of them
    in a fragment of [rows, keys] and 8 in one of [keys, rows]. Offsets that are known at compile
    time make the calls equal for LLVM, which then keeps one of eight.
    """
    row_base, row = rows
    key_base, key = keys
    row = row.to(tl.uint32)
    key = key.to(tl.uint32)
    row_group = row_base.to(tl.uint32) + _without_bits(row)
    key_group = key_base.to(tl.uint32) + _without_bits(key)
    a, b, c, d = tl.philox(seed, row_group, stream, key_group, 0, NUM_ROUNDS)
    even = tl.where((row & 8) == 0, a, b)
    odd = tl.where((row & 8) == 0, c, d)
    word = tl.where((key & 8) == 0, even, odd)
    # A thread's own places differ in a bit of rows or of keys: the other one's rotation is shared.
    if row.shape[1] == 1:
        word = rotated(rotated(word, row & 1, 16), key & 1, 8)
    else:
        word = rotated(rotated(word, key & 1, 8), row & 1, 16)
    return is_kept(word, dropout)


@triton.jit
def keep_scale(seed, rows, columns, dropout):
    """Return 0 where a feature is dropped and 1 / (1 - dropout) where kept, [rows, columns].

    Eight neighbouring features of a row share one call of the random generator.
    """
    rows = rows.to(tl.int64)[:, None]
    columns = columns.to(tl.uint32)[None, :]
    low = (rows & 0xFFFFFFFF).to(tl.uint32)
    high = (rows >> 32).to(tl.uint32)
    a, b, c, d = tl.philox(seed, columns >> 3, low, high, 0, NUM_ROUNDS)
    first = tl.where((columns & 2) == 0, a, b)
    second = tl.where((columns & 2) == 0, c, d)
    word = tl.where((columns & 4) == 0, first, second)
    kept = is_kept(rotated(word, columns & 1, 16), dropout)
    return tl.where(kept, 1.0 / (1.0 - dropout), 0.0)
