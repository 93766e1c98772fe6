"""Data classes: a case, the candidates that do its work, the verdict of its correctness gate."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Role = Literal["ours", "peer"]
Settings = Mapping[str, Any]
Call = Callable[[], Any]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict of a gate; ``figures`` are recorded either way, ``reason`` says why it failed."""

    passed: bool
    figures: Mapping[str, float] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Work:
    """Two functions of a candidate: ``call`` is timed, and the result of ``answer`` is judged."""

    call: Call
    answer: Call


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to do a case's work.

    - ``build(**settings)`` loads the model and returns the call to time, whose result the gate
      judges, or a :class:`Work`.
    - ``tune()`` runs first, in its own process, and returns the settings. ``build`` has a default
      for each setting.
    - ``unavailable``: the reason why the candidate cannot take part.
    - ``libraries``: the distributions whose versions are recorded.
    - ``python``: the interpreter of another environment, for a process of the candidate's own.
    - ``versions``: the distributions of that environment.
    - ``keep_slow``: time the candidate in all rounds even if it is far behind, because a target
      compares with it.

    In an isolated case ``build`` and ``tune`` must be picklable: module functions, or partials.
    """

    name: str
    role: Role
    build: Callable[..., Call | Work]
    tune: Callable[[], Settings] | None = None
    unavailable: str | None = None
    libraries: tuple[str, ...] = ()
    python: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    keep_slow: bool = False


def ours(
    build: Callable[..., Call | Work], name: str = "encoder-engine", **options: Any
) -> Candidate:
    """Return a candidate of the engine for a case's work."""
    return Candidate(name=name, role="ours", build=build, **options)


def digest(*inputs: object) -> str:
    """Hash the printed form of inputs; it must differ where the inputs do."""
    text = repr(inputs[0] if len(inputs) == 1 else inputs)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A piece of work that every candidate does.

    - ``gate`` judges an output before anything is timed.
    - ``amounts``: what one call processes (``{"documents": 1000, "tokens": 41800}``), from which
      throughput follows.
    - ``ceilings``: the machine's peak rates of some amounts, measured before and after the rounds.
    - ``fingerprint`` identifies the inputs: results of different inputs are never compared.
    - ``isolated``: every candidate runs in its own process, for a peak memory of its own.
    - ``fresh``: every sample is the first call of a new process; memory is what it left resident.
    - ``single``: a sample is one call after an untimed one, however short. With many rounds, the
      tail of the distribution is visible.
    - ``host_time``: a call ends with its result on the host, and its time is the host's, launches
      included, on a GPU too.
    """

    candidates: tuple[Candidate, ...]
    gate: Callable[[Any], Verdict]
    fingerprint: str
    seed: int
    amounts: Mapping[str, int] = field(default_factory=dict)
    ceilings: Mapping[str, Callable[[], float]] = field(default_factory=dict)
    device: str = "cpu"
    isolated: bool = False
    fresh: bool = False
    single: bool = False
    host_time: bool = False
    rounds: int = 7
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a run, which every case gets.

    ``smoke``: the smallest sizes, to see that it works.
    ``quick``: fewer texts and rounds where they take minutes, for a first answer, and no models
    that torch compiles.
    ``compiles``: peers that torch compiles take part; each model takes half a minute to five.
    """

    device: str = "cpu"
    threads: int = 1
    smoke: bool = False
    quick: bool = False
    compiles: bool = True

    @property
    def why_uncompiled(self) -> str | None:
        """Return why a peer that torch compiles cannot take part, or None."""
        if self.smoke:
            return "a smoke run compiles nothing"
        return None if self.compiles else "it was left out: torch compiles it, for minutes"

    @property
    def why_no_compiled_model(self) -> str | None:
        """Return why a peer that torch compiles a whole model for cannot take part, or None."""
        if self.quick:
            return "a quick run compiles no model: each takes half a minute to five"
        return self.why_uncompiled


@dataclass(frozen=True, kw_only=True)
class CaseSpec:
    """A case by name, which is made only when it runs.

    ``devices``: where it can run.
    ``module``: the module that lists it; the registry sets it.
    """

    name: str
    summary: str
    make: Callable[[Options], Case]
    devices: tuple[str, ...] = ("cpu",)
    module: str = ""
    unavailable: Callable[[], str | None] = lambda: None

    def case(self, options: Options) -> Case:
        """Make the case, under its name."""
        return replace(self.make(options), name=self.name)


@dataclass(frozen=True, kw_only=True)
class EmbeddingJob:
    """Texts to embed with the model in ``directory``, cut after ``max_length`` tokens each.

    ``precision``: the class of results that are compared, see
    :data:`encoder_engine.embedding.accuracy.COSINE_CLASSES`.
    ``device``: ``"cpu"`` or ``"cuda"``, which a peer of the cases of a GPU computes on.
    ``classified``: the model is a classifier; the vectors are the probabilities of its labels.
    """

    directory: str
    texts: tuple[str, ...]
    max_length: int
    threads: int
    precision: str = "float32"
    device: str = "cpu"
    classified: bool = False
