"""The clients, and the script that each runs in its environment.

A script reads ``url`` (an embedder ``minilm``, a ranker ``ranker``, and the embedder again as
``busy``, which refuses two requests, and by a name of OpenAI's, the only ones that LanceDB takes),
``ranker_url`` (the ranker alone), ``key``, ``texts`` and ``query``. It fills ``found``: ``vectors``
with lists of vectors of all texts, ``scores`` with lists of the scores of all texts in their order,
``errors`` with statuses.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BUSY_TIMES", "CLIENTS", "HEAD", "TAIL", "TOOLS", "Client"]

# The requests to the model "busy" that are refused with 429.
BUSY_TIMES = 2
# Tools of other tests, with what pip installs.
TOOLS = {"selenium": ("selenium",), "schemathesis": ("schemathesis",)}
HEAD = """
import asyncio, json, sys
url, ranker_url, key, texts, query = json.loads(sys.argv[1])
found = {"vectors": [], "scores": [], "errors": []}
def in_order(rows, index, score):
    scores = [0.0] * len(texts)
    for row in rows:
        scores[index(row)] = score(row)
    found["scores"].append(scores)
"""
TAIL = "\nprint(json.dumps(found))\n"


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client library.

    requirements: what pip installs; the first is the client.
    script: see above.
    num_vectors, num_scores: the lists that the script must find.
    errors: the statuses that the script must meet.
    """

    requirements: tuple[str, ...]
    script: str
    num_vectors: int = 0
    num_scores: int = 0
    errors: tuple[int, ...] = ()


