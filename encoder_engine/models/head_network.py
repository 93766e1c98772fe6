"""The network of an encoder with a head for a task.

Dimensions: T packed tokens, B sequences, M selected rows, D width, E width of the token
embeddings, V vocabulary, C labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from encoder_engine import ops
from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.families.facts.head_layout import ONE_ROW
from encoder_engine.families.heads import (
    check_head,
    count_labels,
    count_outputs,
    find_layout,
    label_names,
    read_dropout,
    read_rows,
)
from encoder_engine.models.init import draw_weights
from encoder_engine.models.layers import GELU
from encoder_engine.models.linear import Linear
from encoder_engine.models.norm import Norm
from encoder_engine.packing import SelectedRows

if TYPE_CHECKING:
    from encoder_engine.families.facts.head_layout import HeadLayout, Task
    from encoder_engine.families.facts.spec import EncoderSpec
    from encoder_engine.models.network import EncoderOutput, Network
    from encoder_engine.packing import PackedBatch, Sequences

__all__ = ["HeadNetwork", "VocabularyBias"]


class VocabularyBias(nn.Module):
    """The output bias of each token of the vocabulary; the output weight is the token embedding."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(vocab_size))


class Head(nn.Module):
    """An optional dense layer with activation and norm, and the output layer."""

    def __init__(
        self, layout: HeadLayout, spec: EncoderSpec, *, num_outputs: int, dropout: float
    ) -> None:
        super().__init__()
        self.layout, self.dropout = layout, dropout
        self.activation = spec.blocks[0].feed_forward.activation
        dense, width = layout.dense, spec.width
        self.dense = self.norm = None
        if dense is not None:
            width = spec.embedding.width if dense.to_embedding_width else width
            self.dense = Linear(spec.width, width, bias=dense.bias)
            self.norm = Norm(spec.blocks[0].norm, width=width) if dense.norm else None
        of_vocabulary = layout.task == "masked-lm"
        self.output = (
            VocabularyBias(num_outputs)
            if of_vocabulary
            else Linear(width, num_outputs, bias=layout.output_bias)
        )
        with torch.no_grad():
            draw_weights(self, spec.initializer_range)

    def transform(self, hidden_MD: Tensor) -> Tensor:
        """Compute the input of the output layer, [M, E], from hidden states."""
        if self.dense is not None:
            assert self.layout.dense is not None
            if self.layout.dense.dropout_before:
                hidden_MD = self._drop(hidden_MD)
            hidden_MD = self._activated(self.dense, hidden_MD)
        if self.norm is not None:
            hidden_MD = self.norm(hidden_MD)
        return self._drop(hidden_MD)

    def _activated(self, dense: nn.Module, hidden_MD: Tensor) -> Tensor:
        assert self.layout.dense is not None
        activation = self.layout.dense.activation or self.activation
        raised_ME: Tensor
        if activation in ("gelu", "gelu_tanh"):
            raised_ME = dense(hidden_MD, gelu=GELU[activation])
            return raised_ME
        raised_ME = dense(hidden_MD)
        other = {"relu": torch.relu, "silu": F.silu, "tanh": torch.tanh}
        return other[activation](raised_ME)

    def _drop(self, hidden_MD: Tensor) -> Tensor:
        return F.dropout(hidden_MD, self.dropout) if self.training and self.dropout else hidden_MD

    def forward(self, hidden_MD: Tensor) -> Tensor:
        """Compute the logits, [M, C], from hidden states."""
        numbers_MC: Tensor = self.output(self.transform(hidden_MD))
        return numbers_MC


