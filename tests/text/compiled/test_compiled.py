"""Compiled tokenizers: the same results from a mapped file, and an error for a damaged one."""

from __future__ import annotations

import json
import pickle
import random
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine.errors import OutputError, TokenIdError, TokenizerFileError
from encoder_engine.text import Tokenizer, UnigramSampling
from encoder_engine.text.compiled.file import ENTRY, HEADER
from encoder_engine.text.extension import extension
from encoder_engine.text.spec.unigram import SentencePieceSpec, UnigramSpec
from tests.text.sentencepiece_models import train
from tests.text.strings import StringMaker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from encoder_engine.text.spec.tokenizer import TokenizerSpec
    from tests.text.parity.peers import Peer


@pytest.fixture
def compiled(toy_folder: Path, tmp_path: Path) -> Path:
    """Compile the toy."""
    path = tmp_path / "toy.eetok"
    Tokenizer.from_pretrained(toy_folder).save_compiled(path)
    return path


@pytest.fixture(scope="module")
def sentencepiece_tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    """Train small SentencePiece models, and read them as SentencePiece does."""
    pytest.importorskip("sentencepiece", reason="it comes with the extra train")
    names = ("plain", "bytes", "symbols", "suffix", "spaces")
    paths = train(tmp_path_factory.mktemp("sentencepiece"), names)
    return {name: Tokenizer.from_pretrained(path) for name, path in paths.items()}


def compiled_copy(tokenizer: Tokenizer, path: Path) -> Tokenizer:
    """Compile a tokenizer and read it again."""
    tokenizer.save_compiled(path)
    return Tokenizer.from_pretrained(path)


def assert_same_results(ours: Tokenizer, mapped: Tokenizer, texts: list[str]) -> None:
    """Compare what is encoded and decoded, drawn and ranked."""
    expected = ours.encode_batch(texts, return_offsets=True)
    encoding = mapped.encode_batch(texts, return_offsets=True)
    assert encoding.tolist() == expected.tolist()
    assert np.array_equal(encoding.offsets, expected.offsets)
    assert np.array_equal(encoding.word_ids, expected.word_ids)
    for row in expected.tolist()[:50]:
        assert mapped.decode(row) == ours.decode(row)
        assert [mapped.id_to_token(n) for n in row] == [ours.id_to_token(n) for n in row]
    if not isinstance(ours.spec.model, UnigramSpec | SentencePieceSpec):
        return
    chance = UnigramSampling(alpha=0.3, seed=5)
    drawn = mapped.encode_batch(texts[:100], sampling=chance)
    assert drawn.tolist() == ours.encode_batch(texts[:100], sampling=chance).tolist()
    ranked = [(ids.tolist(), score) for ids, score in mapped.encode_nbest(texts[0], 4)]
    assert ranked == [(ids.tolist(), score) for ids, score in ours.encode_nbest(texts[0], 4)]


def assert_same_vocabulary(ours: Tokenizer, mapped: Tokenizer) -> None:
    """Compare all tokens and ids; of many, some are looked up."""
    assert mapped.vocab_size == ours.vocab_size
    vocab = ours.spec.model.vocab
    assert dict(mapped.spec.model.vocab.items()) == vocab
    assert len(mapped.spec.model.vocab) == len(vocab)
    step = 1 + len(vocab) // 20_000
    tokens = list(vocab)[::step]
    assert [mapped.token_to_id(t) for t in tokens] == [ours.token_to_id(t) for t in tokens]
    numbers = range(-1, ours.vocab_size + 1, step)
    assert [mapped.id_to_token(n) for n in numbers] == [ours.id_to_token(n) for n in numbers]
    assert mapped.token_to_id("no such token") is None
    assert mapped.token_to_id("\ud800") is None


def assert_same_files(ours: Tokenizer, mapped: Tokenizer, folder: Path) -> None:
    """Compare what both save, compiled and as a directory."""
    ours.save(folder / "ours")
    mapped.save(folder / "mapped")
    names = sorted(path.name for path in (folder / "ours").iterdir())
    assert sorted(path.name for path in (folder / "mapped").iterdir()) == names
    for name in names:
        assert (folder / "mapped" / name).read_bytes() == (folder / "ours" / name).read_bytes()
    ours.save_compiled(folder / "ours.eetok")
    mapped.save_compiled(folder / "mapped.eetok")
    assert (folder / "mapped.eetok").read_bytes() == (folder / "ours.eetok").read_bytes()


@pytest.mark.slow
def test_a_compiled_tokenizer_gives_the_same_results(
    bert_peers: list[Peer], variant_peers: list[Peer], tmp_path: Path
) -> None:
    rng = random.Random(1)
    for peer in (*bert_peers, *variant_peers):
        mapped = compiled_copy(peer.ours, tmp_path / f"{peer.name}.eetok")
        assert mapped.spec == peer.ours.spec
        maker = StringMaker(rng, ["low", "##er", "new"])
        assert_same_results(peer.ours, mapped, [maker.text() for _ in range(500)])


