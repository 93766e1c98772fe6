"""Compiled tokenizers: the same results from a mapped file, and an error for a damaged one."""

from __future__ import annotations

import pickle
import random
from typing import TYPE_CHECKING

import pytest

from encoder_engine.errors import OutputError, TokenizerFileError
from encoder_engine.text import Tokenizer
from tests.text.strings import StringMaker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.text.parity import Peer


@pytest.fixture
def compiled(toy_folder: Path, tmp_path: Path) -> Path:
    """Compile the toy."""
    path = tmp_path / "toy.eetok"
    Tokenizer.from_pretrained(toy_folder).save_compiled(path)
    return path


def test_a_compiled_tokenizer_gives_the_same_results(
    bert_peers: list[Peer], variant_peers: list[Peer], tmp_path: Path
) -> None:
    rng = random.Random(1)
    for peer in (*bert_peers, *variant_peers):
        path = tmp_path / f"{peer.name}.eetok"
        peer.ours.save_compiled(path)
        mapped = Tokenizer.from_pretrained(path)
        assert mapped.spec == peer.ours.spec
        maker = StringMaker(rng, ["low", "##er", "new"])
        texts = [maker.text() for _ in range(500)]
        expected = peer.ours.encode_batch(texts, return_offsets=True)
        encoding = mapped.encode_batch(texts, return_offsets=True)
        assert encoding.tolist() == expected.tolist()
        assert (encoding.offsets == expected.offsets).all()
        assert (encoding.word_ids == expected.word_ids).all()


def test_the_vocabulary_is_that_of_the_files(minilm_peer: Peer, tmp_path: Path) -> None:
    path = tmp_path / "minilm.eetok"
    minilm_peer.ours.save_compiled(path)
    mapped = Tokenizer.from_pretrained(path)
    vocab = minilm_peer.ours.spec.model.vocab
    assert dict(mapped.spec.model.vocab) == vocab
    assert mapped.vocab_size == minilm_peer.ours.vocab_size
    assert [mapped.token_to_id(token) for token in vocab] == list(vocab.values())
    assert [mapped.id_to_token(number) for number in vocab.values()] == list(vocab)
    assert mapped.token_to_id("no such token") is None
    assert mapped.token_to_id("\ud800") is None


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
