"""The library's versions 0.23 and 1.0 encode the same through the engine.

Version 1.0 has an environment of its own, which ``make test-all`` makes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.text.formats.test_any_pipeline import NORMALIZERS, make, unigram, wordpiece, write
from tests.text.formats.test_library import TEXTS, make_modernbert, make_roberta, make_sequence
from tests.text.parity.library_versions import describe

# The benchmarks' environment of the same name.
VERSION = f"py{sys.version_info.major}.{sys.version_info.minor}"
PEERS = Path(os.environ.get("ENCODER_ENGINE_PEERS") or ROOT / ".peers")
PYTHON = PEERS / f"tokenizers-1-{VERSION}" / "bin" / "python"
pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(
        not PYTHON.is_file(), reason="tokenizers 1.0 is missing: python -m benchmarks peers --setup"
    ),
]


def test_version_1_encodes_as_version_0(tmp_path: Path) -> None:
    # These are BPE, which the engine encodes itself.
    own = [make_roberta(tmp_path), make_modernbert(tmp_path), make_sequence(tmp_path)]
    paths = [*own]
    for name in NORMALIZERS:
        for kind in (wordpiece, unigram):
            path = tmp_path / f"{name}-{kind.__name__}.json"
            paths.append(write(path, make(kind(), "Whitespace", name)))
    # Unknown text is a failure of these models.
    texts = [text for text in TEXTS if text.isascii()]
    given = {"texts": texts, "paths": [str(path) for path in paths]}
    (tmp_path / "files.json").write_text(json.dumps(given), encoding="utf-8")
    command = [str(PYTHON), "-m", "tests.text.parity.library_versions", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "found.json").read_text("utf-8"))
    assert result["offsets"] == [path in own for path in paths]
    for place in map(str, paths):
        expected = json.loads(json.dumps(describe(place, texts)))
        assert result["found"][place] == expected, place
