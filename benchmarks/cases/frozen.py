"""Ten epochs of a head on a frozen encoder, compared with a loop over transformers' model.

The engine computes each row once and trains the head on what it kept; the peer, which trains no
weight of the encoder either, computes each row once an epoch.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from benchmarks.cases.finetuning import SETS, make_course, missing_rows, our_work, their_work
from benchmarks.measuring.case import Candidate, Case, CaseSpec, Options
from benchmarks.peers.transformers import PEER

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
    rows = replace(SST2, settings=("model.train=head",))
    course = make_course(rows, options, epochs=EPOCHS)
    return course.make_case(
        "frozen",
        [
            Candidate(name="encoder-engine", role="ours", build=partial(our_work, course)),
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
