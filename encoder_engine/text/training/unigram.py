"""Trains a Unigram vocabulary, with the trainer of sentencepiece or of Hugging Face tokenizers.

Either way the result is a tokenizer.json laid out as XLM-R's: ``<s>``, ``<pad>``, ``</s>`` and
``<unk>`` first, then the pieces, further special tokens, and ``<mask>`` last. Only sentencepiece's
trainer gives the same vocabulary for the same input: the other adds numbers up in an order that
differs from run to run.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError, MissingDependencyError
from encoder_engine.text.formats.protobuf import Message
from encoder_engine.text.formats.saving import tokenizer_json
from encoder_engine.text.formats.template_json import roberta_layouts
from encoder_engine.text.spec.tokenizer import AddedTokenSpec, SpecialTokenNames, TokenizerSpec
from encoder_engine.text.spec.unigram import (
    ByteFallbackStep,
    CharsmapStep,
    DecoderSteps,
    FuseStep,
    LowercaseStep,
    MetaspaceSpec,
    ReplaceStep,
    UnicodeFormStep,
    UnigramSpec,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from encoder_engine.text.spec.unigram import NormalizerStep

__all__ = ["UnigramResult", "train_with_sentencepiece", "train_with_tokenizers"]

METASPACE = "\u2581"
FIRST = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
# Fixed, because the result depends on it and must be the same on every machine.
NUM_THREADS = 4


@dataclass(frozen=True, kw_only=True)
class UnigramResult:
    """A trained tokenizer: tokenizer.json as text, and the .model file if sentencepiece trained."""

    tokenizer_json: str
    sentencepiece_model: bytes | None


def train_with_sentencepiece(
    lines: Iterable[str],
    *,
    vocab_size: int,
    extra_tokens: Sequence[str],
    lowercase: bool,
    byte_fallback: bool,
    coverage: float,
    max_length: int,
) -> UnigramResult:
    """Train a Unigram vocabulary on lines with sentencepiece; return it laid out as XLM-R's.

    Raises :class:`InputError` where it cannot be trained, and :class:`MissingDependencyError`.
    """
    try:
        import sentencepiece
    except ImportError as error:
        raise _missing("sentencepiece") from error
    model = io.BytesIO()
    others = len(FIRST) + len(extra_tokens) + 1
    failures: list[BaseException] = []
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_noting(lines, failures),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size - others + 3,
            character_coverage=coverage,
            byte_fallback=byte_fallback,
            normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
            num_threads=NUM_THREADS,
            # Lines are sampled and cut already; its limit counts bytes.
            input_sentence_size=0,
            shuffle_input_sentence=False,
            max_sentence_length=4 * max_length + 8,
            minloglevel=3,
        )
    except (RuntimeError, OSError) as error:
        if failures:
            raise failures[0] from None
        reason = str(error).rpartition("] ")[2] or str(error)
        raise InputError(
            f"sentencepiece could not train: {reason} (vocab_size includes {others - 3} special "
            "tokens that sentencepiece does not count)"
        ) from error
    content = model.getvalue()
    processor: Any = sentencepiece.SentencePieceProcessor(model_proto=content)
    pieces = [
        (processor.id_to_piece(number), processor.get_score(number))
        for number in range(3, processor.get_piece_size())
    ]
    charsmap = Message.read(content, "sentencepiece.model").message(3).blob(2)
    return _lay_out(
        pieces,
        extra_tokens=extra_tokens,
        normalizer=(CharsmapStep(charsmap=charsmap),),
        byte_fallback=byte_fallback,
        sentencepiece_model=content,
    )


def _noting(lines: Iterable[str], failures: list[BaseException]) -> Iterator[str]:
    """Yield lines; record the exception that ends them, because sentencepiece would replace it."""
    try:
        yield from lines
    except BaseException as error:
        failures.append(error)
        raise


def train_with_tokenizers(
    lines: Iterable[str], *, vocab_size: int, extra_tokens: Sequence[str], lowercase: bool
) -> UnigramResult:
    """Train a Unigram vocabulary with Hugging Face tokenizers; every character of lines is kept.

    Raises :class:`InputError` where it cannot be trained, and :class:`MissingDependencyError`.
    """
    try:
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    except ImportError as error:
        raise _missing("tokenizers") from error
    tokenizer: Any = Tokenizer(models.Unigram())
    steps: list[Any] = [normalizers.NFKC(), *([normalizers.Lowercase()] if lowercase else [])]
    tokenizer.normalizer = normalizers.Sequence([*steps, *_one_space()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(METASPACE, "always")
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size - len(FIRST) - len(extra_tokens),
        show_progress=False,
        special_tokens=[FIRST[3]],
        unk_token=FIRST[3],
    )
    try:
        tokenizer.train_from_iterator(lines, trainer)
    except Exception as error:
        # The library's own errors have no other class; those of the lines pass.
        if type(error) is not Exception:
            raise
        raise InputError(f"tokenizers could not train: {error}; raise vocab_size") from error
    model = json.loads(tokenizer.to_str())["model"]
    return _lay_out(
        [(piece, score) for piece, score in model["vocab"] if piece != FIRST[3]],
        extra_tokens=extra_tokens,
        normalizer=(UnicodeFormStep(form="NFKC"), *([LowercaseStep()] if lowercase else [])),
        byte_fallback=False,
        sentencepiece_model=None,
    )


def _one_space() -> list[Any]:
    from tokenizers import Regex, normalizers

    return [normalizers.Replace(Regex(" {2,}"), " ")]


def _missing(library: str) -> MissingDependencyError:
    return MissingDependencyError("training a vocabulary", library=library, extra="train")


def _lay_out(
    pieces: Sequence[tuple[str, float]],
    *,
    extra_tokens: Sequence[str],
    normalizer: tuple[NormalizerStep, ...],
    byte_fallback: bool,
    sentencepiece_model: bytes | None,
) -> UnigramResult:
    """Write trained pieces as a tokenizer.json, with XLM-R's template, special tokens, decoder."""
    special = [(token, 0.0) for token in (*FIRST, *extra_tokens, MASK)]
    vocab = [*special[: len(FIRST)], *pieces, *special[len(FIRST) :]]
    metaspace = MetaspaceSpec(replacement=METASPACE, prepend_scheme="always", split=True)
    steps = (ByteFallbackStep(), metaspace, FuseStep()) if byte_fallback else (metaspace,)
    model = UnigramSpec(
        pieces=[piece for piece, _ in vocab],
        scores=[score for _, score in vocab],
        unk_id=FIRST.index("<unk>"),
        byte_fallback=byte_fallback,
        normalizer=(*normalizer, ReplaceStep(pattern=" {2,}", regex=True, content=" ")),
        whitespace_split=True,
        metaspace=metaspace,
    )
    single, pair = roberta_layouts(("<s>", model.vocab["<s>"]), ("</s>", model.vocab["</s>"]))
    spec = TokenizerSpec(
        model=model,
        single=single,
        pair=pair,
        # White space in front of a mask belongs to it, as XLM-R has it.
        added_tokens=tuple(
            AddedTokenSpec(content=token, id=model.vocab[token], lstrip=token == MASK)
            for token, _ in special
        ),
        decoder=DecoderSteps(steps=steps),
        special=SpecialTokenNames(),
    )
    return UnigramResult(
        tokenizer_json=json.dumps(tokenizer_json(spec), ensure_ascii=False, indent=1) + "\n",
        sentencepiece_model=sentencepiece_model,
    )
