"""Reads tokenizer.json, the format of Hugging Face tokenizers.

No member of the file is ignored. A model whose settings the engine does not implement is encoded by
Hugging Face tokenizers ("the library").
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from encoder_engine.errors import TokenizerFileError
from encoder_engine.text.extension import extension
from encoder_engine.text.formats.bpe_json import read_bpe, read_bpe_decoder
from encoder_engine.text.formats.json_reading import parse_json, read_bytes
from encoder_engine.text.formats.library_json import (
    LIBRARY_MODELS,
    read_library,
    read_library_decoder,
)
from encoder_engine.text.formats.steps_json import read_decoder_steps
from encoder_engine.text.formats.template_json import check_trimmed_pieces, read_template, read_trim
from encoder_engine.text.formats.unigram_json import read_unigram
from encoder_engine.text.formats.wordpiece_json import read_wordpiece, read_wordpiece_decoder
from encoder_engine.text.spec.bpe import BpeSpec
from encoder_engine.text.spec.library import LibrarySpec
from encoder_engine.text.spec.tokenizer import (
    AddedTokenSpec,
    DecoderSpec,
    ModelSpec,
    PaddingSpec,
    SpecialTokenNames,
    TokenizerSpec,
    TruncationSpec,
)
from encoder_engine.text.vocabulary import (
    NativeMerges,
    NativePieces,
    NativeScores,
    NativeVocabulary,
)

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.json_values import JsonValue

__all__ = ["read_exactly", "read_tokenizer_json", "spec_from_content", "spec_from_json"]

# The greatest size that Hugging Face tokenizers holds; the engine does not use such sizes.
MAX_SIZE = 2**64 - 1
TOP_KEYS = (
    "version",
    "truncation",
    "padding",
    "added_tokens",
    "normalizer",
    "pre_tokenizer",
    "post_processor",
    "decoder",
    "model",
)
# The models that the engine encodes; the library encodes those with settings beyond the engine.
NATIVE_MODELS = ("WordPiece", "Unigram", "BPE")
SIDES = {"Right": "right", "Left": "left", "right": "right", "left": "left"}
STRATEGIES = {
    "LongestFirst": "longest_first",
    "OnlyFirst": "only_first",
    "OnlySecond": "only_second",
}


def read_tokenizer_json(path: Path) -> TokenizerSpec:
    """Read a tokenizer.json as the specification of a tokenizer."""
    return spec_from_content(read_bytes(path), path)


def spec_from_content(content: bytes, path: Path) -> TokenizerSpec:
    """Parse a tokenizer.json's bytes as a specification; error messages name ``path``."""
    spec = _read_natively(content, path)
    if spec is not None:
        return spec
    # Scores equal the library's to the last bit, which decides between paths of equal sums.
    return read_exactly(parse_json(content, path, parse_float=extension().read_json_number))


def read_exactly(top: JsonValue) -> TokenizerSpec:
    """Read a parsed tokenizer.json, to encode by the engine or else by Hugging Face tokenizers."""
    try:
        return spec_from_json(top)
    except TokenizerFileError as refusal:
        try:
            return spec_from_json(top, reason=str(refusal))
        except TokenizerFileError as fault:
            if str(fault) == str(refusal):
                raise
            raise TokenizerFileError(
                f"{refusal}; it is not the library's either: {fault}"
            ) from None


def _read_natively(content: bytes, path: Path) -> TokenizerSpec | None:
    """Read a tokenizer.json whose vocabulary the extension parses itself, 10 times as fast.

    Returns ``None`` for other files and for files to refuse; :func:`read_exactly` then says why.
    """
    found = extension().read_vocabulary(content)
    if found is None:
        return None
    (begin, end, merges_begin, merges_end), native, scores, merges = found
    if merges is None:
        merges_begin = merges_end = end
    middle = content[end:merges_begin] + (b"" if merges is None else b"null")
    rest = b"".join((content[:begin], b"null", middle, content[merges_end:]))
    try:
        top = parse_json(rest, path, parse_float=extension().read_json_number)
        vocab = NativeVocabulary(native)
        model = top.get("model").object()
        model["vocab"] = vocab if scores is None else (NativePieces(vocab), NativeScores(scores))
        if merges is not None:
            model["merges"] = NativeMerges(merges)
        return spec_from_json(top) if _model_kind(top.get("model")) in NATIVE_MODELS else None
    except TokenizerFileError:
        return None


def spec_from_json(top: JsonValue, reason: str = "") -> TokenizerSpec:
    """Read a whole tokenizer.json, parsed, as the specification of a tokenizer.

    ``reason``: why Hugging Face tokenizers must encode this model; empty: the engine encodes.
    """
    top.only_keys(TOP_KEYS)
    version = top.get("version")
    if version.present and version.string() != "1.0":
        raise version.must_be("'1.0'")
    model, decoder = _read_model(top, reason)
    added = _read_added_tokens(top.get("added_tokens"), model)
    numbers = {token.content: token.id for token in added}
    fault, processor = "", top.get("post_processor")
    try:
        single, pair = read_template(
            processor, lambda name: numbers.get(name, model.vocab.get(name))
        )
    except TokenizerFileError as error:
        # Distilled static models keep their teacher's ids in a template that nothing uses.
        fault = str(error)
        single, pair = read_template(processor.at(None, ""), model.vocab.get)
    if not isinstance(model, LibrarySpec):
        if not isinstance(model, BpeSpec):
            check_trimmed_pieces(processor, model.vocab)
        texts = [[piece.kind for piece in row if piece.kind != "special"] for row in (single, pair)]
        if any(len(set(kinds)) < len(kinds) for kinds in texts):
            raise processor.fail(
                "a text twice in a row is not supported with a model of the engine's own"
            )
    spec = TokenizerSpec(
        model=model,
        single=single,
        pair=pair,
        template_fault=fault,
        added_tokens=added,
        trim=read_trim(processor),
        decoder=decoder,
        special=SpecialTokenNames(),
        truncation=_read_truncation(top.get("truncation")),
        padding=_read_padding(top.get("padding")),
    )
    return replace(spec, special=_infer_special(spec))


