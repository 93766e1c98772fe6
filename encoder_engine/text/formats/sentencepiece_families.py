"""Builds the tokenizer of a directory with a SentencePiece model, by its tokenizer class's rules.

The result equals the tokenizer.json that transformers 5 would write.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import TokenizerFileError
from encoder_engine.text.formats.companion_tokens import FLAGS, LISTS
from encoder_engine.text.formats.json_reading import read_json, value_of
from encoder_engine.text.formats.sentencepiece_model import read_sentencepiece_model
from encoder_engine.text.formats.tokenizer_json import spec_from_json
from encoder_engine.text.spec.tokenizer import PaddingSpec
from encoder_engine.text.spec.unigram import UnigramSpec

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.json_values import JsonValue
    from encoder_engine.text.formats.config_json import TokenizerConfig
    from encoder_engine.text.formats.sentencepiece_model import SentencePieceModel
    from encoder_engine.text.spec.tokenizer import TokenizerSpec

__all__ = ["MODEL_FILES", "check_same_pieces", "find_model", "spec_from_family"]

MODEL_FILES = ("sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model")
SPACE = "\u2581"
QUOTES = [
    {"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
    {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
]
# What old versions of transformers took off the scores of pieces that end in a digit and a comma.
NUMBER_COMMA_PENALTY = 100.0


@dataclass(frozen=True, kw_only=True)
class Family:
    """What a tokenizer class of transformers gives a SentencePiece model: tokens and templates."""

    names: dict[str, str]  # by part: bos, eos, unk, sep, pad, cls, mask
    single: tuple[tuple[str, int], ...]  # parts, "A" and "B", each with its segment
    pair: tuple[tuple[str, int], ...]
    unk_id: int | None  # where the class insists on it
    splits: bool = True  # at white space, ahead of Metaspace


ROBERTA = {"bos": "<s>", "eos": "</s>", "unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>"}
BERT = {"bos": "[CLS]", "eos": "[SEP]", "sep": "[SEP]", "cls": "[CLS]", "mask": "[MASK]"}
BERT_SINGLE = (("cls", 0), ("A", 0), ("sep", 0))
XLM_ROBERTA = Family(
    names=ROBERTA | {"mask": "<mask>"},
    single=(("bos", 0), ("A", 0), ("eos", 0)),
    pair=(("bos", 0), ("A", 0), ("eos", 0), ("eos", 0), ("B", 0), ("eos", 0)),
    unk_id=3,
)
FAMILIES = {
    "XLMRobertaTokenizer": XLM_ROBERTA,
    "CamembertTokenizer": XLM_ROBERTA,
    "AlbertTokenizer": Family(
        names=BERT | {"unk": "<unk>", "pad": "<pad>"},
        single=BERT_SINGLE,
        pair=(*BERT_SINGLE, ("B", 1), ("sep", 1)),
        unk_id=1,
    ),
    "T5Tokenizer": Family(
        names={"eos": "</s>", "unk": "<unk>", "pad": "<pad>"},
        single=(("A", 0), ("eos", 0)),
        pair=(("A", 0), ("eos", 0), ("B", 0), ("eos", 0)),
        unk_id=2,
    ),
    "XLNetTokenizer": Family(
        names=ROBERTA | {"sep": "<sep>", "cls": "<cls>", "mask": "<mask>"},
        single=(("A", 0), ("sep", 0), ("cls", 2)),
        pair=(("A", 0), ("sep", 0), ("B", 1), ("sep", 1), ("cls", 2)),
        unk_id=None,
    ),
    "DebertaV2Tokenizer": Family(
        names=BERT | {"unk": "[UNK]", "pad": "[PAD]"},
        single=BERT_SINGLE,
        pair=(*BERT_SINGLE, ("B", 1), ("sep", 1)),
        unk_id=None,
        splits=False,
    ),
}


def find_model(folder: Path) -> Path | None:
    """Return a directory's SentencePiece model, or None; several raise TokenizerFileError."""
    found = [folder / name for name in MODEL_FILES if (folder / name).is_file()]
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise TokenizerFileError(f"{folder} holds {names}; remove the one that is stale")
    return found[0] if found else None


