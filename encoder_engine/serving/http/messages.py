"""The bodies of requests, as msgspec decodes and checks them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

__all__ = [
    "CohereRerank",
    "Decode",
    "EmbedAll",
    "EmbedSparse",
    "EmbedTexts",
    "Embeddings",
    "Predict",
    "Rerank",
    "Similarity",
    "SimilarityInputs",
    "Tokenize",
]

Texts = str | list[str]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Priority = Annotated[int, Meta(ge=0, le=9)]
Milliseconds = Annotated[int, Meta(ge=1, le=86_400_000)]


class Embeddings(Struct):
    """``/v1/embeddings`` of OpenAI, with fields of ours after ``user``."""

    input: Texts
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Count | None = None
    user: str | None = None
    input_type: Literal["query", "document"] | None = None
    prompt_name: str | None = None
    truncate: bool | None = None
    priority: Priority = 0
    timeout_ms: Milliseconds | None = None


class EmbedTexts(Struct):
    """``/embed`` of Text Embeddings Inference (TEI)."""

    inputs: Texts
    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] = "right"
    prompt_name: str | None = None
    normalize: bool = True
    dimensions: Count | None = None


class EmbedAll(Struct):
    """``/embed_all`` of TEI: the vectors of all tokens."""

    inputs: Texts
    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] = "right"
    prompt_name: str | None = None


class EmbedSparse(Struct):
    """``/embed_sparse`` of TEI."""

    inputs: Texts
    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] = "right"
    prompt_name: str | None = None


class Predict(Struct):
    """``/predict`` of TEI: a text, a pair of texts, or a batch of ``[text]`` and ``[a, b]``."""

    inputs: str | list[str | list[str]]
    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] = "right"
    raw_scores: bool = False


class Rerank(Struct):
    """``/rerank`` of TEI."""

    query: str
    texts: list[str]
    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] = "right"
    raw_scores: bool = False
    return_text: bool = False


class Document(Struct):
    """A document of Cohere, as an object."""

    text: str


class CohereRerank(Struct):
    """``/v1/rerank`` and ``/v2/rerank`` of Cohere and Jina."""

    query: str
    documents: list[str | Document]
    model: str | None = None
    top_n: Count | None = None
    return_documents: bool = False
    max_tokens_per_doc: Count | None = None
    priority: Priority = 0


class SimilarityInputs(Struct):
    """The texts of ``/similarity``."""

    source_sentence: str
    sentences: list[str]


class SimilarityParameters(Struct):
    """The options of ``/similarity``."""

    truncate: bool | None = None
    truncation_direction: Literal["right", "Right"] = "right"
    prompt_name: str | None = None


class Similarity(Struct):
    """``/similarity`` of TEI: the cosine of a sentence with each of the others."""

    inputs: SimilarityInputs
    parameters: SimilarityParameters = field(default_factory=SimilarityParameters)


class Tokenize(Struct):
    """``/tokenize`` of TEI."""

    inputs: Texts
    add_special_tokens: bool = True
    prompt_name: str | None = None


class Decode(Struct):
    """``/decode`` of TEI: the ids of one text, or of several."""

    ids: list[int | list[int]]
    skip_special_tokens: bool = True
