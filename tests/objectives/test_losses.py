"""Losses and every gradient are those of transformers, or of the equations read directly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from encoder_engine import Encoder
from encoder_engine.errors import BatchError, ConfigError
from encoder_engine.families.config import spec_from_config
from encoder_engine.models.training_model import Inputs
from encoder_engine.objectives.masking import Masking
from encoder_engine.objectives.mlm import MLM
from encoder_engine.objectives.nsp import NSP
from encoder_engine.objectives.objective import Objective, PretrainingModel, prepare
from encoder_engine.objectives.sbo import SBO
from encoder_engine.packing import pad
from encoder_engine.packing.clean import CleanBatch
from tests.objectives.batches import MASK, VOCAB, draw_batch

CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "pad_token_id": 0,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.2,
}
MASKING = Masking(mask_id=MASK, vocab_size=VOCAB, mask_probability=0.3)
SPANS = Masking(mask_id=MASK, vocab_size=VOCAB, mask_probability=0.3, unit="span", longest=3)
# In float64 a loss and its gradients agree to this, relative to the largest.
AGREEMENT = 1e-10


def draw_pairs() -> CleanBatch:
    plain = draw_batch(12, 30)
    types = (plain.positions > plain.lengths[plain.sequence_ids] // 2).astype(np.int32)
    positive = np.random.default_rng(1).random(12) < 0.5
    return CleanBatch(**{**vars(plain), "token_type_ids": types, "positive": positive})


def encoder() -> Encoder:
    torch.manual_seed(0)
    return Encoder(spec_from_config(CONFIG), config=CONFIG).double().train()


def mean(model: PretrainingModel, inputs: Inputs) -> torch.Tensor:
    losses = model(inputs)
    parts = [o.weight * losses[o.name].total / losses[o.name].num_terms for o in model.objectives]
    return torch.stack(parts).sum()


def test_bert_learns_from_the_same_loss_and_gradients_as_in_transformers(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    model = PretrainingModel(encoder(), [MLM(masking=MASKING), NSP()])
    model.encoder.save_pretrained(tmp_path / "encoder")
    theirs = transformers.BertForPreTraining(transformers.BertConfig(**CONFIG)).double().train()
    theirs.bert.load_state_dict(
        transformers.AutoModel.from_pretrained(
            tmp_path / "encoder", dtype=torch.float64
        ).state_dict()
    )
    heads: Any = model.heads
    mlm, nsp = heads["mlm"].head, heads["nsp"].head
    predictions = theirs.cls.predictions
    with torch.no_grad():
        for mine, other in (
            (mlm.dense, predictions.transform.dense),
            (mlm.norm, predictions.transform.LayerNorm),
            (nsp.output, theirs.cls.seq_relationship),
        ):
            other.weight.copy_(mine.weight)
            other.bias.normal_()
            mine.bias.copy_(other.bias)
        mlm.output.bias.normal_()
        predictions.bias.copy_(mlm.output.bias)
    clean = draw_pairs()
    inputs = prepare(clean, model.objectives, seed=5)
    ours = mean(model, inputs)
    torch.autograd.backward(ours)
    batch, targets, rows, _ = inputs
    assert rows is not None
    labels = torch.full_like(batch.input_ids, -100, dtype=torch.int64)
    labels[rows.rows[targets["rows"]]] = targets["labels"]
    mask = torch.ones_like(labels)
    assert batch.token_type_ids is not None
    output = theirs(
        input_ids=pad(batch.input_ids.long(), batch.sequences),
        token_type_ids=pad(batch.token_type_ids.long(), batch.sequences),
        attention_mask=pad(mask, batch.sequences),
        labels=pad(labels, batch.sequences, value=-100),
        next_sentence_label=targets["pair_labels"],
    )
    output.loss.backward()
    assert float(ours.detach()) == pytest.approx(float(output.loss.detach()), rel=AGREEMENT)
    found = dict(model.encoder.named_parameters())
    table: Any = theirs.bert.embeddings.word_embeddings
    gradients: list[tuple[Any, Any]] = [(found["embedding.tokens.weight"], table.weight)]
    gradients += [(nsp.output.weight, theirs.cls.seq_relationship.weight)]
    gradients += [(mlm.dense.weight, predictions.transform.dense.weight)]
    gradients += [(mlm.output.bias, predictions.bias)]
    gradients += [(found["pooler.dense.weight"], theirs.bert.pooler.dense.weight)]
    for number, layer in enumerate(theirs.bert.encoder.layer):
        block = f"blocks.{number}"
        gradients += [
            (found[f"{block}.attention.output.weight"], layer.attention.output.dense.weight),
            (found[f"{block}.feed_forward.up.weight"], layer.intermediate.dense.weight),
            (found[f"{block}.feed_forward_norm.bias"], layer.output.LayerNorm.bias),
        ]
    for mine, other in gradients:
        assert mine.grad is not None
        largest = float(other.grad.abs().max())
        assert float((mine.grad - other.grad).abs().max()) <= AGREEMENT * largest


def test_the_span_boundary_loss_is_its_equation() -> None:
    objectives: list[Objective] = [MLM(masking=SPANS), SBO(longest=4)]
    model = PretrainingModel(encoder(), objectives)
    head: Any = model.heads["sbo"]
    with torch.no_grad():
        head.bias.normal_()
        head.first.bias.normal_()
        head.second_norm.weight.normal_()
    clean = draw_batch(12, 30)
    inputs = prepare(clean, objectives, seed=6)
    found = model(inputs)["sbo"]
    hidden = model.encoder(inputs.batch).last_hidden_state
    drawn = inputs.targets["spans"].tolist()
    spans: list[list[int]] = []
    for start, length in drawn:
        # Spans that touch are one: what is beside it is to be seen.
        if spans and sum(spans[-1]) == start:
            spans[-1][1] += length
        else:
            spans.append([start, length])
    assert len(spans) < len(drawn)
    assert inputs.rows is not None
    told = set(inputs.rows.rows[inputs.targets["rows"]].tolist())
    for name in ("sbo_left", "sbo_right"):
        assert told.isdisjoint(inputs.rows.rows[inputs.targets[name]].tolist())
    terms, left_out = [], 0
    for start, length in spans:
        for place in range(length):
            if place >= 4:
                left_out += 1
                continue
            around = [hidden[start - 1], hidden[start + length]]
            known = torch.cat([*around, head.positions.weight[place]])
            for dense, norm in ((head.first, head.first_norm), (head.second, head.second_norm)):
                known = F.gelu(dense.weight @ known + dense.bias)
                known = F.layer_norm(known, known.shape, norm.weight, norm.bias, norm.eps)
            logits = model.encoder.embedding.tokens.weight @ known + head.bias
            terms.append(-torch.log_softmax(logits, 0)[int(clean.input_ids[start + place])])
    assert left_out
    assert found.num_terms == len(terms)
    expected = torch.stack(terms).sum()
    assert float(found.total.detach()) == pytest.approx(float(expected.detach()), rel=AGREEMENT)
    parameters = [p for p in model.parameters() if p.requires_grad]
    mine = torch.autograd.grad(found.total, parameters, allow_unused=True)
    others = torch.autograd.grad(expected, parameters, allow_unused=True)
    used = [(m, o) for m, o in zip(mine, others, strict=True) if o is not None]
    assert len(used) > 20
    for gradient, other in used:
        assert gradient is not None
        largest = float(other.abs().max())
        assert float((gradient - other).abs().max()) <= AGREEMENT * max(largest, 1.0)


def test_batches_taken_apart_add_up_to_the_same_loss() -> None:
    model = PretrainingModel(encoder(), [MLM(masking=MASKING), NSP()])
    clean = draw_pairs()
    whole = model(prepare(clean, model.objectives, seed=7))
    parts = []
    for rows in ([0, 1, 2, 3, 4, 5, 6], [7], [8, 9, 10, 11]):
        begins, ends = clean.cu_seqlens[:-1], clean.cu_seqlens[1:]
        tokens = np.concatenate([np.arange(begins[row], ends[row]) for row in rows])
        of_tokens = {
            name: getattr(clean, name)[tokens]
            for name in ("input_ids", "special", "word_starts", "token_type_ids")
        }
        lengths = clean.lengths[rows]
        assert clean.positive is not None
        part = CleanBatch(
            **of_tokens,
            cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
            numbers=clean.numbers[rows],
            positive=clean.positive[rows],
        )
        parts.append(model(prepare(part, model.objectives, seed=7)))
    for name, expected in whole.items():
        assert sum(part[name].num_terms for part in parts) == expected.num_terms
        total = sum(float(part[name].total.detach()) for part in parts)
        assert total == pytest.approx(float(expected.total.detach()), rel=1e-12)


def test_what_an_objective_needs_and_lacks_is_said() -> None:
    with pytest.raises(BatchError, match="nsp needs pairs of segments"):
        prepare(draw_batch(2, 5), [NSP()], seed=0)
    with pytest.raises(ConfigError, match="needs MLM with unit='span' before it"):
        prepare(draw_batch(2, 5), [MLM(masking=MASKING), SBO()], seed=0)


def test_rows_that_no_head_reads_change_neither_loss_nor_gradient() -> None:
    model = PretrainingModel(encoder(), [MLM(masking=MASKING), NSP()])
    inputs = prepare(draw_pairs(), model.objectives, seed=8)
    assert inputs.rows is not None
    assert len(inputs.rows) < inputs.batch.num_tokens // 2
    sparse = mean(model, inputs)
    rows = inputs.rows.rows[inputs.targets["rows"]]
    dense = mean(model, Inputs(inputs.batch, {**inputs.targets, "rows": rows}))
    parameters = list(model.parameters())
    found = torch.autograd.grad(sparse, parameters)
    expected = torch.autograd.grad(dense, parameters)
    assert float(sparse.detach()) == pytest.approx(float(dense.detach()), rel=AGREEMENT)
    for gradient, other in zip(found, expected, strict=True):
        assert float((gradient - other).abs().max()) <= AGREEMENT * float(other.abs().max())


def test_no_gradient_crosses_from_one_sequence_to_another() -> None:
    model = PretrainingModel(encoder(), [MLM(masking=MASKING)])
    clean = draw_batch(3, 30)
    inputs = prepare(clean, model.objectives, seed=9)
    first, second = (int(x) for x in clean.cu_seqlens[1:3])
    assert inputs.rows is not None
    rows = inputs.rows.rows[inputs.targets["rows"]]
    of_first = rows < first
    targets = {"rows": rows[of_first], "labels": inputs.targets["labels"][of_first]}
    embedded: list[torch.Tensor] = []

    def keep(_module: object, _given: object, output: torch.Tensor) -> None:
        output.retain_grad()
        embedded.append(output)

    model.encoder.embedding.register_forward_hook(keep)
    model(Inputs(inputs.batch, targets))["mlm"].total.backward()
    (found,) = embedded
    assert found.grad is not None
    assert bool(found.grad[:first].any())
    assert not bool(found.grad[first:].any())
    assert second > first