@pytest.mark.slow
def test_a_compiled_unigram_tokenizer_is_the_one_it_was_made_from(
    unigram_peers: list[Peer], unigram_variant_peers: list[Peer], tmp_path: Path
) -> None:
    for peer in (*unigram_peers, *unigram_variant_peers):
        _check_unigram(peer.ours, tmp_path / peer.name)


def test_a_compiled_sentencepiece_model_is_the_one_it_was_made_from(
    sentencepiece_tokenizers: dict[str, Tokenizer], tmp_path: Path
) -> None:
    for name, tokenizer in sentencepiece_tokenizers.items():
        _check_unigram(tokenizer, tmp_path / name)


def _check_unigram(ours: Tokenizer, folder: Path) -> None:
    folder.mkdir()
    mapped = compiled_copy(ours, folder / "compiled.eetok")
    assert mapped.spec == ours.spec
    assert ours.spec == mapped.spec
    model = mapped.spec.model
    assert isinstance(model, UnigramSpec | SentencePieceSpec)
    assert not isinstance(model.pieces, tuple)  # they stay in the file
    maker = StringMaker(random.Random(1), sorted(ours.spec.model.vocab)[:3000])
    assert_same_results(ours, mapped, [maker.text() for _ in range(300)])
    assert_same_vocabulary(ours, mapped)
    assert_same_files(ours, mapped, folder)
    assert hash(model.pieces) == hash(tuple(model.pieces))


def test_of_a_piece_that_occurs_twice_the_last_id_is_found(
    unigram_paths: dict[str, Path], tmp_path: Path
) -> None:
    config = json.loads(unigram_paths["uni_xlnet32k"].read_text(encoding="utf-8"))
    vocab = config["model"]["vocab"]
    vocab += [[piece, score - 0.5] for piece, score in vocab[100:120]]
    config["added_tokens"] = []
    config["post_processor"] = None
    path = tmp_path / "twice.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    ours = Tokenizer.from_pretrained(path)
    mapped = compiled_copy(ours, tmp_path / "twice.eetok")
    assert mapped.token_to_id(vocab[100][0]) == len(vocab) - 20
    assert mapped.id_to_token(100) is None
    assert_same_vocabulary(ours, mapped)


def test_a_compiled_unigram_tokenizer_pickles_and_changes(
    unigram_variant_peers: list[Peer], tmp_path: Path
) -> None:
    ours = next(peer.ours for peer in unigram_variant_peers if peer.name == "unigram_t5_bytes")
    mapped = compiled_copy(ours, tmp_path / "t5.eetok")
    text = "Some of the words, \U0001f600 and MORE"
    again = pickle.loads(pickle.dumps(mapped))
    assert again.spec == ours.spec
    assert again.encode(text).tolist() == ours.encode(text).tolist()
    assert isinstance(mapped.spec.model, UnigramSpec)
    assert isinstance(ours.spec.model, UnigramSpec)
    lowered = [model.lowercased() for model in (mapped.spec.model, ours.spec.model)]
    ids = [Tokenizer(_with_model(ours, model)).encode(text).tolist() for model in lowered]
    assert ids[0] == ids[1] != ours.encode(text).tolist()
    # Other scores make another model, whatever was compiled.
    scores = tuple(-20.0 * (len(piece) > 2) for piece in ours.spec.model.pieces)
    changed = [replace(m, scores=scores) for m in (mapped.spec.model, ours.spec.model)]
    ids = [Tokenizer(_with_model(ours, model)).encode(text).tolist() for model in changed]
    assert ids[0] == ids[1] != ours.encode(text).tolist()


def _with_model(tokenizer: Tokenizer, model: UnigramSpec) -> TokenizerSpec:
    return replace(tokenizer.spec, model=model)


def test_the_vocabulary_is_that_of_the_files(minilm_peer: Peer, tmp_path: Path) -> None:
    mapped = compiled_copy(minilm_peer.ours, tmp_path / "minilm.eetok")
    assert_same_vocabulary(minilm_peer.ours, mapped)


def test_a_compiled_tokenizer_pickles_and_saves(compiled: Path, tmp_path: Path) -> None:
    mapped = Tokenizer.from_pretrained(compiled)
    ids = mapped.encode("low lowest [MASK]").tolist()
    assert pickle.loads(pickle.dumps(mapped)).encode("low lowest [MASK]").tolist() == ids
    mapped.save(tmp_path / "saved")
    assert Tokenizer.from_pretrained(tmp_path / "saved").spec == mapped.spec
    mapped.save_compiled(tmp_path / "again.eetok")
    assert (tmp_path / "again.eetok").read_bytes() == compiled.read_bytes()


def test_the_file_may_go_while_it_is_in_use(compiled: Path) -> None:
    mapped = Tokenizer.from_pretrained(compiled)
    compiled.unlink()
    assert mapped.encode("low").tolist() == [2, 13, 3]