def spec_from_family(path: Path, name: str, config: TokenizerConfig) -> TokenizerSpec:
    """Return the tokenizer that transformers' class ``name`` makes of a SentencePiece model."""
    family = FAMILIES.get(name)
    if family is None:
        raise TokenizerFileError(
            f"{path}: the SentencePiece model of {name} is not supported; those of "
            f"{', '.join(FAMILIES)} are. Save the tokenizer as tokenizer.json, or load the file "
            "by itself to encode as SentencePiece does"
        )
    settings = _Settings.read(path.parent / "tokenizer_config.json")
    model = read_sentencepiece_model(path)
    named = {part: getattr(config.names, part, None) for part in family.names}
    names = {part: named[part] or default for part, default in family.names.items()}
    for part in ("bos", "eos"):
        if part in names:
            names[part] = settings.name(part, names[part])
    vocab = _vocabulary(model, name, names, settings)
    unk_id = _unknown_id(model, family, names, vocab, path)
    top = {
        "version": "1.0",
        "added_tokens": _added_tokens(model, names, vocab, config, settings, name),
        "normalizer": _normalizer(name, model.spec.charsmap, settings),
        "pre_tokenizer": _pre_tokenizer(name, family, settings),
        "post_processor": _template(family, names, vocab, path),
        "decoder": _metaspace(name, settings),
        "model": {"type": "Unigram", "unk_id": unk_id, "vocab": vocab, "byte_fallback": False},
    }
    spec = spec_from_json(value_of(top, path.name))
    if name == "XLNetTokenizer":
        spec = replace(spec, padding=_left_padding(spec, names["pad"]))
    return spec


@dataclass(frozen=True)
class _Settings:
    """The options of tokenizer_config.json that only classes with a SentencePiece model have."""

    node: JsonValue

    @classmethod
    def read(cls, path: Path) -> _Settings:
        node = read_json(path) if path.is_file() else value_of({}, path.name)
        for key in ("sp_model_kwargs", "split_by_punct"):
            if node.get(key).value:
                raise node.get(key).fail(f"{key} is not supported")
        return cls(node)

    def flag(self, key: str, default: bool) -> bool:
        return self.node.get(key).boolean(default=default)

    def name(self, part: str, default: str) -> str:
        item = self.node.get(f"{part}_token")
        if isinstance(item.value, dict):
            item = item.get("content")
        return default if item.is_null else item.string()

    def lists_tokens(self) -> bool:
        return any(bool(self.node.get(key).value) for key in LISTS)

    def num_extra(self, name: str) -> int:
        return self.node.get("extra_ids").integer(default=100) if name == "T5Tokenizer" else 0


def _vocabulary(
    model: SentencePieceModel, name: str, names: dict[str, str], settings: _Settings
) -> list[list[Any]]:
    pieces = [list(item) for item in zip(model.spec.pieces, model.spec.scores, strict=True)]
    if name == "XLMRobertaTokenizer":
        # Fairseq's ids: its own four pieces come first and replace the model's first three.
        front = [[names[part], 0.0] for part in ("bos", "pad", "eos", "unk")]
        return [*front, *pieces[3:], [names["mask"], 0.0]]
    if name == "CamembertTokenizer":
        # Fairseq's ids as well, but with the model's own <s> and </s> in use, not Fairseq's.
        kept = [["<s>NOTUSED", 0.0], [names["pad"], 0.0], ["</s>NOTUSED", 0.0], [names["unk"], 0.0]]
        return [*kept, ["<unk>NOTUSED", -100.0], *pieces[1:], [names["mask"], 0.0]]
    count = settings.num_extra(name)
    return pieces + [[f"<extra_id_{index}>", 0.0] for index in range(count - 1, -1, -1)]


def _unknown_id(
    model: SentencePieceModel,
    family: Family,
    names: dict[str, str],
    vocab: list[list[Any]],
    path: Path,
) -> int:
    wanted = model.spec.unk_id if family.unk_id is None else family.unk_id
    if wanted >= len(vocab) or vocab[wanted][0] != names["unk"]:
        found = vocab[wanted][0] if wanted < len(vocab) else None
        raise TokenizerFileError(
            f"{path}: the piece {wanted} is {found!r}, where the family's unknown token "
            f"{names['unk']!r} has to be; the file is of another family than its companions say"
        )
    return wanted


def _added_tokens(
    model: SentencePieceModel,
    names: dict[str, str],
    vocab: list[list[Any]],
    config: TokenizerConfig,
    settings: _Settings,
    name: str,
) -> list[dict[str, Any]]:
    """Return the tokens to search texts for before the model: special tokens, symbols, sentinels.

    Where the companion files list further tokens, the model's symbols and the sentinels are left
    out.
    """
    ids = {piece: index for index, (piece, _) in enumerate(vocab)}
    plain: dict[str, Any] = dict.fromkeys(FLAGS, False)
    out: dict[str, dict[str, Any]] = {}
    for token in config.added_tokens or ():
        out[token.content] = {flag: getattr(token, flag) for flag in FLAGS}
    for named in config.companions.wanted:
        out.setdefault(named.content, dict(named.flags))
    own = () if settings.lists_tokens() else model.spec.pieces
    for part, content in names.items():
        # These classes strip the space before a mask that is not among the model's pieces.
        strips = part == "mask" and name in ("CamembertTokenizer", "XLNetTokenizer")
        strips = strips and content not in own
        out.setdefault(content, plain | {"special": True, "lstrip": strips})
    if not settings.lists_tokens():
        for piece, kind in zip(model.spec.pieces, model.spec.kinds, strict=True):
            if kind in ("control", "user_defined") and piece in ids:
                out.setdefault(piece, plain | {"special": kind == "control"})
        for index in range(settings.num_extra(name)):
            out.setdefault(f"<extra_id_{index}>", plain | {"special": True})
    # Tokens that the vocabulary lacks get their ids from the reader of the companion files.
    known = sorted((ids[content], content) for content in out if content in ids)
    return [{"id": number, "content": content} | out[content] for number, content in known]


