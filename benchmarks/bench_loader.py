"""Masked batches of a corpus, beside transformers' collator, and beside the steps that take them.

A call goes once through all blocks of a drawn corpus, in an order of its own. What is judged are
the tokens that the batches held before some were hidden, and how many were.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.bench_pretraining import SIZES, make_model, make_step
from benchmarks.case import Candidate, Case, CaseSpec, Options, Verdict, Work
from benchmarks.peers.transformers import PEER
from encoder_engine.data.loader import Loader, Position
from encoder_engine.data.samples import Samples, cut_blocks
from encoder_engine.data.shards import Document, Vocabulary, write_corpus, write_shard
from encoder_engine.objectives.objective import PretrainingModel, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.objectives.objective import Inputs

SEED = 17
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
RATE = 0.15
NUM_BLOCKS, SMOKE_BLOCKS = 512, 3
# Of so many right loaders one is refused.
ODDS = 1e9


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a pass held: tokens, the sum of their ids before some were hidden, and those hidden."""

    tokens: int
    sum_of_ids: int
    hidden: int


def case_specs() -> list[CaseSpec]:
    """One case."""
    return [
        CaseSpec(
            name="pretraining/loader",
            summary="blocks of 128 tokens shuffled, put together and masked for BERT-tiny",
            make=make_case,
        )
    ]


def make_case(options: Options) -> Case:
    """Draw the blocks, and take them in three ways."""
    size = SIZES["tiny"]
    number = SMOKE_BLOCKS if options.smoke else NUM_BLOCKS
    samples = draw_samples(number, size.length, size.config["vocab_size"])
    batch_tokens = size.length * size.number
    model = make_model(size.config)
    everything = samples.batch(np.arange(len(samples)))
    return Case(
        name="pretraining/loader",
        candidates=(
            Candidate(
                name="encoder-engine",
                role="ours",
                build=partial(_ours, samples, batch_tokens, model),
            ),
            Candidate(
                name="encoder-engine, the steps alone",
                role="ours",
                build=partial(_training, samples, batch_tokens, model),
            ),
            Candidate(
                name="transformers' collator",
                role="peer",
                build=partial(_theirs, samples, size.number, size.config["vocab_size"]),
                unavailable=PEER.available(),
                libraries=("transformers",),
                keep_slow=True,
            ),
        ),
        gate=LoaderGate(
            tokens=len(everything.input_ids),
            sum_of_ids=int(everything.input_ids.sum(dtype=np.int64)),
            most_hidden=int((~everything.special).sum()),
        ),
        fingerprint=f"{SEED} {number} {size.length} {size.config['vocab_size']}",
        seed=SEED,
        amounts={"tokens": len(everything.input_ids)},
    )


def draw_samples(number: int, length: int, vocab_size: int) -> Samples:
    """Write a corpus of so many blocks, and keep its files mapped when their folder is gone."""
    generator = np.random.default_rng(SEED)
    ids = generator.integers(len(SPECIAL_TOKENS), vocab_size, number * (length - 2))
    vocabulary = Vocabulary(
        size=vocab_size, pad_id=0, cls_id=2, sep_id=3, mask_id=4, fingerprint="drawn"
    )
    words = np.ones(vocab_size, np.bool_)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        shard = write_shard(Path(scratch), 0, [Document([ids])], vocabulary)
        return cut_blocks(write_corpus(Path(scratch), [shard], vocabulary, words), length)


def _ours(samples: Samples, batch_tokens: int, model: PretrainingModel) -> Work:
    def load() -> list[Inputs]:
        return list(_load(samples, batch_tokens, model))

    def answer() -> Found:
        restored, hidden = [], 0
        for inputs in load():
            assert inputs.rows is not None
            rows = inputs.rows.rows[inputs.targets["rows"]]
            ids = inputs.batch.input_ids.long()
            ids[rows] = inputs.targets["labels"]
            restored.append(ids)
            hidden += len(rows)
        return _sum(restored, hidden)

    return Work(call=load, answer=answer)


def _training(samples: Samples, batch_tokens: int, model: PretrainingModel) -> Work:
    step = make_step(model)
    batches = list(_load(samples, batch_tokens, model))

    def train() -> None:
        for inputs in batches:
            step(inputs)

    return Work(call=train, answer=_ours(samples, batch_tokens, model).answer)


def _load(samples: Samples, batch_tokens: int, model: PretrainingModel) -> Iterator[Inputs]:
    """Go through an epoch."""
    loader = Loader(samples=samples, batch_tokens=batch_tokens, seed=SEED)
    for turn in loader.turns(Position()):
        if turn.epoch > 0:
            return
        yield prepare(loader.batch(turn), model.objectives, seed=SEED)


def _theirs(samples: Samples, number: int, vocab_size: int) -> Work:
    from transformers import BertTokenizer, DataCollatorForLanguageModeling

    words = [*SPECIAL_TOKENS, *(f"w{place}" for place in range(len(SPECIAL_TOKENS), vocab_size))]
    tokenizer = BertTokenizer(vocab={word: place for place, word in enumerate(words)})
    rows = [_row(samples, place) for place in range(len(samples))]
    batches: Any = torch.utils.data.DataLoader(
        rows,  # type: ignore[arg-type]
        batch_size=number,
        shuffle=True,
        generator=torch.Generator().manual_seed(SEED),
        collate_fn=DataCollatorForLanguageModeling(tokenizer, mlm_probability=RATE),
    )

    def load() -> list[Mapping[str, Tensor]]:
        return list(batches)

    def answer() -> Found:
        restored, hidden = [], 0
        for batch in load():
            chosen = batch["labels"] != -100
            ids = torch.where(chosen, batch["labels"], batch["input_ids"])
            restored.append(ids[batch["attention_mask"].bool()])
            hidden += int(chosen.sum())
        return _sum(restored, hidden)

    return Work(call=load, answer=answer)


def _row(samples: Samples, place: int) -> dict[str, list[int]]:
    """Give a block as the library's own scripts keep it, its special tokens already marked."""
    block = samples.batch(np.array([place]))
    special: npt.NDArray[np.int64] = block.special.astype(np.int64)
    return {"input_ids": block.input_ids.tolist(), "special_tokens_mask": special.tolist()}


def _sum(restored: list[Tensor], hidden: int) -> Found:
    ids = torch.cat(restored)
    return Found(tokens=len(ids), sum_of_ids=int(ids.sum()), hidden=hidden)


@dataclass(frozen=True, kw_only=True)
class LoaderGate:
    """Ask for every token once, and for a number of hidden ones that chance can explain."""

    tokens: int
    sum_of_ids: int
    most_hidden: int

    def __call__(self, found: Found) -> Verdict:
        expected = RATE * self.most_hidden
        spread = (expected * (1 - RATE)) ** 0.5
        most = NormalDist().inv_cdf(1 - 0.5 / ODDS)
        figures = {"tokens": float(found.tokens), "hidden_share": found.hidden / self.most_hidden}
        whole = (found.tokens, found.sum_of_ids) == (self.tokens, self.sum_of_ids)
        if whole and abs(found.hidden - expected) <= most * spread:
            return Verdict(passed=True, figures=figures)
        return Verdict(
            passed=False,
            figures=figures,
            reason=f"it gave {found}, the corpus has {self.tokens} tokens whose sum is "
            f"{self.sum_of_ids}, of which about {expected:.0f} are to be hidden",
        )
