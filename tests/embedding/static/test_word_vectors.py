"""Tables of words from text files, in the three dialects, and what is wrong with some."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine import StaticEmbedder
from encoder_engine.errors import InputError, ReadError, RowError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

WORDS = {
    "the": [1.0, 0.0, 0.5],
    "cat": [0.0, 2.0, 0.0],
    "sat": [0.25, 0.25, 0.25],
    "na\u00efve": [3.0, 0.0, 0.0],
    "2": [0.0, 0.0, 1.0],
    ",": [0.5, 0.5, 0.5],
}
HEADER = f"{len(WORDS)} 3\n"
LINES = "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in WORDS.items())


def mean(*words: str) -> npt.NDArray[np.float32]:
    return np.asarray(np.mean([WORDS[word] for word in words], axis=0, dtype=np.float32))


@pytest.mark.parametrize(
    "content",
    [
        HEADER + LINES,  # word2vec, fastText
        LINES,  # GloVe
        (HEADER + LINES).replace("\n", " \r\n"),
        LINES.replace(" ", "\t"),
        HEADER + LINES + "the 9 9 9\n",  # a word that came before
    ],
    ids=["header", "bare", "trailing spaces", "tabs", "twice"],
)
def test_texts_are_means_of_their_words(content: str, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_bytes(content.encode())
    embedder = StaticEmbedder.from_word_vectors(tmp_path / "v.txt")
    found = embedder.encode(["The cat, 2!", "na\u00efve", "cats theory", ""])
    np.testing.assert_allclose(found[0], mean("the", "cat", ",", "2"), atol=1e-7)
    np.testing.assert_allclose(found[1], WORDS["na\u00efve"], atol=1e-7)
    np.testing.assert_array_equal(found[2:], 0)
    coverage = embedder.coverage(["The cat, 2!", "na\u00efve", "cats theory", ""])
    assert (coverage.num_tokens, coverage.num_unknown, coverage.num_empty) == (8, 3, 2)


def test_lower_case_follows_the_file_or_the_caller(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("Paris 1 0\nparis 0 1\n")
    cased = StaticEmbedder.from_word_vectors(tmp_path / "v.txt")
    np.testing.assert_array_equal(cased.encode("Paris"), [1, 0])
    lower = StaticEmbedder.from_word_vectors(tmp_path / "v.txt", lowercase=True)
    np.testing.assert_array_equal(lower.encode("Paris"), [0, 1])


def test_packed_files_and_the_first_words(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "v.vec.gz", "wb") as file:
        file.write((HEADER + LINES).encode())
    embedder = StaticEmbedder.from_word_vectors(tmp_path / "v.vec.gz", max_words=2, normalize=True)
    found = embedder.encode(["the cat", "sat"])
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 0], atol=1e-6)
    (tmp_path / "cut.vec.gz").write_bytes((tmp_path / "v.vec.gz").read_bytes()[:-12])
    with pytest.raises(ReadError, match="copy it again"):
        StaticEmbedder.from_word_vectors(tmp_path / "cut.vec.gz")


def test_a_saved_table_is_loaded_again(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(LINES)
    embedder = StaticEmbedder.from_word_vectors(tmp_path / "v.txt")
    embedder.save_pretrained(tmp_path / "saved")
    again = StaticEmbedder.from_pretrained(tmp_path / "saved")
    texts = ["The cat sat", "cats", ""]
    np.testing.assert_array_equal(again.encode(texts), embedder.encode(texts))
    model2vec = pytest.importorskip("model2vec", reason="model2vec is not installed")
    library = model2vec.StaticModel.from_pretrained(tmp_path / "saved")
    np.testing.assert_allclose(library.encode(texts), embedder.encode(texts), atol=1e-6)


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("the 1 2\ncat 1\n", 2, "has 1 numbers, expected 2"),
        ("the 1 2\ncat 1 x\n", 2, "holds 'x' in place of a number"),
        ("2 2\nthe 1 2\ncat 1 nan\n", 3, "holds NaN or infinity"),
        ("the 1 2\n 1 2\n", 2, "has no word"),
        ("the\n", 1, "has 0 numbers, expected 1"),
    ],
)
def test_a_bad_line_is_named(content: str, line: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(content)
    with pytest.raises(RowError, match=message) as caught:
        StaticEmbedder.from_word_vectors(tmp_path / "v.txt")
    assert (caught.value.number, caught.value.file) == (line, str(tmp_path / "v.txt"))


def test_files_that_are_not_whole_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.txt"
    for content, message in (
        (b"", "holds no word vectors"),
        (b"5 2\nthe 1 2\n", "ends after 1 words, its first line states 5"),
    ):
        path.write_bytes(content)
        with pytest.raises(ReadError, match=message):
            StaticEmbedder.from_word_vectors(path)
    path.write_bytes(b"the 1 2\n\xff\xfe 1 2\n")
    with pytest.raises(RowError, match="is not UTF-8"):
        StaticEmbedder.from_word_vectors(path)
    with pytest.raises(ReadError, match="cannot be opened"):
        StaticEmbedder.from_word_vectors(tmp_path / "missing.txt")
    for count in (0, "3"):
        with pytest.raises(InputError, match="max_words"):
            StaticEmbedder.from_word_vectors(path, max_words=count)  # type: ignore[arg-type]
    path.write_bytes(b"2 99999999999999\nthe 1 2\n")
    with pytest.raises(RowError, match="line 2 has 2 numbers, expected 99999999999999"):
        StaticEmbedder.from_word_vectors(path)


def test_a_table_grows_beyond_what_its_first_line_says(tmp_path: Path) -> None:
    lines = "".join(f"w{number} {number} 1\n" for number in range(5000))
    (tmp_path / "v.txt").write_text(lines)
    embedder = StaticEmbedder.from_word_vectors(tmp_path / "v.txt")
    np.testing.assert_array_equal(embedder.encode("w4999"), [4999, 1])
