"""Losses of heads that read few rows: the values and gradients of transformers, every family."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

from encoder_engine import ops
from encoder_engine.errors import EncoderEngineWarning, MissingLogitsError, TokenIdError
from encoder_engine.integrations import transformers as integration
from encoder_engine.integrations.acceleration.heads import read_rows
from encoder_engine.integrations.transformers import accelerate, restore
from encoder_engine.ops.testing import assert_within_budget, largest
from tests.integrations.heads.models import (
    IGNORED,
    bert,
    build,
    heads,
    labelled_batch,
    loss_and_gradients,
)
from tests.integrations.sums import terms_of_gradients
from tests.models.cases import CASES, Case, case_id
from tests.models.exact import exact, in_float64

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*")
FULL = r"call accelerate\(model, full_logits=True\)"


def assert_same_training(model: Any, batch: dict[str, torch.Tensor], **more: Any) -> None:
    """Assert that acceleration leaves loss and gradients as they are, within the budget."""
    eager = loss_and_gradients(model, batch, **more)
    with in_float64():
        truth = loss_and_gradients(exact(model), batch, **more)
    found = loss_and_gradients(accelerate(model), batch, **more)
    assert found.keys() == eager.keys()
    terms, size = (
        terms_of_gradients(model, num_tokens=int(batch["attention_mask"].sum())),
        largest(*truth.values()),
    )
    for name, values in found.items():
        assert_within_budget(values, eager[name], truth[name], name, terms=terms, size=size)


@pytest.fixture
def projected(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the rows of every masked loss."""
    counts: list[int] = []
    compute = ops.masked_cross_entropy

    def counted(hidden_TD: torch.Tensor, *args: Any, **more: Any) -> Any:
        counts.append(len(hidden_TD))
        return compute(hidden_TD, *args, **more)

    monkeypatch.setattr(ops, "masked_cross_entropy", counted)
    return counts


@pytest.mark.parametrize("case", heads("MaskedLM"), ids=case_id)
def test_masked_losses_and_gradients_are_within_budget(case: Case, projected: list[int]) -> None:
    model = build(case)
    batch = labelled_batch(model)
    assert_same_training(model, batch)
    assert projected == [int((batch["labels"] != IGNORED).sum())]


@pytest.mark.parametrize("case", heads("SequenceClassification"), ids=case_id)
def test_losses_of_texts_and_gradients_are_within_budget(case: Case) -> None:
    model = build(case)
    batch = labelled_batch(model)
    batch["labels"] = torch.arange(len(batch["input_ids"])) % 2
    assert_same_training(model, batch)


@pytest.mark.parametrize("head", ["TokenClassification", "QuestionAnswering"])
def test_losses_of_other_heads_and_gradients_are_within_budget(head: str) -> None:
    model = bert(head)
    batch = labelled_batch(model)
    del batch["labels"]
    if head == "TokenClassification":
        batch["labels"] = torch.where(batch["attention_mask"].bool(), 1, IGNORED)
    else:
        # The softmax is over all columns: transformers counts those of padding.
        batch = {name: values[2:4] for name, values in batch.items()}
        batch["start_positions"] = batch["end_positions"] = torch.tensor([1, 4])
    assert_same_training(model, batch)


def test_the_last_block_computes_the_first_row_of_each_text_alone() -> None:
    model = accelerate(bert("SequenceClassification"))
    batch = labelled_batch(model)
    batch["labels"] = torch.tensor([0, 1, 0, 1, 0])
    # The first call decides on the kind of the loss, in the config.
    model(**batch)
    widths = []
    block = model.bert.forward._make_current().encoder.blocks[-1]
    block.register_forward_hook(lambda _m, _i, output: widths.append(len(output[0])))
    model(**batch)
    model.eval()(**batch)
    assert widths == [5, int(batch["attention_mask"].sum())]