class HeadNetwork(nn.Module):
    """An encoder with a randomly initialized head for a task.

    ``num_labels``: for tasks with labels; by default the number in the encoder's configuration.
    Raises :class:`UnsupportedFeatureError` where the family has no head for the task.
    """

    task: ClassVar[Task]

    def __init__(self, encoder: Network, *, num_labels: int | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.layout = find_layout(encoder.spec.model_type, self.task)
        config = encoder.config
        check_head(self.layout, config)
        self.rows = read_rows(self.layout, config)
        self.head = Head(
            self.layout,
            encoder.spec,
            num_outputs=self._count_outputs(num_labels),
            dropout=read_dropout(self.layout, config),
        )
        self.head.to(device=encoder.device, dtype=encoder.dtype)
        self.train(encoder.training)

    @property
    def config(self) -> dict[str, Any]:
        """The encoder's Hugging Face configuration, with the names of this head's labels."""
        return self.encoder.config

    @property
    def id2label(self) -> dict[int, str]:
        """The labels' names by index."""
        return label_names(self.config)

    def _count_outputs(self, num_labels: int | None) -> int:
        """Return the number of the head's outputs.

        If ``num_labels`` is not the configuration's number of labels, that gets new label names.
        """
        has_labels = self.task != "masked-lm" and self.layout.num_outputs is None
        if has_labels and num_labels is not None and num_labels != count_labels(self.config):
            names = {str(number): f"LABEL_{number}" for number in range(num_labels)}
            self.config["id2label"] = names
            self.config["label2id"] = {name: int(number) for number, name in names.items()}
        return count_outputs(self.layout, self.encoder.spec, self.config)

    def encode(self, batch: PackedBatch, global_rows: SelectedRows | None = None) -> EncoderOutput:
        """Encode a batch with the pooler and the global attention that the head needs.

        ``global_rows``: the tokens with global attention; None: those that the head's layout
        states. If the head reads only the first row of each sequence, only these rows are returned,
        and the last block computes no others unless there is global attention. torch.compile gets
        all rows.
        """
        if global_rows is None and self.layout.sees_all is not None:
            global_rows = self._choose_global_rows(batch)
        rows = None
        if self.rows in ("first", "pooled") and not torch.compiler.is_compiling():
            batch = batch.to(self.encoder.device)
            rows = SelectedRows.of_first(batch.sequences)
        output: EncoderOutput = self.encoder(
            batch, output_pooled=self.rows == "pooled", global_rows=global_rows, rows=rows
        )
        return output

    def _choose_global_rows(self, batch: PackedBatch) -> SelectedRows:
        sequences = batch.sequences
        if self.layout.sees_all == "first":
            starts = sequences.cu_seqlens[:-1][sequences.cu_seqlens.diff() > 0]
            return SelectedRows(starts, sequences)
        separator = self.config.get("sep_token_id")
        if not isinstance(separator, int):
            raise ConfigError("config.json has no sep_token_id, which marks the question's end")
        after = _after_first(torch.eq(batch.input_ids, separator), sequences)
        return SelectedRows((~after).nonzero().flatten(), sequences)

    def numbers(self, output: EncoderOutput) -> Tensor:
        """Compute the head's logits from an encoder's output: [T, C] or [B, C]."""
        hidden = output.last_hidden_state
        if self.rows == "pooled":
            if output.pooler_output is None:
                raise UnsupportedFeatureError(
                    f"{self.layout.architecture} needs the pooler's output, but this encoder "
                    "has no pooler: its checkpoint lacks the weights"
                )
            hidden = output.pooler_output
        elif self.rows in ONE_ROW:
            hidden = ops.pooling(hidden, output.sequences, mode=ONE_ROW[self.rows])
        numbers: Tensor = self.head(hidden)
        if self.rows == "late":
            numbers = ops.pooling(numbers, output.sequences, mode="mean")
        return numbers


def _after_first(marked_T: Tensor, sequences: Sequences) -> Tensor:
    """Return, for each row, whether its sequence has a marked row at or before it, bool [T]."""
    counted = marked_T.long().cumsum(0)
    ahead = torch.cat([counted.new_zeros(1), counted])[sequences.cu_seqlens[:-1].long()]
    return counted > ahead[sequences.sequence_ids]
