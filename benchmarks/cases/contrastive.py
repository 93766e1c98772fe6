"""Steps of contrastive training, compared with sentence-transformers' model and loss.

Both have the same checkpoint, pairs, order and optimizer, no dropout, and in-batch negatives
(``MultipleNegativesRankingLoss``). No text occurs twice in the training rows, because the losses
treat copies of a positive differently: the engine leaves them out of the denominator,
sentence-transformers counts them as negatives.
"""

from __future__ import annotations

import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.cases.finetuning import (
    QUICK_STEPS,
    STEPS,
    Course,
    Rows,
    make_course,
    make_work,
    our_work,
    padded,
    plain_loop,
)
from benchmarks.measuring.case import Case, CaseSpec, Options, Work, ours
from benchmarks.peers import candidate
from benchmarks.peers.sentence_transformers import PEER
from benchmarks.texts.vocabularies import minilm_missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from encoder_engine.finetuning.data import TaskData

# The usual scale of 20 makes these losses, of pairs that MiniLM knows, 1e-5: too small to compare.
SCALE = 1.0
PAIRS = Rows(
    recipe="embedding",
    drawn="pairs",
    settings=("data.quoting=false", "task.loss=in_batch", f"task.scale={SCALE:g}"),
)


def case_specs() -> list[CaseSpec]:
    """Return the case."""
    return [
        CaseSpec(
            name="finetuning/contrastive",
            summary=f"{STEPS} steps ({QUICK_STEPS} in a quick run) of 32 pairs as long as stsb's, "
            "in-batch negatives, MiniLM, float32",
            make=make_case,
            unavailable=minilm_missing,
        )
    ]


def make_case(options: Options) -> Case:
    """Make the case: read the pairs, and make the model that all candidates begin with."""
    course = make_course(PAIRS, options, _without_copies)
    return course.make_case(
        [
            ours(partial(our_work, course)),
            candidate(PEER, partial(_theirs, course), name="sentence-transformers, a loop"),
        ],
    )


def _without_copies(data: TaskData, order: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the rows of ``order`` with one positive, no text of which occurred in a row before."""
    seen: set[str] = set()
    chosen = []
    for number in order.tolist():
        example = data.train.examples[number]
        texts = {example.query, *example.documents}
        if len(texts) == 2 and not texts & seen:
            chosen.append(number)
        seen |= texts
    return np.array(chosen)


def _theirs(course: Course) -> Work:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    def make() -> Callable[[], list[float]]:
        with tempfile.TemporaryDirectory() as folder:
            course.model.save_pretrained(folder)
            course.data.tokenizer.save(folder)
            theirs: Any = SentenceTransformer(folder, device="cpu")
        theirs.train()
        loss = MultipleNegativesRankingLoss(theirs, scale=SCALE)
        rows = [course.data.train_items.take(numbers).rows for numbers in course.cut]
        # A pair's texts follow one another.
        sides = [
            [padded(part.take(np.arange(side, len(part), 2))) for side in (0, 1)] for part in rows
        ]

        def losses() -> Iterator[torch.Tensor]:
            for queries, documents in sides:
                # The loss writes into what it is given.
                yield loss([dict(queries), dict(documents)], None)

        return plain_loop(theirs, losses)

    return make_work(make)
