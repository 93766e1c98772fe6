"""Word senses: the readers, the vectors, the decision, and the verb."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from encoder_engine.analysis.context_pairs import read_pairs
from encoder_engine.analysis.senses import SenseWord, draw_halves, score_senses, word_vectors
from encoder_engine.analysis.static_words import StaticWords
from encoder_engine.analysis.zscore import ZScore
from encoder_engine.errors import InputError, ReadError, RowError
from encoder_engine.inputs.records import Record
from encoder_engine.inputs.senses import read_senses

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.analysis.subject import Subject
    from tests.analysis.conftest import Run

LEXICAL = """<corpus><lexelt item="film-n">{}</lexelt></corpus>"""
INSTANCE = (
    '<instance id="{0}"><answer instance="{0}" senseid="{1}"/><context><wf>{2}</wf> '
    "<head><wf>film</wf></head> <wf>plot</wf></context></instance>"
)
UNIFIED = """<corpus><text><sentence><wf lemma="the" pos="DET">The</wf>
<instance id="d0" lemma="film" pos="NOUN">film</instance></sentence></text></corpus>"""


def lexical(path: Path, num_rows: int = 20) -> Path:
    """Write a lexical sample whose sense follows from the word before."""
    rows = [
        INSTANCE.format(n, *(("<i>movie".replace("<", "&lt;"), "good") if n % 2 else ("foil", "a")))
        for n in range(num_rows)
    ]
    path.write_text(LEXICAL.format("".join(rows)))
    return path


def test_a_lexical_sample_is_read_with_the_place_of_its_head(tmp_path: Path) -> None:
    first = next(read_senses(lexical(tmp_path / "film.xml"))).values
    assert first["words"] == ["a", "film", "plot"]
    assert (first["place"], first["lemma"], first["pos"]) == (1, "film", "n")
    assert first["senses"] == ["foil"]


def test_the_unified_format_finds_its_keys_beside_it(tmp_path: Path) -> None:
    data = tmp_path / "small.data.xml"
    data.write_text(UNIFIED)
    (tmp_path / "small.gold.key.txt").write_text("d0 film%1 film%2\n")
    (record,) = read_senses(data)
    assert record.values["senses"] == ["film%1", "film%2"]
    assert record.values["words"] == ["The", "film"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<corpus>", "is not XML"),
        ('<?xml version="1.0" encoding="klingon"?><corpus/>', "is not XML: unknown encoding"),
        ("<corpus/>", "neither a lexelt nor a sentence"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><corpus/>", "entities"),
    ],
)
def test_a_file_that_holds_no_senses_is_refused(
    tmp_path: Path, content: str, expected: str
) -> None:
    (tmp_path / "bad.xml").write_text(content)
    with pytest.raises(ReadError, match=expected):
        list(read_senses(tmp_path / "bad.xml"))


def test_an_instance_without_a_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "small.data.xml").write_text(UNIFIED)
    (tmp_path / "keys.txt").write_text("d1 other\n")
    with pytest.raises(RowError, match="no 'd0'"):
        list(read_senses(tmp_path / "small.data.xml", tmp_path / "keys.txt"))


def test_a_word_has_the_sum_of_layers_of_the_mean_of_its_subwords(subject: Subject) -> None:
    sentence = ["the", "goodbad", "film"]
    encoding = subject.tokenizer.encode_batch([sentence], is_split_into_words=True)
    with torch.no_grad():
        states = subject.hidden_states(encoding.to_packed("cpu"))
    # A word outside the vocabulary is one unknown token: [CLS] the [UNK] film [SEP].
    expected = torch.stack([state[3].double() for state in states]).sum(0)
    (found,) = word_vectors(subject, [SenseWord(sentence, 2, "film", ())])
    # The sum rounds once a layer.
    largest = max(float(state[3].abs().max()) for state in states)
    rounding = len(states) * torch.finfo(torch.float32).eps * len(states) * largest
    np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=rounding)


def test_the_nearest_sense_wins_and_unseen_lemmas_are_counted_apart() -> None:
    train = [SenseWord(["w"], 0, "w", [sense]) for sense in ("a", "a", "b")]
    test = [
        SenseWord(["w"], 0, "w", ["a"]),
        SenseWord(["w"], 0, "w", ["b", "c"]),
        SenseWord(["x"], 0, "x", ["a"]),
    ]
    vectors = np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]])
    found = score_senses(train, test, vectors, np.array([[2.0, 0.1], [0.1, 3.0], [1.0, 1.0]]))
    assert (found.nearest, found.neighbour, found.most_frequent) == (100.0, 100.0, 50.0)
    assert (found.num_words, found.num_covered, found.num_senses) == (3, 2, 2)


def test_halves_share_no_word_and_one_word_has_none() -> None:
    words = [SenseWord([str(n)], 0, "w", ["a"]) for n in range(10)]
    train, test = draw_halves(words, 8, 0)
    assert len(train) == len(test) == 4
    assert not {w.words[0] for w in train} & {w.words[0] for w in test}
    with pytest.raises(InputError, match="cannot be halved"):
        draw_halves(words[:1], 8, 0)


def test_dead_features_are_left_out_of_z_scores() -> None:
    vectors = np.random.default_rng(0).normal(size=(50, 4))
    vectors[:, 2] = 1e-33 * vectors[:, 2] + 5.0
    zscore = ZScore.fit(vectors)
    found = zscore.apply(vectors)
    assert zscore.num_dead == 1
    assert (found[:, 2] == 0).all()
    np.testing.assert_allclose(found[:, [0, 1, 3]].std(0), 1.0)
    with pytest.raises(InputError, match="all vectors are equal"):
        ZScore.fit(np.ones((3, 2)))


def test_pairs_find_inflected_words_and_leave_out_others() -> None:
    rows = [
        {"word": "begin", "s1": "It began here", "s2": "We begin", "label": 1},
        {"word": "go", "s1": "They went", "s2": "We go", "label": 0},
    ]
    pairs, left_out = read_pairs([Record(row) for row in rows])
    assert left_out == 1
    assert [(p.first.place, p.second.place, p.same) for p in pairs] == [(1, 1, True)]
    # Other labels were taken for 0.
    with pytest.raises(RowError, match="label must be 1, the same sense, or 0, got 2"):
        read_pairs([Record({**rows[0], "label": 2})])


@pytest.mark.filterwarnings("ignore")
def test_the_verb_writes_a_page_that_escapes_its_words(
    tmp_path: Path, tiny: Path, run: Run, conllu: Path
) -> None:
    data, page = lexical(tmp_path / "film.xml"), tmp_path / "page.html"
    extra = ("--standardise", conllu, "--device", "cpu")
    result = run("senses", "--model", tiny, data, "--html", page, "--json", *extra)
    assert result.code == 0, result.errors
    found = json.loads(result.output)["senses"][str(data)]
    assert found["num_words"] == 10
    assert found["nearest"] == 100.0
    content = page.read_text()
    assert "&lt;i&gt;movie" in content
    assert "<i>" not in content
    assert "http://" not in content.replace("http-equiv", "")
    assert run("senses", "--model", tiny, data, "--html", page).code == 2


@pytest.mark.filterwarnings("ignore")
def test_the_verb_decides_pairs_and_other_files(tmp_path: Path, tiny: Path, run: Run) -> None:
    rows = [
        {"word": word, "s1": f"the {word}", "s2": f"a {word} plot", "label": number % 2}
        for number, word in enumerate(["good", "bad", "film", "plot"] * 3)
    ]
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run("senses", "--model", tiny, pairs, "--json", "--device", "cpu")
    assert result.code == 0, result.errors
    assert json.loads(result.output)["pairs"][str(pairs)]["num_pairs"] == 6
    train, test = lexical(tmp_path / "one.xml"), lexical(tmp_path / "other.xml", 6)
    result = run("senses", "--model", tiny, train, "--test", test, "--device", "cpu")
    assert result.code == 0, result.errors
    assert "6 of 6" in result.output
    # Pairs beside a training file were read as one, after they had been scored.
    result = run(
        "senses", "--model", tiny, train, pairs, "--test", test, "--device", "cpu", "--json"
    )
    assert result.code == 0, result.errors
    assert len(json.loads(result.output)["pairs"]) == len(json.loads(result.output)["senses"]) == 1
    result = run("senses", "--model", tiny, pairs, "--test", test, "--device", "cpu")
    assert result.code == 2
    assert "DATA is pairs alone" in result.errors
    none = tmp_path / "none.xml"
    none.write_text(LEXICAL.format(""))
    result = run("senses", "--model", tiny, train, "--test", none, "--device", "cpu")
    assert result.code == 1
    assert "there is no word" in result.errors


def glove(path: Path) -> Path:
    """Write static vectors of three words, one near another."""
    path.write_text("film 1 0 0\nmovie 0.9 0.1 0\ngood 0 1 0\na 0 0 1\n")
    return path


def test_static_vectors_are_one_for_a_word_and_a_mean_for_its_sentence(tmp_path: Path) -> None:
    static = StaticWords.open(glove(tmp_path / "glove.txt"))
    words = [SenseWord(["a", "film"], 1, "film", ()), SenseWord(["good", "film"], 1, "film", ())]
    one, other = static.vectors(words)
    np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(static.vectors(words, with_sentence=True)[0], [0.5, 0, 0.5])
    assert static.neighbours("Film", 2) == ["movie", "good"]
    assert static.neighbours("unheard") == []
    assert static.num_known([*words, SenseWord(["unheard"], 0, "unheard", ())]) == 2


@pytest.mark.filterwarnings("ignore")
def test_the_verb_shows_static_vectors_beside_contextual_ones(
    tmp_path: Path, tiny: Path, run: Run
) -> None:
    data, page = lexical(tmp_path / "film.xml"), tmp_path / "page.html"
    extra = ("--static", glove(tmp_path / "glove.txt"), "--device", "cpu", "--json")
    result = run("senses", "--model", tiny, data, "--html", page, *extra)
    assert result.code == 0, result.errors
    found = json.loads(result.output)["senses"]
    # The word before tells the senses apart, of which the word alone knows nothing.
    assert found[f"{data}, static sentence"]["nearest"] == 100.0
    assert found[f"{data}, static word"]["nearest"] < 100.0
    content = page.read_text()
    assert "static neighbours" in content
    assert content.count("<svg") == 2