def _model_kind(node: JsonValue) -> str:
    """Return the model's type, such as BPE; if the file leaves it out, by the model's members."""
    members = node.object().keys()
    if "type" in members:
        return node.kind()
    if isinstance(node.get("vocab").value, list | tuple):
        return "Unigram"
    if "merges" in members:
        return "BPE"
    wordpiece = {"continuing_subword_prefix", "max_input_chars_per_word"} <= members
    return "WordPiece" if wordpiece or "unk_token" not in members else "WordLevel"


def _read_model(top: JsonValue, reason: str) -> tuple[ModelSpec, DecoderSpec | None]:
    """Read the model of a tokenizer.json, and its decoder, which depends on the kind of model."""
    node = top.get("model")
    if node.is_null:
        raise node.fail("the file has no model")
    kind = _model_kind(node)
    if kind in LIBRARY_MODELS or (reason and kind in NATIVE_MODELS):
        return read_library(top, kind, reason), read_library_decoder(top.get("decoder"))
    if kind == "WordPiece":
        return read_wordpiece(top), read_wordpiece_decoder(top.get("decoder"))
    if kind == "Unigram":
        return read_unigram(top), read_decoder_steps(top.get("decoder"))
    if kind == "BPE":
        return read_bpe(top), read_bpe_decoder(top.get("decoder"))
    raise node.get("type").fail(
        f"a {kind} model is not supported; {', '.join(NATIVE_MODELS)} and WordLevel are"
    )


def _read_added_tokens(node: JsonValue, model: ModelSpec) -> tuple[AddedTokenSpec, ...]:
    """Read the added tokens; refuse ids that Hugging Face tokenizers would not give them."""
    out: list[AddedTokenSpec] = []
    if node.is_null:
        return ()
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    next_id = model.num_ids
    seen: set[str] = set()
    for item in node.items():
        item.only_keys(("id", "content", *flags))
        content = item.get("content").string()
        if not content or content in seen:
            raise item.fail(f"the added token {content!r} is empty or occurs twice")
        seen.add(content)
        expected = model.vocab.get(content, next_id)
        next_id += content not in model.vocab
        number = item.get("id").integer()
        if number != expected:
            raise item.fail(
                f"{content!r} has the id {number}, but its position gives it {expected}"
            )
        values = {flag: item.get(flag).boolean() for flag in flags}
        out.append(AddedTokenSpec(content=content, id=number, **values))
    return tuple(out)


def _read_truncation(node: JsonValue) -> TruncationSpec | None:
    if node.is_null:
        return None
    node.only_keys(("direction", "max_length", "strategy", "stride"))
    return TruncationSpec(
        max_length=node.get("max_length").integer(most=MAX_SIZE),
        strategy=node.get("strategy").one_of(STRATEGIES),
        stride=node.get("stride").integer(most=MAX_SIZE),
        direction=node.get("direction").one_of(SIDES, default="Right"),
    )


def _read_padding(node: JsonValue) -> PaddingSpec | None:
    if node.is_null:
        return None
    node.only_keys(
        ("strategy", "direction", "pad_to_multiple_of", "pad_id", "pad_type_id", "pad_token")
    )
    strategy = node.get("strategy")
    length: int | None = None
    if strategy.value != "BatchLongest":
        strategy.only_keys(("Fixed",))
        length = strategy.get("Fixed").integer(most=MAX_SIZE)
    multiple = node.get("pad_to_multiple_of")
    return PaddingSpec(
        length=length,
        direction=node.get("direction").one_of(SIDES),
        multiple_of=None if multiple.is_null else multiple.integer(most=MAX_SIZE),
        pad_id=node.get("pad_id").integer(),
        pad_type_id=node.get("pad_type_id").integer(),
        pad_token=node.get("pad_token").string(),
    )


def _infer_special(spec: TokenizerSpec) -> SpecialTokenNames:
    """Infer the roles of special tokens from the template, because the file states no roles."""
    text = next(i for i, piece in enumerate(spec.single) if piece.kind == "first")
    before = [token for piece in spec.single[:text] for token in piece.tokens]
    after = [token for piece in spec.single[text:] for token in piece.tokens]
    pad = None if spec.padding is None else spec.padding.pad_token

    def first_known(*names: str) -> str | None:
        return next((name for name in names if spec.token_to_id(name) is not None), None)

    # The library takes a model whose unknown token is not in its vocabulary.
    unknown = spec.model.unk_token
    # XLNet has both behind the text: the separator, then the class token.
    trailing = not before and len(after) == 2
    return SpecialTokenNames(
        unk=first_known(*([] if unknown is None else [unknown])),
        cls=before[0] if before else after[1] if trailing else None,
        sep=after[0] if trailing else after[-1] if after else None,
        pad=first_known(*([] if pad is None else [pad]), "[PAD]", "<pad>"),
        mask=first_known("[MASK]", "<mask>"),
    )
