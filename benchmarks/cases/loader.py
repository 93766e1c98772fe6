"""Times masked batches of a corpus, compared with transformers' collator and the engine's steps.

A call is one epoch over all blocks of a drawn corpus, shuffled, in the calling thread. The gate
checks the count of each token before masking, the number of masked tokens, and how many of them
show another token. The steps train on such batches from memory.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.cases.pretraining import MASK_ID, SIZES, make_model
from benchmarks.jobs.training_step import LossesGate, exact_losses, make_step
from benchmarks.measuring.case import Case, CaseSpec, Options, Verdict, Work, digest, ours
from benchmarks.peers import candidate
from benchmarks.peers.transformers import PEER
from encoder_engine.data.loader import Loader
from encoder_engine.data.samples import Samples, cut_blocks
from encoder_engine.data.shards import Document, Vocabulary, write_corpus, write_shard
from encoder_engine.objectives.masking import Masking
from encoder_engine.objectives.objective import PretrainingModel, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt
    from torch import Tensor

    from encoder_engine.models.training_model import Inputs

SEED = 17
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
NUM_BLOCKS, SMOKE_BLOCKS = 512, 3
LONGEST_SENTENCE, LONGEST_DOCUMENT = 40, 30
# Of about so many right loaders one is refused.
ODDS = 1e9


@dataclass(frozen=True, kw_only=True)
class EpochCounts:
    """The token counts of one epoch.

    ``counts``: how often each id appears, with masked tokens restored. ``hidden``: the number of
    masked tokens; ``changed``: those of them that show another id. ``loss``: of the first step.
    """

    counts: Tensor
    hidden: int
    changed: int
    loss: float | None = None


def case_specs() -> list[CaseSpec]:
    """Return the one case."""
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
    samples = draw_samples(number, size.lengths[0], size.config["vocab_size"])
    batch_tokens = sum(size.lengths)
    model = make_model(size.config)
    first = next(_load(samples, batch_tokens, model))
    everything = samples.batch(np.arange(len(samples)))
    return Case(
        candidates=(
            ours(partial(_ours, samples, batch_tokens, model)),
            ours(
                partial(_training, samples, batch_tokens, model), "encoder-engine, the steps alone"
            ),
            candidate(
                PEER,
                partial(_theirs, samples, len(size.lengths), size.config["vocab_size"]),
                name="transformers' collator",
            ),
        ),
        gate=LoaderGate(
            vocab_size=size.config["vocab_size"],
            counts=np.bincount(everything.input_ids).tolist(),
            most_hidden=int((~everything.special).sum()),
            loss=LossesGate(truth=exact_losses(model, [first])[:1]),
        ),
        fingerprint=digest(dict(size.config), everything.input_ids.tolist()),
        seed=SEED,
        amounts={"tokens": len(everything.input_ids)},
    )


def draw_samples(number: int, length: int, vocab_size: int) -> Samples:
    """Write a drawn corpus of ``number`` blocks; its files stay mapped after deletion."""
    generator = np.random.default_rng(SEED)
    ids = generator.integers(len(SPECIAL_TOKENS), vocab_size, number * (length - 2))
    sentences = _cut(ids, LONGEST_SENTENCE, generator)
    documents = [Document(part) for part in _cut(sentences, LONGEST_DOCUMENT, generator)]
    vocabulary = Vocabulary(
        size=vocab_size, pad_id=0, cls_id=2, sep_id=3, mask_id=MASK_ID, fingerprint="drawn"
    )
    words = np.ones(vocab_size, np.bool_)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        shard = write_shard(Path(scratch), 0, documents, vocabulary)
        return cut_blocks(write_corpus(Path(scratch), [shard], vocabulary, words), length)


def _cut(items: Any, longest: int, generator: np.random.Generator) -> list[Any]:
    """Part a sequence into runs of 1 to ``longest`` items."""
    ends = np.cumsum(generator.integers(1, longest + 1, len(items)))
    borders = [0, *ends[ends < len(items)].tolist(), len(items)]
    return [items[begin:end] for begin, end in pairwise(borders)]


def _ours(samples: Samples, batch_tokens: int, model: PretrainingModel) -> Work:
    def load() -> list[Inputs]:
        return list(_load(samples, batch_tokens, model))

    return Work(call=load, answer=lambda: _look(load()))


def _look(batches: list[Inputs], loss: float | None = None) -> EpochCounts:
    """Restore the masked tokens from their labels, and count."""
    seen = torch.cat([inputs.batch.input_ids.long() for inputs in batches])
    restored = []
    for inputs in batches:
        assert inputs.rows is not None
        ids = inputs.batch.input_ids.long()
        rows = inputs.rows.rows[inputs.targets["rows"]]
        restored.append(ids.index_copy(0, rows, inputs.targets["labels"]))
    hidden = sum(len(inputs.targets["rows"]) for inputs in batches)
    return _compare(seen, torch.cat(restored), hidden, loss)


def _compare(seen: Tensor, restored: Tensor, hidden: int, loss: float | None = None) -> EpochCounts:
    return EpochCounts(
        counts=torch.bincount(restored),
        hidden=hidden,
        changed=int((seen != restored).sum()),
        loss=loss,
    )


def _training(samples: Samples, batch_tokens: int, model: PretrainingModel) -> Work:
    batches = list(_load(samples, batch_tokens, model))
    step = make_step(model)
    first_loss = make_step(model)(batches[0])

    def train() -> None:
        for inputs in batches:
            step(inputs)

    return Work(call=train, answer=lambda: _look(batches, first_loss))


def _load(samples: Samples, batch_tokens: int, model: PretrainingModel) -> Iterator[Inputs]:
    """Iterate over one epoch, until every block has appeared."""
    loader = Loader(samples=samples, batch_tokens=batch_tokens, seed=SEED)
    left = len(samples)
    for clean, _ in loader.batches():
        yield prepare(clean, model.objectives, seed=SEED)
        left -= len(clean.numbers)
        if not left:
            return


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
        collate_fn=DataCollatorForLanguageModeling(
            tokenizer, mlm_probability=Masking.mask_probability
        ),
    )

    def load() -> list[Mapping[str, Tensor]]:
        return list(batches)

    def answer() -> EpochCounts:
        seen, labels = [], []
        for batch in load():
            real = batch["attention_mask"].bool()
            seen.append(batch["input_ids"][real])
            labels.append(batch["labels"][real])
        flat, asked = torch.cat(seen), torch.cat(labels)
        chosen = asked != -100
        return _compare(flat, torch.where(chosen, asked, flat), int(chosen.sum()))

    return Work(call=load, answer=answer)


def _row(samples: Samples, place: int) -> dict[str, list[int]]:
    """Return a block in the form of transformers' scripts, with its special tokens marked."""
    block = samples.batch(np.array([place]))
    special: npt.NDArray[np.int64] = block.special.astype(np.int64)
    return {"input_ids": block.input_ids.tolist(), "special_tokens_mask": special.tolist()}


