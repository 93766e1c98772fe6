"""Draws requests from ``/openapi.json`` by schemathesis: no 500, and all answers as documented.

``python -m tests.serving.long.openapi --cases 10000``: schemathesis runs in an environment of its
own, in the folder that ENCODER_ENGINE_CLIENTS names, by default ``.clients`` of the checkout. It
sends valid and invalid bodies, headers, methods and keys, and compares each answer's status,
content type and body with the description. Half of the cases draw headers too. In the other half,
bodies that violate the description must be refused: any header is allowed, which schemathesis would
take for a violation. Exits with 1 where an answer is wrong.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from encoder_engine.embedding import Embedder, Ranker, SparseEmbedder
from encoder_engine.models import MaskedLM, SequenceClassification
from encoder_engine.serving.http.guard import Keys
from encoder_engine.serving.server import Server
from encoder_engine.serving.service import Service
from tests.embedding.tiny_model import write_head_directory, write_sentence_directory
from tests.serving.clients.run import KEY, clients_folder, own_variables, python_of
from tests.serving.clients.scripts import TOOLS

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "schemathesis"
# Left out: a body that the description allows may name an unknown model or too many dimensions, and
# nothing is created, so no resource outlives its end.
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
)
BODY_CHECKS = (*CHECKS, "negative_data_rejection")
# A request may ask for an answer within 1 ms.
SETTINGS = f"""
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "503", "504"]
[auth.openapi.key]
bearer = "{KEY}"
"""


def serve(folder: Path) -> Server:
    """Return a server of small models of every kind, which needs a key."""
    write_head_directory(folder / "ranker", SequenceClassification, num_labels=1)
    write_head_directory(folder / "sparse", MaskedLM)
    given: dict[str, Any] = {"device": "cpu", "num_threads": 1}
    models = {
        "tiny": Embedder.from_pretrained(write_sentence_directory(folder / "tiny"), **given),
        "ranker": Ranker.from_pretrained(folder / "ranker", **given),
        "sparse": SparseEmbedder.from_pretrained(folder / "sparse", **given),
    }
    return Server(Service(models), keys=Keys.read(f"me:{KEY}\n"))


def run(python: Path, description: Path, checks: Sequence[str], *options: str) -> tuple[int, str]:
    """Run schemathesis on a description; return the number of cases and the report.

    Raises ``AssertionError`` with the report where an answer is wrong.
    """
    folder = description.parent
    settings = folder / "schemathesis.toml"
    settings.write_text(SETTINGS, encoding="utf-8")
    command = (
        *(str(python.with_name("schemathesis")), "--config-file", str(settings)),
        *("run", str(description), "--checks", ",".join(checks), "--phases", "coverage,fuzzing"),
        *("--continue-on-failure", "--generation-database", "none", "--no-color"),
        *("--suppress-health-check", "all", *options),
    )
    variables = own_variables()
    ran = subprocess.run(
        command, capture_output=True, text=True, env=variables, cwd=folder, check=False
    )
    report = ran.stdout + ran.stderr
    found = re.search(r"(\d+) generated", report)
    assert ran.returncode == 0, report
    assert found is not None, report
    return int(found[1]), report


def without_headers(description: dict[str, Any]) -> dict[str, Any]:
    """Return a description without the headers of requests."""
    found = copy.deepcopy(description)
    for methods in found["paths"].values():
        for operation in methods.values():
            given = operation["parameters"]
            operation["parameters"] = [one for one in given if one["in"] != "header"]
    return found


def main(*, cases: int, seed: int) -> int:
    """Serve, draw at least so many cases, and return their number."""
    python = python_of(NAME, clients_folder(), TOOLS[NAME])
    with tempfile.TemporaryDirectory() as name, serve(Path(name)) as server:
        folder, sent = Path(name), 0
        headers = {"authorization": f"Bearer {KEY}"}
        described = httpx.get(f"{server.url}/openapi.json", headers=headers).json()
        # The bodies of 14 routes are drawn, in two runs.
        options = ("--max-examples", str(max(1, cases // 28)), "--seed", str(seed))
        place = folder / "openapi.json"
        for kind, checks in ((described, CHECKS), (without_headers(described), BODY_CHECKS)):
            place.write_text(json.dumps(kind), encoding="utf-8")
            count, report = run(python, place, checks, "--url", server.url, *options)
            sent += count
            print(report)
        assert not any(code == 500 for _, code, _ in server.service.signals.requests)
    return sent


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(f"{main(cases=given.cases, seed=given.seed)} cases, every answer as documented")
