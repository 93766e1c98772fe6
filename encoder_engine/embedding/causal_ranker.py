"""Rerankers that are causal models: a pair's score is the logit of "yes" minus the logit of "no".

How it works: a template makes a prompt of query and document that ends where the model would
answer. The template is a :class:`PairTemplate`, or the directory's chat template, read as
sentence-transformers does (``opening/chat_template.py``). One pass gives the hidden state of the
last token, and only two rows of the output layer are multiplied by it. The text before the query is
the same in all pairs: batches compute it once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from encoder_engine.dataclass import dataclass
from encoder_engine.embedding.library_keywords import naming
from encoder_engine.embedding.ranker import Ranker
from encoder_engine.engine.choosing import EngineRequest, load_causal
from encoder_engine.engine.limits import MemoryLimit
from encoder_engine.errors import ConfigError, InputError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.adapters import weights_directory
from encoder_engine.families.checkpoints.files import fetching, resolve_directory
from encoder_engine.families.config import read_config, spec_from_config
from encoder_engine.json_values import JsonValue
from encoder_engine.kinds.options import token_limit
from encoder_engine.kinds.pair_formats import (
    ChatFormat,
    PairFormat,
    PairTemplate,
    PlainFormat,
    TemplateFormat,
)
from encoder_engine.kinds.pairs import CausalPairs
from encoder_engine.opening.activation import check_activation, read_activation
from encoder_engine.opening.chat_template import ChatSettings, ChatTemplate, read_limit
from encoder_engine.opening.json_files import read_value
from encoder_engine.opening.modules import (
    CAUSAL_RANKER_ORDER,
    LOGIT_SCORE,
    MODULES,
    read_module_kinds,
)
from encoder_engine.opening.opening import open_directory
from encoder_engine.opening.recipe import Settings

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from pathlib import Path
    from typing import Unpack

    import torch

    from encoder_engine.engine.outputs import Activation
    from encoder_engine.engine.protocol import EncoderEngine, EngineChoice, Vectors
    from encoder_engine.families.checkpoints.files import HubKeywords
    from encoder_engine.kinds.kind import Kind
    from encoder_engine.kinds.pairs import Ranked, ScoreKeywords
    from encoder_engine.opening.opening import ModelDirectory
    from encoder_engine.text import Tokenizer

__all__ = ["CausalRanker", "PairTemplate"]

# The family whose rerankers were published with the default template, without naming it.
DEFAULT_FAMILY = "qwen3"


class CausalRanker(Ranker):
    """Scores pairs of a query and a document by the answer of a causal model.

    template: the text around query and document; None: that of Qwen3-Reranker, for a model of its
        family.
    answers: the token ids of the positive and of the negative answer, or of the positive alone;
        None: those of the template's words.
    activation: ``"sigmoid"``, the probability of the positive answer among the two, or
        ``"identity"``, its log-odds.

    Raises :class:`ConfigError` where there is no template, the template's body lacks the query or
    the document, ``max_seq_length`` leaves no room for a pair, an answer is not one token of the
    model, there are more than two answers, or special tokens lie beyond the model's vocabulary.
    """

    def __init__(
        self,
        engine: EncoderEngine,
        tokenizer: Tokenizer,
        *,
        template: PairTemplate | PairFormat | None = None,
        answers: tuple[int, ...] | None = None,
        max_seq_length: int | None = None,
        activation: Activation = "sigmoid",
        settings: Settings | None = None,
    ) -> None:
        spec = engine.spec
        tokenizer = tokenizer.fitted_to(spec.embedding.vocab_size)
        self.engine = engine
        self.tokenizer = tokenizer
        if template is None:
            template = _default_template(spec.model_type, "the model")
        if isinstance(template, PairTemplate):
            template = TemplateFormat(tokenizer, template)
        self.format: PairFormat = template
        if answers is None:
            if not isinstance(template, TemplateFormat):
                raise ConfigError("pass answers=, the tokens of the positive and negative answer")
            answers = template.answers()
        if len(answers) not in (1, 2):
            raise ConfigError(
                f"answers must be the tokens of the positive and of the negative answer, or of the "
                f"positive alone, got {len(answers)} tokens"
            )
        if not all(0 <= token < spec.embedding.vocab_size for token in answers):
            raise ConfigError(
                f"the answers are the tokens {', '.join(map(str, answers))}, the model has "
                f"{spec.embedding.vocab_size}; the files belong to different models"
            )
        self._answers = answers
        self.max_seq_length = token_limit(max_seq_length, spec.max_length)
        self.activation = check_activation(activation)
        self.memory_limit = MemoryLimit()
        self.settings = Settings() if settings is None else settings
        self.format.check_room(self.kind.resolve().prompt, self.max_seq_length)

    @classmethod
    @fetching
    def from_pretrained(
        cls,
        path_or_hub_id: str | os.PathLike[str],
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        quantization: str | None = None,
        *,
        template: PairTemplate | None = None,
        max_seq_length: int | None = None,
        activation: Activation | None = None,
        num_threads: int | None = None,
        engine: EngineChoice = "auto",
        **hub: Unpack[HubKeywords],
    ) -> Self:
        """Load a causal model: a CrossEncoder's directory with LogitScore, or a plain one.

        template: the text around query and document, the default instruction and the answers,
            instead of the directory's. A plain directory has no template; for a qwen3 the default
            is Qwen3-Reranker's.
        activation: the function from log-odds to scores; None: the directory's, by default sigmoid.

        Raises :class:`ConfigError` for a plain directory of another family without ``template``,
        and :class:`MissingDependencyError` where there is a chat template and no Jinja (extra
        ``chat``). Other options and exceptions: see
        :meth:`Embedder.from_pretrained`, and :meth:`Scorer.from_pretrained` for a model that is not
        causal.
        """
        found = open_causal_directory(resolve_directory(path_or_hub_id, **hub), template)
        opened, folder = found.opened, found.opened.encoder_folder
        if activation is None:
            activation = read_activation(opened.directory, folder)
        request = EngineRequest.of(engine, device, dtype, quantization, num_threads)
        ranker = cls(
            load_causal(folder, request),
            found.tokenizer,
            template=found.template,
            answers=found.answers,
            max_seq_length=found.max_seq_length if max_seq_length is None else max_seq_length,
            activation="sigmoid" if activation is None else activation,
            # The instruction of a template that the caller gave is not the directory's.
            settings=opened.settings
            if template is None
            else replace(opened.settings, default_prompt_name=None),
        )
        return ranker.loaded_from(opened.directory, request, template=template)

    @property
    def num_labels(self) -> int:
        """The number of scores of each pair: 1."""
        return 1

    @naming("pairs")
    def score(
        self,
        pairs: Iterable[tuple[str, str]] | tuple[str, str],
        *,
        instruction: str | None = None,
        **options: Unpack[ScoreKeywords],
    ) -> Vectors:
        """Score pairs of a query and a document: float32 [N]; a single pair gets a number.

        instruction: the task in words; None: the directory's default prompt, or the template's.
        prompt, prompt_name: the task as a text, or as the name of a prompt of the directory.
        on_truncation: see :meth:`Embedder.encode`; a pair longer than ``max_seq_length`` loses the
            tail of its document, or of its longer text if there is no template.

        Raises :class:`InputError` with the row for a pair without a token. Other options and
        exceptions: see :meth:`Ranker.score`.
        """
        return super().score(pairs, **_prompted(instruction, options))

    @naming("pairs")
    def predict(
        self,
        pairs: Iterable[tuple[str, str]] | tuple[str, str],
        *,
        instruction: str | None = None,
        **options: Any,
    ) -> Any:
        """Score pairs as ``CrossEncoder.predict`` does: [N], or one score of a single pair.

        instruction: see :meth:`score`. Other options: see :meth:`Ranker.predict`.
        """
        return super().predict(pairs, **_prompted(instruction, options))

    def rank(
        self,
        query: str,
        documents: Iterable[str],
        top_k: int | None = None,
        return_documents: bool = False,
        *,
        instruction: str | None = None,
        **options: Any,
    ) -> list[Ranked]:
        """Rank documents for a query: the best first, equal scores in the order given.

        instruction: see :meth:`score`. Other options: see :meth:`Ranker.rank`.
        """
        prompted = _prompted(instruction, options)
        return super().rank(query, documents, top_k, return_documents, **prompted)

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Raise :class:`UnsupportedFeatureError`: copy the directory instead."""
        raise UnsupportedFeatureError(
            f"a CausalRanker is not written to {directory}: copy the directory that it was loaded "
            f"from, {self.name}"
        )

    @property
    def labels(self) -> list[str]:
        """Return ``["LABEL_0"]``: the name of the single score, as transformers gives it."""
        return ["LABEL_0"]

    def kinds(self) -> dict[str, Kind]:
        """Return {"scores": ...}: how scores of pairs are computed; see :meth:`Model.kinds`."""
        scores = CausalPairs(
            self, activation=self.activation, format=self.format, answers=self._answers
        )
        return {"scores": scores}


