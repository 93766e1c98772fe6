"""Writes the 100 slowest tests, ``tests/slowest.json``, from the times of the last ``make test``.

``make test && .venv/bin/python -m tests.slowest``. The times are of one machine on one day: they
say what to make faster or to mark, and nothing is held to them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests import ROOT

TIMES = ROOT / "build" / "tests.xml"
TABLE = Path(__file__).with_suffix(".json")
NUM_TESTS = 100


def read_times(path: Path) -> dict[str, float]:
    """Map tests, as pytest names them, to seconds; the cases of a test are added up."""
    seconds: dict[str, float] = {}
    for case in ElementTree.parse(path).iter("testcase"):
        module = case.get("classname", "").replace(".", "/")
        name = f"{module}.py::{case.get('name', '').partition('[')[0]}"
        seconds[name] = seconds.get(name, 0.0) + float(case.get("time", 0.0))
    return seconds


def main() -> int:
    """Write the table."""
    if not TIMES.is_file():
        sys.stderr.write(f"{TIMES} is not there: make test writes it\n")
        return 1
    times = sorted(read_times(TIMES).items(), key=lambda entry: -entry[1])[:NUM_TESTS]
    table = {name: round(seconds, 1) for name, seconds in times}
    TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
