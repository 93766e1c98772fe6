"""The parameters of an encoder and of a head: their names and shapes, computed from the spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from encoder_engine.families.facts.names import Arrangement

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from encoder_engine.families.facts.head_layout import HeadLayout
    from encoder_engine.families.facts.spec import (
        AttentionSpec,
        BlockSpec,
        EmbeddingSpec,
        EncoderSpec,
        NormSpec,
    )

__all__ = [
    "TABLE",
    "Shapes",
    "arrangements",
    "block_dense_layers",
    "encoder_shapes",
    "head_shapes",
    "quantized_shapes",
]

Shapes = dict[str, tuple[int, ...]]
# The name of a table of learned rows, which is not a dense layer.
TABLE = "relative_bias.table"


def encoder_shapes(spec: EncoderSpec) -> Shapes:
    """Return the shape of each of an encoder's parameters, by its name in this package."""
    width = spec.width
    found = dict(_embedding(spec.embedding, width))
    for place, block in enumerate(spec.blocks):
        found |= {f"blocks.{place}.{name}": shape for name, shape in _block(block, width)}
    if spec.relative_bias is not None:
        found[f"{TABLE}.weight"] = (spec.relative_bias.num_buckets, spec.num_heads)
    if spec.distance_vectors is not None:
        found["distance_vectors.table.weight"] = (spec.distance_vectors.num_vectors, width)
        found |= dict(_norm("distance_vectors.norm", spec.distance_vectors.norm, width))
    if spec.convolution is not None:
        found["convolution.kernel.weight"] = (width, width, spec.convolution.kernel_size)
        found["convolution.kernel.bias"] = (width,)
        found |= dict(_norm("convolution.norm", spec.convolution.norm, width))
    found |= dict(_norm("final_norm", spec.final_norm, width))
    if spec.pooler:
        found |= dict(_dense("pooler.dense", width, width))
    return found


def arrangements(spec: EncoderSpec) -> dict[str, Arrangement]:
    """Return the orders of rows and columns of parameters that are not plain stacks of equal parts.

    The parameters are those of attention; keys are their names in this package.
    """
    found: dict[str, Arrangement] = {}
    made: dict[AttentionSpec, dict[str, Arrangement]] = {}
    for place, block in enumerate(spec.blocks):
        attention = block.attention
        if attention not in made:
            made[attention] = dict(_attention_arrangements(attention))
        prefix = f"blocks.{place}.attention"
        found |= {f"{prefix}.{name}": one for name, one in made[attention].items()}
    return found


def _attention_arrangements(spec: AttentionSpec) -> Iterator[tuple[str, Arrangement]]:
    rows = (spec.query_width, spec.key_width, spec.key_width)
    equal = None if len(set(rows)) == 1 else rows
    rotary = spec.rotary
    order = None
    if rotary is not None and rotary.interleaved:
        turned = spec.num_heads + spec.key_heads * (2 if rotary.turns_values else 1)
        order = np.arange(sum(rows))
        order[: turned * spec.head_dim] = _first_features_first(turned, spec.head_dim)
        if rotary.turns_values:
            columns = _first_features_first(spec.num_heads, spec.head_dim)
            yield "output.weight", Arrangement(columns=columns)
    if spec.stacked_by_head:
        by_head = np.arange(sum(rows)).reshape(spec.num_heads, 3, spec.head_dim)
        stacked = by_head.transpose(1, 0, 2).reshape(-1)
        order = stacked if order is None else stacked[order]
    if equal is not None or order is not None:
        for part in ("weight", "weight_scale", "bias"):
            yield f"qkv.{part}", Arrangement(rows=equal, order=order)
    if not spec.key_bias:
        query, key, value = rows
        bias = np.r_[np.arange(query), np.full(key, -1), query + np.arange(value)]
        yield "qkv.bias", Arrangement(rows=(query, value), order=bias)


