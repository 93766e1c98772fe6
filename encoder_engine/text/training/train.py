"""Trains a WordPiece or Unigram vocabulary on texts, and writes a tokenizer directory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import OutputError
from encoder_engine.files import write_atomically, write_checksums
from encoder_engine.folders import replacing_folder
from encoder_engine.text.formats.vocab_txt import spec_from_vocab
from encoder_engine.text.spec.tokenizer import AddedTokenSpec, BertNormalizerSpec, SpecialTokenNames
from encoder_engine.text.tokenizer import Tokenizer
from encoder_engine.text.training.corpora import (
    CorpusCount,
    Lines,
    Stage,
    count_texts,
    open_corpora,
    sample,
)
from encoder_engine.text.training.options import (
    BERT_TOKENS,
    ModelKind,
    Trainer,
    TrainingOptions,
    check_options,
)
from encoder_engine.text.training.unigram import (
    UnigramResult,
    train_with_sentencepiece,
    train_with_tokenizers,
)
from encoder_engine.text.training.wordpiece import Alphabet, train_wordpiece

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

__all__ = ["TrainingOptions", "TrainingSummary", "train_tokenizer"]

Watch = Callable[[Stage, int], None]
OWN_FILES = frozenset(
    {
        "SHA256SUMS",
        "sentencepiece.model",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    }
)


@dataclass(frozen=True, kw_only=True)
class TrainingSummary:
    """What training a vocabulary did: texts read, changed and left out; the vocabulary's size."""

    directory: str
    model: ModelKind
    trainer: Trainer
    reproducible: bool
    vocab_size: int
    corpora: Mapping[str, CorpusCount]
    num_lines: int
    num_blank: int
    num_cut: int
    num_reserved: int
    seconds: Mapping[str, float] = field(default_factory=dict)


def train_tokenizer(
    corpora: Mapping[str, Iterable[str]] | Iterable[str],
    directory: str | PathLike[str],
    options: TrainingOptions | None = None,
    *,
    overwrite: bool = False,
    watch: Watch | None = None,
) -> TrainingSummary:
    """Train a vocabulary and write it as a directory that :class:`Tokenizer` and transformers load.

    Texts are read twice, once to count and once to sample; none is kept. Each of several labelled
    corpora gets a share of ``p ** alpha / sum``, where ``p`` is its share of all texts. The
    directory appears when it is complete.

    Args:
        corpora: texts, or a mapping of labels to texts; each iterable must be readable twice.
        directory: where to write; it must be new or empty, unless ``overwrite`` replaces a
            tokenizer.
        options: by default those of :class:`TrainingOptions`.
        overwrite: replace a directory that holds nothing but a tokenizer.
        watch: called with the stage (``"count"``, ``"read"`` or ``"train"``) and the number of
            texts done in that stage.

    Raises:
        InputError: the options contradict each other, or the texts do not make such a vocabulary.
        TextError: a text is not a str or has a lone surrogate; ``.row`` is its index in its corpus.
        MissingDependencyError: the trainer is not installed.
        OutputError: the directory holds files or cannot be written.
    """
    options = options or TrainingOptions()
    check_options(options)
    target = Path(directory)
    _check_target(target, overwrite=overwrite)
    labelled = open_corpora(corpora)
    seen: Watch = watch or (lambda _stage, _done: None)
    start = time.perf_counter()
    alphabet = Alphabet(_normalizer(options)) if options.model == "wordpiece" else None
    trial = Lines(max_length=options.max_sentence_length)

    def see(text: str) -> None:
        if alphabet is not None:
            for line in trial.of(text):
                alphabet.see(line)

    counts = count_texts(labelled, see, seen)
    counted = time.perf_counter()
    texts = sample(
        labelled,
        counts,
        alpha=options.alpha,
        limit=options.input_limit,
        seed=options.seed,
        watch=seen,
    )
    lines = Lines(max_length=options.max_sentence_length)
    stream = _lines_of(texts, lines, seen)
    if alphabet is not None:
        save = _train_wordpiece(stream, alphabet, options)
    else:
        save = partial(_save_unigram, _train_unigram(stream, options))
    trained = time.perf_counter()
    size = _write(target, save)
    return TrainingSummary(
        directory=str(target),
        model=options.model,
        trainer=options.chosen_trainer,
        reproducible=(options.model, options.chosen_trainer) != ("unigram", "tokenizers"),
        vocab_size=size,
        corpora=counts,
        num_lines=lines.num_lines,
        num_blank=lines.num_blank,
        num_cut=lines.num_cut,
        num_reserved=lines.num_reserved,
        seconds={"count": counted - start, "train": trained - counted},
    )


