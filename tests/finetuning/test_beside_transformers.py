"""Training takes the steps of transformers' models in a plain loop: 50 losses, every task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import encoder_engine as ee
from encoder_engine.families.config import spec_from_config
from encoder_engine.finetuning.data import TaskData, prepare_data
from encoder_engine.finetuning.model_builder import build_task_model
from encoder_engine.finetuning.recipe_reader import find_recipe
from encoder_engine.finetuning.run import FineTuner
from encoder_engine.ops.testing import assert_within_budget

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from encoder_engine.finetuning.recipe import FineTuningRecipe

transformers: Any = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::encoder_engine.errors.SuspiciousDataWarning"),
]

STEPS, EXAMPLES, RATE = 50, 4, 1e-3
WORDS = ["good", "bad", "film", "plot", "a", "the", "very", "not"]
AUTO = {
    "sequence-classification": "AutoModelForSequenceClassification",
    "regression": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "multiple-choice": "AutoModelForMultipleChoice",
}
SHORT_RUN = ("sequence-classification", "token-classification", "question-answering")
# ModernBERT is pre-norm, with a final norm, rotary positions, gates and windows.
FAMILIES = ["bert", "electra", "distilbert", "roberta", "modernbert"]
WITH_CHOICES = {"bert", "distilbert"}
WITHOUT_SEGMENTS = {"distilbert", "modernbert"}


def draw_rows(task: str) -> list[dict[str, Any]]:
    generator = np.random.default_rng(5)
    rows: list[dict[str, Any]] = []
    for number in range(64):
        words = generator.choice(WORDS, size=int(generator.integers(3, 30))).tolist()
        text, label = " ".join(words), words.count("good") % 2
        if task == "question-answering":
            answer = {"text": [words[1]], "answer_start": [len(words[0]) + 1]}
            rows.append({"id": str(number), "question": "not", "context": text, "answers": answer})
        elif task == "multiple-choice":
            endings = [" ".join(generator.choice(WORDS, size=4)) for _ in range(2 + number % 3)]
            endings[number % 2] += " good good"
            rows.append({"context": text, "endings": endings, "label": number % 2})
        elif task == "token-classification":
            rows.append(
                {"words": words, "tags": [word if word == "film" else "O" for word in words]}
            )
        else:
            rows.append({"text": text, "score": label * 2.5, "label": label})
    return rows


def make_recipe(checkpoint: Path, folder: Path, task: str, *settings: str) -> FineTuningRecipe:
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in draw_rows(task)))
    usual = [
        "run.device=cpu",
        "run.precision=float32",
        f"run.steps={STEPS}",
        f"batch.examples={EXAMPLES}",
    ]
    usual += [f"optimizer.learning_rate={RATE}", "schedule.from_zero=true", "model.dropout=0"]
    return find_recipe(task, [*usual, *settings], checkpoint=str(checkpoint), train=[str(path)])


def padded_loss(model: Any, task: str, data: TaskData, numbers: Tensor) -> Tensor:
    """Compute the mean loss of items, padded to the longest, by a model of transformers."""
    items = data.train_items.take(numbers.numpy())
    inputs = data.task.collate(items)
    lengths, longest = items.rows.lengths, int(items.rows.lengths.max())
    ids, mask, types = (torch.zeros(len(lengths), longest, dtype=torch.int64) for _ in range(3))
    for place, length in enumerate(lengths):
        row = items.rows.take(np.array([place]))
        ids[place, :length] = torch.from_numpy(row.ids.astype(np.int64))
        mask[place, :length] = 1
        if row.type_ids is not None:
            types[place, :length] = torch.from_numpy(row.type_ids.astype(np.int64))
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    if model.config.model_type in WITHOUT_SEGMENTS:
        del given["token_type_ids"]
    if task == "multiple-choice":
        return mean_choice_loss(model, given, data, numbers)
    found = model(**given)
    targets = inputs.targets
    if task == "regression":
        return F.mse_loss(found.logits.squeeze(1), targets["target"].to(found.logits.dtype))
    if task == "sequence-classification":
        return F.cross_entropy(found.logits, targets["target"])
    if task == "token-classification":
        assert inputs.rows is not None
        logits = found.logits[mask.bool()][inputs.rows.rows.long()]
        return F.cross_entropy(logits, targets["tags"])
    hidden = ~mask.bool()
    starts, ends = (
        F.cross_entropy(logits.masked_fill(hidden, -torch.inf), targets[name])
        for logits, name in ((found.start_logits, "starts"), (found.end_logits, "ends"))
    )
    return (starts + ends) / 2


def mean_choice_loss(
    model: Any, given: dict[str, Tensor], data: TaskData, numbers: Tensor
) -> Tensor:
    """Compute the mean of transformers' own losses of questions, which may differ in endings."""
    offsets = data.train_items.take(numbers.numpy()).offsets
    losses = []
    for number, start, stop in zip(numbers.tolist(), offsets[:-1], offsets[1:], strict=True):
        own = {name: values[None, start:stop] for name, values in given.items()}
        label = torch.tensor([data.train.examples[number].gold])
        losses.append(model(**own, labels=label).loss)
    return torch.stack(losses).mean()


