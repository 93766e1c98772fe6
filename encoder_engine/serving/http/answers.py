"""The types of response bodies, for the OpenAPI description; ``replies.py`` writes the bytes."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

__all__ = ["ANSWERS", "OpenAIFault", "TeiFault"]


# A field of CohereVectors is named float, which hides the type there.
Number = float


class Usage(Struct):
    """The number of tokens that were computed."""

    prompt_tokens: int
    total_tokens: int


class Embedding(Struct):
    """A vector: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingList(Struct):
    """The answer of ``/v1/embeddings``."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class Model(Struct):
    """A model of ``/v1/models``."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(Struct):
    """The answer of ``/v1/models``."""

    object: Literal["list"]
    data: list[Model]


class CohereVectors(Struct):
    """Vectors by the type that was requested; base64 is of little-endian float32."""

    float: list[list[Number]] | UnsetType = UNSET
    base64: list[str] | UnsetType = UNSET


class CohereEmbeddings(Struct):
    """The answer of ``/v1/embed`` and ``/v2/embed``: by type where the request names types."""

    id: str
    embeddings: CohereVectors | list[list[Number]]
    texts: list[str]
    response_type: Literal["embeddings_by_type", "embeddings_floats"]
    meta: dict[str, Any]


class RankedDocument(Struct):
    """The text of a ranked document."""

    text: str


class Ranked(Struct):
    """One ranked document in an answer of Cohere's rerank."""

    index: int
    relevance_score: float
    document: RankedDocument | UnsetType = UNSET


class RankedList(Struct):
    """The answer of ``/v1/rerank`` and ``/v2/rerank``."""

    id: str
    object: Literal["list"]
    model: str
    results: list[Ranked]
    usage: Usage
    meta: dict[str, Any]


class Score(Struct):
    """One scored text in an answer of TEI's rerank."""

    index: int
    score: float
    text: str | UnsetType = UNSET


class Label(Struct):
    """A label of a text, with its score."""

    score: float
    label: str


class SparseValue(Struct):
    """A token of the vocabulary with its weight."""

    index: int
    value: float


class Token(Struct):
    """A token; ``start`` and ``stop`` count characters of the text, null for special tokens."""

    id: int
    text: str | None
    special: bool
    start: int | None
    stop: int | None


class Info(Struct):
    """The answer of ``/info``: TEI's keys, then encoder-engine's own."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    served_model_name: str
    model_type: dict[str, Any]
    max_concurrent_requests: int
    max_input_length: int | None
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    sha: str | None
    docker_label: str | None
    tasks: list[str]
    prompts: dict[str, str]
    dimension: int | None
    models: dict[str, list[str]]


class OpenAIDetails(Struct):
    """The details of an error, in OpenAI's format."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIFault(Struct):
    """The body of an error's answer below ``/v1`` and ``/v2``, in OpenAI's format.

    ``message``: the text of ``error.message`` again, where Cohere's clients read it.
    """

    error: OpenAIDetails
    message: str


class TeiFault(Struct):
    """An error of TEI's routes."""

    error: str
    error_type: str


_Vectors = list[list[float]]
_Labels = list[Label]
# A result of a pipeline, in transformers' form.
_Result = dict[str, Any] | list[Any]
# The types of a route's answers.
ANSWERS: dict[str, tuple[Any, ...]] = {
    "/v1/embeddings": (EmbeddingList,),
    "/embeddings": (EmbeddingList,),
    "/v1/embed": (CohereEmbeddings,),
    "/v2/embed": (CohereEmbeddings,),
    "/v1/rerank": (RankedList,),
    "/v2/rerank": (RankedList,),
    "/rerank": (list[Score], RankedList),
    "/embed": (_Vectors,),
    "/embed_all": (list[_Vectors],),
    "/embed_sparse": (list[list[SparseValue]],),
    "/predict": (_Labels, list[_Labels]),
    "/similarity": (list[float],),
    "/tokenize": (list[list[Token]],),
    "/decode": (list[str],),
    # The first model's own task.
    "/": (
        _Vectors,
        list[_Vectors],
        list[list[SparseValue]],
        list[Score],
        _Labels,
        list[float],
        _Result,
        list[_Result],
    ),
    "/models/{model}": (_Result, list[_Result]),
    "/v1/models": (ModelList,),
    "/v1/models/{model}": (Model,),
    "/info": (Info,),
}
ANSWERS["/invocations"] = ANSWERS["/"]