CLIENTS = {
    "openai": Client(
        requirements=("openai",),
        script="""
import array, base64, openai
client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0)
for form in ("float", "base64"):
    got = client.embeddings.create(model="minilm", input=texts, encoding_format=form)
    if form == "base64":
        rows = [array.array("f", base64.b64decode(row.embedding)).tolist() for row in got.data]
    else:
        rows = [row.embedding for row in got.data]
    found["vectors"].append(rows)
got = client.embeddings.create(model="minilm", input=texts, user="me")
found["vectors"].append([row.embedding for row in got.data])
got = client.embeddings.create(model="minilm", input="a", dimensions=64)
assert len(got.data[0].embedding) == 64
assert [model.id for model in client.models.list()][:2] == ["minilm", "ranker"]
async def call():
    other = openai.AsyncOpenAI(base_url=url + "/v1", api_key=key)
    got = await other.embeddings.create(model="minilm", input=texts)
    found["vectors"].append([row.embedding for row in got.data])
asyncio.run(call())
patient = client.with_options(max_retries=3).embeddings.with_raw_response
got = patient.create(model="busy", input=texts)
assert got.retries_taken == 2, got.retries_taken
found["vectors"].append([row.embedding for row in got.parse().data])
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
        num_vectors=5,
        errors=(401, 404, 400),
    ),
    "cohere": Client(
        requirements=("cohere",),
        script="""
import cohere
for make in (cohere.Client, cohere.ClientV2):
    client = make(api_key=key, base_url=url)
    got = client.rerank(model="ranker", query=query, documents=texts, top_n=len(texts))
    in_order(got.results, lambda row: row.index, lambda row: row.relevance_score)
    try:
        make(api_key="x", base_url=url).rerank(model="ranker", query=query, documents=texts)
    except cohere.UnauthorizedError as error:
        found["errors"].append(error.status_code)
""",
        num_scores=2,
        errors=(401, 401),
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
        num_vectors=2,
    ),
    "langchain-openai": Client(
        requirements=("langchain-openai",),
        script="""
import openai
from langchain_openai import OpenAIEmbeddings
def make(**given):
    return OpenAIEmbeddings(base_url=url + "/v1", api_key=key, model="minilm", **given)
client = make(check_embedding_ctx_length=False)
found["vectors"].append(client.embed_documents(texts))
found["vectors"].append(asyncio.run(client.aembed_documents(texts)))
found["vectors"].append([client.embed_query(text) for text in texts])
""",
        num_vectors=3,
    ),
    "llama-index": Client(
        requirements=(
            "llama-index-embeddings-openai-like",
            "llama-index-embeddings-text-embeddings-inference",
            "llama-index-postprocessor-tei-rerank",
        ),
        script="""
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference
client = OpenAILikeEmbedding(model_name="minilm", api_base=url + "/v1", api_key=key)
found["vectors"].append(client.get_text_embedding_batch(texts))
found["vectors"].append(asyncio.run(client.aget_text_embedding_batch(texts)))
client = TextEmbeddingsInference(
    model_name="minilm", base_url=url, auth_token=key, text_instruction="",
    query_instruction="",
)
found["vectors"].append(client.get_text_embedding_batch(texts))
found["vectors"].append([client.get_query_embedding(text) for text in texts])
nodes = [NodeWithScore(node=TextNode(id_=str(i), text=text)) for i, text in enumerate(texts)]
ranker = TextEmbeddingInference(
    base_url=url, top_n=len(texts), auth_token=key,
)
rows = ranker.postprocess_nodes(nodes, query_bundle=QueryBundle(query))
in_order(rows, lambda row: int(row.node.node_id), lambda row: row.score)
""",
        num_vectors=4,
        num_scores=1,
    ),
    "haystack": Client(
        requirements=("haystack-ai", "huggingface-api-haystack"),
        script="""
from haystack import Document
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.utils import Secret
from haystack_integrations.components.embedders.huggingface_api import (
    HuggingFaceAPIDocumentEmbedder, HuggingFaceAPITextEmbedder,
)
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
token = Secret.from_token(key)
opened = {"api_base_url": url + "/v1", "api_key": token, "model": "minilm"}
tei = {"api_type": "text_embeddings_inference", "api_params": {"url": url}, "token": token}
tei["normalize"] = True
for embedder in (OpenAIDocumentEmbedder(**opened), HuggingFaceAPIDocumentEmbedder(**tei)):
    got = embedder.run(documents=[Document(content=text) for text in texts])["documents"]
    found["vectors"].append([document.embedding for document in got])
for embedder in (OpenAITextEmbedder(**opened), HuggingFaceAPITextEmbedder(**tei)):
    found["vectors"].append([embedder.run(text=text)["embedding"] for text in texts])
documents = [Document(id=str(i), content=text) for i, text in enumerate(texts)]
ranker = HuggingFaceTEIRanker(url=url, top_k=len(texts), token=token)
rows = ranker.run(query=query, documents=documents)["documents"]
in_order(rows, lambda row: int(row.id), lambda row: row.score)
""",
        num_vectors=4,
        num_scores=1,
    ),
    "litellm": Client(
        requirements=("litellm",),
        script="""
import litellm
for form in ("float", None):
    got = litellm.embedding(
        model="openai/minilm", input=texts, api_base=url + "/v1", api_key=key,
        encoding_format=form,
    )
    found["vectors"].append([row["embedding"] for row in got.data])
for provider in ("cohere", "jina_ai"):
    got = litellm.rerank(
        model=provider + "/ranker", query=query, documents=texts, top_n=len(texts),
        api_base=url + ("/v1/rerank" if provider == "cohere" else ""), api_key=key,
    )
    in_order(got.results, lambda row: row["index"], lambda row: row["relevance_score"])
try:
    litellm.embedding(model="openai/none", input=texts, api_base=url + "/v1", api_key=key)
except litellm.NotFoundError as error:
    found["errors"].append(error.status_code)
""",
        num_vectors=2,
        num_scores=2,
        errors=(404,),
    ),
    "chroma": Client(
        requirements=("chromadb", "openai"),
        script="""
import os
os.environ["CHROMA_API_KEY"] = key
import chromadb
from chromadb.config import Settings
from chromadb.utils.embedding_functions import HuggingFaceEmbeddingServer, OpenAIEmbeddingFunction
memory = chromadb.EphemeralClient(Settings(anonymized_telemetry=False))
functions = (
    OpenAIEmbeddingFunction(
        api_key_env_var="CHROMA_API_KEY", model_name="minilm", api_base=url + "/v1"
    ),
    HuggingFaceEmbeddingServer(url=url + "/embed", api_key_env_var="CHROMA_API_KEY"),
)
ids = [str(i) for i in range(len(texts))]
for number, function in enumerate(functions):
    found["vectors"].append([row.tolist() for row in function(texts)])
    # By its own default, cosine, Chroma scales what it stores.
    collection = memory.create_collection(
        "texts" + str(number), embedding_function=function,
        configuration={"hnsw": {"space": "ip"}},
    )
    collection.add(ids=ids, documents=texts)
    rows = collection.get(ids=ids, include=["embeddings"])["embeddings"]
    found["vectors"].append([row.tolist() for row in rows])
    assert collection.query(query_texts=[query], n_results=1)["ids"] == [["0"]]
""",
        num_vectors=4,
    ),
    "lancedb": Client(
        requirements=("lancedb", "openai"),
        script="""
import tempfile, lancedb
from lancedb.embeddings import get_registry
from lancedb.pydantic import LanceModel, Vector
get_registry().set_var("key", key)
function = get_registry().get("openai").create(
    name="text-embedding-3-small", dim=384, base_url=url + "/v1", api_key="$var:key"
)
class Row(LanceModel):
    text: str = function.SourceField()
    vector: Vector(384) = function.VectorField()
with tempfile.TemporaryDirectory() as folder:
    table = lancedb.connect(folder).create_table("texts", schema=Row)
    table.add([{"text": text} for text in texts])
    rows = {row["text"]: row["vector"] for row in table.to_arrow().to_pylist()}
    found["vectors"].append([rows[text] for text in texts])
    assert table.search(query).limit(1).to_list()[0]["text"] == query
""",
        num_vectors=1,
    ),
    "qdrant": Client(
        requirements=("qdrant-client", "openai"),
        script="""
import openai
from qdrant_client import QdrantClient, models
source = openai.OpenAI(base_url=url + "/v1", api_key=key)
def embed(texts):
    got = source.embeddings.create(model="minilm", input=texts)
    return [row.embedding for row in got.data]
client = QdrantClient(":memory:")
size = models.VectorParams(size=384, distance=models.Distance.DOT)
client.create_collection("texts", vectors_config=size)
rows = zip(range(len(texts)), embed(texts), texts)
points = [models.PointStruct(id=i, vector=row, payload={"text": text}) for i, row, text in rows]
client.upsert("texts", points=points)
stored = client.retrieve("texts", ids=list(range(len(texts))), with_vectors=True)
found["vectors"].append([point.vector for point in sorted(stored, key=lambda point: point.id)])
best = client.query_points("texts", query=embed([query])[0], limit=1).points[0]
assert best.payload["text"] == query and abs(best.score - 1) < 1e-5, best
""",
        num_vectors=1,
    ),
    "tei-client": Client(
        requirements=("tei-client[http]",),
        script="""
from tei_client import HttpClient
headers = {"authorization": "Bearer " + key}
client = HttpClient(url, headers=headers)
assert client.health()
info = client.info()
assert info.server_model_metadata.pooling == "mean", info
assert client.prompt_names() == ["query", "document"], client.prompt_names()
found["vectors"].append(client.embed(texts))
found["vectors"].append(asyncio.run(client.async_embed(texts, truncate=True)))
rows = client.tokenize(texts)
assert client.decode([row.get_ids() for row in rows])[0] == query.lower(), rows
tokens = client.embed_all(texts)
assert [len(row) for row in tokens] == [len(row.tokens) for row in rows]
assert abs(sum(value * value for value in tokens[0][0]) - 1) < 1e-5
ranker = HttpClient(ranker_url, headers=headers)
got = ranker.rerank(query, texts, return_text=True, truncate=True)
assert all(row.text == texts[row.index] for row in got.ranks)
in_order(got.ranks, lambda row: row.index, lambda row: row.score)
""",
        num_vectors=2,
        num_scores=1,
    ),
}
