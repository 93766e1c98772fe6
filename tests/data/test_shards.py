"""What was written is what is read, and what is damaged is refused."""

from __future__ import annotations

import itertools
import json
import resource
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine.data.shards import Corpus, Document, Vocabulary, write_corpus, write_shard
from encoder_engine.errors import CorpusError, OutputError, TokenIdError
from encoder_engine.files import file_sha256
from encoder_engine.training.pretraining.model_builder import build_text
from encoder_engine.training.recipe import DataRecipe
from tests.data.corpora import SIZE, VOCABULARY, WORD_STARTS, draw_documents, write

if TYPE_CHECKING:
    from pathlib import Path


def read(corpus: Corpus) -> list[list[list[int]]]:
    """Return every sentence of every document."""
    documents = []
    for shard in corpus.shards:
        for first, last in zip(shard.documents[:-1], shard.documents[1:], strict=True):
            ends = shard.sentences[first : last + 1]
            documents.append([shard.tokens[a:b].tolist() for a, b in itertools.pairwise(ends)])
    return documents


def test_documents_come_back(tmp_path: Path) -> None:
    nothing: list[Document] = []
    shards = draw_documents(40), draw_documents(1, seed=1, language=1), nothing
    corpus = write(tmp_path, *shards)
    expected = [[s.tolist() for s in d.sentences] for shard in shards for d in shard]
    assert read(corpus) == expected
    assert read(Corpus.open(tmp_path)) == expected
    assert corpus.num_documents == 41
    assert corpus.num_sentences == sum(map(len, expected))
    assert corpus.num_tokens == sum(len(s) for d in expected for s in d)
    assert corpus.shards[1].languages.tolist() == [1]
    assert corpus.languages == ("en", "de")
    assert (corpus.word_starts == WORD_STARTS).all()
    assert corpus.shards[0].tokens.dtype == np.uint16
    assert isinstance(corpus.shards[0].tokens, np.memmap)


