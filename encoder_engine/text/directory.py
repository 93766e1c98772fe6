"""Finds and reads a tokenizer's files, and refuses files that contradict each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from encoder_engine.errors import TokenizerFileError
from encoder_engine.files import verify_checksums
from encoder_engine.text.encoders.normalizing import normalize_added
from encoder_engine.text.formats.byte_bpe import (
    MERGES,
    VOCAB,
    check_prefix_space,
    spec_from_byte_bpe,
)
from encoder_engine.text.formats.companion_tokens import append_tokens
from encoder_engine.text.formats.config_json import BERT_LIKE, TokenizerConfig, read_config
from encoder_engine.text.formats.json_reading import read_bytes
from encoder_engine.text.formats.letters import LETTER_CLASSES, spec_from_letters
from encoder_engine.text.formats.sentencepiece_families import (
    MODEL_FILES,
    check_same_pieces,
    find_model,
    spec_from_family,
)
from encoder_engine.text.formats.sentencepiece_model import spec_from_sentencepiece
from encoder_engine.text.formats.tokenizer_json import read_tokenizer_json
from encoder_engine.text.formats.vocab_txt import read_vocab_txt, spec_from_vocab
from encoder_engine.text.spec.bpe import BpeSpec
from encoder_engine.text.spec.library import LibrarySpec
from encoder_engine.text.spec.tokenizer import BertNormalizerSpec, SpecialTokenNames, WordPieceSpec
from encoder_engine.text.spec.unigram import LowercaseStep, SentencePieceSpec, UnigramSpec
from encoder_engine.text.vocabulary import NativeVocabulary

if TYPE_CHECKING:
    from os import PathLike

    from encoder_engine.text.spec.tokenizer import AddedTokenSpec, TokenizerSpec

__all__ = ["check_added", "load"]

# The files of a tokenizer, compared with their recorded checksums before they are read.
OWN_FILES = (
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    VOCAB,
    MERGES,
    *MODEL_FILES,
)
# The class of RoFormer, which finds Chinese words by a dictionary before it looks for pieces.
JIEBA_CLASS = "RoFormerTokenizer"
PARTS = ("unk", "cls", "sep", "pad", "mask")
DEFAULT_NAMES = SpecialTokenNames(unk="[UNK]", cls="[CLS]", sep="[SEP]", pad="[PAD]", mask="[MASK]")


def load(path: str | PathLike[str], *, lowercase: bool | None = None) -> TokenizerSpec:
    """Read a tokenizer's specification from a file or a directory of files.

    They are tokenizer.json, vocab.txt, vocab.json with merges.txt, or a SentencePiece model.
    ``lowercase``: whether to lower-case texts, where the files do not say it. Raises
    :class:`TokenizerFileError`, and :class:`ChecksumError` for a changed file.
    """
    place = Path(path)
    folder = place if place.is_dir() else place.parent
    if folder.is_dir():
        verify_checksums(folder, only={*OWN_FILES, place.name})
    if place.is_dir():
        spec = _load_directory(place, lowercase)
    elif not place.is_file():
        raise TokenizerFileError(f"{place} does not exist")
    elif place.suffix == ".json":
        _refuse_lowercase(lowercase, place)
        spec = read_tokenizer_json(place)
    elif place.suffix == ".txt":
        spec = _load_vocab(place, read_config(place.parent), lowercase)
    elif place.suffix == ".model":
        _refuse_lowercase(lowercase, place)
        spec = spec_from_sentencepiece(place)
    else:
        raise TokenizerFileError(f"{place} is not a .json, .txt or .model file")
    check_added(spec, place)
    return spec


def _load_directory(folder: Path, lowercase: bool | None) -> TokenizerSpec:
    json_path, vocab_path = folder / "tokenizer.json", folder / "vocab.txt"
    config = read_config(folder)
    model_path = find_model(folder)
    if not json_path.is_file():
        if model_path is not None:
            _refuse_lowercase(lowercase, model_path)
            return _load_sentencepiece(model_path, config)
        if (folder / VOCAB).is_file() and (folder / MERGES).is_file():
            _refuse_lowercase(lowercase, folder / VOCAB)
            spec = spec_from_byte_bpe(folder, config)
            return _with_companions(_with_config(spec, config), config)
        if not vocab_path.is_file():
            raise TokenizerFileError(
                f"{folder} holds no tokenizer: looked for tokenizer.json, vocab.txt and "
                f"{', '.join(MODEL_FILES)}"
            )
        return _load_vocab(vocab_path, config, lowercase)
    _refuse_lowercase(lowercase, json_path)
    spec = read_tokenizer_json(json_path)
    if model_path is not None:
        check_same_pieces(spec, model_path)
    if vocab_path.is_file():
        _check_same_vocab(spec, vocab_path)
    _check_config(spec, config)
    _check_decoder(spec, config)
    return _with_companions(_with_config(spec, config), config)


def _load_sentencepiece(path: Path, config: TokenizerConfig) -> TokenizerSpec:
    """Read a SentencePiece model by its tokenizer class's rules; without a class, as it is."""
    if config.kind is None:
        return spec_from_sentencepiece(path)
    spec = spec_from_family(path, config.kind, config)
    return _with_companions(_with_config(spec, config), config)


