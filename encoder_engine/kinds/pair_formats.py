"""Formats pairs of a query and a document as token rows for a causal reranker.

A causal reranker is a language model whose answer after the last token gives the score. If a pair
is too long, the end of the pair is truncated, but the template's text after the pair is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict
from string import Formatter
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ConfigError
from encoder_engine.packing.token_rows import EncodedRows

if TYPE_CHECKING:
    from encoder_engine.opening.chat_template import ChatTemplate
    from encoder_engine.packing.token_rows import IdArray
    from encoder_engine.text import Tokenizer

__all__ = ["ChatFormat", "PairFormat", "PairTemplate", "PlainFormat", "TemplateFormat"]


@dataclass(frozen=True, kw_only=True)
class PairTemplate:
    """The text around a query and a document; the defaults are those of Qwen3-Reranker.

    prefix, suffix: the text before and after the body, never truncated.
    body: a format string with ``{instruction}``, ``{query}`` and ``{document}``; too long bodies
        are truncated.
    instruction: the default instruction.
    positive, negative: the answers, one token each; negative None: the score is the logit of
        ``positive``.
    """

    prefix: str = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
        'and the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
        "<|im_start|>user\n"
    )
    suffix: str = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    body: str = "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    instruction: str = "Given a web search query, retrieve relevant passages that answer the query"
    positive: str = "yes"
    negative: str | None = "no"


class PairFormat(ABC):
    """A way to write a query and a document as one row of tokens.

    prompt: the default instruction, if neither the call nor the directory has one.
    takes_prompt: False if the format has no place for a prompt.
    """

    prompt: str = ""
    takes_prompt: bool = True

    @abstractmethod
    def least_length(self, prompt: str) -> int:
        """Return the number of tokens of a row, without those of the query and the document."""

    @abstractmethod
    def rows(
        self, pairs: list[tuple[str, str]], prompt: str, *, max_length: int | None, num_threads: int
    ) -> EncodedRows:
        """Tokenize pairs of a query and a document, each as one row of up to ``max_length`` tokens.

        ``max_length`` is more than :meth:`least_length`; None: no limit.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what decides the rows of tokens besides tokenizer and prompt, as JSON values."""

    def check_room(self, prompt: str, limit: int | None) -> None:
        """Raise :class:`ConfigError` if the limit of tokens leaves no room for a pair of texts."""
        least = self.least_length(prompt)
        if limit is not None and least >= limit:
            raise ConfigError(
                f"the template has {least} tokens and leaves no room for a pair: the limit is "
                f"{limit}"
            )


class TemplateFormat(PairFormat):
    """Formats pairs by a :class:`PairTemplate`: prefix, body and suffix, tokenized separately.

    Raises :class:`ConfigError` unless the template's body names ``{query}`` and ``{document}``, and
    beside them only ``{instruction}``.
    """

    def __init__(self, tokenizer: Tokenizer, template: PairTemplate) -> None:
        self.template, self._tokenizer = template, tokenizer
        self.prompt = template.instruction
        self.takes_prompt = _check_body(template.body)
        self._prefix, self._suffix = map(self._ids, (template.prefix, template.suffix))
        self._around = len(self._prefix) + len(self._suffix)

    def answers(self) -> tuple[int, ...]:
        """Return the answers' token ids. Raises :class:`ConfigError` unless each is one token."""
        words = (self.template.positive, self.template.negative)
        return tuple(self._answer(word) for word in words if word is not None)

    def least_length(self, prompt: str) -> int:
        """Return the number of tokens of a row whose query and document are empty."""
        body = self.template.body.format(instruction=prompt, query="", document="")
        return self._around + len(self._ids(body))

    def rows(
        self, pairs: list[tuple[str, str]], prompt: str, *, max_length: int | None, num_threads: int
    ) -> EncodedRows:
        """Tokenize pairs as rows of prefix, body and suffix; too long bodies are truncated."""
        around = self._around
        encoding = self._tokenizer.encode_batch(
            [
                self.template.body.format(instruction=prompt, query=query, document=document)
                for query, document in pairs
            ],
            add_special_tokens=False,
            max_length=None if max_length is None else max_length - around,
            num_threads=num_threads,
        )
        starts = encoding.cu_seqlens + np.arange(len(pairs) + 1, dtype=np.int32) * around
        parts = np.split(encoding.ids, encoding.cu_seqlens[1:-1])
        whole = [ids for part in parts for ids in (self._prefix, part, self._suffix)]
        ids = np.concatenate(whole) if pairs else encoding.ids
        return EncodedRows(
            ids=ids.astype(np.int32),
            cu_seqlens=starts.astype(np.int32),
            truncated=np.asarray(encoding.truncated),
        )

    def describe(self) -> dict[str, Any]:
        """Return the fields of the :class:`PairTemplate`."""
        return asdict(self.template)

    def _ids(self, text: str) -> IdArray:
        return self._tokenizer.encode_batch([text], add_special_tokens=False).ids

    def _answer(self, word: str) -> int:
        ids = self._ids(word)
        if len(ids) != 1:
            raise ConfigError(
                f"the answer {word!r} is {len(ids)} tokens of this tokenizer, it must be one; pass "
                "template=PairTemplate(positive=..., negative=...)"
            )
        return int(ids[0])


