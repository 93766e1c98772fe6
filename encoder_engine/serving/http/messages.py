"""The bodies of requests, as types that msgspec decodes and validates.

An unknown field is refused, and the error names the nearest known one: a misspelt option would
otherwise be ignored. Null means that an optional field is not given. Fields
of OpenAI's and Cohere's APIs that do not change a vector are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

__all__ = [
    "CohereEmbed",
    "CohereRerank",
    "Decode",
    "EmbedAll",
    "EmbedSparse",
    "EmbedTexts",
    "Embeddings",
    "PipelineCall",
    "Predict",
    "Rerank",
    "Similarity",
    "SimilarityInputs",
    "Tokenize",
]

Texts = str | list[str]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Id = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Priority = Annotated[int, Meta(ge=0, le=9)]
Direction = Literal["left", "Left", "right", "Right"]
Milliseconds = Annotated[int, Meta(ge=1, le=86_400_000)]


class Embeddings(Struct, forbid_unknown_fields=True):
    """The body of OpenAI's ``/v1/embeddings``; the fields after ``user`` are encoder-engine's own.

    Token ids are refused unless the server accepts them.
    """

    input: str | list[str | Id | list[Id]]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Count | None = None
    user: str | None = None
    input_type: Literal["query", "document"] | None = None
    prompt_name: str | None = None
    truncate: bool | None = None
    priority: Priority | None = None
    timeout_ms: Milliseconds | None = None
    # Ignored: other services read it, and clients of several services send it.
    metadata: dict[str, Any] | None = None


class EmbedTexts(Struct, forbid_unknown_fields=True):
    """The body of ``/embed`` of Text Embeddings Inference (TEI)."""

    inputs: Texts
    truncate: bool | None = None
    truncation_direction: Direction | None = None
    prompt_name: str | None = None
    normalize: bool | None = None
    dimensions: Count | None = None


class EmbedAll(Struct, forbid_unknown_fields=True):
    """The body of TEI's ``/embed_all``, which returns the vectors of all tokens.

    TEI itself has no ``normalize`` here and returns plain vectors; its Python client sends one.
    """

    inputs: Texts
    truncate: bool | None = None
    truncation_direction: Direction | None = None
    prompt_name: str | None = None
    normalize: bool | None = None


class EmbedSparse(Struct, forbid_unknown_fields=True):
    """The body of TEI's ``/embed_sparse``."""

    inputs: Texts
    truncate: bool | None = None
    truncation_direction: Direction | None = None
    prompt_name: str | None = None


class CallParameters(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The keywords of all tasks' pipelines; a pipeline refuses the keywords of other tasks."""

    top_k: Count | None = None
    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = None
    truncation: bool | None = None
    max_length: Count | None = None
    aggregation_strategy: Literal["none", "simple", "first", "average", "max"] | None = None
    ignore_labels: list[str] | None = None
    stride: Id | None = None
    candidate_labels: list[str] | str | None = None
    hypothesis_template: str | None = None
    multi_label: bool | None = None
    max_answer_len: Count | None = None
    max_seq_len: Count | None = None
    max_question_len: Count | None = None
    doc_stride: Id | None = None
    handle_impossible_answer: bool | None = None
    align_to_words: bool | None = None
    targets: list[str] | str | None = None


class PipelineCall(Struct, forbid_unknown_fields=True):
    """The body of ``/`` and ``/models/{model}`` of Hugging Face's inference: a pipeline call.

    inputs: a text, a dict of texts (``question`` and ``context``), or a list of these.
    parameters: the pipeline's keywords.
    options: options of the hub's own servers, such as ``wait_for_model``; ignored.
    """

    inputs: str | dict[str, Any] | list[str | dict[str, Any]]
    parameters: CallParameters | None = None
    options: dict[str, Any] | None = None


class Parameters(Struct, forbid_unknown_fields=True):
    """The field ``parameters`` that Hugging Face's clients send to classifiers."""

    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = None
    top_k: Count | None = None


class Predict(Struct, forbid_unknown_fields=True):
    """The body of TEI's ``/predict``: a text, a pair, or a batch of ``[text]`` and ``[a, b]``."""

    inputs: str | list[str | list[str]]
    truncate: bool | None = None
    truncation_direction: Direction | None = None
    raw_scores: bool | None = None
    parameters: Parameters | None = None


class Rerank(Struct, forbid_unknown_fields=True):
    """The body of TEI's ``/rerank``."""

    query: str
    texts: list[str]
    truncate: bool | None = None
    truncation_direction: Direction | None = None
    raw_scores: bool | None = None
    return_text: bool | None = None


class Document(Struct):
    """A document of Cohere's rerank as an object; only its text is ranked."""

    text: str


class CohereRerank(Struct, forbid_unknown_fields=True):
    """The body of ``/v1/rerank`` and ``/v2/rerank`` of Cohere and Jina."""

    query: str
    documents: list[str | Document]
    model: str | None = None
    top_n: Count | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: Count | None = None
    max_chunks_per_doc: Count | None = None
    rank_fields: list[str] | None = None
    priority: Priority | None = None


class CohereEmbed(Struct, forbid_unknown_fields=True):
    """The body of Cohere's ``/v1/embed`` and ``/v2/embed``, for texts."""

    texts: list[str]
    model: str | None = None
    input_type: (
        Literal["search_document", "search_query", "classification", "clustering"] | None
    ) = None
    embedding_types: list[Literal["float", "base64"]] | None = None
    output_dimension: Count | None = None
    truncate: Literal["NONE", "START", "END"] | None = None
    priority: Priority | None = None


class SimilarityInputs(Struct, forbid_unknown_fields=True):
    """The texts of a ``/similarity`` request."""

    source_sentence: str
    sentences: list[str]


class SimilarityParameters(Struct, forbid_unknown_fields=True):
    """The options of a ``/similarity`` request."""

    truncate: bool | None = None
    truncation_direction: Direction | None = None
    prompt_name: str | None = None


class Similarity(Struct, forbid_unknown_fields=True):
    """The body of TEI's ``/similarity``: the cosine of a sentence with each of several others."""

    inputs: SimilarityInputs
    parameters: SimilarityParameters | None = None


class Tokenize(Struct, forbid_unknown_fields=True):
    """The body of TEI's ``/tokenize``."""

    inputs: Texts
    add_special_tokens: bool | None = None
    prompt_name: str | None = None


class Decode(Struct, forbid_unknown_fields=True):
    """The body of TEI's ``/decode``: the token ids of one text, or of several."""

    ids: list[Id | list[Id]]
    skip_special_tokens: bool | None = None
