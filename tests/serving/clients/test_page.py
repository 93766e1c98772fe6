"""The page at ``/`` in a browser: texts stay texts, and its policy allows all that it does."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine.embedding import Embedder, Ranker
from encoder_engine.models import SequenceClassification
from encoder_engine.serving.http.guard import Keys
from encoder_engine.serving.server import Server
from encoder_engine.serving.service import Service
from tests import ROOT
from tests.embedding.tiny_model import write_head_directory
from tests.serving.clients.page import TEXTS
from tests.serving.clients.run import KEY, clients_folder, own_variables

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = ROOT / "tests" / "serving" / "clients" / "page.py"
# The digits that the page shows.
DIGITS = 3


@pytest.mark.exhaustive
def test_the_page_in_a_browser(minilm: Path, tmp_path: Path) -> None:
    python = clients_folder() / "selenium" / "bin" / "python"
    if not python.is_file():
        pytest.skip("python -m tests.serving.clients.run selenium makes its environment")
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("Debian's packages chromium and chromium-driver are not installed")
    write_head_directory(tmp_path, SequenceClassification, num_labels=1)
    embedder = Embedder.from_pretrained(minilm, device="cpu")
    ranker = Ranker.from_pretrained(tmp_path, device="cpu", max_seq_length=32)
    service = Service({"minilm": embedder, "ranker": ranker})
    with Server(service, keys=Keys.read(f"me:{KEY}\n")) as server:
        ran = subprocess.run(
            [python, SCRIPT, server.url, KEY, tmp_path / "page.png"],
            capture_output=True,
            text=True,
            env=own_variables(),
            timeout=180,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    texts = [text.strip() for text in TEXTS]
    vectors = embedder.encode(texts, on_truncation="ignore")
    cosines = vectors @ vectors.T
    assert [row[:2] for row in found["matrix"]] == [[str(n + 1), t] for n, t in enumerate(texts)]
    shown = np.array([[float(value) for value in row[2:]] for row in found["matrix"]])
    # Half of the last digit, and what float64 sums differ by from float32 ones.
    rounding = 0.5 * 10.0**-DIGITS + 384 * np.finfo(np.float32).eps
    assert np.abs(shown - cosines).max() <= rounding
    assert [row[0] for row in found["nearest"]] == texts
    assert found["nearest"][0][1] == texts[1]
    assert len(found["ranked"]) == 2
    assert float(found["ranked"][0][1]) >= float(found["ranked"][1][1])
    assert found["tokens"].split() == f"[CLS] {texts[0][:-1]} . [SEP]".split()
    assert "4 texts" in found["notes"][0]
    assert "cut at the model's limit: text 4" in found["notes"][0]
    # Markup was shown and not run, and the policy refused nothing that the page does.
    assert (found["title"], found["images"], found["console"]) == ("encoder-engine", 0, [])
    assert found["overflow"] == {"400": 0, "1000": 0}
    assert (tmp_path / "page.png").stat().st_size > 0