def losses_of_plain_loop(model: Any, task: str, data: TaskData) -> Tensor:
    """Train a model of transformers; return the loss of each step."""
    for part in model.train().modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    groups = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.01},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.999), eps=1e-8)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, STEPS // 10, STEPS)
    num_items = len(data.train_items)
    per_epoch = -(-num_items // EXAMPLES)
    losses = []
    for step in range(STEPS):
        epoch, place = divmod(step, per_epoch)
        generator = torch.Generator().manual_seed(epoch)
        order = torch.randperm(num_items, generator=generator)
        numbers = order[place * EXAMPLES : (place + 1) * EXAMPLES]
        loss = padded_loss(model, task, data, numbers)
        losses.append(loss.detach())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return torch.stack(losses)


# The gradients of the others are compared as well, of one step.
@pytest.mark.parametrize(
    "task",
    [pytest.param(task, marks=[pytest.mark.exhaustive] * (task not in SHORT_RUN)) for task in AUTO],
)
def test_fifty_losses_are_those_of_a_loop_with_transformers(
    checkpoint: Path, tmp_path: Path, task: str
) -> None:
    recipe = make_recipe(checkpoint, tmp_path, task)
    data = prepare_data(recipe)
    begun = build_task_model(
        data.checkpoint, data.directory, data.task, recipe.model, recipe.optimizer, seed=0
    )
    begun.save_pretrained(tmp_path / "begun")
    FineTuner(recipe, tmp_path / "run", data=data).finetune()
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    found = torch.tensor([json.loads(line)["loss"] for line in lines])
    assert len(set(found.tolist())) == STEPS
    load = getattr(transformers, AUTO[task]).from_pretrained
    eager = losses_of_plain_loop(load(tmp_path / "begun"), task, data)
    truth = losses_of_plain_loop(load(tmp_path / "begun").double(), task, data)
    # The rounding of each step moves the steps after it, at random.
    assert_within_budget(found, eager, truth, terms=STEPS)


@pytest.mark.parametrize(
    ("family", "task"),
    [
        (family, task)
        for family in FAMILIES
        for task in AUTO
        if task != "multiple-choice" or family in WITH_CHOICES
    ],
)
def test_gradients_are_those_of_transformers(tmp_path: Path, family: str, task: str) -> None:
    checkpoint = write_family(tmp_path / "checkpoint", family)
    recipe = make_recipe(checkpoint, tmp_path, task)
    data = prepare_data(recipe)
    ours = build_task_model(
        data.checkpoint, data.directory, data.task, recipe.model, recipe.optimizer, seed=0
    )
    ours.save_pretrained(tmp_path / "begun")
    theirs = getattr(transformers, AUTO[task]).from_pretrained(tmp_path / "begun")
    theirs, ours = theirs.double().eval(), ours.double().eval()
    numbers = torch.arange(12)
    loss = padded_loss(theirs, task, data, numbers)
    loss.backward()  # type: ignore[no-untyped-call]
    [own] = ours(data.task.collate(data.train_items.take(numbers.numpy()))).values()
    mean = own.total / own.num_terms
    mean.backward()
    assert float(mean.detach()) == pytest.approx(float(loss.detach()), rel=1e-12)
    # Names differ and matrices are fused: the sums of all squares are compared.
    squares = [
        sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None)
        for model in (ours, theirs)
    ]
    assert squares[0] == pytest.approx(squares[1], rel=1e-10)


def write_family(folder: Path, family: str) -> Path:
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    names = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
    if family != "distilbert":
        names = {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 64,
        }
    config = {
        "model_type": family,
        "vocab_size": len(vocabulary),
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        **names,
        **({} if family in WITHOUT_SEGMENTS else {"type_vocab_size": 2}),
        **({"embedding_size": 16} if family == "electra" else {}),
        **({"local_attention": 12} if family == "modernbert" else {}),
    }
    torch.manual_seed(0)
    ee.Encoder(spec_from_config(config), config=config).save_pretrained(folder)
    ee.Tokenizer.from_pretrained(folder / "vocab.txt", lowercase=True).save(folder)
    return folder
