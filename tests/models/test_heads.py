"""Every head of every family: transformers' numbers, gradients, names and labels, both ways."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file

import encoder_engine as ee
from encoder_engine.errors import (
    ConfigError,
    TensorNamesError,
    UnsupportedFeatureError,
    UnusedWeightsWarning,
)
from encoder_engine.families.facts.head_layout import HeadLayout
from encoder_engine.families.facts.names import modern_name
from encoder_engine.families.heads import read_rows
from encoder_engine.inference import CompiledEncoder
from encoder_engine.models import all_families, heads
from encoder_engine.models.training_model import Inputs
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import pack
from encoder_engine.tasks.models.sequence_model import sequence_features
from tests.models.all_cases import ALL_CASES
from tests.models.cases import CASES, VOCAB_SIZE, Case, case_id
from tests.models.exact import exact, in_float64
from tests.models.test_families import padded_inputs, token_rows
from tests.selection import covering

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*")
LENGTHS = [9, 5, 40, 7]
MODELS: dict[str, type[heads.HeadModel]] = {
    model.task: model
    for model in (
        heads.MaskedLM,
        heads.MultipleChoice,
        heads.NextSentence,
        heads.QuestionAnswering,
        heads.ReplacedTokens,
        heads.SequenceClassification,
        heads.TokenClassification,
    )
}
NAMES = {0: "no", 1: "perhaps", 2: "yes"}
SEPARATOR = 2
PAIRS = [(case, layout) for case in ALL_CASES for layout in all_families()[case.model_type].layouts]
# In the usual run every head of every family, and every case.
MARKED = covering(PAIRS, lambda case, layout: [case.id, (case.model_type, layout.task)])


def pair_id(value: Case | HeadLayout | str) -> str:
    return value.task if isinstance(value, HeadLayout) else case_id(value)


def build(case: Case, layout: HeadLayout, folder: Path, **changes: Any) -> Any:
    labels = {"id2label": NAMES, "label2id": {name: number for number, name in NAMES.items()}}
    if layout.num_outputs == 2:
        labels = {"num_labels": 2}
    with_head = Case(case.model_type, case.config_class, layout.architecture, case.sizes)
    return with_head.save(folder, **labels, **changes)


def questions() -> list[list[int]]:
    """Draw texts with three separators each, as a question and its text have."""
    rows = token_rows(LENGTHS)
    for row in rows:
        row[2] = row[3] = row[-1] = SEPARATOR
    return rows


def by_transformers(model: Any, rows: list[list[int]]) -> list[torch.Tensor]:
    """Return its logits, those of padding left out."""
    ids, mask = padded_inputs(model, rows)
    if type(model).__name__.endswith("ForMultipleChoice"):
        # The rows are the choices of one question.
        return [model(input_ids=ids[None], attention_mask=mask[None]).logits.T]
    out = model(input_ids=ids, attention_mask=mask)
    if hasattr(out, "start_logits"):
        return [out.start_logits[mask.bool()], out.end_logits[mask.bool()]]
    logits = out.logits
    return [logits[mask.bool()] if logits.shape[:2] == mask.shape else logits]


@pytest.mark.parametrize(("case", "layout"), MARKED, ids=pair_id)
def test_logits_are_within_budget(case: Case, layout: HeadLayout, tmp_path: Path) -> None:
    model = build(case, layout, tmp_path)
    ours = MODELS[layout.task].from_pretrained(tmp_path, device="cpu")
    assert not ours.training
    rows = questions()
    with torch.no_grad():
        eager = by_transformers(model, rows)
        with in_float64():
            truth = by_transformers(exact(model), rows)
        found = ours(pack(rows))
    found = list(found) if isinstance(found, tuple) else [found]
    for mine, theirs, true in zip(found, eager, truth, strict=True):
        assert_within_budget(mine, theirs, true, terms=3 * ours.encoder.spec.width)


@pytest.mark.parametrize(("case", "layout"), MARKED, ids=pair_id)
def test_saved_models_load_in_transformers_and_agree_bit_for_bit(
    case: Case, layout: HeadLayout, tmp_path: Path
) -> None:
    import transformers

    model = build(case, layout, tmp_path / "theirs")
    ours = MODELS[layout.task].from_pretrained(tmp_path / "theirs", device="cpu")
    ours.save_pretrained(tmp_path / "ours")
    stored = load_file(tmp_path / "theirs" / "model.safetensors")
    before = {modern_name(name): tensor for name, tensor in stored.items()}
    after = load_file(tmp_path / "ours" / "model.safetensors")
    extra = tuple(f"{all_families()[case.model_type].prefix}{part}" for part in case.extra)
    assert after.keys() == {name for name in before if not name.startswith(extra)}
    assert all(torch.equal(after[name], before[name]) for name in after)
    again, info = getattr(transformers, layout.architecture).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    assert all(name.startswith(extra) for name in info["missing_keys"])
    for name, tensor in model.state_dict().items():
        if name.startswith(extra):
            continue
        assert torch.equal(again.state_dict()[name], tensor), name
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert config["architectures"] == [layout.architecture]
    if layout.num_outputs is None and layout.task != "masked-lm":
        assert again.config.id2label == ours.id2label == NAMES


MASKED = [pair for pair in PAIRS if pair[1].task == "masked-lm"]
MASKED_MARKED = covering(MASKED, lambda case, _layout: [case.model_type])


@pytest.mark.parametrize(("case", "layout"), MASKED_MARKED, ids=pair_id)
def test_the_masked_loss_and_its_gradients_are_within_budget(
    case: Case, layout: HeadLayout, tmp_path: Path
) -> None:
    family = all_families()[case.model_type]
    model = build(case, layout, tmp_path, **dict.fromkeys(family.dropouts, 0.0)).train()
    ours = heads.MaskedLM.from_pretrained(tmp_path, device="cpu").train()
    rows = token_rows(LENGTHS)
    batch = pack(rows)
    chosen = torch.tensor([0, 4, 13, 14, 50, 60])
    labels = torch.tensor([7, 9, -100, 11, 30, 7])

    def by_them(model: Any) -> tuple[torch.Tensor, torch.Tensor]:
        ids, mask = padded_inputs(model, rows)
        targets = torch.full(ids.shape, -100)
        packed = targets[mask.bool()]
        packed[chosen] = labels
        targets[mask.bool()] = packed
        loss = model(input_ids=ids, attention_mask=mask, labels=targets).loss
        loss.backward()
        return loss.detach(), model.get_input_embeddings().weight.grad

    with in_float64():
        truth = by_them(exact(model))
    eager = by_them(model)
    loss = ours.loss(batch, chosen, labels)
    loss.backward()  # type: ignore[no-untyped-call]
    grad = ours.encoder.embedding.tokens.weight.grad
    assert grad is not None
    terms = 3 * ours.encoder.spec.width + VOCAB_SIZE
    assert_within_budget(loss.detach(), eager[0], truth[0], "loss", terms=terms)
    assert_within_budget(grad, eager[1], truth[1], "tied embedding", terms=terms)
    with torch.no_grad():
        logits = ours(batch, chosen)
        true = copy.deepcopy(ours).double()(batch)[chosen]
        assert_within_budget(logits, ours(batch)[chosen], true, "rows asked for", terms=terms)
        expected = torch.nn.functional.cross_entropy(logits, labels)
    assert_within_budget(loss.detach(), expected, truth[0], "loss of logits", terms=terms)


@pytest.mark.parametrize(
    ("model_type", "pooling"),
    [
        *((name, mode) for name in ("modernbert", "ultrabert") for mode in ("cls", "mean")),
        *(("eurobert", pooling) for pooling in ("bos", "mean", "late")),
    ],
)
def test_heads_pool_as_the_configuration_says(
    model_type: str, pooling: str, tmp_path: Path
) -> None:
    case, layout = first(model_type, "sequence-classification")
    model = build(case, layout, tmp_path, classifier_pooling=pooling)
    ours = heads.SequenceClassification.from_pretrained(tmp_path, device="cpu")
    compiled = CompiledEncoder.from_pretrained(tmp_path, "float32", head=layout.task)
    rows, batch = token_rows(LENGTHS), pack(token_rows(LENGTHS))
    with torch.no_grad():
        (eager,) = by_transformers(model, rows)
        with in_float64():
            (truth,) = by_transformers(exact(model), rows)
        packed = (x.numpy().astype("int32") for x in (batch.input_ids, batch.cu_seqlens))
        for found in (ours(batch), torch.from_numpy(compiled.logits(*packed))):
            assert_within_budget(found, eager, truth, terms=3 * ours.encoder.spec.width)
        vectors_BD = sequence_features(ours, Inputs(batch, {}))
    assert (vectors_BD is None) == (pooling == "late")
    # The authors' code has another name for it.
    config = {"clf_pooling": pooling} if model_type == "eurobert" else {}
    assert read_rows(layout, config) == (ours.rows if config else layout.rows)


def first(model_type: str, task: str) -> tuple[Case, HeadLayout]:
    return next(p for p in PAIRS if p[0].model_type == model_type and p[1].task == task)


def test_a_pretraining_checkpoint_holds_two_heads_and_each_is_found(tmp_path: Path) -> None:
    case, _ = first("bert", "masked-lm")
    both = Case(case.model_type, case.config_class, "BertForPreTraining", case.sizes)
    model = both.save(tmp_path)
    rows = token_rows(LENGTHS)
    ids, mask = padded_inputs(model, rows)
    with torch.no_grad():
        out = model(input_ids=ids, attention_mask=mask)
        with pytest.warns(UnusedWeightsWarning, match="cls.seq_relationship.weight"):
            masked = heads.MaskedLM.from_pretrained(tmp_path, device="cpu")
        with pytest.warns(UnusedWeightsWarning, match="cls.predictions.bias"):
            following = heads.NextSentence.from_pretrained(tmp_path, device="cpu")
        torch.testing.assert_close(masked(pack(rows)), out.prediction_logits[mask.bool()])
        torch.testing.assert_close(following(pack(rows)), out.seq_relationship_logits)


def test_a_new_head_goes_onto_an_encoder_and_is_saved_with_its_labels(tmp_path: Path) -> None:
    import transformers

    CASES[0].save(tmp_path / "encoder")
    encoder = ee.Encoder.from_pretrained(tmp_path / "encoder", device="cpu")
    model = heads.SequenceClassification(encoder, num_labels=4)
    assert model.id2label == {number: f"LABEL_{number}" for number in range(4)}
    model.save_pretrained(tmp_path / "saved")
    again = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "saved")
    assert again.config.num_labels == 4
    assert torch.equal(again.classifier.weight, model.state_dict()["head.output.weight"])


def test_a_head_is_not_saved_with_the_labels_of_another(tmp_path: Path) -> None:
    """The directory was written, and could not be loaded: 3 outputs and 5 labels."""
    CASES[0].save(tmp_path / "encoder")
    encoder = ee.Encoder.from_pretrained(tmp_path / "encoder", device="cpu")
    first = heads.SequenceClassification(encoder, num_labels=3)
    labels = dict(first.config)
    second = heads.TokenClassification(encoder, num_labels=5)
    with pytest.raises(ConfigError, match=r"this head has 3 outputs, .* names 5 labels"):
        first.save_pretrained(tmp_path / "first")
    assert not (tmp_path / "first").exists()
    second.save_pretrained(tmp_path / "second")
    first.config.update(labels)
    first.save_pretrained(tmp_path / "first")
    again = heads.SequenceClassification.from_pretrained(tmp_path / "first", device="cpu")
    assert len(again.id2label) == 3


def test_labels_without_numbers_are_refused(tmp_path: Path) -> None:
    """The labels of two files mixed up were a ValueError about int()."""
    CASES[0].save(tmp_path / "encoder")
    encoder = ee.Encoder.from_pretrained(tmp_path / "encoder", device="cpu")
    encoder.config["id2label"] = {"no": 0, "yes": 1}
    model = heads.SequenceClassification(encoder)
    with pytest.raises(ConfigError, match=r"id2label of config\.json has the key 'no'"):
        _ = model.id2label


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    CASES[0].save(tmp_path / "bare")
    with pytest.raises(TensorNamesError, match=r"cls\.predictions\.bias"):
        heads.MaskedLM.from_pretrained(tmp_path / "bare", device="cpu")
    encoder = ee.Encoder.from_pretrained(tmp_path / "bare", device="cpu")
    with pytest.raises(UnsupportedFeatureError, match="bert has no head for replaced-tokens"):
        heads.ReplacedTokens(encoder)
    quantized = heads.TokenClassification(encoder)
    encoder.quantize()
    with pytest.raises(UnsupportedFeatureError, match="8-bit"):
        quantized.save_pretrained(tmp_path / "quantized")
    case, layout = first("bert", "masked-lm")
    model = build(case, layout, tmp_path / "untied", tie_word_embeddings=False)
    own_table = model.cls.predictions.decoder.weight
    assert not torch.equal(own_table, model.get_input_embeddings().weight)
    with pytest.raises(UnsupportedFeatureError, match="vocabulary of its own"):
        heads.MaskedLM.from_pretrained(tmp_path / "untied", device="cpu")


def test_a_checkpoint_without_a_head_says_how_to_begin_one(tmp_path: Path) -> None:
    case = next(case for case in CASES if case.model_type == "bert")
    case.save(tmp_path)
    with pytest.raises(TensorNamesError, match=r"no head of BertForSequenceClassification.* new"):
        heads.SequenceClassification.from_pretrained(tmp_path, device="cpu")
    model = heads.SequenceClassification(ee.Encoder.from_pretrained(tmp_path, device="cpu"))
    assert model.head.state_dict()
