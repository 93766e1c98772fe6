"""The memory of a long run over time, as ``python -m benchmarks million`` finds it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SUFFIX = "-resident.json"


@dataclass(frozen=True, kw_only=True)
class Resident:
    """Resident memory of a long run: ``mib`` at each of ``seconds``.

    ``again_seconds``: the time of repeating the command, with all ``rows`` already embedded.
    """

    device: str
    rows: int
    seconds: Sequence[float]
    mib: Sequence[float]
    again_seconds: float

    @property
    def trend(self) -> float:
        """Growth of resident memory over the second half of the run, as a share of the peak.

        NaN for a run so short that there are no two measurements in it.
        """
        half = np.asarray(self.mib[len(self.mib) // 2 :])
        if len(half) < 2:
            return float("nan")
        slope = np.polyfit(np.arange(len(half)) / len(half), half, 1)[0]
        return float(slope / max(self.mib))


def read_residents(folder: Path) -> Iterator[Resident]:
    """Read the records of all devices."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        content = json.loads(path.read_text("utf-8"))
        yield Resident(
            device=path.name.removesuffix(SUFFIX),
            rows=content["rows"],
            seconds=content["seconds"],
            mib=content["mib"],
            again_seconds=content["again"]["total"],
        )


def write_resident(resident: Resident, folder: Path) -> None:
    """Write a device's record, replacing an older one."""
    content = {
        "rows": resident.rows,
        "again": {"total": resident.again_seconds},
        "seconds": list(resident.seconds),
        "mib": list(resident.mib),
    }
    path = folder / f"{resident.device}{SUFFIX}"
    path.write_text(json.dumps(content) + "\n", "utf-8")
