"""A generator and its judge, a student and its teacher: losses are their equations, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from scipy import stats

from encoder_engine import Encoder
from encoder_engine.errors import ConfigError
from encoder_engine.families.config import spec_from_config
from encoder_engine.models.heads import MaskedLM
from encoder_engine.objectives.distillation import DistillationModel, take_layers
from encoder_engine.objectives.mlm import MLM
from encoder_engine.objectives.objective import prepare
from encoder_engine.objectives.rtd import DetectionModel, draw_tokens
from encoder_engine.packing import pad
from tests.objectives.batches import draw_batch
from tests.objectives.test_losses import AGREEMENT, CONFIG, MASKING

if TYPE_CHECKING:
    from encoder_engine.models.training_model import Inputs

ELECTRA = {**CONFIG, "model_type": "electra", "embedding_size": 16}


def make(config: dict[str, Any], seed: int) -> Encoder:
    torch.manual_seed(seed)
    return Encoder(spec_from_config(config), config=config).double().train()


def inputs() -> Inputs:
    return prepare(draw_batch(8, 30), [MLM(masking=MASKING)], seed=1)


def detection_model() -> DetectionModel:
    small = {**ELECTRA, "hidden_size": 12, "num_attention_heads": 2}
    return DetectionModel(make(ELECTRA, 1), make(small, 2)).double().train()


def test_detection_is_the_generators_loss_and_the_judges_as_in_transformers(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    model, given = detection_model(), inputs()
    torch.manual_seed(7)
    found = model(given)
    assert given.rows is not None
    rows, labels = given.rows.rows, given.targets["labels"]
    logits = model.generator(given.batch, rows)
    expected = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    assert float(found["mlm"].total.detach()) == pytest.approx(
        float(expected.detach()), rel=AGREEMENT
    )
    torch.manual_seed(7)
    original = given.batch.input_ids.long().index_copy(0, rows, labels)
    seen = original.index_copy(0, rows, draw_tokens(logits.detach()))
    replaced = (seen != original).long()
    assert 0 < int(replaced.sum()) <= len(rows)
    model.save_pretrained(tmp_path)
    theirs = transformers.ElectraForPreTraining.from_pretrained(tmp_path, dtype=torch.float64)
    sequences = given.batch.sequences
    there = pad(torch.ones_like(seen), sequences)
    logits = theirs.train()(input_ids=pad(seen, sequences), attention_mask=there).logits
    # Their own loss takes labels in float32, which rounds it.
    told = torch.sigmoid(logits[there.bool()])
    expected = -torch.where(replaced.bool(), told, 1.0 - told).log().mean()
    mine = found["rtd"].total / found["rtd"].num_terms
    assert found["rtd"].num_terms == given.batch.num_tokens
    assert float(mine.detach()) == pytest.approx(float(expected.detach()), rel=AGREEMENT)
    torch.autograd.backward(mine)
    torch.autograd.backward(expected)
    weight = theirs.electra.embeddings.word_embeddings.weight
    shared = model.encoder.embedding.tokens.weight
    assert model.generator.encoder.embedding.tokens.weight is shared
    assert shared.grad is not None
    largest = float(weight.grad.abs().max())
    assert float((shared.grad - weight.grad).abs().max()) <= AGREEMENT * largest


def test_a_right_guess_counts_as_original_and_nothing_is_learned_of_the_drawing() -> None:
    model = detection_model()
    found = model(inputs())
    own = [p for n, p in model.named_parameters() if n.startswith("generator.encoder.blocks")]
    gradients = torch.autograd.grad(found["rtd"].total, own, allow_unused=True)
    assert all(gradient is None for gradient in gradients)
    with torch.no_grad():
        certain = torch.full((3, 5), -1e9, dtype=torch.float64)
        certain[[0, 1, 2], [4, 0, 2]] = 0.0
        assert draw_tokens(certain).tolist() == [4, 0, 2]


def test_tokens_are_drawn_as_often_as_the_generator_says() -> None:
    torch.manual_seed(0)
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5], dtype=torch.float64)
    drawn = draw_tokens(logits.expand(100_000, -1))
    expected = torch.softmax(logits, 0).numpy() * 100_000
    observed = np.bincount(drawn.numpy(), minlength=5)
    assert stats.chisquare(observed, expected).pvalue > 1e-4


def test_a_generator_of_another_embedding_width_is_refused() -> None:
    with pytest.raises(ConfigError, match="one table, so give both one embedding_size"):
        DetectionModel(make(ELECTRA, 1), make({**ELECTRA, "embedding_size": 8}, 2))


def test_the_students_losses_are_their_equations() -> None:
    teacher = MaskedLM(make(CONFIG, 1)).double()
    student = DistillationModel(make({**CONFIG, "num_hidden_layers": 1}, 2), teacher).double()
    student.train()
    take_layers(student.head, teacher)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    given = inputs()
    found = student(given)
    assert given.rows is not None
    rows, labels = given.rows.rows, given.targets["labels"]
    mine, theirs = (m.eval()(given.batch, rows) for m in (student.head, teacher))
    softs, hards = [], []
    for place in range(len(rows)):
        p = torch.softmax(theirs[place] / 2.0, 0)
        q = torch.softmax(mine[place] / 2.0, 0)
        softs.append(4.0 * (p * (p.log() - q.log())).sum())
        hards.append(-torch.log_softmax(mine[place], 0)[labels[place]])
    hidden, other = (m.encoder(given.batch).last_hidden_state for m in (student.head, teacher))
    cosines = [1 - (h @ o) / (h.norm() * o.norm()) for h, o in zip(hidden, other, strict=True)]
    for name, terms in (("soft", softs), ("mlm", hards), ("cosine", cosines)):
        value = float(torch.stack(terms).sum().detach())
        assert float(found[name].total.detach()) == pytest.approx(value, rel=AGREEMENT), name
    names = [name for name, _ in student.named_parameters()]
    assert not any("teacher" in name for name in names)


def test_the_student_begins_with_every_second_block_of_the_teacher() -> None:
    teacher = MaskedLM(make({**CONFIG, "num_hidden_layers": 4}, 1))
    student = MaskedLM(make(CONFIG, 2))
    take_layers(student, teacher)
    for place in range(2):
        own, theirs = student.encoder.blocks[place], teacher.encoder.blocks[2 * place]
        pairs = zip(own.parameters(), theirs.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    with pytest.raises(ConfigError, match="do not divide"):
        take_layers(MaskedLM(make({**CONFIG, "num_hidden_layers": 3}, 3)), teacher)
