"""RetroMAE (Xiao et al. 2022): a weak decoder reconstructs a text from its sentence vector.

How it works: the encoder reads the masked text, as for MLM; its first row is the text's vector h. A
decoder of one layer has two streams of the text before masking. The queries are ``h + p_0, .., h +
p_N``, with positions p: they know the tokens only through h. The keys and values are ``h, e_1, ..,
e_N``, the embedded tokens. Row i attends to h, and to each other token with probability ``1 -
mask_probability``, drawn separately for each row (enhanced decoding), but never to itself. Row i
predicts token i. Information that the visible tokens lack must come from h.

Dimensions: T tokens, B sequences, P predicted tokens, D width, L longest sequence, H heads.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from encoder_engine import ops
from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError
from encoder_engine.models.init import draw_weights
from encoder_engine.models.linear import Linear
from encoder_engine.models.training_model import LossSum
from encoder_engine.packing import PackedBatch, Sequences, pad
from encoder_engine.packing.draws import STEP, sequence_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from encoder_engine.models import Encoder, EncoderOutput
    from encoder_engine.objectives.objective import CorruptedBatch

__all__ = ["EnhancedDecoder", "RetroMAE", "visible_tokens"]

# Pairs of rows and tokens that are drawn and attended to at once: those of 64 texts of 512 tokens.
AREA = 2**24


@dataclass(frozen=True, kw_only=True)
class RetroMAE:
    """The training objective RetroMAE: cross-entropy of the text that the decoder reconstructs.

    The terms are all tokens but special ones.
    Must follow :class:`MLM`, which masks the encoder's input (15 to 30 % in the paper).
    ``mask_probability``: the share of tokens that a row of the decoder cannot attend to (0.5 to 0.7
    in the paper). Adds the targets ``retromae_first`` [B], the rows of the sentence vectors;
    ``retromae_ids`` and ``retromae_types`` [T] and ``retromae_offsets`` [B + 1], the text before
    masking; ``retromae_keys`` [B], which the visible tokens are drawn by; and ``retromae_rows``
    [P], the predicted tokens.
    """

    mask_probability: float = 0.5
    weight: float = 1.0
    name: str = "retromae"
    needs_pooled: bool = False
    row_targets: tuple[str, ...] | None = ("retromae_first",)

    def __post_init__(self) -> None:
        if not 0.0 <= self.mask_probability <= 1.0:
            raise ConfigError(
                f"the decoder's mask_probability must be from 0 to 1, got {self.mask_probability}"
            )

    @property
    def paddings(self) -> None:
        """Return None: no CUDA graphs, because the decoder reads sequence lengths on the host."""

    def corrupt(self, corrupted: CorruptedBatch, seed: int, /) -> CorruptedBatch:
        """Add as targets the text before masking, and keys to draw the decoder's visible tokens."""
        clean = corrupted.clean
        full = clean.lengths > 0
        types = clean.token_type_ids
        found = {
            "retromae_first": clean.cu_seqlens[:-1][full].astype(np.int64),
            "retromae_ids": clean.input_ids.astype(np.int64),
            "retromae_offsets": clean.cu_seqlens[np.append(full, True)].astype(np.int64),
            "retromae_keys": sequence_keys(clean, seed, "visible")[full].view(np.int64),
            "retromae_rows": np.flatnonzero(~clean.special).astype(np.int64),
        }
        if types is not None:
            found["retromae_types"] = types.astype(np.int64)
        return replace(corrupted, targets={**corrupted.targets, **found})

    def head(self, encoder: Encoder) -> EnhancedDecoder:
        """Make RetroMAE's decoder for the encoder, randomly initialised."""
        return EnhancedDecoder(encoder)

    def count(self, targets: Mapping[str, Tensor]) -> int:
        """Return the number of tokens that the decoder predicts."""
        return targets["retromae_rows"].shape[0]

    def loss(
        self, head: nn.Module, output: EncoderOutput, targets: Mapping[str, Tensor]
    ) -> LossSum:
        """Return the cross-entropy summed over the tokens that the decoder predicts."""
        assert isinstance(head, EnhancedDecoder)
        ids_T, rows_P = targets["retromae_ids"], targets["retromae_rows"]
        types_T = targets.get("retromae_types")
        sequences = Sequences(targets["retromae_offsets"].int())
        batch = PackedBatch(
            input_ids=ids_T.int(),
            sequences=sequences,
            token_type_ids=None if types_T is None else types_T.int(),
        )
        vectors_BD = F.embedding(targets["retromae_first"], output.last_hidden_state)
        share = 1.0 - self.mask_probability
        hidden_TD = head(batch, vectors_BD, targets["retromae_keys"], share)
        weight_VD = head.encoder.embedding.tokens.weight
        total = ops.masked_cross_entropy(
            *(hidden_TD, rows_P, ids_T[rows_P]), *(weight_VD, head.bias), reduction="sum"
        )
        return LossSum(total, self.count(targets))