@dataclass(frozen=True, kw_only=True)
class LoaderGate:
    """Check that every token appears as often as in the corpus, and masking at a plausible rate."""

    vocab_size: int
    counts: list[int]
    most_hidden: int
    loss: LossesGate

    def __call__(self, epoch: EpochCounts) -> Verdict:
        changing = Masking.mask_share + Masking.random_share * (1 - 1 / self.vocab_size)
        figures = {
            "hidden_share": epoch.hidden / self.most_hidden,
            "changed_share": epoch.changed / max(epoch.hidden, 1),
        }
        reasons = []
        if epoch.counts.tolist() != self.counts:
            reasons.append("the batches hold other tokens than the corpus")
        if not _likely(epoch.hidden, self.most_hidden, Masking.mask_probability):
            reasons.append(f"{epoch.hidden} of {self.most_hidden} tokens are hidden")
        if not _likely(epoch.changed, epoch.hidden, changing):
            reasons.append(f"{epoch.changed} of {epoch.hidden} hidden tokens look otherwise")
        if epoch.loss is not None:
            verdict = self.loss([epoch.loss])
            figures |= verdict.figures
            reasons += [verdict.reason] if verdict.reason else []
        return Verdict(passed=not reasons, figures=figures, reason="; ".join(reasons) or None)


def _likely(number: int, tries: int, chance: float) -> bool:
    """Return whether a binomial count is plausible; fails for one right count in ``ODDS``."""
    most: float = NormalDist().inv_cdf(1 - 0.5 / ODDS)
    spread = math.sqrt(tries * chance * (1 - chance))
    return abs(number - tries * chance) <= most * spread