def test_damage_is_found(compiled: Path) -> None:
    content = compiled.read_bytes()
    rng = random.Random(2)
    for _ in range(200):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        compiled.write_bytes(damaged)
        with pytest.raises(TokenizerFileError, match=r"toy\.eetok"):
            Tokenizer.from_pretrained(compiled)
    for size in (0, 7, 23, 24, 100, len(content) // 2, len(content) - 1):
        compiled.write_bytes(content[:size])
        with pytest.raises(TokenizerFileError, match=r"toy\.eetok"):
            Tokenizer.from_pretrained(compiled)


def repaired(content: bytes | bytearray) -> bytes:
    """Give the content the checksum that it should have."""
    magic, version, count, _ = HEADER.unpack_from(content)
    body = bytes(content[HEADER.size :])
    return HEADER.pack(magic, version, count, extension().checksum(body)) + body


def section_places(content: bytes) -> list[tuple[int, int]]:
    """Find the table of sections, and where each section begins and ends."""
    count = HEADER.unpack_from(content)[2]
    table = (HEADER.size, HEADER.size + count * ENTRY.size)
    entries = [ENTRY.unpack_from(content, table[0] + i * ENTRY.size) for i in range(count)]
    return [table, *((offset, offset + size) for _, offset, size in entries if size)]


def use(path: Path, texts: Sequence[str]) -> None:
    """Do what reads every part of a compiled file."""
    tokenizer = Tokenizer.from_pretrained(path)
    encoding = tokenizer.encode_batch(texts, return_offsets=True)
    encoding.tolist()
    for row in encoding.tolist():
        tokenizer.decode(row)
    tokenizer.token_to_id("low")
    tokenizer.spec.model.vocab.items()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["toy", "unigram", "sentencepiece"])
def test_damage_under_a_right_checksum_is_an_error_or_harmless(
    kind: str,
    toy_folder: Path,
    unigram_variant_peers: list[Peer],
    sentencepiece_tokenizers: dict[str, Tokenizer],
    tmp_path: Path,
) -> None:
    if kind == "toy":
        tokenizer = Tokenizer.from_pretrained(toy_folder)
    elif kind == "unigram":
        names = {peer.name: peer.ours for peer in unigram_variant_peers}
        tokenizer = names["unigram_albert_raw"]
    else:
        tokenizer = sentencepiece_tokenizers["symbols"]
    path = tmp_path / "whole.eetok"
    tokenizer.save_compiled(path)
    content = path.read_bytes()
    places = section_places(content)
    rng = random.Random(4)
    maker = StringMaker(rng, sorted(tokenizer.spec.model.vocab)[:500])
    outcomes = {"refused": 0, "used": 0}
    for index in range(400):
        damaged = bytearray(content)
        start, stop = places[index % len(places)]
        for _ in range(rng.choice((1, 1, 1, 4))):
            damaged[rng.randrange(start, stop)] ^= 1 << rng.randrange(8)
        path.write_bytes(repaired(damaged))
        try:
            use(path, [maker.text() for _ in range(3)])
        except (TokenizerFileError, TokenIdError):
            outcomes["refused"] += 1
        else:
            outcomes["used"] += 1
    assert min(outcomes.values()) > 0, outcomes


def test_a_file_that_holds_something_else_is_an_error(compiled: Path) -> None:
    content = compiled.read_bytes()
    for old, new in (
        (b'"WordPieceSpec"', b'"LibrarySpec"  '),
        (b'"WordPieceSpec"', b'"UnigramSpec"  '),
        (b'"AddedTokenSpec"', b'"PaddingSpec"   '),
        (b'"pair": [', b'"pain": ['),
        (b'"kind": "first"', b'"kind": "third"'),
        (b'"kind": "first"', b'"kind": 1234567'),
        (b'"lowercase": true', b'"lowercase": null'),
        (b'"unk_token": "[UNK]"', b'"unk_token": "[XYZ]"'),
    ):
        assert old in content
        compiled.write_bytes(repaired(content.replace(old, new)))
        with pytest.raises(TokenizerFileError, match=r"toy\.eetok: .*compile it again"):
            Tokenizer.from_pretrained(compiled)
    table = bytearray(content)
    struct.pack_into("<I", table, 12, 2**31)
    compiled.write_bytes(repaired(table))
    with pytest.raises(TokenizerFileError, match="longer than the file"):
        Tokenizer.from_pretrained(compiled)


def test_a_file_of_another_version_says_so(compiled: Path) -> None:
    content = bytearray(compiled.read_bytes())
    content[8] += 1
    compiled.write_bytes(content)
    with pytest.raises(TokenizerFileError, match=r"another version .* compile it again"):
        Tokenizer.from_pretrained(compiled)


def test_a_compiled_file_has_its_name_and_its_own_case(compiled: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_pretrained(compiled)
    with pytest.raises(OutputError, match=r"ends in \.eetok"):
        tokenizer.save_compiled(tmp_path / "toy.bin")
    with pytest.raises(OutputError, match="cannot be written"):
        tokenizer.save_compiled(tmp_path / "no" / "such" / "toy.eetok")
    with pytest.raises(TokenizerFileError, match="leave lowercase out"):
        Tokenizer.from_pretrained(compiled, lowercase=True)
