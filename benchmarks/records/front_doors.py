"""Records the times of README's two commands in a fresh clone: one record per device."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SUFFIX = "-front-door.json"


@dataclass(frozen=True, kw_only=True)
class FrontDoor:
    """Seconds of the two commands, set-up included; ``installed_mb``: by name of distribution."""

    device: str
    time_utc: str
    commit: str
    run_seconds: float
    test_seconds: float
    installed_mb: Mapping[str, float]


def read_front_doors(folder: Path) -> Iterator[FrontDoor]:
    """Read the records of all devices."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        yield FrontDoor(**json.loads(path.read_text("utf-8")))


def write_front_door(found: FrontDoor, folder: Path) -> None:
    """Write a device's record, replacing an older one."""
    path = folder / f"{found.device}{SUFFIX}"
    path.write_text(json.dumps(dataclasses.asdict(found), indent=1) + "\n", "utf-8")
