"""Other libraries for the same work; every module in the folder lists its libraries in ``PEERS``.

A library that is not installed is recorded as skipped.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.environments import environment
from benchmarks.jobs.tokenizing import Form, Load, Model, TokenizerJob, build
from benchmarks.measuring.case import Call, Candidate, EmbeddingJob, Options, Settings
from benchmarks.measuring.tuning import fastest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


# Texts, at least, that the best batch size is found on.
NUM_TUNED = 128
# A quick run looks for nobody's best batch size, which takes as long as all else: this one is the
# most frequent among them.
QUICK_BATCH = 8


@dataclass(frozen=True, kw_only=True)
class EmbeddingPeer:
    """One way in which a library embeds texts.

    ``load(job)`` returns a function that embeds the texts of an :class:`EmbeddingJob` in batches
    of a given size. Tuning chooses the fastest of ``batch_sizes``. ``keep_slow``: see
    :class:`~benchmarks.measuring.case.Candidate`. ``compiled``: torch compiles the model, which
    takes up to minutes.
    """

    name: str
    load: Callable[[EmbeddingJob], Callable[[int], Any]]
    batch_sizes: tuple[int, ...]
    precisions: frozenset[str] = frozenset({"float32"})
    keep_slow: bool = False
    compiled: bool = False

    def build(self, job: EmbeddingJob, *, batch_size: int | None = None) -> Call:
        """Load the model; a call embeds all texts."""
        return partial(self.load(job), batch_size or self.batch_sizes[0])

    def tune(self, job: EmbeddingJob) -> Settings:
        """Find the fastest batch size on some of the job's texts, evenly spread."""
        some = replace(job, texts=job.texts[:: max(1, len(job.texts) // NUM_TUNED)])
        return {"batch_size": fastest(self.batch_sizes, self.load(some))}


@dataclass(frozen=True, kw_only=True)
class TokenizerPeer:
    """A library's tokenizer; ``load`` takes a :class:`TokenizerJob` with one of ``forms``.

    ``models``: the kinds of vocabulary that it reads.
    ``by_pieces``: it reads the SentencePiece model instead of the tokenizer.json.
    """

    load: Load
    forms: frozenset[Form]
    models: frozenset[Model]
    by_pieces: bool = False


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A library. ``modules`` maps each module that it needs to the distribution that has it.

    ``environment``: the one of ``benchmarks/environments`` that it runs in, where that is set up.
    ``only_there``: it runs nowhere else, because here its name belongs to another version.
    """

    name: str
    modules: Mapping[str, str]
    embedding: tuple[EmbeddingPeer, ...] = ()
    tokenizing: TokenizerPeer | None = None
    environment: str | None = None
    only_there: bool = False

    def python(self) -> str | None:
        """Return the interpreter of the peer's own environment; None: it runs in this one."""
        if self.environment is None or environment(self.environment).unavailable() is not None:
            return None
        return str(environment(self.environment).python)

    def versions(self) -> dict[str, str]:
        """Return the library's version in its own environment; empty: it runs in this one."""
        if self.environment is None or self.python() is None:
            return {}
        found = environment(self.environment).found
        return {self.name: ", ".join(found[name] for name in self.modules.values())}

    def available(self) -> str | None:
        """Return the reason why the peer is unavailable, or None."""
        if self.python() is not None:
            return None
        if self.only_there and self.environment is not None:
            return environment(self.environment).unavailable()
        missing = [
            distribution
            for module, distribution in self.modules.items()
            if importlib.util.find_spec(module) is None
        ]
        if not missing:
            return None
        if self.environment is not None:
            return environment(self.environment).unavailable()
        return f"{', '.join(missing)} not installed; pip install '.[bench]'"


def embedding_library(name: str, modules: Mapping[str, str], *ways: EmbeddingPeer) -> Peer:
    """Return a peer that runs in the environment "embedding" alone; ``ways``: how it embeds."""
    return Peer(
        name=name, modules=modules, embedding=ways, environment="embedding", only_there=True
    )


def find_peers() -> list[Peer]:
    """Return all peers, in the order of their names."""
    modules = [
        importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)
    ]
    return sorted((peer for m in modules for peer in m.PEERS), key=lambda peer: peer.name.lower())


def candidate(
    peer: Peer,
    build: Callable[..., Any],
    *,
    name: str = "",
    unavailable: str | None = None,
    libraries: tuple[str, ...] = (),
    **options: Any,
) -> Candidate:
    """Return a library's candidate for a case, named like the library by default.

    ``libraries``: further distributions whose versions are recorded.
    """
    python = peer.python()
    return Candidate(
        name=name or peer.name,
        role="peer",
        build=build,
        unavailable=unavailable or peer.available(),
        libraries=() if python else (*peer.modules.values(), *libraries),
        python=python,
        versions=peer.versions(),
        **options,
    )


def embedding_candidates(job: EmbeddingJob, options: Options) -> list[Candidate]:
    """Return every peer's candidates for embedding texts in the job's precision."""
    return embedding_ways(find_peers(), job, options)


def embedding_ways(peers: Iterable[Peer], job: EmbeddingJob, options: Options) -> list[Candidate]:
    """Return the candidates of some peers for embedding texts in the job's precision."""
    return [
        candidate(
            peer,
            partial(way.build, job, batch_size=QUICK_BATCH)
            if options.quick and len(way.batch_sizes) > 1
            else partial(way.build, job),
            name=way.name,
            tune=None if options.quick or len(way.batch_sizes) == 1 else partial(way.tune, job),
            unavailable=peer.available()
            or (options.why_no_compiled_model if way.compiled else None),
            keep_slow=way.keep_slow,
        )
        for peer in peers
        for way in peer.embedding
        if job.precision in way.precisions
    ]


def tokenizer_candidates(job: TokenizerJob) -> list[Candidate]:
    """Return every peer's candidate; one that lacks the job's form is marked unavailable."""
    return [
        candidate(
            peer,
            partial(build, peer.tokenizing.load, job, modules=tuple(peer.modules)),
            unavailable=_lacks(peer.tokenizing, job),
        )
        for peer in find_peers()
        if peer.tokenizing is not None
    ]


def _lacks(way: TokenizerPeer, job: TokenizerJob) -> str | None:
    if job.form not in way.forms:
        return f"it gives no {job.form}"
    if job.model not in way.models:
        return f"it reads no {job.model}"
    if way.by_pieces and job.pieces is None:
        return "it reads SentencePiece models only"
    return None
