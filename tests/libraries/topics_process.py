"""Runs KeyBERT, BERTopic and LangChain on an embedder: ``topics_process.py ROOT MODEL RESULTS``.

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


def chains(embedder: Any) -> dict[str, Any]:
    """Let LangChain's store in memory search."""
    from langchain_core.vectorstores import InMemoryVectorStore

    store = InMemoryVectorStore(embedder)
    store.add_texts(TEXTS)
    return {"hits": [hit.page_content for hit in store.similarity_search("the row", k=3)]}


def main(root: str, model: str, results: str) -> None:
    """Run all libraries."""
    sys.path.append(root)
    import encoder_engine as ee

    embedder = ee.Embedder.from_pretrained(model, device="cpu")
    static = ee.StaticEmbedder.__new__(ee.StaticEmbedder)
    from bertopic.backend._utils import select_backend as of_bertopic
    from keybert.backend._utils import select_backend as of_keybert

    found = {
        "keybert": keywords(embedder),
        "bertopic": topics(embedder),
        "langchain": chains(embedder),
        "static": [refusal(partial(select, static)) for select in (of_keybert, of_bertopic)],
        "vectors": np.asarray(embedder.encode(TEXTS)),
    }
    Path(results).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
