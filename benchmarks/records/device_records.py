"""Records that a device has one of: a long run's memory over time, and README's commands timed."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

RESIDENT, FRONT_DOOR = "-resident.json", "-front-door.json"


@dataclass(frozen=True, kw_only=True)
class Resident:
    """Resident memory of ``python -m benchmarks million``: ``mib`` at each of ``seconds``.

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


@dataclass(frozen=True, kw_only=True)
class FrontDoor:
    """Seconds of the two commands, set-up included; ``installed_mb``: by name of distribution."""

    device: str
    time_utc: str
    commit: str
    run_seconds: float
    test_seconds: float
    installed_mb: Mapping[str, float]


def read_residents(folder: Path) -> Iterator[Resident]:
    """Read the records of all devices."""
    for path in sorted(folder.glob(f"*{RESIDENT}")):
        content = json.loads(path.read_text("utf-8"))
        yield Resident(
            device=path.name.removesuffix(RESIDENT),
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
    path = folder / f"{resident.device}{RESIDENT}"
    path.write_text(json.dumps(content) + "\n", "utf-8")


def read_front_doors(folder: Path) -> Iterator[FrontDoor]:
    """Read the records of all devices."""
    for path in sorted(folder.glob(f"*{FRONT_DOOR}")):
        yield FrontDoor(**json.loads(path.read_text("utf-8")))


def write_front_door(visit: FrontDoor, folder: Path) -> None:
    """Write a device's record, replacing an older one."""
    path = folder / f"{visit.device}{FRONT_DOOR}"
    path.write_text(json.dumps(dataclasses.asdict(visit), indent=1) + "\n", "utf-8")
