"""Runs lint beside the unit tests, and fails where both take longer than three minutes.

``python -m tests.check make lint``: the arguments are the command that lints. ``make check``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests import ROOT

LIMIT_SECONDS = 180.0
UNIT_TESTS = (
    *(sys.executable, "-m", "pytest", "-q", "-n", "logical", "--dist", "worksteal"),
    *("-m", "not slow and not exhaustive"),
)


def run(lint: list[str], tests: tuple[str, ...] = UNIT_TESTS, limit: float = LIMIT_SECONDS) -> int:
    """Run both at once; return 0 where both pass within the limit."""
    begin = time.monotonic()
    # A process a core: threads of PyTorch in each would take turns.
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        lint, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as linting:
        tested = subprocess.run(tests, cwd=ROOT, env=one_thread, check=False).returncode
        printed, _ = linting.communicate()
    sys.stdout.write(printed)
    seconds = time.monotonic() - begin
    wrong = [
        *(["lint fails"] if linting.returncode else []),
        *(["unit tests fail"] if tested else []),
        *([f"it may take {limit:.0f} s: mark what is slow"] if seconds > limit else []),
    ]
    sys.stdout.write(f"check: {seconds:.0f} s; {'; '.join(wrong) or 'passed'}\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