def _normalizer(options: TrainingOptions) -> BertNormalizerSpec:
    return BertNormalizerSpec(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=options.strip_accents,
        lowercase=options.lowercase,
    )


def _lines_of(texts: Iterable[str], lines: Lines, watch: Watch) -> Iterator[str]:
    for text in texts:
        yield from lines.of(text)
    watch("train", 0)


def _train_wordpiece(
    lines: Iterator[str], alphabet: Alphabet, options: TrainingOptions
) -> Callable[[Path], None]:
    vocab = train_wordpiece(
        lines,
        alphabet,
        special_tokens=[*BERT_TOKENS, *options.special_tokens],
        vocab_size=options.vocab_size,
        min_frequency=options.min_frequency,
        coverage=options.character_coverage,
    )
    pad, unk, cls, sep, mask = BERT_TOKENS
    spec = spec_from_vocab(
        vocab,
        path=Path("vocab.txt"),
        normalizer=_normalizer(options),
        names=SpecialTokenNames(unk=unk, cls=cls, sep=sep, pad=pad, mask=mask),
        more_added=tuple(
            AddedTokenSpec(content=token, id=vocab[token]) for token in options.special_tokens
        ),
    )
    return Tokenizer(spec).save


def _train_unigram(lines: Iterator[str], options: TrainingOptions) -> UnigramResult:
    if options.chosen_trainer == "tokenizers":
        return train_with_tokenizers(
            lines,
            vocab_size=options.vocab_size,
            extra_tokens=options.special_tokens,
            lowercase=options.lowercase,
        )
    return train_with_sentencepiece(
        lines,
        vocab_size=options.vocab_size,
        extra_tokens=options.special_tokens,
        lowercase=options.lowercase,
        byte_fallback=options.byte_fallback,
        coverage=options.character_coverage,
        max_length=options.max_sentence_length,
    )


def _save_unigram(result: UnigramResult, folder: Path) -> None:
    config: dict[str, Any] = {
        "bos_token": "<s>",
        "clean_up_tokenization_spaces": False,
        "cls_token": "<s>",
        "eos_token": "</s>",
        "mask_token": "<mask>",
        "pad_token": "<pad>",
        "sep_token": "</s>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
    }
    files = {
        "tokenizer.json": result.tokenizer_json.encode(),
        "tokenizer_config.json": (json.dumps(config, indent=2) + "\n").encode(),
    }
    if result.sentencepiece_model is not None:
        files["sentencepiece.model"] = result.sentencepiece_model
    for name, content in files.items():
        write_atomically(folder / name, content)


def _check_target(target: Path, *, overwrite: bool) -> None:
    if target.exists() and not target.is_dir():
        raise OutputError(f"{target} is a file; name a directory")
    names = sorted(path.name for path in target.iterdir()) if target.is_dir() else []
    if names and not overwrite:
        raise OutputError(f"{target} exists; name another folder, or pass overwrite=True")
    others = [name for name in names if name not in OWN_FILES]
    if others:
        raise OutputError(
            f"{target} would be replaced as a whole, but it holds {others[0]}, which is not a "
            "tokenizer's file; choose another name"
        )
    if not target.parent.is_dir():
        raise OutputError(f"{target.parent} is not a directory; make it first")


def _write(target: Path, save: Callable[[Path], None]) -> int:
    """Save a tokenizer as ``target``, once it loads from a temporary folder; return vocab_size."""
    with replacing_folder(target) as folder:
        save(folder)
        write_checksums(folder, [path.name for path in folder.iterdir()])
        return Tokenizer.from_pretrained(folder).vocab_size
