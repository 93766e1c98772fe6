"""Removes attention heads from an encoder: zeroes their weights, or cuts them out of the matrices.

Both are equivalent to a gate of 0 on the head's output. Zeroed checkpoints load everywhere.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from encoder_engine.errors import InputError, UnsupportedFeatureError
from encoder_engine.families.facts.pruned import PRUNED, read_pruned
from encoder_engine.families.facts.values import config_values
from encoder_engine.models.attention import SelfAttention

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from encoder_engine.families.facts.spec import AttentionSpec
    from encoder_engine.models import Encoder

    Head = tuple[int, int]

__all__ = ["check_cut", "cut_heads", "least_important", "random_heads", "zero_heads", "zeroed"]


def least_important(importance: Sequence[npt.NDArray[np.float64]], number: int) -> list[Head]:
    """Return the ``number`` attention heads (block, head) of the least importance.

    A block's importances are divided by their Euclidean norm, as Michel et al. (2019) do. Raises
    :class:`InputError` for more heads than there are.
    """
    shares = [found / max(float(np.linalg.norm(found)), 1e-300) for found in importance]
    heads = [(block, head) for block, found in enumerate(shares) for head in range(len(found))]
    if not 0 <= number <= len(heads):
        raise InputError(f"{number} heads are to be removed of {len(heads)}")
    return sorted(heads, key=lambda place: float(shares[place[0]][place[1]]))[:number]


def random_heads(encoder: Encoder, number: int, seed: int) -> list[Head]:
    """Return ``number`` attention heads (block, head), drawn without replacement."""
    blocks = encoder.spec.blocks
    heads = [
        (n, head) for n, block in enumerate(blocks) for head in range(block.attention.num_heads)
    ]
    order = np.random.default_rng(seed).permutation(len(heads))[:number]
    return [heads[place] for place in order.tolist()]


@torch.no_grad()
def zero_heads(encoder: Encoder, heads: Sequence[Head]) -> None:
    """Set the output weights of heads to 0, in place, so that no later layer reads these heads.

    ``save_pretrained`` then writes a checkpoint of the same shape, which transformers loads. Raises
    :class:`InputError` for a head that does not exist.
    """
    for number, head in heads:
        spec = _spec_of(encoder, number, head)
        weight = encoder.blocks[number].get_submodule("attention.output").weight
        assert isinstance(weight, torch.Tensor)
        weight[:, head * spec.head_dim : (head + 1) * spec.head_dim] = 0.0


@contextmanager
def zeroed(encoder: Encoder, heads: Sequence[Head]) -> Iterator[None]:
    """Set the output weights of heads to 0 within this context; restore them after it."""
    weights = [block.get_submodule("attention.output").weight for block in encoder.blocks]
    saved = [weight.detach().clone() for weight in weights if isinstance(weight, torch.Tensor)]
    try:
        zero_heads(encoder, heads)
        yield
    finally:
        with torch.no_grad():
            for weight, before in zip(weights, saved, strict=True):
                assert isinstance(weight, torch.Tensor)
                weight.copy_(before)


def check_cut(encoder: Encoder, heads: Sequence[Head]) -> None:
    """Raise the exceptions of :func:`cut_heads` for heads that cannot be cut out."""
    for number, head in heads:
        _spec_of(encoder, number, head)
    for number, gone in _by_block(heads).items():
        _refuse_cut(encoder, number, gone)


def _by_block(heads: Sequence[Head]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for number, head in heads:
        found.setdefault(number, set()).add(head)
    return found


@torch.no_grad()
def cut_heads(encoder: Encoder, heads: Sequence[Head]) -> None:
    """Remove attention heads from an encoder's weights, in place; blocks may then differ in heads.

    Such an encoder is faster. ``save_pretrained`` names the heads in the configuration's
    ``pruned_heads``, which transformers reads before its fifth version; :func:`zero_heads` keeps
    the shape that every version loads. Raises :class:`InputError` for a head that does not exist,
    and :class:`UnsupportedFeatureError` for attention whose heads share keys, norms or biases, and
    for a block that would lose all heads; the encoder is then as it was.
    """
    check_cut(encoder, heads)
    removed = _by_block(heads)
    blocks = list(encoder.spec.blocks)
    for number, gone in removed.items():
        spec = blocks[number].attention
        kept = [head for head in range(spec.num_heads) if head not in gone]
        blocks[number] = replace(
            blocks[number], attention=replace(spec, num_heads=len(kept), num_key_heads=None)
        )
        module = encoder.blocks[number].get_submodule("attention")
        assert isinstance(module, SelfAttention)
        encoder.blocks[number].attention = _cut(module, blocks[number].attention, kept)
    encoder.spec = replace(encoder.spec, blocks=tuple(blocks))
    encoder.config = {**encoder.config, PRUNED: _all_pruned(encoder, removed)}


def _all_pruned(encoder: Encoder, removed: dict[int, set[int]]) -> dict[str, list[int]]:
    """Return all heads that each block has lost, by block, numbered as in the unpruned block.

    ``removed``: the heads that each block loses now, numbered among its remaining heads.
    """
    pruned = read_pruned(config_values(encoder.config))
    found = {block: set(heads) for block, heads in pruned.items()}
    for block, heads in removed.items():
        before = found.setdefault(block, set())
        left = encoder.spec.blocks[block].attention.num_heads
        whole = left + len(heads) + len(before)
        remaining = [head for head in range(whole) if head not in before]
        before |= {remaining[head] for head in heads}
    return {str(block): sorted(heads) for block, heads in sorted(found.items())}


def _cut(module: SelfAttention, spec: AttentionSpec, kept: Sequence[int]) -> SelfAttention:
    before, width = module.spec, module.output.weight.shape[0]
    features = torch.arange(before.num_heads * before.head_dim).view(before.num_heads, -1)
    chosen = features[list(kept)].reshape(-1).to(module.output.weight.device)
    parts = torch.cat([chosen + n * features.numel() for n in range(3)])
    # Made without its rotary table, which it shares with the other blocks.
    new = SelfAttention(replace(spec, rotary=None), width=width)
    new.spec, new.rotary = spec, module.rotary
    new.query_norm, new.key_norm = module.query_norm, module.key_norm
    for name, index, dim in (("qkv", parts, 0), ("output", chosen, 1)):
        ours, theirs = getattr(new, name), getattr(module, name)
        ours.weight = torch.nn.Parameter(theirs.weight.index_select(dim, index))
        if theirs.bias is not None:
            bias = theirs.bias.index_select(0, index) if dim == 0 else theirs.bias.clone()
            ours.bias = torch.nn.Parameter(bias)
    return new.train(module.training)


def _refuse_cut(encoder: Encoder, number: int, gone: set[int]) -> None:
    spec = encoder.spec.blocks[number].attention
    shared = {
        "heads that share keys": spec.key_heads != spec.num_heads,
        "norms over all heads": spec.query_key_norm is not None and not spec.norm_by_head,
        "slopes by head": spec.alibi_slopes is not None,
        "projections of global rows": spec.global_projections,
        "disentangled terms": bool(spec.disentangled),
        "a relative bias by head": bool(encoder.spec.relative_biases),
    }
    reason = next((name for name, holds in shared.items() if holds), None)
    if reason is None and len(gone) == spec.num_heads:
        reason = "no head left"
    if reason is not None:
        raise UnsupportedFeatureError(
            f"heads of block {number}, with {reason}, cannot be cut out; set its weights "
            "to 0 with zeroed=True, or by zero_heads"
        )


def _spec_of(encoder: Encoder, number: int, head: int) -> AttentionSpec:
    blocks = encoder.spec.blocks
    if not 0 <= number < len(blocks) or not 0 <= head < blocks[number].attention.num_heads:
        raise InputError(f"there is no head {head} in block {number}; both count from 0")
    return blocks[number].attention
