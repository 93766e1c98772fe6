"""What is measured, as values: cases, their candidates, and the verdict of a correctness gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["ours", "peer"]
Settings = Mapping[str, Any]
Call = Callable[[], Any]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the gate found: ``figures`` are recorded either way, ``reason`` says why it failed."""

    passed: bool
    figures: Mapping[str, float] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Work:
    """A call to time whose own result is not what the gate judges: that is ``answer()``'s."""

    call: Call
    answer: Call


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to do a case's work.

    ``build(**settings)`` loads what is needed and returns the call that is timed, whose return
    value the gate judges, or a :class:`Work`. ``tune()``, where there is one, runs first, in a
    process of its own, and returns the settings; ``build`` has a default for each. ``unavailable``
    is the reason why the candidate cannot take part, and ``libraries`` are the distributions whose
    versions are recorded. In an isolated case ``build`` and ``tune`` must be picklable: functions
    of a module, or partials of them. ``python``: the interpreter of another environment that it
    runs in, in a process of its own whatever the case; ``versions``: what that environment holds.
    ``keep_slow``: it is timed to the end even if it is far behind, since a target is held to it.
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


@dataclass(frozen=True, kw_only=True)
class Case:
    """The same work for every candidate.

    ``gate`` judges an output before anything is timed. ``amounts`` is how much one call does
    (``{"documents": 1000, "tokens": 41800}``), from which throughput follows; of those in
    ``ceilings`` this machine does at most so many a second, as is measured before and after the
    rounds. ``fingerprint`` identifies the inputs: results of different inputs are never compared.
    ``isolated``: every candidate lives in a process of its own, so that its peak memory is its own.
    ``fresh``: every sample is the first call of a new process, and its memory is what that call
    left resident. ``single``: a sample is one call, right after another that is not timed, however
    short; with many rounds its tail can be seen.

    Of an isolated case: ``memory_limit_gib`` is what the process of a candidate may hold at most,
    and half of the machine's memory is; one that needs more has failed, and the others go on.
    ``call_memory``: its memory is what a call adds, not all of its process.
    """

    name: str
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
    memory_limit_gib: float | None = None
    call_memory: bool = False
    rounds: int = 7


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a run asks of every case.

    ``smoke``: the smallest sizes, to see that it works. ``quick``: fewer texts or rounds where
    they take minutes, for a first answer. ``compiles``: peers that are compiled by torch, for half a
    minute each, take part.
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
        return None if self.compiles else "it was left out: torch compiles it for half a minute"


@dataclass(frozen=True, kw_only=True)
class CaseSpec:
    """A case by name, made only when it runs. ``devices``: where it makes sense."""

    name: str
    summary: str
    make: Callable[[Options], Case]
    devices: tuple[str, ...] = ("cpu",)
    unavailable: Callable[[], str | None] = lambda: None


@dataclass(frozen=True, kw_only=True)
class EmbeddingJob:
    """Texts to embed with the model in ``directory``, at most ``max_length`` tokens of each.

    ``precision``: the class of results that are compared, see
    :data:`encoder_engine.embedding.accuracy.COSINE_CLASSES`.
    """

    directory: str
    texts: tuple[str, ...]
    max_length: int
    threads: int
    precision: str = "float32"