class ChatFormat(PairFormat):
    """Formats pairs of query and document by a chat template, as sentence-transformers does."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self.template, self._tokenizer = template, tokenizer

    def least_length(self, prompt: str) -> int:
        """Return the number of tokens of a row whose query and document are empty."""
        return len(self._row(prompt, ""))

    def rows(
        self, pairs: list[tuple[str, str]], prompt: str, *, max_length: int | None, num_threads: int
    ) -> EncodedRows:
        """Tokenize pairs; a truncated row ends with the last tokens of the chat template."""
        encoding = self._tokenizer.encode_batch(
            [self.template.render(prompt, query, document) for query, document in pairs],
            add_special_tokens=False,
            max_length=max_length,
            num_threads=num_threads,
        )
        ids, suffix = encoding.ids, self._suffix(prompt)
        if max_length is not None and len(suffix):
            # Also in a row that just fits: where its document's last letters share a token with the
            # words after it, sentence-transformers replaces that token.
            full = np.flatnonzero(encoding.lengths >= max_length)
            places = encoding.cu_seqlens[1:][full, None] + np.arange(-len(suffix), 0)
            ids = ids.copy()
            ids[places] = suffix
        return EncodedRows(
            ids=ids, cu_seqlens=encoding.cu_seqlens, truncated=np.asarray(encoding.truncated)
        )

    def describe(self) -> dict[str, Any]:
        """Return the source of the chat template, and its variables."""
        return {"chat_template": self.template.source, "variables": self.template.variables}

    def _row(self, prompt: str, text: str) -> IdArray:
        rendered = self.template.render(prompt, text, text)
        return self._tokenizer.encode_batch([rendered], add_special_tokens=False).ids

    def _suffix(self, prompt: str) -> IdArray:
        """Return the token ids with which the rows of all pairs end: the template's last tokens.

        They are found as the common ending of the rows of two different pairs.
        """
        first, second = self._row(prompt, "0"), self._row(prompt, "1 2 3 4")
        shorter = min(len(first), len(second))
        differ = first[len(first) - shorter :] != second[len(second) - shorter :]
        # If no tokens differ, the template does not show the texts.
        count = shorter - 1 - int(np.flatnonzero(differ)[-1]) if differ.any() else 0
        return first[len(first) - count :]


class PlainFormat(PairFormat):
    """Joins a query and a document by the tokenizer's pair template; a prompt goes before both."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def least_length(self, prompt: str) -> int:
        """Return the number of special tokens around a query and a document."""
        del prompt
        return len(self._tokenizer.encode_batch([""], [""]).ids)

    def rows(
        self, pairs: list[tuple[str, str]], prompt: str, *, max_length: int | None, num_threads: int
    ) -> EncodedRows:
        """Tokenize pairs; of a pair that is too long, the longer text is truncated."""
        encoding = self._tokenizer.encode_batch(
            [prompt + query for query, _ in pairs],
            [document for _, document in pairs],
            max_length=max_length,
            num_threads=num_threads,
        )
        return EncodedRows(
            ids=encoding.ids,
            cu_seqlens=encoding.cu_seqlens,
            truncated=np.asarray(encoding.truncated),
        )

    def describe(self) -> dict[str, Any]:
        """Return {}: the tokenizer alone decides the rows."""
        return {}


def _check_body(body: str) -> bool:
    """Return whether the body of a :class:`PairTemplate` has a place for an instruction.

    Raises :class:`ConfigError` unless it has places for a query and a document, and no others.
    """
    try:
        names = {name for _, name, _, _ in Formatter().parse(body) if name is not None}
    except ValueError as error:
        raise ConfigError(f"the body {body!r:.80} is not a template: {error}") from error
    if not {"query", "document"} <= names <= {"instruction", "query", "document"}:
        raise ConfigError(
            f"the body {body!r:.80} must have {{query}} and {{document}}, and beside them only "
            "{instruction}"
        )
    return "instruction" in names
