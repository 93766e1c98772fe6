"""Ten epochs of a head on a frozen encoder, compared with a loop over transformers' model.

The engine computes each row once and trains the head on what it kept; the peer, which trains no
weight of the encoder either, computes each row once an epoch.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.cases.finetuning import (
    SETS,
    Course,
    make_course,
    make_work,
    missing_rows,
    take_steps,
    their_work,
)
from benchmarks.measuring.case import Candidate, Case, CaseSpec, Options, Work
from benchmarks.peers.transformers import PEER
from encoder_engine.finetuning.frozen import with_features

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCHS = 10
SST2 = SETS["sst2"]


def case_specs() -> list[CaseSpec]:
    """Return the case."""
    return [
        CaseSpec(
            name="finetuning/frozen",
            summary=f"{EPOCHS} epochs of 256 rows of sst2, MiniLM frozen, float32",
            make=make_case,
            unavailable=partial(missing_rows, SST2),
        )
    ]


def make_case(options: Options) -> Case:
    """Read the rows, and make the model that all candidates begin with."""
    course = make_course(replace(SST2, settings=("model.train=head",)), options)
    return course.make_case(
        "frozen",
        [
            Candidate(name="encoder-engine", role="ours", build=partial(_ours, course)),
            Candidate(
                name="transformers, a loop",
                role="peer",
                unavailable=PEER.available(),
                libraries=("transformers",),
                build=partial(their_work, course, course.cut * EPOCHS),
            ),
        ],
        epochs=EPOCHS,
    )


def _ours(course: Course) -> Work:
    used = replace(course.data, train_items=course.data.train_items.take(course.numbers))
    cut = np.split(np.arange(len(course.numbers)), len(course.cut))

    def make(epochs: int) -> Callable[[], list[float]]:
        model = copy.deepcopy(course.model).train()

        def steps() -> list[float]:
            tokens = course.recipe.batch.micro_tokens
            kept = replace(course, data=with_features(used, model, batch_tokens=tokens))
            return take_steps(model, partial(kept.batches, cut * epochs), course.recipe)()

        return steps

    return make_work(partial(make, EPOCHS), partial(make, 1))