def test_other_forms_of_a_loss_are_within_budget() -> None:
    modern = next(case for case in heads("MaskedLM") if case.model_type == "modernbert")
    deberta = next(case for case in heads("MaskedLM") if case.model_type == "deberta-v2")
    model = build(modern)
    assert_same_training(model, labelled_batch(model), num_items_in_batch=torch.tensor(40))
    model = build(modern, sparse_prediction=True)
    assert_same_training(model, labelled_batch(model))
    # Its head multiplies with the embeddings without an output layer.
    model = build(deberta, legacy=False)
    assert_same_training(model, labelled_batch(model))
    model = bert(tie_word_embeddings=False)
    assert_same_training(model, labelled_batch(model))


def test_a_loss_of_bfloat16_keeps_its_type() -> None:
    model = bert().bfloat16()
    batch = labelled_batch(model)
    eager = loss_and_gradients(model, batch)["loss"]
    with in_float64():
        truth = loss_and_gradients(exact(model), batch)["loss"]
    found = loss_and_gradients(accelerate(model), batch)["loss"]
    assert_within_budget(found, eager, truth, terms=3 * model.config.hidden_size)


def test_autocast_is_within_budget_of_eager_under_autocast() -> None:
    model = bert()
    batch = labelled_batch(model)
    with torch.autocast("cpu", torch.bfloat16):
        eager = loss_and_gradients(model, batch)
    with in_float64():
        truth = loss_and_gradients(exact(model), batch)
    with torch.autocast("cpu", torch.bfloat16):
        found = loss_and_gradients(accelerate(model), batch)
    errors = largest(*(eager[name].double() - truth[name] for name in truth))
    terms, size = terms_of_gradients(model, num_tokens=47), largest(*truth.values())
    for name, values in found.items():
        assert_within_budget(
            *(values, eager[name], truth[name], name),
            terms=terms,
            size=size,
            eager_error=errors,
        )


READINGS: list[Any] = [
    lambda logits: logits.argmax(-1),
    lambda logits: logits[0],
    lambda logits: logits + 1,
    lambda logits: torch.ones(1) * logits,
    lambda logits: torch.softmax(logits, -1),
    lambda logits: list(logits),
    lambda logits: len(logits),
    lambda logits: logits.shape,
]


@pytest.mark.parametrize("place", range(len(READINGS)))
def test_reading_logits_that_are_skipped_raises_an_error_with_advice(place: int) -> None:
    model = accelerate(bert())
    batch = labelled_batch(model)
    for logits in (model(**batch).logits, model(**batch, return_dict=False)[1]):
        with pytest.raises(MissingLogitsError, match=FULL):
            READINGS[place](logits)
        # Libraries copy outputs, and send them elsewhere.
        assert isinstance(pickle.loads(pickle.dumps(copy.deepcopy(logits))), type(logits))


def test_logits_are_full_where_they_are_requested() -> None:
    model = bert()
    batch = labelled_batch(model)
    shape = (*batch["input_ids"].shape, model.config.vocab_size)
    without = {name: values for name, values in batch.items() if name != "labels"}
    accelerate(model)
    assert model(**without).logits.shape == shape
    assert model.eval()(**batch).logits.shape == shape
    assert accelerate(model.train(), full_logits=True)(**batch).logits.shape == shape
    with pytest.raises(MissingLogitsError):
        accelerate(model)(**batch).logits.argmax(-1)
    assert restore(model)(**batch).logits.shape == shape
    nothing = batch | {"labels": torch.full_like(batch["labels"], IGNORED)}
    assert accelerate(model)(**nothing).logits.shape == shape


def test_hidden_states_are_those_of_all_rows() -> None:
    model = bert()
    batch = labelled_batch(model)
    keep = batch["attention_mask"].bool()
    theirs = model(**batch, output_hidden_states=True).hidden_states
    ours = accelerate(model)(**batch, output_hidden_states=True).hidden_states
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found[keep], expected[keep])