def _refuse_lowercase(lowercase: bool | None, path: Path) -> None:
    if lowercase is not None:
        raise TokenizerFileError(f"{path} says itself whether to lower-case; leave lowercase out")


def _load_vocab(path: Path, config: TokenizerConfig, lowercase: bool | None) -> TokenizerSpec:
    vocab = read_vocab_txt(path)
    # Models of other types that have a vocab.txt and name no class were made with BERT's tokenizer.
    if config.tokenizer_class is None and config.kind not in (JIEBA_CLASS, *LETTER_CLASSES):
        config = replace(config, kind="BertTokenizer")
    kind = config.kind
    if kind in LETTER_CLASSES:
        _refuse_lowercase(lowercase, path)
        return _with_config(spec_from_letters(vocab, path=path, config=config), config)
    if kind not in BERT_LIKE:
        raise TokenizerFileError(
            f"{config.where}: a vocab.txt of {config.tokenizer_class or kind} is not supported; "
            "save the tokenizer as tokenizer.json"
        )
    if not config.old_added.is_null and not config.added_tokens:
        raise TokenizerFileError(
            f"{path.parent}: added_tokens.json does not say how its tokens match; save the "
            "tokenizer again, as tokenizer.json"
        )
    added = _check_numbers(vocab, config)
    known = [token for token in config.companions.wanted if token.content in vocab]
    names = {part: getattr(config.names, part) or getattr(DEFAULT_NAMES, part) for part in PARTS}
    chinese = config.tokenize_chinese_chars
    spec = spec_from_vocab(
        vocab,
        path=path,
        normalizer=BertNormalizerSpec(
            clean_text=True,
            handle_chinese_chars=True if chinese is None else chinese,
            strip_accents=config.strip_accents,
            lowercase=_choose_lowercase(vocab, path, config, lowercase),
        ),
        names=SpecialTokenNames(**names),
        more_added=append_tokens(added, vocab, known),
    )
    return _with_companions(_with_config(spec, config), config)


def _choose_lowercase(
    vocab: dict[str, int], path: Path, config: TokenizerConfig, lowercase: bool | None
) -> bool:
    """Return whether to lower-case texts: by argument or config, else if no piece has capitals.

    Raises :class:`TokenizerFileError` if argument and config differ, or if neither says it and a
    piece has capitals.
    """
    stated = config.do_lower_case
    if lowercase is not None and stated is not None and lowercase != stated:
        raise TokenizerFileError(f"lowercase={lowercase}, but {config.where} has {stated}")
    if lowercase is not None or stated is not None:
        return bool(lowercase if stated is None else stated)
    cased = next((t for t in vocab if not t.startswith("[") and t != t.lower()), None)
    if cased is not None:
        raise TokenizerFileError(
            f"{path} holds the upper-case piece {cased!r}, and nothing says whether "
            'texts are lower-cased: write {"do_lower_case": false}, or true, to a '
            "tokenizer_config.json beside it"
        )
    return True


def _check_numbers(vocab: dict[str, int], config: TokenizerConfig) -> tuple[AddedTokenSpec, ...]:
    """Return the config's added tokens; refuse ids that the vocabulary contradicts."""
    next_id = len(vocab)
    added = config.added_tokens or ()
    for token in sorted(added, key=lambda item: item.id):
        expected = vocab.get(token.content, next_id)
        next_id += token.content not in vocab
        if token.id != expected:
            raise TokenizerFileError(
                f"{config.where}: {token.content!r} has the id {token.id}, but its position gives "
                f"it {expected}"
            )
    return added


def _check_same_vocab(spec: TokenizerSpec, path: Path) -> None:
    own = spec.model.vocab
    if isinstance(own, NativeVocabulary) and own.native.has_lines(read_bytes(path)):
        return
    vocab = read_vocab_txt(path)
    own = dict(own.items())
    added = {token.content: token.id for token in spec.added_tokens}
    for token, number in vocab.items():
        found = own.get(token, added.get(token))
        if found != number:
            raise TokenizerFileError(
                f"{path} and tokenizer.json contradict each other: {token!r} is {number} in the "
                f"one and {found} in the other; remove the stale file"
            )
    missing = next((token for token in own if token not in vocab), None)
    if missing is not None:
        raise TokenizerFileError(
            f"{path} and tokenizer.json contradict each other: only the latter has {missing!r}; "
            "remove the stale file"
        )


