"""Runs libraries on an embedder and a ranker: ``topics_process.py ROOT MODEL RANKER RESULTS``.

Runs in their environment, with this package from ROOT, after everything that is installed there.
RESULTS is a pickle of what each library found, and of what it says to an embedder itself.
"""

from __future__ import annotations

import pickle
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

TEXTS = [
    f"{subject} {verb} {number}"
    for number in range(6)
    for subject, verb in (("long text", "query"), ("the row", "passage"), ("abc", "the query row"))
]


def refusal(call: Any) -> str:
    """Return the error of a call, or what it returned."""
    try:
        return f"not refused: {call()!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def keywords(embedder: Any) -> dict[str, Any]:
    """Let KeyBERT find keywords."""
    from keybert import KeyBERT

    from encoder_engine.integrations.keybert import EmbedderBackend

    model = KeyBERT(model=EmbedderBackend(embedder))
    documents, words = model.extract_embeddings(TEXTS)
    given = {"docs": TEXTS, "doc_embeddings": documents, "word_embeddings": words}
    return {
        "documents": documents,
        "keywords": model.extract_keywords(TEXTS),
        "given": KeyBERT(model=EmbedderBackend(None)).extract_keywords(**given),
        "direct": refusal(lambda: KeyBERT(model=embedder)),
    }


def topics(embedder: Any) -> dict[str, Any]:
    """Let BERTopic find topics, without chance: by PCA and k-means."""
    from bertopic import BERTopic
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA

    from encoder_engine.integrations.bertopic import EmbedderBackend

    def fit(model: Any, vectors: Any) -> Any:
        parts = {"umap_model": PCA(2), "hdbscan_model": KMeans(3, random_state=0, n_init=1)}
        topic_model = BERTopic(embedding_model=model, **parts)
        found, _ = topic_model.fit_transform(TEXTS, vectors)
        return found, topic_model

    backend = EmbedderBackend(embedder)
    found, topic_model = fit(backend, None)
    given, other = fit(None, embedder.encode(TEXTS))
    return {
        "topics": (found, given),
        "topic_embeddings": (topic_model.topic_embeddings_, other.topic_embeddings_),
        "documents": backend.embed_documents(TEXTS),
        "words": backend.embed_words(["text", "row"]),
        "direct": refusal(lambda: fit(embedder, None)),
    }


def chains(embedder: Any, ranker: Any) -> dict[str, Any]:
    """Let LangChain's store in memory search, and its compressor order."""
    from langchain_core.vectorstores import InMemoryVectorStore

    from encoder_engine.integrations.langchain import RankerCompressor

    store = InMemoryVectorStore(embedder)
    store.add_texts(TEXTS)
    hits = store.similarity_search("the row", k=3)
    ordered = RankerCompressor(ranker, top_n=2).compress_documents(hits, "the row")
    return {
        "hits": [hit.page_content for hit in hits],
        "ordered": [(one.page_content, one.metadata["relevance_score"]) for one in ordered],
        "refused": refusal(lambda: RankerCompressor(ranker, model_name="another")),
    }


def indices(embedder: Any, ranker: Any) -> dict[str, Any]:
    """Let LlamaIndex build an index, retrieve and order."""
    from llama_index.core import Document, VectorStoreIndex

    from encoder_engine.integrations.llama_index import EmbedderModel, RankerPostprocessor

    model = EmbedderModel(embedder)
    index = VectorStoreIndex.from_documents([Document(text=t) for t in TEXTS], embed_model=model)
    nodes = index.as_retriever(similarity_top_k=3).retrieve("the row")
    ordered = RankerPostprocessor(ranker, 2).postprocess_nodes(nodes, query_str="the row")
    return {
        "hits": [one.text for one in nodes],
        "ordered": [(one.text, one.score) for one in ordered],
        "documents": [model.get_text_embedding(text) for text in TEXTS],
        "refused": refusal(lambda: EmbedderModel(embedder, parallel_process=True)),
        "cut": len(EmbedderModel(embedder, truncate_dim=2).get_query_embedding("the row")),
    }


def components(model: str, ranker: str) -> dict[str, Any]:
    """Let Haystack embed, search and order, in a pipeline that was written to YAML."""
    from haystack import Document, Pipeline
    from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
    from haystack.document_stores.in_memory import InMemoryDocumentStore

    from encoder_engine.integrations.haystack import DocumentEmbedder, DocumentRanker, TextEmbedder

    documents = DocumentEmbedder(model).run([Document(content=text) for text in TEXTS])["documents"]
    store = InMemoryDocumentStore()
    store.write_documents(documents)
    pipeline = Pipeline()
    pipeline.add_component("embedder", TextEmbedder(model))
    pipeline.add_component("ranker", DocumentRanker(ranker))
    module = DocumentRanker.__module__
    pipeline = Pipeline.loads(pipeline.dumps(), allowed_modules=[module])
    pipeline.add_component("retriever", InMemoryEmbeddingRetriever(store, top_k=3))
    pipeline.connect("embedder.embedding", "retriever.query_embedding")
    pipeline.connect("retriever.documents", "ranker.documents")
    given = {"embedder": {"text": "the row"}, "ranker": {"query": "the row", "top_k": 2}}
    found = pipeline.run(given, include_outputs_from={"retriever"})
    wrong = DocumentEmbedder(model, options={"batch": 3})
    return {
        "documents": [one.embedding for one in documents],
        "hits": [one.content for one in found["retriever"]["documents"]],
        "ordered": [(one.content, one.score) for one in found["ranker"]["documents"]],
        "refused": refusal(lambda: wrong.run(documents)),
    }


def external(embedder: Any) -> list[str]:
    """Let txtai search with vectors that it does not compute."""
    import txtai

    settings = {"method": "external", "transform": lambda texts: embedder.encode(texts)}
    index = txtai.Embeddings({**settings, "content": True, "backend": "numpy"})
    index.index(TEXTS)
    return [hit["text"] for hit in index.search("the row", 3)]


def main(root: str, model: str, ranker_path: str, results: str) -> None:
    """Run all libraries."""
    sys.path.append(root)
    import encoder_engine as ee
    from encoder_engine.embedding import Ranker

    embedder = ee.Embedder.from_pretrained(model, device="cpu")
    ranker = Ranker.from_pretrained(ranker_path, device="cpu")
    static = ee.StaticEmbedder.__new__(ee.StaticEmbedder)
    from bertopic.backend._utils import select_backend as of_bertopic
    from keybert.backend._utils import select_backend as of_keybert

    found = {
        "keybert": keywords(embedder),
        "bertopic": topics(embedder),
        "langchain": chains(embedder, ranker),
        "llama_index": indices(embedder, ranker),
        "haystack": components(model, ranker_path),
        "txtai": external(embedder),
        "static": [refusal(partial(select, static)) for select in (of_keybert, of_bertopic)],
        "vectors": np.asarray(embedder.encode(TEXTS)),
    }
    Path(results).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