class EnhancedDecoder(nn.Module):
    """RetroMAE's decoder: one post-norm transformer layer; queries and keys have different inputs.

    The output projection is the token embeddings, with a bias of its own. Raises
    :class:`ConfigError` for an encoder without position embeddings, for token embeddings of another
    width, and for a width that is no multiple of the number of heads.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        spec = encoder.spec
        width, tables = spec.width, encoder.embedding
        if tables.positions is None:
            raise ConfigError(
                f"{spec.model_type} has no position embeddings, which the decoder's queries need; "
                "choose a family with learned positions, such as bert or roberta"
            )
        if tables.tokens.weight.shape[1] != width:
            raise ConfigError(
                f"token embeddings are {tables.tokens.weight.shape[1]} wide, the encoder {width}: "
                "the decoder needs equal widths; leave out objectives.decoder_mask_probability"
            )
        self.encoder = encoder
        self.num_heads = spec.blocks[0].attention.num_heads
        if width % self.num_heads:
            raise ConfigError(f"a width of {width} is not a multiple of {self.num_heads} heads")
        inner = spec.blocks[0].feed_forward.width
        self.query, self.output = Linear(width, width), Linear(width, width)
        self.key_value = Linear(width, 2 * width)
        self.up, self.down = Linear(width, inner), Linear(inner, width)
        self.attention_norm, self.norm = (nn.LayerNorm(width, eps=1e-12) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(tables.tokens.weight.shape[0]))
        own = ("query", "key_value", "output", "up", "down", "attention_norm", "norm")
        with torch.no_grad():
            for name in own:
                draw_weights(getattr(self, name), spec.initializer_range)
        for name in own:
            getattr(self, name).to(device=encoder.device, dtype=encoder.dtype)
        self.bias.data = self.bias.data.to(device=encoder.device, dtype=encoder.dtype)

    def forward(
        self, batch: PackedBatch, vectors_BD: Tensor, keys_B: Tensor, share: float
    ) -> Tensor:
        """Return the decoder's output for each token, [T, D].

        ``batch``: the text before masking, without empty sequences. ``vectors_BD``: the sentence
        vectors. ``keys_B``, ``share``: the arguments by which :func:`visible_tokens` draws visible
        tokens.
        """
        sequences = batch.sequences
        first_B = sequences.cu_seqlens[:-1].long()
        tables = self.encoder.embedding
        assert tables.positions is not None
        positions_TD = tables.positions(sequences.positions + tables.spec.first_position)
        vectors_BD = vectors_BD.to(positions_TD.dtype)
        queries_TD = positions_TD + vectors_BD[sequences.sequence_ids]
        context_TD = tables(batch).to(positions_TD.dtype).index_copy(0, first_B, vectors_BD)
        attended_TD = self.output(
            self._attend(
                *(self.query(queries_TD), self.key_value(context_TD), sequences, keys_B, share)
            )
        )
        hidden_TD = _normalise(queries_TD + attended_TD, self.attention_norm)
        return _normalise(hidden_TD + self.down(self.up(hidden_TD, gelu="none")), self.norm)

    def _attend(
        self,
        queries_TD: Tensor,
        both_TD: Tensor,
        sequences: Sequences,
        keys_B: Tensor,
        share: float,
    ) -> Tensor:
        # Packed attention takes no mask of each row, so sequences of like lengths are padded here:
        # one long text among many short ones would take the memory of as many long ones.
        groups = _like_lengths(sequences.lengths)
        if len(groups) <= 1:
            return self._attend_padded(queries_TD, both_TD, sequences, keys_B, share)
        device = queries_TD.device
        offsets = sequences.offsets
        rows = [np.concatenate([np.arange(*offsets[n : n + 2]) for n in each]) for each in groups]
        order = np.concatenate(rows)
        sizes = [len(each) for each in rows]
        order_T = torch.from_numpy(order).to(device)
        parts = zip(
            groups,
            torch.split_with_sizes(F.embedding(order_T, queries_TD), sizes),
            torch.split_with_sizes(F.embedding(order_T, both_TD), sizes),
            strict=True,
        )
        mixed_TD = torch.cat(
            [
                self._attend_padded(
                    *(part_TD, both_part_TD),
                    Sequences.from_lengths(sequences.lengths[members].tolist(), device=device),
                    *(keys_B[torch.from_numpy(members).to(device)], share),
                )
                for members, part_TD, both_part_TD in parts
            ]
        )
        return F.embedding(torch.from_numpy(np.argsort(order)).to(device), mixed_TD)

    def _attend_padded(
        self,
        queries_TD: Tensor,
        both_TD: Tensor,
        sequences: Sequences,
        keys_B: Tensor,
        share: float,
    ) -> Tensor:
        visible_BLL = visible_tokens(keys_B, sequences.max_seqlen, share)
        shape_BLH = (len(sequences), sequences.max_seqlen, self.num_heads)
        q_BHLK, k_BHLK, v_BHLK = (
            pad(part, sequences).view(*shape_BLH, -1).transpose(1, 2)
            for part in (queries_TD, *both_TD.chunk(2, dim=1))
        )
        places_L = torch.arange(q_BHLK.shape[2], device=q_BHLK.device)
        filled_BL = places_L < sequences.cu_seqlens.diff()[:, None]
        seen_BLL = visible_BLL & filled_BL[:, None]
        # The fused backward passes of a GPU add in no fixed order: determinism needs MATH.
        exactly = torch.are_deterministic_algorithms_enabled()
        with sdpa_kernel(SDPBackend.MATH) if exactly else nullcontext():
            mixed_BHLK = F.scaled_dot_product_attention(
                q_BHLK, k_BHLK, v_BHLK, attn_mask=seen_BLL[:, None]
            )
        mixed_BLD = mixed_BHLK.transpose(1, 2).flatten(2)
        return mixed_BLD[sequences.sequence_ids, sequences.positions]


def _normalise(hidden_TD: Tensor, norm: nn.LayerNorm) -> Tensor:
    return ops.layer_norm(hidden_TD, norm.weight, norm.bias, epsilon=norm.eps)


def _like_lengths(lengths: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Group sequences of similar length, longest first; return each group's indices.

    In a group no length is less than half of the longest, and the padded area is at most ``AREA``,
    except for a single sequence.
    """
    groups: list[npt.NDArray[np.int64]] = []
    order = np.argsort(-lengths, kind="stable")
    first = 0
    while first < len(order):
        longest = int(lengths[order[first]])
        alike = int(np.searchsorted(-lengths[order], -(longest / 2), side="right"))
        stop = min(alike, first + max(1, AREA // max(longest, 1) ** 2))
        groups.append(order[first:stop])
        first = stop
    return groups


def visible_tokens(keys_B: Tensor, length: int, share: float) -> Tensor:
    """Return the tokens that each row of the decoder can attend to, bool [B, L, L], row by token.

    The first token is always visible, any other token never to its own row, and to other rows with
    probability ``share``. An entry is a pure function of the sequence's key, int64 [B], and of the
    two positions: it does not depend on ``length``, L, the batch or the device.
    """
    places_L = torch.arange(1, length + 1, device=keys_B.device)
    step = _signed(int(STEP))
    rows_BL = _mixed(keys_B[:, None] + places_L * step)
    drawn_BLL = _mixed(rows_BL[:, :, None] + places_L * step)
    # The upper 53 bits, as in packing.draws.
    seen_BLL = _shifted(drawn_BLL, 11) < int(share * 2**53)
    first_L = places_L == 1
    own_LL = places_L[:, None] == places_L
    return (seen_BLL & ~own_LL) | first_L


def _signed(word: int) -> int:
    """Return the int64 with the bits of a uint64: PyTorch lacks most uint64 operations."""
    return word - (1 << 64) if word >> 63 else word


def _shifted(words: Tensor, places: int) -> Tensor:
    """Shift int64 words right as unsigned words, without copying the sign."""
    return (words >> places) & ((1 << (64 - places)) - 1)


def _mixed(words: Tensor) -> Tensor:
    """Mix the bits of int64 words, as packing.draws does with uint64 words."""
    words = (words ^ _shifted(words, 30)) * _signed(0xBF58476D1CE4E5B9)
    words = (words ^ _shifted(words, 27)) * _signed(0x94D049BB133111EB)
    return words ^ _shifted(words, 31)
