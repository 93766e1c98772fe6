"""Tokenizers for the tests: the three BERT vocabularies, variants of them, and a toy."""

from __future__ import annotations

import json
import lzma
from typing import TYPE_CHECKING

import pytest

from tests.text.parity.peers import Peer, variants
from tests.text.unigram_files import unpack_unigram, write_unigram_files

if TYPE_CHECKING:
    from pathlib import Path

# The vocabulary of BERT's published tokenization test, and a few pieces more.
TOY_TOKENS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "want", "##want", "##ed", "wa", "un", "runn"),
    *("##ing", ",", "low", "lowest", "a", "b", "##b", "##c", "e", "##e", "中", "[", "]", "!", "'"),
)


@pytest.fixture
def toy_folder(tmp_path: Path) -> Path:
    """Write a vocab.txt of 26 pieces and a tokenizer_config.json."""
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(TOY_TOKENS) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    return folder


@pytest.fixture(scope="session")
def minilm_peer(minilm: Path) -> Peer:
    """Read the uncased vocabulary that comes with MiniLM."""
    return Peer("minilm", minilm / "tokenizer.json")


@pytest.fixture(scope="session")
def bert_paths(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Unpack tokenizer.json of BERT uncased, cased and multilingual cased."""
    folder = tmp_path_factory.mktemp("bert")
    out: dict[str, Path] = {}
    for name in ("uncased", "cased", "multi_cased"):
        out[name] = folder / f"{name}.json"
        packed = shared_data / f"vocab/wp_{name}.tokenizer.json.xz"
        out[name].write_bytes(lzma.decompress(packed.read_bytes()))
    return out


@pytest.fixture(scope="session")
def bert_peers(bert_paths: dict[str, Path]) -> list[Peer]:
    """Read the three BERT tokenizers beside those of Hugging Face."""
    return [Peer(name, path) for name, path in bert_paths.items()]


@pytest.fixture(scope="session")
def variant_peers(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Peer]:
    """Give MiniLM's vocabulary other normalizer switches and added tokens."""
    folder = tmp_path_factory.mktemp("variants")
    source = folder / "minilm.json"
    source.write_bytes((minilm / "tokenizer.json").read_bytes())
    return [Peer(path.stem, path) for path in variants(source, folder)]


@pytest.fixture(scope="session")
def unigram_paths(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Unpack tokenizer.json of XLM-R and XLNet."""
    folder = tmp_path_factory.mktemp("unigram")
    return {path.stem.partition(".")[0]: path for path in unpack_unigram(shared_data, folder)}


@pytest.fixture(scope="session")
def unigram_peers(unigram_paths: dict[str, Path]) -> list[Peer]:
    """Read XLM-R and XLNet beside those of Hugging Face."""
    return [Peer(name, path) for name, path in unigram_paths.items()]


@pytest.fixture(scope="session")
def unigram_variant_peers(
    unigram_paths: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> list[Peer]:
    """Give a small part of XLNet's vocabulary every normalizer, splitter and decoder."""
    source = json.loads(unigram_paths["uni_xlnet32k"].read_text(encoding="utf-8"))
    folder = tmp_path_factory.mktemp("unigram_variants")
    return [Peer(path.stem, path) for path in write_unigram_files(source, folder)]
