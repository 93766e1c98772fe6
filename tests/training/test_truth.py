"""Training finds what there is to be learned, and nothing that is not.

- Fifty steps have the losses of transformers' model in a plain loop.
- Of a Markov chain no model can do better than the posterior of its states, given all that is seen:
  forward and backward sums compute it exactly. The trained model comes near it and not below.
- One batch is learned by heart; of tokens that tell nothing of each other nothing is learned.
- RetroMAE's decoder, which sees no token, learns a text's topic from its vector, and only from it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from encoder_engine.data.loader import Position
from encoder_engine.data.shards import Document, Vocabulary, write_corpus, write_shard
from encoder_engine.packing import pad
from encoder_engine.training import Trainer
from encoder_engine.training.log import read_log
from encoder_engine.training.pretraining.evaluation import Evaluation
from encoder_engine.training.schedule import learning_rate_factor
from tests.training.runs import small_recipe, take_step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from encoder_engine.models.training_model import Inputs

Array = np.ndarray[Any, np.dtype[np.float64]]
NO_DROPOUT = [f"model.config.{name}_dropout_prob=0.0" for name in ("hidden", "attention_probs")]
NUM_SPECIAL = 5


def draw_chain(num_states: int, generator: np.random.Generator) -> Array:
    """Draw transitions that lead from each state to a few others."""
    return generator.dirichlet(np.full(num_states, 0.15), num_states)


def write_tokens(directory: Path, tokens: Any, num_kinds: int) -> Path:
    """Write one document of tokens, from 0, behind the special ones."""
    return write_documents(directory, [tokens], num_kinds)


def write_documents(directory: Path, texts: Sequence[Any], num_kinds: int) -> Path:
    """Write each text as a document of one sentence, its tokens after the special ones."""
    directory.mkdir()
    size = NUM_SPECIAL + num_kinds
    vocabulary = Vocabulary(
        size=size, cls_id=1, sep_id=2, mask_id=3, pad_id=0, fingerprint="a chain's"
    )
    documents = [Document([np.asarray(tokens) + NUM_SPECIAL]) for tokens in texts]
    entry = write_shard(directory, 0, documents, vocabulary)
    write_corpus(directory, [entry], vocabulary, np.ones(size, np.bool_))
    return directory


def hidden_rows(inputs: Inputs) -> Any:
    """Return the rows of a batch that are to be told."""
    assert inputs.rows is not None
    return inputs.rows.rows[inputs.targets["rows"]].numpy()


def least_losses(inputs: Inputs, chain: Array, *, rate: float = 0.15) -> Array:
    """Return the loss of each hidden token under the posterior, of 80 / 10 / 10 in a hundred.

    Whoever is asked for a token knows that it was chosen; of the others only what is seen.
    """
    num_states = len(chain)
    size = num_states + NUM_SPECIAL
    values, vectors = np.linalg.eig(chain.T)
    stationary = np.real(vectors[:, np.argmax(np.real(values))])
    stationary /= stationary.sum()
    # What is seen of a token that was chosen, [state, seen], and of any.
    states = np.arange(num_states)
    chosen = np.full((num_states, size), 0.1 / size)
    chosen[:, 3] += 0.8
    chosen[states, states + NUM_SPECIAL] += 0.1
    seen_of_any = rate * chosen
    seen_of_any[states, states + NUM_SPECIAL] += 1.0 - rate
    rows = hidden_rows(inputs)
    labels = dict(zip(rows.tolist(), inputs.targets["labels"].tolist(), strict=True))
    ids, ends = inputs.batch.input_ids.numpy(), inputs.batch.sequences.cu_seqlens.numpy()
    losses = []
    for begin, end in zip(ends[:-1] + 1, ends[1:] - 1, strict=True):
        seen = seen_of_any[:, ids[begin:end]].T
        forward, backward = np.empty_like(seen), np.ones_like(seen)
        before = stationary
        for place in range(len(seen)):
            forward[place] = before
            before = (before * seen[place]) @ chain
            before /= before.sum()
        for place in range(len(seen) - 2, -1, -1):
            backward[place] = chain @ (seen[place + 1] * backward[place + 1])
            backward[place] /= backward[place].sum()
        for place in range(len(seen)):
            row = int(begin) + place
            if row in labels:
                posterior = forward[place] * chosen[:, ids[row]] * backward[place]
                state = labels[row] - NUM_SPECIAL
                losses.append(-np.log(posterior[state] / posterior.sum()))
    return np.asarray(losses)


def losses_of(trainer: Trainer, inputs: Inputs) -> Array:
    """Return the model's loss of each hidden token."""
    with torch.no_grad():
        logits = trainer.model.eval().heads["mlm"](inputs.batch, inputs.rows.rows)  # type: ignore
    rows = torch.arange(len(logits))
    return -torch.log_softmax(logits, 1)[rows, inputs.targets["labels"]].double().numpy()


