"""The weights of a compiled encoder and of a head, and the programs that compute with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from encoder_engine.families.heads import check_head, count_outputs, find_layout, read_rows
from encoder_engine.inference.blocks import BlockBuilder, Constants, read_block, unsupported
from encoder_engine.inference.program import INPUT, OUTPUT, Program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.facts.head_layout import HeadLayout, Rows, Task
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.inference.blocks import BlockWeights
    from encoder_engine.inference.layers import Dense, NormWeights, Reader

__all__ = ["CompiledHead", "CompiledNetwork"]


@dataclass(frozen=True, kw_only=True, eq=False)
class CompiledNetwork:
    """The weights of an encoder, and the programs from token ids to rows and vectors."""

    spec: EncoderSpec
    dtype: str
    tokens: Array
    positions: Array | None
    segments: Array | None
    embedding_norm: NormWeights | None
    projection: Dense | None
    blocks: tuple[BlockWeights, ...]
    final_norm: NormWeights | None
    pooler: Dense | None
    constants: Constants
    reader: Reader

    @classmethod
    def read(cls, spec: EncoderSpec, reader: Reader, *, pooler: bool) -> Self:
        """Read the weights of an encoder layer by layer."""
        embedding = spec.embedding
        tables = {
            name: reader.table(f"embedding.{name}.weight") if rows else None
            for name, rows in (
                ("positions", embedding.num_positions),
                ("segments", embedding.num_segments),
            )
        }
        projected = embedding.projected or embedding.width != spec.width
        return cls(
            spec=spec,
            dtype=reader.dtype,
            tokens=reader.table("embedding.tokens.weight"),
            positions=tables["positions"],
            segments=tables["segments"],
            embedding_norm=reader.norm("embedding.norm", embedding.norm),
            projection=reader.dense("embedding.projection") if projected else None,
            blocks=tuple(
                read_block(reader, block, place) for place, block in enumerate(spec.blocks)
            ),
            final_norm=reader.norm("final_norm", spec.final_norm),
            pooler=reader.dense("pooler.dense") if pooler else None,
            constants=Constants(spec),
            reader=reader,
        )

    @property
    def is_mapped(self) -> bool:
        """True where the table of tokens is the pages of the checkpoint's file."""
        return not self.tokens.flags.writeable

    @staticmethod
    def supports(spec: EncoderSpec) -> str | None:
        """Return the reason why an architecture has no program; None: it has one."""
        return unsupported(spec)

    def parameters(self) -> Iterator[tuple[str, Array]]:
        """Yield the name and the values of each parameter, as an encoder's state dict has them."""
        for name, layer in self.reader.made.items():
            if isinstance(layer, np.ndarray):
                yield name, layer
            else:
                for part, array in layer.parameters().items():
                    yield f"{name}.{part}", array

    def hidden_program(self) -> Program:
        """Return the program from token ids to float32 rows [T, D]."""
        program = Program(self.dtype)
        rows = self.add(program, target=None if self._is_half else OUTPUT)
        if self._is_half:
            program.widen(rows, OUTPUT, self.spec.width)
        return program

    def pooled_program(self, mode: str, *, normalized: bool) -> Program:
        """Return the program from token ids to float32 vectors [B, D]."""
        program = Program(self.dtype)
        rows = self.add(program, target=None)
        if self._is_half:
            # Sums of many rows are in float32.
            wide = program.wide_rows(self.spec.width)
            program.widen(rows, wide, self.spec.width)
            rows = wide
        program.pool(rows, OUTPUT, self.spec.width, mode=mode, normalized=normalized, wide=True)
        return program

    def layer_program(self, first: int | None, last: int) -> Program:
        """Return the program from layer ``first`` to layer ``last``, [T, D] in the dtype.

        0 are the embeddings. ``first`` None: from the token ids; else the program's input are the
        rows of that layer.
        """
        program = Program(self.dtype)
        if first is None:
            self._add_layers(program, 0, last, embedded=False, target=OUTPUT)
        else:
            self._add_layers(program, first, last, embedded=True, target=OUTPUT)
        return program

    def add(self, program: Program, *, target: int | None) -> int:
        """Add everything from token ids to the rows after the last layer; return their buffer."""
        return self._add_layers(program, 0, self.spec.num_layers, embedded=False, target=target)

    @property
    def _is_half(self) -> bool:
        return self.dtype == "bfloat16"

    def _add_layers(
        self, program: Program, first: int, last: int, *, embedded: bool, target: int | None
    ) -> int:
        """Add layers first + 1 .. last, the embedding unless ``embedded``, and the final norm."""
        width, spec = self.spec.width, self.spec
        target = program.rows(width) if target is None else target
        order = range(len(self.blocks)) if spec.order is None else spec.order
        blocks = [self.blocks[place] for place in order][first:last]
        ends = self.final_norm is not None and last == spec.num_layers
        before_end = program.rows(width) if ends else target
        source = INPUT
        if not embedded:
            source = self._add_embedding(program, None if blocks else before_end)
        builder = BlockBuilder(program, self.constants, source)
        for number, block in enumerate(blocks):
            builder.add_block(block, before_end if number == len(blocks) - 1 else None)
        if ends:
            assert self.final_norm is not None
            program.normalize(self.final_norm, before_end, target)
        return target

    def _add_embedding(self, program: Program, target: int | None) -> int:
        width, own_width = self.spec.width, self.spec.embedding.width
        target = program.rows(width) if target is None else target
        first = target if self.projection is None else program.rows(own_width)
        program.embed(self.tokens, self.positions, self.segments, self.embedding_norm, target=first)
        if self.projection is not None:
            program.dense(self.projection, first, target)
        return target


