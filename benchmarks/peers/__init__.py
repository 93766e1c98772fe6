"""Other libraries that do the same work, one file each; a file's name makes it known.

A file holds ``PEER``. One that is not installed is skipped, and says so in every result.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.case import Call, Candidate, EmbeddingJob, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, kw_only=True)
class EmbeddingPeer:
    """One way in which a library embeds texts; both functions take an :class:`EmbeddingJob`."""

    name: str
    build: Callable[..., Call]
    tune: Callable[[EmbeddingJob], Settings] | None = None


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A library. ``modules`` maps each module it needs to the distribution that brings it."""

    name: str
    modules: Mapping[str, str]
    embedding: tuple[EmbeddingPeer, ...] = field(default=())

    def available(self) -> str | None:
        """Return None, or the reason why it cannot take part."""
        missing = [
            distribution
            for module, distribution in self.modules.items()
            if importlib.util.find_spec(module) is None
        ]
        if not missing:
            return None
        return f"{', '.join(missing)} not installed; pip install 'encoder-engine[bench]'"


def find_peers() -> list[Peer]:
    """Load every peer, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [importlib.import_module(f"{__name__}.{name}").PEER for name in names]


def embedding_candidates(job: EmbeddingJob) -> list[Candidate]:
    """Return every peer's ways to embed texts."""
    return [
        Candidate(
            name=way.name,
            role="peer",
            build=partial(way.build, job),
            tune=None if way.tune is None else partial(way.tune, job),
            unavailable=peer.available(),
            libraries=tuple(peer.modules.values()),
        )
        for peer in find_peers()
        for way in peer.embedding
    ]
