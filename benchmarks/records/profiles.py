"""Profiles of the engine from text to vectors, as ``python -m benchmarks profile`` writes them."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SUFFIX = "-profiles.json"
PRODUCTS, ATTENTION, TOKENIZATION = "dense products", "attention", "tokenization"
NORMS, ENDS, OTHERS = "norms, activations, quantization", "embedding, pooling", "other operations"
# An operation of recorded profiles that there is no more.
FORMER_PRODUCT = "packed_linear"
# What the operations of an encoder are for. GELU in the epilogue of a product is part of that.
PARTS = {
    "linear": PRODUCTS,
    FORMER_PRODUCT: PRODUCTS,
    "quantized_linear": PRODUCTS,
    "requantized_linear": PRODUCTS,
    "attention": ATTENTION,
    "layer_norm": NORMS,
    "layer_norm_quantized": NORMS,
    "rms_norm": NORMS,
    "quantize_rows": NORMS,
    "bias_gelu": NORMS,
    "embedding": ENDS,
    "pooling": ENDS,
}


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The profile of a call: ``seconds`` as users call it, ``watched`` with timed operations.

    ``parts``: the parts of ``watched``, in seconds. ``floor``: the time of the GEMMs at ``ceiling``
    operations per second. ``other_cores``: as in :class:`~benchmarks.records.results.Result`.
    """

    device: str
    time_utc: str
    commit: str
    dirty: bool | None
    case: str
    threads: int
    tokens: int
    seconds: float
    watched: float
    parts: Mapping[str, float]
    floor: float
    ceiling: float
    other_cores: float | None

    @property
    def rest(self) -> float:
        """Seconds of ``watched`` that no part accounts for: Python, batches, reading results."""
        return self.watched - sum(self.parts.values())


def read_profiles(folder: Path) -> Iterator[Profile]:
    """Read the profiles of all devices."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        for values in json.loads(path.read_text("utf-8")):
            yield Profile(**values)


def write_profile(profile: Profile, folder: Path) -> None:
    """Write a profile, replacing an older one of the same device, case and threads."""
    kept = [
        other
        for other in read_profiles(folder)
        if other.device == profile.device
        and (other.case, other.threads) != (profile.case, profile.threads)
    ]
    content = [dataclasses.asdict(one) for one in (*kept, profile)]
    path = folder / f"{profile.device}{SUFFIX}"
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