@dataclass(frozen=True, kw_only=True, eq=False)
class CompiledHead:
    """The weights of a head, and its program from token ids to logits."""

    layout: HeadLayout
    rows: Rows
    num_outputs: int
    dense: Dense | None
    norm: NormWeights | None
    output: Dense
    activation: str
    reader: Reader

    @classmethod
    def read(
        cls, config: Mapping[str, Any], task: Task, network: CompiledNetwork, reader: Reader
    ) -> Self:
        """Read the weights of a head; the output weight of a vocabulary is the token table."""
        spec = network.spec
        layout = find_layout(spec.model_type, task)
        check_head(layout, config)
        dense = layout.dense
        norm = None if dense is None or not dense.norm else spec.blocks[0].norm
        chosen = None if dense is None else dense.activation
        if layout.task == "masked-lm":
            output = reader.vocabulary(network.tokens)
        else:
            output = reader.dense("output")
        return cls(
            layout=layout,
            rows=read_rows(layout, config),
            num_outputs=count_outputs(layout, spec, config),
            dense=None if dense is None else reader.dense("dense"),
            norm=reader.norm("norm", norm),
            output=output,
            activation=chosen or spec.blocks[0].feed_forward.activation,
            reader=reader,
        )

    def program(self, network: CompiledNetwork) -> Program:
        """Return the program from token ids to float32 logits, [B, C] or [T, C]."""
        program, width = Program(network.dtype), network.spec.width
        domain = "tokens" if self.rows == "all" else "sequences"
        rows = network.add(program, target=None)
        if self.rows != "all":
            pooled = program.rows(width, domain)
            mode = "mean" if self.rows == "mean" else "cls"
            program.pool(rows, pooled, width, mode=mode)
            rows = pooled
        if self.rows == "pooled":
            assert network.pooler is not None
            rows = self._dense(program, network.pooler, rows, domain, "tanh")
        if self.dense is not None:
            rows = self._dense(program, self.dense, rows, domain, self.activation)
        if self.norm is not None:
            normal = program.rows(len(self.norm.weight), domain)
            program.normalize(self.norm, rows, normal)
            rows = normal
        if network.dtype == "float32":
            program.dense(self.output, rows, OUTPUT)
        else:
            logits = program.rows(self.num_outputs, domain)
            program.dense(self.output, rows, logits)
            program.widen(logits, OUTPUT, self.num_outputs)
        return program

    @staticmethod
    def _dense(program: Program, layer: Dense, rows: int, domain: str, function: str) -> int:
        raised = program.rows(layer.width, domain)
        program.dense(layer, rows, raised, function=function)
        return raised