@dataclass(frozen=True, kw_only=True)
class CausalDirectory:
    """A causal reranker's directory with all its files read, except the weights.

    For the fields see :class:`CausalRanker`.
    """

    opened: ModelDirectory
    tokenizer: Tokenizer
    template: PairTemplate | PairFormat
    answers: tuple[int, ...] | None
    max_seq_length: int | None


def open_causal_directory(directory: Path, template: PairTemplate | None = None) -> CausalDirectory:
    """Read a causal reranker's directory. Exceptions: see :meth:`CausalRanker.from_pretrained`."""
    has_modules = (directory / MODULES).is_file()
    opened = open_directory(
        directory,
        "CrossEncoder",
        CAUSAL_RANKER_ORDER,
        task="text-generation",
        reads="logits",
        makes="causal_logits",
        chat=has_modules and LOGIT_SCORE in read_module_kinds(directory),
    )
    tokenizer, limit = opened.read_tokenizer(), opened.max_seq_length
    answers: tuple[int, ...] | None = None
    chosen: PairTemplate | PairFormat | None = template
    if opened.modules[1:]:
        stated = None if opened.transformer.chat is None else read_limit(opened.transformer.chat)
        limit = limit if stated is None else stated
        if template is None:
            answers = _read_answers(opened.modules[1].folder)
            chosen = _read_format(opened, tokenizer)
    return CausalDirectory(
        opened=opened,
        tokenizer=tokenizer,
        template=chosen or _template_of_plain(opened.encoder_folder),
        answers=answers,
        max_seq_length=limit,
    )