def test_writing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, draw_documents(9))
    files = [{p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ("a", "b")]
    assert files[0] == files[1]
    parts = ("documents", "languages", "sentences", "tokens")
    names = [f"00000.{part}.npy" for part in parts]
    assert sorted(files[0]) == [*names, "manifest.json", "words.npy"]


def test_a_large_vocabulary_takes_wider_numbers(tmp_path: Path) -> None:
    size = 2**16 + 1
    wide = Vocabulary(size=size, cls_id=0, sep_id=1, mask_id=2, pad_id=3, fingerprint="")
    entry = write_shard(tmp_path, 0, [Document([np.array([size - 1])])], wide)
    corpus = write_corpus(tmp_path, [entry], wide, np.ones(size, np.bool_))
    assert corpus.shards[0].tokens.tolist() == [size - 1]
    assert corpus.shards[0].tokens.dtype == np.uint32


def test_what_is_empty_is_left_out(tmp_path: Path) -> None:
    nothing, seven = np.zeros(0, np.int64), np.array([7])
    corpus = write(tmp_path, [Document([nothing]), Document([nothing, seven]), Document([])])
    assert read(corpus) == [[[7]]]


@pytest.mark.parametrize("token", [-1, SIZE])
def test_a_token_of_another_vocabulary_is_refused(tmp_path: Path, token: int) -> None:
    documents = [Document([np.array([5])]), Document([np.array([6]), np.array([7, token])])]
    with pytest.raises(TokenIdError, match=rf"document 1 has a token outside 0\.\.{SIZE - 1}") as e:
        write_shard(tmp_path, 0, documents, VOCABULARY)
    assert e.value.row == 1
    assert not list(tmp_path.iterdir())


def test_damage_is_found(tmp_path: Path) -> None:
    write(tmp_path, draw_documents(20))
    tokens = tmp_path / "00000.tokens.npy"
    whole = tokens.read_bytes()
    tokens.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    Corpus.open(tmp_path, verify=False)
    with pytest.raises(CorpusError, match="the file is damaged"):
        Corpus.open(tmp_path)
    tokens.write_bytes(whole[:-2])
    with pytest.raises(CorpusError, match="the file is damaged"):
        Corpus.open(tmp_path)
    with pytest.raises(CorpusError, match=r"not a whole \.npy file"):
        Corpus.open(tmp_path, verify=False)
    np.save(tokens, np.zeros(5, np.uint16))
    with pytest.raises(CorpusError, match="does not match the manifest"):
        Corpus.open(tmp_path, verify=False)
    tokens.unlink()
    with pytest.raises(CorpusError, match="is missing"):
        Corpus.open(tmp_path)


def rewrite(directory: Path, part: str, place: int, value: int) -> None:
    """Change a number, and its file's SHA-256 in the manifest."""
    path = directory / f"00000.{part}.npy"
    array = np.load(path)
    array[place] = value
    np.save(path, array)
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    manifest["shards"][0]["sha256"][part] = file_sha256(path)
    (directory / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


@pytest.mark.parametrize(
    ("part", "place", "value", "told"),
    [
        ("tokens", 3, SIZE, f"has token {SIZE}, the vocabulary {SIZE}"),
        ("sentences", 2, 0, "offsets of sentences must ascend"),
        ("sentences", 1, -5, "offsets of sentences must ascend"),
        ("documents", 1, 2**40, "offsets of documents must ascend"),
        ("documents", 0, 1, "offsets of documents must ascend"),
        ("languages", 0, 2, "has language 2, the manifest names 2"),
    ],
)
def test_numbers_that_no_corpus_holds_are_refused_though_their_sum_is_right(
    tmp_path: Path, part: str, place: int, value: int, told: str
) -> None:
    """Tokens beyond the vocabulary were trained on; borders ended in an IndexError."""
    write(tmp_path, draw_documents(20))
    rewrite(tmp_path, part, place, value)
    with pytest.raises(CorpusError, match=told):
        Corpus.open(tmp_path)


@pytest.mark.parametrize("name", ["00000.tokens.npy", "00000.languages.npy", "words.npy"])
def test_a_changed_file_is_refused_before_a_run_begins(tmp_path: Path, name: str) -> None:
    """What begins a word may be inverted, and stays of its kind: the sum alone tells."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    write(corpus, draw_documents(20))
    array = np.load(corpus / name)
    np.save(corpus / name, ~array if array.dtype == np.bool_ else array ^ 1)
    with pytest.raises(CorpusError, match=f"{name} has SHA-256"):
        build_text(DataRecipe(corpus=str(corpus)), seed=0)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": "../00000"}, "expected a number of five digits"),
        ({"name": 7}, "name must be a string, got 7"),
        ({"num_tokens": -1}, "num_tokens must be a count"),
        ({"num_tokens": "7"}, "num_tokens must be an integer, got '7'"),
        ({"sha256": {}}, "sha256 must name tokens"),
        ({"sha256": None}, "sha256 must be an object, got None"),
    ],
)
def test_a_manifest_of_other_types_is_refused(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    write(tmp_path, draw_documents(2))
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    manifest["shards"][0] |= change
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(CorpusError, match=told):
        Corpus.open(tmp_path)


def test_a_full_disk_is_said_so(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
    try:
        with pytest.raises(OutputError, match=r"00000\.tokens\.npy could not be written"):
            write_shard(tmp_path, 0, draw_documents(40), VOCABULARY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "not valid JSON"),
        ("{}", "format must be one of encoder_engine corpus 1, but is missing"),
        ('{"format": "encoder_engine corpus 0"}', "prepare the corpus again"),
        ("[]", r"manifest\.json must be an object"),
    ],
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / "manifest.json").write_text(content, encoding="utf-8")
    with pytest.raises(CorpusError, match=told):
        Corpus.open(tmp_path)


def test_a_vocabulary_that_does_not_hold_its_tokens_is_refused(tmp_path: Path) -> None:
    write(tmp_path, draw_documents(2))
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    manifest["vocabulary"]["mask_id"] = SIZE
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(CorpusError, match=f"mask_id is {SIZE}, the vocabulary has {SIZE} tokens"):
        Corpus.open(tmp_path)
    with pytest.raises(CorpusError, match="word_starts must be bool"):
        write_corpus(tmp_path, [], VOCABULARY, WORD_STARTS[1:])
