"""Formats pairs of a query and a document for a causal reranker: rows of tokens.

A reranker answers after the last token. Where a pair is too long, the end of the pair is cut, and
the template's words after it stay.
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
    """The words around a pair; the defaults are those that Qwen3-Reranker was published with.

    prefix, suffix: the words before and after the body; truncation never cuts them.
    body: has ``{instruction}``, ``{query}`` and ``{document}``; a body too long loses its end.
    instruction: the default instruction.
    positive, negative: the answers, one token each; negative None: the score is the positive's
        logit alone.
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
    """A way to write pairs of texts as rows of tokens.

    prompt: the task in words, where neither the call nor the directory has one.
    takes_prompt: False where a prompt would not reach the rows.
    """

    prompt: str = ""
    takes_prompt: bool = True

    @abstractmethod
    def least_length(self, prompt: str) -> int:
        """Return the number of tokens of a row beside those of the pair."""

    @abstractmethod
    def rows(
        self, pairs: list[tuple[str, str]], prompt: str, *, max_length: int | None, num_threads: int
    ) -> EncodedRows:
        """Tokenize pairs; ``max_length`` is more than :meth:`least_length`, or None."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what decides the rows beside the tokenizer and the prompt, as values of JSON."""

    def check_room(self, prompt: str, limit: int | None) -> None:
        """Raise :class:`ConfigError` where a pair has no room."""
        least = self.least_length(prompt)
        if limit is not None and least >= limit:
            raise ConfigError(
                f"the template has {least} tokens and leaves no room for a pair: the limit is "
                f"{limit}"
            )


class TemplateFormat(PairFormat):
    """Pairs in a :class:`PairTemplate`, whose prefix, body and suffix are tokenized apart.

    Raises :class:`ConfigError` where the template's body lacks the query or the document.
    """

    def __init__(self, tokenizer: Tokenizer, template: PairTemplate) -> None:
        self.template, self._tokenizer = template, tokenizer
        self.prompt = template.instruction
        self.takes_prompt = _check_body(template.body)
        self._prefix, self._suffix = map(self._ids, (template.prefix, template.suffix))
        self._around = len(self._prefix) + len(self._suffix)

    def answers(self) -> tuple[int, ...]:
        """Return the ids of the answers. Raises :class:`ConfigError` unless each is one token."""
        words = (self.template.positive, self.template.negative)
        return tuple(self._answer(word) for word in words if word is not None)

    def least_length(self, prompt: str) -> int:
        """Count the tokens of a pair of empty texts."""
        body = self.template.body.format(instruction=prompt, query="", document="")
        return self._around + len(self._ids(body))

    def rows(
        self, pairs: list[tuple[str, str]], prompt: str, *, max_length: int | None, num_threads: int
    ) -> EncodedRows:
        """Return rows of prefix, body and suffix; a body that is too long is cut."""
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
        """Return the template."""
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
    """Pairs in a directory's chat template, tokenized whole, as sentence-transformers does."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self.template, self._tokenizer = template, tokenizer

    def least_length(self, prompt: str) -> int:
        """Count the tokens of a pair of empty texts."""
        return len(self._row(prompt, ""))

    def rows(
        self, pairs: list[tuple[str, str]], prompt: str, *, max_length: int | None, num_threads: int
    ) -> EncodedRows:
        """Return rows; where one is cut, the template's last tokens replace its end."""
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
        """Return the template's source, and its variables."""
        return {"chat_template": self.template.source, "variables": self.template.variables}

    def _row(self, prompt: str, text: str) -> IdArray:
        rendered = self.template.render(prompt, text, text)
        return self._tokenizer.encode_batch([rendered], add_special_tokens=False).ids

    def _suffix(self, prompt: str) -> IdArray:
        """Return the tokens that end all rows: those that two different pairs have in common."""
        first, second = self._row(prompt, "0"), self._row(prompt, "1 2 3 4")
        shorter = min(len(first), len(second))
        differ = first[len(first) - shorter :] != second[len(second) - shorter :]
        # If no tokens differ, the template does not show the texts.
        count = shorter - 1 - int(np.flatnonzero(differ)[-1]) if differ.any() else 0
        return first[len(first) - count :]


class PlainFormat(PairFormat):
    """Pairs as the tokenizer joins them, the prompt before the query."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def least_length(self, prompt: str) -> int:
        """Count the special tokens."""
        del prompt
        return len(self._tokenizer.encode_batch([""], [""]).ids)

    def rows(
        self, pairs: list[tuple[str, str]], prompt: str, *, max_length: int | None, num_threads: int
    ) -> EncodedRows:
        """Return rows whose longer text is cut."""
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
        """Return no facts: the tokenizer decides the rows."""
        return {}


def _check_body(body: str) -> bool:
    """Return whether a template's body has an instruction.

    Raises :class:`ConfigError` unless it has a query and a document.
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
