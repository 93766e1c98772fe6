"""A forward pass with the statistics of all attention heads, over a plain one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.cases.embedding import minilm_directory, why_not
from benchmarks.measuring.case import Case, CaseSpec, Options, Verdict, ours
from benchmarks.measuring.measure import MIN_ROUNDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from benchmarks.measuring.case import Call
    from encoder_engine.analysis.subject import Subject
    from encoder_engine.packing import PackedBatch

# Tokens of a text, and of all texts of a call.
LENGTHS, TOKENS = (128, 512), 1024
SEED = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class AgreementGate:
    """Compare the last entropy, or the last states, with those of the weights themselves.

    ``allowed``: twice the error of matrices of weights in float32, by the numeric budget.
    """

    truth: Mapping[str, npt.NDArray[np.float64]]
    allowed: Mapping[str, float]

    def __call__(self, output: Any) -> Verdict:
        name, found = output
        error = float(np.abs(np.asarray(found, np.float64) - self.truth[name]).max())
        passed = error <= self.allowed[name]
        reason = None if passed else f"the {name} differs by {error:.2g}"
        return Verdict(passed=passed, figures={"largest_error": error}, reason=reason)


def case_specs() -> list[CaseSpec]:
    """Return a case for each length."""
    return [
        CaseSpec(
            name=f"heads/statistics-{length}",
            summary=f"{TOKENS // length} texts of {length} tokens through MiniLM, float32",
            make=partial(make_case, length),
            unavailable=partial(why_not, "bundled"),
        )
        for length in LENGTHS
    ]


def make_case(length: int, options: Options) -> Case:
    """Draw texts of token ids, and compute the truth in float64 from whole matrices of weights."""
    size = 16 if options.smoke else length
    num_texts = 2 if options.smoke else TOKENS // size
    drawn = np.random.default_rng(SEED).integers(1000, 29_000, (num_texts, size)).tolist()
    subject, batch = _load(drawn)
    rounded = _by_matrices(subject, batch)
    subject.encoder.double()
    truth = _by_matrices(subject, batch)
    allowed = {name: 2.0 * float(np.abs(rounded[name] - truth[name]).max()) for name in truth}
    return Case(
        candidates=(
            ours(partial(build_statistics, drawn), "encoder-engine, statistics"),
            ours(partial(build_forward, drawn), "encoder-engine, a forward pass", keep_slow=True),
        ),
        gate=AgreementGate(truth=truth, allowed=allowed),
        fingerprint=f"seed {SEED}, {num_texts} x {size}",
        seed=SEED,
        amounts={"tokens": num_texts * size},
        rounds=MIN_ROUNDS,
    )


def _by_matrices(subject: Subject, batch: PackedBatch) -> dict[str, npt.NDArray[np.float64]]:
    """Return the last block's entropy and states from whole matrices of weights."""
    import torch

    with torch.no_grad():
        output = subject.encoder(batch, output_attentions=True, output_pooled=False)
        entropy = torch.special.entr(output.attentions[-1]).sum(3).transpose(1, 2).flatten(0, 1)
    return {
        "entropy": entropy.double().numpy(),
        "state": output.last_hidden_state.double().numpy(),
    }


def build_statistics(rows: list[list[int]]) -> Call:
    """Return a call that computes the statistics of every head."""
    import torch

    subject, batch = _load(rows)
    marks = torch.zeros(batch.sequences.num_tokens, 3, dtype=torch.bool)
    return lambda: (
        "entropy",
        subject.encoder.attention_statistics(batch, marks)[-1].entropy_TH.numpy(),
    )


def build_forward(rows: list[list[int]]) -> Call:
    """Return a call that computes the states alone."""
    import torch

    subject, batch = _load(rows)

    def compute() -> tuple[str, Any]:
        with torch.no_grad():
            output = subject.encoder(batch, output_pooled=False)
        return "state", output.last_hidden_state.numpy()

    return compute


def _load(rows: list[list[int]]) -> tuple[Subject, PackedBatch]:
    from encoder_engine.analysis.subject import Subject
    from encoder_engine.packing import pack

    return Subject.from_pretrained(minilm_directory(), "cpu"), pack(rows)
