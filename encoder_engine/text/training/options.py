"""The options of vocabulary training, and their checks."""

from __future__ import annotations

from typing import Literal

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import InputError

__all__ = ["BERT_TOKENS", "ModelKind", "Trainer", "TrainingOptions", "check_options"]

ModelKind = Literal["wordpiece", "unigram"]
Trainer = Literal["tokenizers", "sentencepiece"]
BERT_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
UNIGRAM_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The options of vocabulary training.

    Attributes:
        model: ``"wordpiece"`` or ``"unigram"``.
        trainer: the library; by default ``"tokenizers"`` for WordPiece and ``"sentencepiece"`` for
            Unigram. Unigram with ``tokenizers`` is not reproducible.
        vocab_size: pieces, special tokens included.
        min_frequency: how often a pair must occur to be merged into a piece; WordPiece only.
        lowercase: lower-case the text.
        strip_accents: remove accents, by default as ``lowercase``; WordPiece only.
        special_tokens: special tokens besides the model's own.
        byte_fallback: spell unknown characters by bytes; Unigram with ``sentencepiece`` only.
        character_coverage: share of all characters that must be spelled; the rarest others are
            unknown.
        max_sentence_length: the most characters of a line; longer lines are cut.
        input_limit: the number of texts to read; by default all.
        alpha: exponent of the corpora's shares of the texts: 1 keeps the shares, 0 makes them
            equal.
        seed: the seed of the sampling.
    """

    model: ModelKind = "wordpiece"
    trainer: Trainer | None = None
    vocab_size: int = 30_000
    min_frequency: int = 2
    lowercase: bool = True
    strip_accents: bool | None = None
    special_tokens: tuple[str, ...] = ()
    byte_fallback: bool = False
    character_coverage: float = 0.9995
    max_sentence_length: int = 4096
    input_limit: int | None = None
    alpha: float = 0.3
    seed: int = 0

    @property
    def chosen_trainer(self) -> Trainer:
        """The library that trains: ``trainer``, or else the default of the model."""
        default: Trainer = "tokenizers" if self.model == "wordpiece" else "sentencepiece"
        return self.trainer or default


def check_options(options: TrainingOptions) -> None:
    """Raise :class:`InputError` for training options that contradict each other."""
    unigram, trainer = options.model == "unigram", options.chosen_trainer
    plain = TrainingOptions()
    wrong = {
        f"model is {options.model!r}; known are 'wordpiece' and 'unigram'": options.model
        not in ("wordpiece", "unigram"),
        f"trainer is {trainer!r}; known are 'tokenizers' and 'sentencepiece'": trainer
        not in ("tokenizers", "sentencepiece"),
        "sentencepiece trains no WordPiece; leave the trainer out": not unigram
        and trainer == "sentencepiece",
        "min_frequency is WordPiece's; Unigram chooses by likelihood": unigram
        and options.min_frequency != plain.min_frequency,
        "strip_accents is WordPiece's; normalize the texts beforehand": unigram
        and options.strip_accents is not None,
        "byte_fallback needs model='unigram' with sentencepiece's trainer": options.byte_fallback
        and not (unigram and trainer == "sentencepiece"),
        "character_coverage needs sentencepiece's trainer for Unigram; tokenizers' keeps all": (
            unigram
            and trainer == "tokenizers"
            and options.character_coverage not in (1.0, plain.character_coverage)
        ),
        f"vocab_size is {options.vocab_size}, expected at least 10": options.vocab_size < 10,
        f"min_frequency is {options.min_frequency}, expected at least 1": options.min_frequency < 1,
        f"character_coverage is {options.character_coverage}, expected above 0 and at most 1": not (
            0 < options.character_coverage <= 1
        ),
        f"max_sentence_length is {options.max_sentence_length}, expected at least 16": (
            options.max_sentence_length < 16
        ),
        f"input_limit is {options.input_limit}, expected at least 1": options.input_limit
        is not None
        and options.input_limit < 1,
        f"alpha is {options.alpha}, expected from 0 to 1": not 0 <= options.alpha <= 1,
    }
    for reason, applies in wrong.items():
        if applies:
            raise InputError(reason)
    own = UNIGRAM_TOKENS if unigram else BERT_TOKENS
    for token in options.special_tokens:
        if not token.strip() or token != token.strip() or options.special_tokens.count(token) > 1:
            raise InputError(f"the special token {token!r} is blank, padded or named twice")
        if token in own:
            raise InputError(f"the special token {token!r} is one of the model's own")