def _check_config(spec: TokenizerSpec, config: TokenizerConfig) -> None:
    model = spec.model
    if isinstance(model, BpeSpec | LibrarySpec):
        check_prefix_space(model, config)
        return
    assert not isinstance(model, SentencePieceSpec)
    if isinstance(model, UnigramSpec):
        stated = {"do_lower_case": (config.do_lower_case, LowercaseStep() in model.normalizer)}
    else:
        normalizer = model.normalizer
        chinese = normalizer.handle_chinese_chars
        stated = {
            "do_lower_case": (config.do_lower_case, normalizer.lowercase),
            "strip_accents": (config.strip_accents, normalizer.strips_accents),
            "tokenize_chinese_chars": (config.tokenize_chinese_chars, chinese),
        }
    for key, (here, there) in stated.items():
        if here is not None and here != there:
            raise TokenizerFileError(
                f"{config.where} has {key}={here}, but the normalizer of tokenizer.json does the "
                "opposite; correct the one that is wrong"
            )


def _check_decoder(spec: TokenizerSpec, config: TokenizerConfig) -> None:
    """Check that ``added_tokens_decoder`` lists exactly the added tokens of tokenizer.json."""
    if config.added_tokens is None:
        return
    own = {token.content: token for token in spec.added_tokens}
    for token in config.added_tokens:
        found = own.get(token.content)
        if found != token:
            raise TokenizerFileError(
                f"{config.where} and tokenizer.json contradict each other about the added token "
                f"{token.content!r}: {token} in the one, {found} in the other"
            )
    listed = {token.content for token in config.added_tokens}
    listed |= {token.content for token in config.companions.wanted}
    unlisted = next((content for content in own if content not in listed), None)
    if unlisted is not None:
        raise TokenizerFileError(
            f"{config.where}: added_tokens_decoder lacks {unlisted!r}, an added token of "
            "tokenizer.json; save the tokenizer again"
        )


def _with_companions(spec: TokenizerSpec, config: TokenizerConfig) -> TokenizerSpec:
    """Add the tokens that only tokenizer_config.json or special_tokens_map.json name."""
    vocab, wanted = spec.model.vocab, config.companions.wanted
    added = append_tokens(spec.added_tokens, vocab, wanted)
    ids = {token.content: token.id for token in added}
    fresh = [token for token in wanted if token.content not in vocab]
    fresh = [token for token in fresh if spec.token_to_id(token.content) is None]
    taken = set(vocab.values()) if fresh else set()
    # transformers adds [PAD] and [MASK] to BERT's tokenizer as well, with ids that no file states.
    open_ids = isinstance(spec.model, WordPieceSpec) and None in (
        spec.special.pad,
        spec.special.mask,
    )
    for token in fresh:
        if ids[token.content] in taken or open_ids:
            raise TokenizerFileError(
                f"{token.where}: {token.content!r} is not in the vocabulary, so its id is unknown; "
                "give it a line in vocab.txt or an entry in added_tokens"
            )
    for token in config.companions.passed_over:
        if token.content not in ids:
            raise TokenizerFileError(
                f"{token.where} names {token.content!r}, but another file takes precedence and "
                "lacks this token; save the tokenizer again"
            )
    listed = {token.content: token.id for token in spec.added_tokens}
    for content, number in ({} if config.old_added.is_null else config.old_added.object()).items():
        if listed.get(content) != number:
            raise TokenizerFileError(
                f"{config.old_added.where}: {content!r} has the id {number!r} here but "
                f"{listed.get(content)} among the added tokens; remove the stale file"
            )
    return replace(spec, added_tokens=added)


def _with_config(spec: TokenizerSpec, config: TokenizerConfig) -> TokenizerSpec:
    """Add the settings that only tokenizer_config.json or special_tokens_map.json have."""
    names = {part: getattr(config.names, part) or getattr(spec.special, part) for part in PARTS}
    for part, name in names.items():
        if name is not None and spec.token_to_id(name) is None:
            raise TokenizerFileError(
                f"{config.where}: the {part} token {name!r} is not in the vocabulary"
            )
    direction = spec.truncation.direction if spec.truncation is not None else "right"
    padding = spec.padding.direction if spec.padding is not None else "right"
    single, pair = spec.single, spec.pair
    if not config.gives_types:
        single, pair = (tuple(replace(p, type_id=0) for p in layout) for layout in (single, pair))
    return replace(
        spec,
        single=single,
        pair=pair,
        special=SpecialTokenNames(**names),
        model_max_length=config.model_max_length,
        truncation_side=config.truncation_side or direction,
        padding_side=config.padding_side or padding,
    )


def check_added(spec: TokenizerSpec, path: Path) -> None:
    """Raise TokenizerFileError for added tokens that are empty, or equal, once normalized."""
    owner: dict[tuple[str, bool], str] = {}
    forms = normalize_added(spec)
    for token in spec.added_tokens:
        form = forms[token.content]
        if not form:
            raise TokenizerFileError(
                f"{path}: nothing is left of the added token {token.content!r} once normalized"
            )
        other = owner.setdefault((form, token.normalized), token.content)
        if other != token.content:
            raise TokenizerFileError(
                f"{path}: the added tokens {other!r} and {token.content!r} are the same once "
                "normalized"
            )