def _prompted(instruction: str | None, options: Any) -> dict[str, Any]:
    """Return the options of a call, with the instruction as the prompt unless it is None."""
    if instruction is None:
        return dict(options)
    if options.get("prompt") is not None:
        raise InputError("give instruction or prompt, not both: they are the same")
    return {**options, "prompt": instruction}


def _default_template(model_type: str, where: str) -> PairTemplate:
    """Return Qwen3-Reranker's template. Raises :class:`ConfigError` for another family."""
    if model_type != DEFAULT_FAMILY:
        raise ConfigError(
            f"{where} is a {model_type} that names no words around a pair (no {LOGIT_SCORE} in "
            f"{MODULES}), and the default ones are those of Qwen3-Reranker; pass "
            "template=PairTemplate(...) with the words and answers that it was trained with"
        )
    return PairTemplate()


def _template_of_plain(folder: Path) -> PairTemplate:
    spec = spec_from_config(read_config(weights_directory(folder)))
    if not spec.is_causal:
        raise UnsupportedFeatureError(
            f"{folder} holds a {spec.model_type} whose tokens see later ones: it does not answer; "
            "Ranker.from_pretrained loads a model for sequence classification"
        )
    return _default_template(spec.model_type, str(folder))


def _read_answers(folder: Path) -> tuple[int, ...]:
    """Read the ids of the positive and the negative answer's tokens from a LogitScore module."""
    config = read_value(folder / "config.json")
    config.only_keys(("true_token_id", "false_token_id", "module_input_name"))
    reads = config.get("module_input_name")
    if reads.value not in (None, "causal_logits"):
        raise UnsupportedFeatureError(f"{reads.where} must be 'causal_logits', got {reads.value!r}")
    negative = config.get("false_token_id").optional(JsonValue.integer)
    positive = config.get("true_token_id").integer()
    return (positive,) if negative is None else (positive, negative)


def _read_format(opened: ModelDirectory, tokenizer: Tokenizer) -> PairFormat:
    """Read the format of pairs from a directory with a LogitScore module."""
    folder, config = opened.encoder_folder, opened.transformer.chat
    if config is None or config.get("transformer_task").is_null:
        raise ConfigError(
            f"{folder} has a {LOGIT_SCORE}, and no sentence_bert_config.json with transformer_task:"
            " text-generation, whose logits it reads; save it with sentence-transformers 6"
        )
    settings = ChatSettings.read(config)
    if settings.message_format is None:
        return PlainFormat(tokenizer)
    model_type = str(read_config(weights_directory(folder)).get("model_type"))
    template = ChatTemplate(folder, settings, model_type)
    return ChatFormat(tokenizer, template)