def test_what_would_see_few_rows_gets_them_all() -> None:
    """A hook, a loss and a forward of other code count on [B, L, D] and [B, L, V]."""
    shapes: list[torch.Size] = []

    def seen(model: Any) -> torch.Size:
        batch = labelled_batch(model)
        logits = accelerate(model)(**batch).logits
        assert logits.shape == (*batch["input_ids"].shape, model.config.vocab_size)
        return batch["input_ids"].shape

    model = bert()
    model.cls.register_forward_hook(lambda _m, _i, output: shapes.append(output.shape[:2]))
    assert shapes == [seen(model)]
    model = bert()
    model.bert.register_forward_hook(lambda _m, _i, output: shapes.append(output[0].shape[:2]))
    assert shapes[-1] == seen(model)
    modern = build(next(case for case in heads("MaskedLM") if case.model_type == "modernbert"))
    modern.loss_function = lambda *given, **_: shapes.append(given[1].shape)
    assert seen(modern) == shapes[-1]


def test_a_loss_of_other_code_within_the_head_is_refused_where_it_reads_logits() -> None:
    model = accelerate(bert())
    decoder = model.get_output_embeddings()
    plain = decoder.forward
    decoder.forward = lambda rows: plain(rows) / 2.0
    with pytest.raises(MissingLogitsError, match=FULL):
        model(**labelled_batch(model))
    # Nothing is left of the call.
    assert read_rows.RUNNING.get() is None


@pytest.mark.parametrize("begins", [False, True], ids=["labels", "texts"])
def test_transformers_computes_padding_that_has_labels_and_texts_on_the_right(begins: bool) -> None:
    model = bert()
    batch = labelled_batch(model)
    if begins:
        batch = {name: values.flip(1) for name, values in batch.items()}
    else:
        batch["labels"][1, 5] = 7
    eager = loss_and_gradients(model, batch)
    with in_float64():
        truth = loss_and_gradients(exact(model), batch)
    accelerate(model)
    words = "begin with padding" if begins else "labels are not -100 at padding"
    with pytest.warns(EncoderEngineWarning, match=words):
        found = loss_and_gradients(model, batch)
    terms, size = terms_of_gradients(model, num_tokens=85), largest(*truth.values())
    for name, values in found.items():
        assert_within_budget(values, eager[name], truth[name], name, terms=terms, size=size)
    torch.testing.assert_close(model.eval()(**batch).loss, found["loss"])


def test_a_label_outside_the_vocabulary_is_refused_with_its_row() -> None:
    model = accelerate(bert())
    batch = labelled_batch(model)
    batch["labels"][2, 4] = model.config.vocab_size
    with pytest.raises(TokenIdError, match=r"row 2 of labels has 120 in column 4") as refused:
        model(**batch)
    assert refused.value.row == 2


def test_a_resized_vocabulary_is_followed() -> None:
    model = accelerate(bert())
    model.resize_token_embeddings(200)
    batch = labelled_batch(model)
    batch["labels"][0, 1] = 199
    found = loss_and_gradients(model, batch)
    eager = loss_and_gradients(restore(model), batch)
    torch.testing.assert_close(found, eager)


def test_copies_and_pickles_train_as_the_model_does(tmp_path: Any) -> None:
    model = accelerate(bert())
    batch = labelled_batch(model)
    torch.save(model, tmp_path / "model.pt")
    for again in (copy.deepcopy(model), torch.load(tmp_path / "model.pt", weights_only=False)):
        output = again(**batch)
        assert torch.equal(output.loss, model(**batch).loss)
        with pytest.raises(MissingLogitsError):
            output.logits.mean()


def test_arguments_by_position_and_labels_of_another_shape_are_those_of_transformers() -> None:
    model = bert()
    batch = labelled_batch(model)
    ids, mask, labels = batch.values()
    plain = model(**batch).loss
    accelerate(model)
    placed = (ids, mask, None, None, None, None, None, labels)
    for output in (model(*placed), model(ids, mask, labels=labels.flatten())):
        torch.testing.assert_close(output.loss, plain)
    with pytest.raises(TypeError, match="multiple values"):
        model(*placed, labels=labels)


def test_classes_that_are_patched_skip_logits_too() -> None:
    integration.apply_encoder_engine_to_bert()
    try:
        model = bert()
        with pytest.raises(MissingLogitsError, match=FULL):
            model(**labelled_batch(model)).logits.mean()
    finally:
        integration.revert_encoder_engine()
    assert bert()(**labelled_batch(model)).logits.shape[-1] == model.config.vocab_size
    assert not CASES[0].build()._forward_pre_hooks
