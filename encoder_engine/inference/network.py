"""The weights of a compiled encoder and head, from which programs are built."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError
from encoder_engine.families.checkpoints.parameters import TABLE
from encoder_engine.families.facts.head_layout import ONE_ROW
from encoder_engine.families.heads import (
    check_head,
    count_outputs,
    find_layout,
    join_fingerprint,
    read_rows,
)
from encoder_engine.inference.blocks import BlockBuilder, read_block
from encoder_engine.inference.constants import Constants
from encoder_engine.inference.layers import NormWeights, arrays_of
from encoder_engine.inference.program import INPUT, KEYS, OUTPUT, SELECTED, TOKENS, Program
from encoder_engine.packing.pooling_modes import check_mode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from encoder_engine.families.checkpoints.arrays import Array
    from encoder_engine.families.facts.head_layout import HeadLayout, Task
    from encoder_engine.families.facts.head_layout import Rows as HeadRows
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.inference.batch import Rows
    from encoder_engine.inference.blocks import BlockWeights
    from encoder_engine.inference.layers import Convolution, Dense, Reader

__all__ = ["CompiledHead", "CompiledNetwork"]


@dataclass(frozen=True, kw_only=True, eq=False)
class CompiledNetwork:
    """The weights of a compiled encoder.

    Builds the programs, lists of native operations, from token ids to hidden states and vectors.
    """

    spec: EncoderSpec
    dtype: str
    tokens: Array
    positions: Array | None
    segments: Array | None
    embedding_norm: NormWeights | None
    projection: Dense | None
    blocks: tuple[BlockWeights, ...]
    convolution: Convolution | None
    convolution_norm: NormWeights | None
    final_norm: NormWeights | None
    pooler: Dense | None
    constants: Constants
    reader: Reader

    @classmethod
    def read(cls, spec: EncoderSpec, reader: Reader, *, pooler: bool) -> Self:
        """Read the weights of an encoder layer by layer; ``pooler``: those of a pooler too."""
        embedding, convolution, distances = spec.embedding, spec.convolution, spec.distance_vectors
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
            convolution=(None if convolution is None else reader.convolution("convolution.kernel")),
            convolution_norm=reader.norm(
                "convolution.norm", None if convolution is None else convolution.norm
            ),
            final_norm=reader.norm("final_norm", spec.final_norm),
            pooler=reader.dense("pooler.dense") if pooler else None,
            constants=Constants(
                spec,
                bias_table=(
                    None if spec.relative_bias is None else reader.table(f"{TABLE}.weight")
                ),
                distance_table=(
                    None if distances is None else reader.table("distance_vectors.table.weight")
                ),
                distance_norm=reader.norm(
                    "distance_vectors.norm", None if distances is None else distances.norm
                ),
            ),
            reader=reader,
        )

    @property
    def is_mapped(self) -> bool:
        """True if any weight is memory-mapped."""
        arrays = [
            array for layer in self.reader.made.values() for array in arrays_of(layer).values()
        ]
        return not all(array.flags.writeable for array in arrays)

    def parameters(self) -> Iterator[tuple[str, Array]]:
        """Yield each parameter's name, as in :class:`Encoder`'s state dict, and its values."""
        return _parameters(self.reader)

    def tables_in_place(self) -> Iterator[tuple[str, Array]]:
        """Yield the name and the array of each parameter that calls read as it is, not packed."""
        for name, layer in self.reader.made.items():
            # Tables and vectors follow from these parameters, and are computed once.
            if name.startswith("distance_vectors.") or name.endswith(f"{TABLE}.weight"):
                continue
            if isinstance(layer, np.ndarray):
                yield name, layer
            elif isinstance(layer, NormWeights):
                for part, array in layer.parameters().items():
                    yield f"{name}.{part}", array

    def hidden_program(self, *, shares_prefix: bool = False, unattended: bool = False) -> Program:
        """Return the program from token ids to float32 hidden states [T, D].

        ``unattended``: for batches with tokens that no token attends to.
        """
        selects: Rows | None = "all" if unattended else None
        program = Program(self.dtype, selects=selects, shares_prefix=shares_prefix)
        last = None if self._is_half or shares_prefix else OUTPUT
        rows = self.add(program, target=last)
        if shares_prefix:
            rows = program.take_all(rows, self.spec.width, None if self._is_half else OUTPUT)
        if self._is_half:
            program.widen(rows, OUTPUT, self.spec.width)
        return program

    def pooled_program(
        self, mode: str, *, normalized: bool, shares_prefix: bool = False
    ) -> Program:
        """Return the program from token ids to pooled float32 vectors, [B, D]."""
        check_mode(mode)
        selects = self.selected_by(mode)
        # With a shared prefix, a text's first row may be in the prefix.
        selects = None if shares_prefix and selects == "first" else selects
        program = Program(self.dtype, selects=selects, shares_prefix=shares_prefix)
        rows = self.add(program, target=None)
        if shares_prefix and selects is None:
            rows = program.take_all(rows, self.spec.width, None)
        if self._is_half:
            # Sums of many rows are in float32.
            wide = program.wide_rows(self.spec.width, self.domain_to_pool(program))
            program.widen(rows, wide, self.spec.width)
            rows = wide
        program.pool(rows, OUTPUT, self.spec.width, mode=mode, normalized=normalized, wide=True)
        return program

    def selected_by(self, mode: str) -> Rows | None:
        """Return the rows that a pooling mode reads, ``"first"`` or ``"last"`` of each text.

        None: the mode reads all rows, or the last layer cannot compute some rows alone.
        """
        chosen: dict[str, Rows] = {"cls": "first", "lasttoken": "last"}
        return chosen.get(mode) if self.can_select else None

    @property
    def can_select(self) -> bool:
        """True if the last layer can compute some rows alone: no convolution follows it."""
        convolved_last = self.convolution is not None and self.spec.num_layers == 1
        return self.spec.num_layers > 0 and not convolved_last

    @staticmethod
    def domain_after(program: Program) -> str:
        """Return the domain (see :class:`Program`) of the rows that the last layer writes."""
        return TOKENS if program.selects is None else SELECTED

    @staticmethod
    def domain_to_pool(program: Program) -> str:
        """Return the domain (see :class:`Program`) of the rows that pooling reads."""
        whole = KEYS if program.shares_prefix else TOKENS
        return whole if program.selects is None else SELECTED

    def layer_program(self, first: int | None, last: int) -> Program:
        """Return the program from layer ``first`` to layer ``last``: hidden states [T, D].

        Layer 0 is the embeddings. ``first`` None: the program's input is token ids; else it is the
        hidden states of layer ``first``. The output is in the network's dtype.
        """
        program = Program(self.dtype)
        if first is None:
            self._add_layers(program, 0, last, embedded=False, target=OUTPUT)
        else:
            self._add_layers(program, first, last, embedded=True, target=OUTPUT)
        return program

    def add(self, program: Program, *, target: int | None) -> int:
        """Add the operations from token ids to the last layer; return the buffer of its rows.

        ``target``: the buffer; None: a new one.
        """
        return self._add_layers(program, 0, self.spec.num_layers, embedded=False, target=target)

    @property
    def _is_half(self) -> bool:
        return self.dtype == "bfloat16"

    def _add_layers(
        self, program: Program, first: int, last: int, *, embedded: bool, target: int | None
    ) -> int:
        """Add layers first + 1 to last to a program; after the encoder's last, its final norm.

        Unless ``embedded``, the embeddings are added first. ``first`` is below ``last`` if the
        program's input are rows. In a program that selects rows, the last layer computes these
        alone.
        """
        width, spec = self.spec.width, self.spec
        domain = self.domain_after(program)
        target = program.rows(width, domain) if target is None else target
        order = range(len(self.blocks)) if spec.order is None else spec.order
        blocks = [self.blocks[place] for place in order][first:last]
        ends = self.final_norm is not None and last == spec.num_layers
        before_end = program.rows(width, domain) if ends else target
        source = INPUT if embedded else self._add_embedding(program, None if blocks else before_end)
        builder = BlockBuilder(program, self.constants, source)
        selects_all = program.selects == "all"
        for place, block in enumerate(blocks, start=first):
            is_last = place == last - 1
            convolved = place == 0 and self.convolution is not None
            selects = selects_all or (is_last and program.selects is not None)
            own_target = before_end if is_last and not convolved else None
            tokens = builder.hidden
            builder.add_block(block, own_target, selects=selects)
            if selects_all and not is_last:
                # The next block computes keys and values of all tokens' rows.
                program.put_rows(builder.hidden, tokens, width)
                builder.hidden = tokens
            if convolved:
                own_target = before_end if is_last else program.rows(width)
                self._add_convolution(program, source, builder.hidden, own_target)
                builder.hidden = own_target
        if ends:
            assert self.final_norm is not None
            program.normalize(self.final_norm, before_end, target)
        return target

    def _add_convolution(self, program: Program, embedded: int, hidden: int, target: int) -> None:
        """Add the convolution of the embeddings, and the norm of its sum with ``hidden``."""
        layer, spec, width = self.convolution, self.spec.convolution, self.spec.width
        assert layer is not None
        assert spec is not None
        assert self.convolution_norm is not None
        columns = program.rows(spec.kernel_size * width)
        program.take_neighbours(embedded, columns, width, spec.kernel_size)
        convolved = program.rows(width)
        program.dense(layer.dense, columns, convolved, function=spec.activation)
        program.normalize(self.convolution_norm, convolved, target, residual=hidden)

    def _add_embedding(self, program: Program, target: int | None) -> int:
        width, own_width = self.spec.width, self.spec.embedding.width
        target = program.rows(width) if target is None else target
        first = target if self.projection is None else program.rows(own_width)
        spec = self.spec.embedding
        program.embed(
            self.tokens,
            self.positions,
            self.segments,
            self.embedding_norm,
            target=first,
            scaled=spec.scale != 1.0 or spec.mask_id is not None,
        )
        if self.projection is not None:
            program.dense(self.projection, first, target)
        return target


@dataclass(frozen=True, kw_only=True, eq=False)
class CompiledHead:
    """The weights of a compiled encoder's head; builds its program from token ids to logits."""

    layout: HeadLayout
    rows: HeadRows
    num_outputs: int
    dense: Dense | None
    norm: NormWeights | None
    output: Dense
    activation: str
    reader: Reader
    separator_id: int | None

    @classmethod
    def read(
        cls, config: Mapping[str, Any], task: Task, network: CompiledNetwork, reader: Reader
    ) -> Self:
        """Read a head's weights; the output weight of a masked-LM head is the token table."""
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
            separator_id=_separator(layout, config),
        )

    def can_select(self, network: CompiledNetwork) -> bool:
        """Return whether the last layer can compute some tokens' rows alone, for this head."""
        return self.layout.sees_all is None and network.can_select

    def program(self, network: CompiledNetwork, *, chosen: bool = False) -> Program:
        """Return the program from token ids to float32 logits, [B, C] or [T, C].

        ``chosen``: for batches with :attr:`Batch.chosen`: logits of these tokens alone, [M, C].
        """
        mode = ONE_ROW.get(self.rows)
        width, domain = network.spec.width, TOKENS if mode is None else "sequences"
        sees_all = self.layout.sees_all
        selects: Rows | None = None
        if chosen:
            selects, domain = "chosen", SELECTED
        elif mode is not None and sees_all is None:
            selects = network.selected_by(mode)
        program = Program(
            network.dtype, selects=selects, sees_all=sees_all, separator_id=self.separator_id
        )
        rows = network.add(program, target=None)
        if mode is not None:
            pooled = program.rows(width, domain)
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
        late = self.rows == "late"
        wide = program.wide_rows(self.num_outputs, domain) if late else OUTPUT
        if network.dtype == "float32":
            program.dense(self.output, rows, wide)
        else:
            logits = program.rows(self.num_outputs, domain)
            program.dense(self.output, rows, logits)
            program.widen(logits, wide, self.num_outputs)
        if late:
            program.pool(wide, OUTPUT, self.num_outputs, mode="mean", wide=True)
        return program

    def parameters(self) -> Iterator[tuple[str, Array]]:
        """Yield the name and the values of each parameter, named as in a head's state dict."""
        return _parameters(self.reader)

    def join_fingerprint(self, encoder: str) -> str:
        """Return the SHA-256 of an encoder's fingerprint joined with this head."""
        return join_fingerprint(encoder, self.layout, self.rows, self.parameters())

    @staticmethod
    def _dense(program: Program, layer: Dense, rows: int, domain: str, function: str) -> int:
        raised = program.rows(layer.width, domain)
        program.dense(layer, rows, raised, function=function)
        return raised


def _parameters(reader: Reader) -> Iterator[tuple[str, Array]]:
    """Yield the name and the values of each parameter that a reader has read, unpacked."""
    for name, layer in reader.made.items():
        if isinstance(layer, np.ndarray):
            yield name, layer
        else:
            for part, array in layer.parameters().items():
                yield f"{name}.{part}", array


def _separator(layout: HeadLayout, config: Mapping[str, Any]) -> int | None:
    """Return the token that ends a question, if the head needs it, or None.

    A head needs it whose question tokens have global attention.
    """
    if layout.sees_all != "question":
        return None
    separator = config.get("sep_token_id")
    if not isinstance(separator, int):
        raise ConfigError("config.json has no sep_token_id, which marks the question's end")
    return separator
