"""RetroMAE's loss and gradients are those of its equations, read directly in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from scipy.stats import binomtest

from encoder_engine import Encoder
from encoder_engine.errors import ConfigError
from encoder_engine.families.config import spec_from_config
from encoder_engine.objectives import retromae
from encoder_engine.objectives.mlm import MLM
from encoder_engine.objectives.objective import PretrainingModel, prepare
from encoder_engine.objectives.retromae import EnhancedDecoder, RetroMAE, visible_tokens
from encoder_engine.packing.draws import row_generator, sequence_keys
from tests.objectives.batches import draw_batch, take_sequences
from tests.objectives.test_losses import AGREEMENT, CONFIG, MASKING, draw_pairs, encoder

if TYPE_CHECKING:
    from encoder_engine.objectives.objective import Objective
    from encoder_engine.packing.clean import CleanBatch

LEVEL = 1e-3


def by_the_equations(model: PretrainingModel, clean: CleanBatch, visible: list[Any]) -> Any:
    """Return the summed loss of the decoder, a sequence at a time, by plain PyTorch."""
    objectives = model.objectives
    inputs = prepare(clean, objectives, seed=5)
    hidden = model.encoder(inputs.batch, output_pooled=False).last_hidden_state
    head: Any = model.heads["retromae"]
    tables = model.encoder.embedding
    assert tables.positions is not None
    types = clean.token_type_ids
    width, num_heads = hidden.shape[1], head.num_heads
    terms = []
    for number, (begin, end) in enumerate(
        zip(clean.cu_seqlens, clean.cu_seqlens[1:], strict=False)
    ):
        length = end - begin
        ids = torch.from_numpy(clean.input_ids[begin:end]).long()
        position = tables.positions.weight[:length]
        vector = hidden[begin]
        segment = 0 if types is None else types[begin:end]
        embedded = tables.tokens.weight[ids] + position + tables.segments.weight[segment]  # type: ignore[union-attr]
        embedded = F.layer_norm(embedded, (width,), tables.norm.weight, tables.norm.bias, 1e-12)  # type: ignore[union-attr]
        queries = position + vector
        context = torch.cat([vector[None], embedded[1:]])
        key, value = F.linear(context, head.key_value.weight, head.key_value.bias).chunk(2, dim=1)
        query = F.linear(queries, head.query.weight, head.query.bias)
        mixed = []
        for part in torch.arange(width).chunk(num_heads):
            scores = query[:, part] @ key[:, part].T / len(part) ** 0.5
            scores = scores.masked_fill(~torch.from_numpy(visible[number]), float("-inf"))
            mixed.append(scores.softmax(1) @ value[:, part])
        attended = F.linear(torch.cat(mixed, 1), head.output.weight, head.output.bias)
        first = head.attention_norm(queries + attended)
        inner = F.gelu(F.linear(first, head.up.weight, head.up.bias))
        decoded = head.norm(first + F.linear(inner, head.down.weight, head.down.bias))
        logits = F.linear(decoded, tables.tokens.weight, head.bias)
        predicted = torch.from_numpy(~clean.special[begin:end])
        terms.append(F.cross_entropy(logits[predicted], ids[predicted], reduction="sum"))
    return torch.stack(terms).sum()


def drawn_in_numpy(clean: CleanBatch, seed: int, share: float) -> list[Any]:
    """Return what each row sees, by the draws of packing.draws in uint64."""
    step, mask = 0x9E3779B97F4A7C15, (1 << 64) - 1

    def mixed(word: int) -> int:
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & mask
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & mask
        return word ^ (word >> 31)

    found = []
    for key, length in zip(sequence_keys(clean, seed, "visible"), clean.lengths, strict=True):
        seen = np.zeros((length, length), np.bool_)
        for row in range(length):
            of_row = mixed((int(key) + (row + 1) * step) & mask)
            for token in range(length):
                drawn = mixed((of_row + (token + 1) * step) & mask) >> 11
                seen[row, token] = token == 0 or (drawn < share * 2**53 and token != row)
        found.append(seen)
    return found


@pytest.mark.parametrize("share", [0.5, 0.7, 1.0])
def test_loss_and_every_gradient_are_those_of_the_equations(share: float) -> None:
    objectives: list[Objective] = [MLM(masking=MASKING), RetroMAE(mask_probability=share)]
    model = PretrainingModel(encoder(), objectives)
    head: Any = model.heads["retromae"]
    with torch.no_grad():
        for part in (head.query, head.key_value, head.output, head.up, head.down, head):
            part.bias.normal_()
        head.norm.weight.normal_()
    clean = draw_pairs()
    inputs = prepare(clean, objectives, seed=5)
    found = model(inputs)["retromae"]
    assert found.num_terms == int((~clean.special).sum())
    ours: Any = torch.autograd.grad(found.total, list(model.parameters()), allow_unused=True)
    expected = by_the_equations(model, clean, drawn_in_numpy(clean, 5, 1.0 - share))
    theirs: Any = torch.autograd.grad(expected, list(model.parameters()), allow_unused=True)
    assert float(found.total.detach()) == pytest.approx(float(expected.detach()), rel=AGREEMENT)
    num_compared = 0
    for (name, _), mine, other in zip(model.named_parameters(), ours, theirs, strict=True):
        assert (mine is None) == (other is None), name
        if mine is None or other is None:
            continue
        largest = float(other.abs().max())
        # A key's bias shifts all scores of a row alike: its gradient is rounding alone.
        assert float((mine - other).abs().max()) <= AGREEMENT * max(largest, 1e-3), name
        num_compared += 1
    assert num_compared > 30


def test_the_decoder_reads_the_text_through_the_vector_alone_where_it_sees_nothing() -> None:
    objectives: list[Objective] = [MLM(masking=MASKING), RetroMAE(mask_probability=1.0)]
    model = PretrainingModel(encoder(), objectives)
    clean = draw_batch(3, 20)
    head: Any = model.heads["retromae"]
    captured: dict[str, torch.Tensor] = {}
    head.register_forward_hook(lambda _m, _i, output: captured.update(hidden=output))
    inputs = prepare(clean, objectives, seed=5)
    model(inputs)
    first = captured["hidden"].clone()
    changed = dict(inputs.targets)
    changed["retromae_ids"] = changed["retromae_ids"].roll(1)
    model(inputs._replace(targets=changed))
    assert torch.equal(captured["hidden"], first)


def test_visible_tokens_have_their_share_and_depend_on_key_and_places_alone() -> None:
    generator = row_generator(0, 0, 0, "keys")
    keys = torch.from_numpy(generator.integers(-(2**63), 2**63 - 1, 40))
    whole = visible_tokens(keys, 60, 0.4)
    assert torch.equal(visible_tokens(keys[7:9], 30, 0.4), whole[7:9, :30, :30])
    assert whole[:, :, 0].all()
    off = ~torch.eye(60, dtype=torch.bool)
    off[:, 0] = False
    assert not whole[:, range(1, 60), range(1, 60)].any()
    drawn = whole[:, off]
    assert binomtest(int(drawn.sum()), drawn.numel(), 0.4).pvalue > LEVEL
    # Rows, tokens and sequences are drawn apart: agreement of two is that of chance.
    chance = 0.4**2 + 0.6**2
    for one, other in (
        (whole[:, 1:30, 31:], whole[:, 30:59, 31:]),
        (whole[:, :30, 31:45], whole[:, :30, 45:59]),
        (whole[:20, :30, 31:], whole[20:, :30, 31:]),
    ):
        agree = one == other
        assert binomtest(int(agree.sum()), agree.numel(), chance).pvalue > LEVEL


def test_a_sequence_has_the_same_loss_in_every_batch() -> None:
    objectives: list[Objective] = [MLM(masking=MASKING), RetroMAE()]
    model = PretrainingModel(encoder(), objectives)
    clean = draw_batch(9, 30)
    whole = model(prepare(clean, objectives, seed=3))["retromae"]
    parts = [
        model(prepare(take_sequences(clean, order), objectives, seed=3))["retromae"]
        for order in ([8], [2, 0, 5], [1, 3, 4, 7, 6])
    ]
    assert sum(part.num_terms for part in parts) == whole.num_terms
    total = sum(float(part.total.detach()) for part in parts)
    assert total == pytest.approx(float(whole.total.detach()), rel=AGREEMENT)


@pytest.mark.parametrize("area", [2**24, 2000])
def test_short_texts_are_not_padded_to_a_long_one(
    area: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    objectives: list[Objective] = [MLM(masking=MASKING), RetroMAE()]
    model = PretrainingModel(encoder(), objectives)
    drawn = draw_batch(60, 12)
    long = draw_batch(1, 60)
    assert len(long.input_ids) > 2 * drawn.lengths.max()
    parts = [take_sequences(drawn, list(range(20))), long, take_sequences(drawn, [*range(20, 60)])]
    names = ("input_ids", "special", "word_starts")
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in names
    }
    mixed = replace(
        long,
        **joined,
        cu_seqlens=np.cumsum([0, *(n for part in parts for n in part.lengths)]).astype(np.int32),
        numbers=np.array([*range(20), 99, *range(20, 60)]),
    )
    padded: list[torch.Size] = []

    def watched(*given: Any) -> torch.Tensor:
        seen = visible_tokens(*given)
        padded.append(seen.shape)
        return seen

    monkeypatch.setattr(retromae, "visible_tokens", watched)
    monkeypatch.setattr(retromae, "AREA", area)
    whole = model(prepare(mixed, objectives, seed=3))["retromae"].total
    assert sum(shape.numel() for shape in padded) <= 4 * int((mixed.lengths**2).sum())
    assert all(shape.numel() <= area or shape[0] == 1 for shape in padded)
    alone = [
        model(prepare(take_sequences(mixed, [number]), objectives, seed=3))["retromae"].total
        for number in range(61)
    ]
    total = float(torch.stack(alone).sum().detach())
    assert float(whole.detach()) == pytest.approx(total, rel=AGREEMENT)


def test_empty_sequences_have_no_vector() -> None:
    clean = draw_batch(3, 8)
    offsets = np.insert(clean.cu_seqlens, 1, clean.cu_seqlens[1]).astype(np.int32)
    empty = replace(clean, cu_seqlens=offsets, numbers=np.array([0, 9, 1, 2]))
    objectives: list[Objective] = [MLM(masking=MASKING), RetroMAE()]
    model = PretrainingModel(encoder(), objectives)
    with_empty, without = (
        model(prepare(batch, objectives, seed=3))["retromae"] for batch in (empty, clean)
    )
    assert float(with_empty.total.detach()) == pytest.approx(
        float(without.total.detach()), rel=AGREEMENT
    )


def test_what_the_decoder_cannot_do_is_refused() -> None:
    with pytest.raises(ConfigError, match="from 0 to 1, got 2"):
        RetroMAE(mask_probability=2.0)
    narrow = CONFIG | {"model_type": "electra", "embedding_size": 12}
    with pytest.raises(ConfigError, match="12 wide, the encoder 24"):
        EnhancedDecoder(Encoder(spec_from_config(narrow), config=narrow))
    rotary = {
        "model_type": "modernbert",
        "vocab_size": 50,
        "hidden_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "global_attn_every_n_layers": 1,
        "local_attention": 8,
    }
    with pytest.raises(ConfigError, match="no position embeddings"):
        EnhancedDecoder(Encoder(spec_from_config(rotary), config=rotary))