def _normalizer(name: str, charsmap: bytes, settings: _Settings) -> dict[str, Any] | None:
    steps: list[dict[str, Any]] = []
    lowers = settings.flag("do_lower_case", name == "AlbertTokenizer")
    if name in ("AlbertTokenizer", "XLNetTokenizer"):
        steps += QUOTES
        if name == "XLNetTokenizer" or not settings.flag("keep_accents", False):
            steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if lowers and name in ("AlbertTokenizer", "XLNetTokenizer", "DebertaV2Tokenizer"):
        steps.append({"type": "Lowercase"})
    if name == "DebertaV2Tokenizer":
        pattern = {"Regex": r"\s{2,}|[\n\r\t]"}
        steps.append({"type": "Replace", "pattern": pattern, "content": " "})
        steps.append({"type": "NFC"})
        steps.append({"type": "Strip", "strip_left": False, "strip_right": True})
    elif charsmap:
        rules = base64.b64encode(charsmap).decode("ascii")
        steps.append({"type": "Precompiled", "precompiled_charsmap": rules})
    return {"type": "Sequence", "normalizers": steps} if steps else None


def _metaspace(name: str, settings: _Settings) -> dict[str, Any]:
    prefixed = settings.flag("add_prefix_space", True)
    other = "first" if name == "DebertaV2Tokenizer" else "never"
    fixed = name in ("T5Tokenizer", "XLNetTokenizer")
    scheme = "always" if prefixed or fixed else other
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}


def _pre_tokenizer(name: str, family: Family, settings: _Settings) -> dict[str, Any]:
    parts = [{"type": "WhitespaceSplit"}] if family.splits else []
    return {"type": "Sequence", "pretokenizers": [*parts, _metaspace(name, settings)]}


def _template(
    family: Family, names: dict[str, str], vocab: list[list[Any]], path: Path
) -> dict[str, Any]:
    ids = {piece: index for index, (piece, _) in enumerate(vocab)}
    special: dict[str, Any] = {}

    def element(part: str, type_id: int) -> dict[str, Any]:
        if part in ("A", "B"):
            return {"Sequence": {"id": part, "type_id": type_id}}
        token = names[part]
        if token not in ids:
            raise TokenizerFileError(f"{path} lacks {token!r}, the {part} token of its family")
        special[token] = {"id": token, "ids": [ids[token]], "tokens": [token]}
        return {"SpecialToken": {"id": token, "type_id": type_id}}

    return {
        "type": "TemplateProcessing",
        "single": [element(*item) for item in family.single],
        "pair": [element(*item) for item in family.pair],
        "special_tokens": special,
    }


def _left_padding(spec: TokenizerSpec, pad: str) -> PaddingSpec | None:
    number = spec.token_to_id(pad)
    if number is None:
        return None
    return PaddingSpec(
        length=None,
        direction="left",
        multiple_of=None,
        pad_id=number,
        pad_type_id=3,
        pad_token=pad,
    )


def check_same_pieces(spec: TokenizerSpec, path: Path) -> None:
    """Raise TokenizerFileError if a model's pieces or scores differ from tokenizer.json's."""
    model = spec.model
    if not isinstance(model, UnigramSpec):
        return
    stored = read_sentencepiece_model(path).spec
    numbers, scores = dict(model.vocab.items()), tuple(model.scores)
    shift: int | None = None
    for index, (piece, score) in enumerate(zip(stored.pieces, stored.scores, strict=True)):
        if stored.kinds[index] != "normal":
            continue
        number = numbers.get(piece)
        shift = number - index if shift is None and number is not None else shift
        found = None if number is None else scores[number]
        same = found is not None and min(
            abs(found - score), abs(found - score + NUMBER_COMMA_PENALTY)
        ) <= 1e-6 * max(1.0, abs(score))
        if not same or number != index + (shift or 0):
            raise TokenizerFileError(
                f"{path} and tokenizer.json contradict each other: {piece!r} is {index} with the "
                f"score {score:.6g} in the one, {number} with {found} in the other; remove the "
                "stale file"
            )
