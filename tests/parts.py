"""Runs one part of the chosen tests: ``pytest -p tests.parts --part 0/4``.

A GPU machine has many cores and no pytest-xdist; compiling kernels is what takes the time there.
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--part", default="0/1", help="PLACE/COUNT, PLACE from 0.")


def part_of(number: int, part: str) -> slice:
    """Return the places of a part: neighbours, which share kernels, stay together."""
    place, count = map(int, part.split("/"))
    return slice(number * place // count, number * (place + 1) // count)


# After pytest has left out what ``-m`` leaves out.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the part."""
    items[:] = items[part_of(len(items), config.getoption("--part"))]
