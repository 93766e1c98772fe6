"""Trains small SentencePiece models of every kind, and compares with the library that made them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.text import Tokenizer
from tests.text.parity.peers import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# What each model has that the others lack.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "albert": {
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
        "normalization_rule_name": "nmt_nfkc_cf",
    },
    "t5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "deberta": {
        "pad_id": 0,
        "bos_id": 1,
        "eos_id": 2,
        "unk_id": 3,
        "pad_piece": "[PAD]",
        "bos_piece": "[CLS]",
        "eos_piece": "[SEP]",
        "unk_piece": "[UNK]",
        "user_defined_symbols": ["[MASK]"],
    },
    "xlnet": {
        "unk_id": 0,
        "bos_id": 1,
        "eos_id": 2,
        "control_symbols": ["<cls>", "<sep>", "<pad>", "<mask>"],
    },
    "bytes": {"byte_fallback": True, "character_coverage": 0.99},
    "symbols": {
        "user_defined_symbols": ["<foo>", "ab", " is ", "▁the", "é", "==", "x"],
        "control_symbols": ["<ctl>"],
    },
    "suffix": {"treat_whitespace_as_suffix": True},
    "spaces": {
        "remove_extra_whitespaces": False,
        "allow_whitespace_only_pieces": True,
        "normalization_rule_name": "identity",
    },
    "no_prefix": {"add_dummy_prefix": False, "normalization_rule_name": "nfkc"},
    "no_split": {"split_by_whitespace": False},
}
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,;!?'\"()-éüñ中文ﬁ½"


def sentences() -> list[str]:
    """Make text to train on: words of a small language, some of them frequent."""
    import random

    rng = random.Random(5)
    words = [
        "".join(rng.choices(LETTERS[:26], k=rng.randrange(1, 10))) + rng.choice(["", "", ".", ","])
        for _ in range(1500)
    ]
    words += ["the", "is", "of", "and", "Ünïcode", "中文字", "naïve", *LETTERS]
    weights = [1.0 / (1 + index % 300) for index in range(len(words))]
    return [" ".join(rng.choices(words, weights, k=12)) for _ in range(1500)]


def train(folder: Path, names: Sequence[str] = tuple(KINDS), **more: Any) -> dict[str, Path]:
    """Train the models, each with its own options and with ``more``."""
    import sentencepiece

    text = sentences()
    out: dict[str, Path] = {}
    for name in names:
        writer = io.BytesIO()
        options: dict[str, Any] = {"vocab_size": 600, "model_type": "unigram"} | KINDS[name] | more
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text),
            model_writer=writer,
            num_threads=1,
            minloglevel=2,
            hard_vocab_limit=False,
            **options,
        )
        out[name] = folder / f"{name}.model"
        out[name].write_bytes(writer.getvalue())
    return out


def write_model(path: Path, scores: dict[str, float]) -> None:
    """Write a Unigram model of these pieces behind ``<unk>``, whose texts are left as they are."""
    proto: Any = pytest.importorskip(
        "sentencepiece.sentencepiece_model_pb2",
        reason="sentencepiece writes .model files with protobuf",
        exc_type=ImportError,
    )
    model = proto.ModelProto()
    model.pieces.add(piece="<unk>", score=0.0, type=proto.ModelProto.SentencePiece.UNKNOWN)
    for piece, score in scores.items():
        model.pieces.add(piece=piece, score=score)
    model.trainer_spec.model_type = proto.TrainerSpec.UNIGRAM
    model.trainer_spec.unk_id = 0
    model.trainer_spec.bos_id = model.trainer_spec.eos_id = model.trainer_spec.pad_id = -1
    model.normalizer_spec.name = "identity"
    path.write_bytes(model.SerializeToString())


class SentencePiecePeer:
    """Our tokenizer and theirs, read from one .model."""

    def __init__(self, name: str, path: Path) -> None:
        import sentencepiece

        self.name = name
        self.ours = Tokenizer.from_pretrained(path)
        self.theirs: Any = sentencepiece.SentencePieceProcessor(model_file=str(path))

    def compare(self, texts: Sequence[str]) -> str | None:
        """Compare ids, offsets and decoding."""
        found = self._first_difference(texts)
        if found is None:
            return None
        text = shorten(found[0], lambda text: self._first_difference([text]) is not None)
        shortest = self._first_difference([text])
        return f"{self.name}: {text!r}\n  {found[1] if shortest is None else shortest[1]}"

    def _first_difference(self, texts: Sequence[str]) -> tuple[str, str] | None:
        """Give the first text on which results differ, and how."""
        encoding = self.ours.encode_batch(texts, return_offsets=True)
        starts = encoding.cu_seqlens.tolist()
        rows, offsets = encoding.tolist(), encoding.offsets.tolist()
        for index, text in enumerate(texts):
            theirs = self.theirs.encode(text, return_type="offset_mapping")
            ours = rows[index], [tuple(o) for o in offsets[starts[index] : starts[index + 1]]]
            if ours == (theirs["ids"], theirs["offsets"]):
                if self.theirs.decode(ours[0]) != self.ours.decode(ours[0]):
                    return text, "decoding differs"
            else:
                return text, f"ours   {ours}\n  theirs {theirs}"
        return None