@pytest.mark.exhaustive
def test_of_a_markov_chain_all_is_learned_that_can_be_and_no_more(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    chain = draw_chain(8, generator)
    sums, tokens = np.cumsum(chain, 1), [0]
    for draw in generator.random(100_000):
        tokens.append(int(np.searchsorted(sums[tokens[-1]], draw)))
    corpus = write_tokens(tmp_path / "corpus", tokens, 8)
    settings = [
        *NO_DROPOUT,
        "data.form=blocks",
        "data.max_length=16",
        "data.held_out=0.3",
        "model.config.hidden_size=48",
        "model.config.intermediate_size=96",
        "optimizer.learning_rate=5e-3",
        "batch.tokens=1024",
        "batch.micro_tokens=1024",
        "run.steps=1000",
        "run.evaluate_every=1000",
        "run.checkpoint_every=1000",
        "run.log_every=100",
        "run.deterministic=false",
    ]
    trainer = Trainer(small_recipe(corpus, *settings), tmp_path / "run")
    scores = trainer.run()
    assert isinstance(trainer.evaluation, Evaluation)
    batches = [inputs for inputs, _ in trainer.evaluation._inputs()]
    least = np.concatenate([least_losses(inputs, chain) for inputs in batches])
    found = np.concatenate([losses_of(trainer, inputs) for inputs in batches])
    assert scores["mlm_loss"] == pytest.approx(found.mean(), rel=1e-5)
    over = found - least
    interval = 4.0 * over.std() / np.sqrt(len(over))
    assert interval < 0.03
    assert over.mean() > -interval
    assert over.mean() < 0.1


def test_what_is_reachable_is_the_least_of_all_losses(tmp_path: Path) -> None:
    # By all sequences of states there are, one by one.
    generator = np.random.default_rng(1)
    chain = draw_chain(3, generator) * 0.9 + 0.1 / 3
    corpus = write_tokens(tmp_path / "corpus", generator.integers(0, 3, 400), 3)
    trainer = Trainer(
        small_recipe(corpus, "data.form=blocks", "data.max_length=6"), tmp_path / "run"
    )
    (inputs,) = next(trainer._batch_stream.steps(0, 1, Position(), lambda _step: 1)).inputs
    stationary = np.linalg.matrix_power(chain, 200)[0]
    ids, ends = inputs.batch.input_ids.numpy(), inputs.batch.sequences.cu_seqlens.numpy()
    expected = []
    for row, label in zip(hidden_rows(inputs), inputs.targets["labels"].tolist(), strict=True):
        sequence = int(np.searchsorted(ends, row, side="right")) - 1
        begin, end = int(ends[sequence]) + 1, int(ends[sequence + 1]) - 1
        told = np.zeros(3)
        for states in np.ndindex(*[3] * (end - begin)):
            mass = stationary[states[0]]
            for before, after in itertools.pairwise(states):
                mass *= chain[before, after]
            for place, state in enumerate(states):
                seen = int(ids[begin + place])
                chosen = 0.8 * (seen == 3) + 0.1 * (seen == state + NUM_SPECIAL) + 0.1 / 8
                kept = float(seen == state + NUM_SPECIAL)
                mass *= chosen if begin + place == row else 0.15 * chosen + 0.85 * kept
            told[states[row - begin]] += mass
        expected.append(-np.log(told[label - NUM_SPECIAL] / told.sum()))
    assert len(expected) > 5
    np.testing.assert_allclose(least_losses(inputs, chain), expected, rtol=1e-9)


def test_one_batch_is_learned_by_heart_and_noise_is_not(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    corpus = write_tokens(tmp_path / "corpus", generator.integers(0, 20, 4000), 20)
    settings = [
        *NO_DROPOUT,
        "data.form=blocks",
        "data.held_out=0.3",
        "model.config.hidden_size=64",
        "model.config.intermediate_size=128",
        "objectives.mask_share=1.0",
        "objectives.random_share=0.0",
        "batch.tokens=512",
        "batch.micro_tokens=512",
        # The loss is 0.004 then. At this constant rate Adam divides by ever smaller gradients, and
        # by step 145 rounding decides whether the loss jumps to 0.1.
        "run.steps=100",
    ]
    trainer = Trainer(small_recipe(corpus, *settings), tmp_path / "run")
    batches = next(trainer._batch_stream.steps(0, 1, Position(), lambda _step: 1))
    assert len(batches.inputs[0].batch.sequences.cu_seqlens) - 1 == 16
    steps = range(trainer.recipe.run.steps)
    losses = [take_step(trainer, batches, step, 3e-3)["loss"] for step in steps]
    assert losses[0] > np.log(20)
    assert losses[-1] < 0.01
    # Every token is as likely as another, whatever is beside it.
    assert trainer.evaluate()["mlm_loss"] > np.log(20)


def test_a_decoder_that_sees_no_token_learns_the_topic_from_the_vector(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    # Eight topics of four tokens each: a token has an entropy of ln 32, and of ln 4 in its topic.
    topics = generator.integers(0, 8, 600)
    texts = [4 * topic + generator.integers(0, 4, 12) for topic in topics]
    corpus = write_documents(tmp_path / "corpus", texts, 32)
    settings = [
        *NO_DROPOUT,
        "data.form=sentences",
        "data.max_length=16",
        "data.held_out=0.3",
        "model.config.hidden_size=32",
        "model.config.intermediate_size=64",
        "objectives.mask_probability=0.3",
        "objectives.decoder_mask_probability=1.0",
        "batch.tokens=512",
        "batch.micro_tokens=512",
        "run.steps=40",
        "run.evaluate_every=40",
        "run.checkpoint_every=40",
        "run.deterministic=false",
    ]
    trainer = Trainer(small_recipe(corpus, *settings), tmp_path / "run")
    trainer.run()
    model: Any = trainer.model.eval()
    assert isinstance(trainer.evaluation, Evaluation)
    own: list[float] = []
    others: list[float] = []
    for inputs, _ in trainer.evaluation._inputs():
        output = model.encoder(inputs.batch, output_pooled=False, rows=inputs.rows)
        first = inputs.targets["retromae_first"]
        # The topic of a text: that of its first token.
        firsts = inputs.targets["retromae_ids"][inputs.targets["retromae_offsets"][:-1] + 1]
        order = ((firsts - NUM_SPECIAL) // 4).argsort()
        swapped = torch.empty_like(first)
        # Each text gets the vector of a text half of all away in the order of topics.
        swapped[order] = first[order.roll(len(order) // 2)]
        for losses, vectors in ((own, first), (others, swapped)):
            targets = {**inputs.targets, "retromae_first": vectors}
            loss = model.objectives[1].loss(model.heads["retromae"], output, targets)
            losses.append(float(loss.total.detach()) / loss.num_terms)
    assert max(own) < np.log(32) < min(others)


def test_fifty_steps_have_the_losses_of_transformers_in_a_plain_loop(
    corpus: Path, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    settings = [
        *NO_DROPOUT,
        "run.precision=float64",
        "run.steps=50",
        "optimizer.learning_rate=1e-3",
        "batch.tokens=512",
        "batch.micro_tokens=512",
        "run.evaluate_every=50",
        "run.checkpoint_every=50",
    ]
    trainer = Trainer(small_recipe(corpus, *settings), tmp_path / "run")
    trainer.export(tmp_path / "begun")
    model = transformers.BertForMaskedLM.from_pretrained(tmp_path / "begun")
    model = model.double().train()
    # It keeps gradients from [PAD]'s row, which stands for a hidden token now and then.
    model.bert.embeddings.word_embeddings.padding_idx = None
    recipe = trainer.recipe
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": recipe.optimizer.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        betas=recipe.optimizer.betas,
        eps=recipe.optimizer.epsilon,
    )
    losses = []
    for step, batches in enumerate(trainer._batch_stream.steps(0, 50, Position(), lambda _step: 1)):
        (inputs,) = batches.inputs
        batch = inputs.batch
        labels = torch.full_like(batch.input_ids, -100, dtype=torch.int64)
        labels[torch.from_numpy(hidden_rows(inputs))] = inputs.targets["labels"]
        for group in optimizer.param_groups:
            group["lr"] = recipe.optimizer.learning_rate * learning_rate_factor(
                recipe.schedule, step, 50
            )
        loss = model(
            input_ids=pad(batch.input_ids.long(), batch.sequences),
            attention_mask=pad(torch.ones_like(labels), batch.sequences),
            labels=pad(labels, batch.sequences, value=-100),
        ).loss
        loss.backward()
        assert recipe.optimizer.clip_norm is not None
        nn.utils.clip_grad_norm_(model.parameters(), recipe.optimizer.clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    trainer.run()
    found = [record["loss"] for record in read_log(tmp_path / "run")]
    assert losses[-1] < 0.97 * losses[0]
    # The longest sums are over the vocabulary; what rounding costs in one step, all steps may add.
    terms = trainer.model.encoder.spec.embedding.vocab_size
    bound = len(losses) * np.sqrt(terms) * np.finfo(np.float64).eps
    np.testing.assert_allclose(found, losses, rtol=bound)