def _first_features_first(num_heads: int, head_dim: int) -> npt.NDArray[np.int64]:
    """Return the order of features by which each head's rotary pairs become two halves.

    The first features of all pairs come first, then the second ones: [num_heads * head_dim].
    """
    pairs = np.arange(num_heads * head_dim).reshape(num_heads, head_dim // 2, 2)
    return pairs.transpose(0, 2, 1).reshape(-1)


def block_dense_layers(shapes: Shapes) -> list[str]:
    """List the dense layers in the blocks, which int8 quantizes, as names without ``.weight``."""
    tables = f".{TABLE}.weight"
    matrices = [n for n, shape in shapes.items() if len(shape) == 2 and not n.endswith(tables)]
    return [name.removesuffix(".weight") for name in matrices if name.startswith("blocks.")]


def quantized_shapes(spec: EncoderSpec) -> Shapes:
    """Return the shape of each parameter of an int8 encoder, with scales of dense layers' rows."""
    shapes = encoder_shapes(spec)
    scales = {
        f"{name}.weight_scale": shapes[f"{name}.weight"] for name in block_dense_layers(shapes)
    }
    return shapes | {name: (rows,) for name, (rows, _) in scales.items()}


def head_shapes(layout: HeadLayout, spec: EncoderSpec, num_outputs: int) -> Shapes:
    """Return the shape of each parameter of a head, by the parameter's name in this package."""
    found: Shapes = {}
    width, dense = spec.width, layout.dense
    if dense is not None:
        width = spec.embedding.width if dense.to_embedding_width else width
        found |= dict(_dense("dense", width, spec.width, bias=dense.bias))
        found |= dict(_norm("norm", spec.blocks[0].norm if dense.norm else None, width))
    if layout.task == "masked-lm":
        return found | {"output.bias": (num_outputs,)}
    return found | dict(_dense("output", num_outputs, width, bias=layout.output_bias))


def _embedding(spec: EmbeddingSpec, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    tables = {
        "tokens": spec.vocab_size,
        "positions": spec.num_positions,
        "segments": spec.num_segments,
    }
    for name, rows in tables.items():
        if rows:
            yield f"embedding.{name}.weight", (rows, spec.width)
    yield from _norm("embedding.norm", spec.norm, spec.width)
    if spec.projected or spec.width != width:
        yield from _dense("embedding.projection", width, spec.width)


def _block(spec: BlockSpec, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from _attention(spec.attention, width)
    yield from _norm("attention_norm", spec.norm if spec.attention_norm else None, width)
    layer = spec.feed_forward
    name, rows = ("halves", 2 * layer.width) if layer.gated else ("up", layer.width)
    yield from _dense(f"feed_forward.{name}", rows, width, bias=layer.up_bias)
    yield from _dense("feed_forward.down", width, layer.width, bias=layer.down_bias)
    yield from _norm("feed_forward_norm", spec.norm, width)
    if spec.output_norms or spec.sum_norm:
        yield from _norm("attention_output_norm", spec.norm, width)
    if spec.output_norms:
        yield from _norm("feed_forward_output_norm", spec.norm, width)


def _attention(spec: AttentionSpec, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    heads_width = spec.query_width
    rows = heads_width + 2 * spec.key_width
    yield from _dense("attention.qkv", rows, width, bias=spec.bias)
    yield from _dense("attention.output", width, heads_width, bias=spec.output_bias)
    for name, size in zip(("query_norm", "key_norm"), spec.query_key_widths, strict=True):
        yield from _norm(f"attention.{name}", spec.query_key_norm, size)
    if spec.relative_bias is not None:
        yield f"attention.{TABLE}.weight", (spec.relative_bias.num_buckets, spec.num_heads)
    if spec.distance_projections:
        if "query" in spec.disentangled:
            yield from _dense("attention.distance_key", heads_width, width, bias=False)
        if "key" in spec.disentangled:
            yield from _dense("attention.distance_query", heads_width, width)
    if spec.global_projections:
        yield from _dense("attention.global_query", heads_width, width, bias=spec.bias)
        yield from _dense("attention.global_key_value", 2 * heads_width, width, bias=spec.bias)


def _dense(
    name: str, rows: int, columns: int, *, bias: bool = True
) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (rows, columns)
    if bias:
        yield f"{name}.bias", (rows,)


def _norm(name: str, spec: NormSpec | None, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    if spec is not None:
        yield f"{name}.weight", (width,)
        if spec.bias:
            yield f"{name}.bias", (width,)
