"""Readers of words with tags and of questions: good files, broken ones, and real ones."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine.errors import MendedRowsWarning, ReadError, RowError
from encoder_engine.inputs.conll import read_conll, read_conllu
from encoder_engine.inputs.squad import read_squad
from encoder_engine.inputs.tables import read_table

if TYPE_CHECKING:
    from pathlib import Path

CONLL = "-DOCSTART- -X- O\n\nEU NNP B-ORG\nrejects VBZ O\n\n\nGerman JJ B-MISC\n"


def write(folder: Path, text: str, name: str = "a.conll") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("breaks", ["\n", "\r\n"])
@pytest.mark.parametrize("blank", [" ", "\t", "  "])
def test_sentences_of_columns(tmp_path: Path, blank: str, breaks: str) -> None:
    text = CONLL.replace(" ", blank)
    records = list(read_conll(write(tmp_path, "\ufeff" + text.replace("\n", breaks)), strict=True))
    assert [record.values for record in records] == [
        {"words": ["EU", "rejects"], "tags": ["B-ORG", "O"]},
        {"words": ["German"], "tags": ["B-MISC"]},
    ]
    assert [(record.number, record.row) for record in records] == [(3, 0), (7, 1)]


def test_columns_are_chosen_and_words_alone_have_no_tags(tmp_path: Path) -> None:
    path = write(tmp_path, "0 EU x NNP\n1 has y VBZ")
    [record] = read_conll(path, word_column=1, tag_column=3)
    assert record.values == {"words": ["EU", "has"], "tags": ["NNP", "VBZ"]}
    [record] = read_conll(write(tmp_path, "EU\nhas\n"))
    assert record.values == {"words": ["EU", "has"]}
    [record] = read_conll(write(tmp_path, "en:a:b\tO\nen::\tO\n"), strip_language=True)
    assert record.values["words"] == ["a:b", ":"]


def test_a_word_may_hold_other_blanks(tmp_path: Path) -> None:
    [record] = read_conll(write(tmp_path, "a\u00a0b O\n\u2009 B-X\n"))
    assert record.values["words"] == ["a\u00a0b", "\u2009"]


def test_tabs_and_marks_are_mended_aloud_or_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a\tO\n\t\n\ufeff\nb\tO\n \t \n\ufeffc\tO\n")
    with pytest.warns(MendedRowsWarning, match="2 times a line of tabs") as caught:
        records = list(read_conll(path))
    assert [record.values["words"] for record in records] == [["a"], ["b"], ["c"]]
    warning = caught[0].message
    assert isinstance(warning, MendedRowsWarning)
    assert warning.num_mended == 4
    with pytest.raises(RowError, match=r"a.conll, line 2: a line of tabs or spaces alone; remove"):
        list(read_conll(path, strict=True))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a O\nb\n", "line 2: 1 columns, the lines before have 2"),
        ("a\tO\n\tO\n", "line 2: the word is empty"),
        ("a O\n\nb X Y\n", "line 3: 3 columns"),
    ],
)
def test_broken_lines_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RowError, match=message):
        list(read_conll(write(tmp_path, text)))


def test_other_encodings_and_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.conll"
    path.write_bytes("é O\n".encode("latin-1"))
    with pytest.raises(RowError, match="is not UTF-8"):
        list(read_conll(path))
    with pytest.raises(RowError, match="2 columns, but tag_column is 2"):
        list(read_conll(write(tmp_path, CONLL.replace(" NNP", "")[18:]), tag_column=2))
    with pytest.raises(RowError, match="'a' has no language before it"):
        list(read_conll(write(tmp_path, "a O\n"), strip_language=True))


def test_conllu_reads_syntactic_words(tmp_path: Path) -> None:
    text = (
        "# sent_id = s1\n1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n1\tdo\tdo\tAUX\t_\t_\t0\troot\t_\t_\n"
        "2\tn't\tnot\tPART\t_\t_\t1\tadvmod\t_\t_\n2.1\tx\t_\t_\t_\t_\t_\t_\t_\t_\n\n"
        "# a note\n1\t_\t_\tSYM\t_\t_\t0\troot\t_\t_\n"
    )
    first, second = read_conllu(write(tmp_path, text, "a.conllu"))
    assert first.values["sent_id"] == "s1"
    assert first.values["words"] == ["do", "n't"]
    assert first.values["upos"] == ["AUX", "PART"]
    assert "xpos" not in first.values
    assert second.values["words"] == ["_"]
    with pytest.raises(RowError, match="line 2: expected token 2"):
        list(read_conllu(write(tmp_path, "1\ta\tb\n3\tc\td\n")))
    with pytest.raises(RowError, match="line 2: 2 columns, the line before has 3"):
        list(read_conllu(write(tmp_path, "1\ta\tb\n2\tc\n")))


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, kind: str) -> None:
    """The first of them was lost, as it is not in a .csv file."""
    pyarrow = pytest.importorskip("pyarrow")
    for part in ("ipc", "parquet"):
        pytest.importorskip(f"pyarrow.{part}")
    columns = [pyarrow.array(["a"]), pyarrow.array(["b"]), pyarrow.array(["c"])]
    table = pyarrow.table(columns, names=["text", "label", "text"])
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        with pyarrow.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table)
    with pytest.raises(ReadError, match=rf"a.{kind} has 2 columns 'text'; rename or drop one"):
        list(read_table(path))


def squad(**changes: Any) -> dict[str, Any]:
    question = {
        "id": "q1",
        "question": "Who?",
        "answers": [{"text": "She", "answer_start": 0}],
    } | changes
    return {"data": [{"title": "T", "paragraphs": [{"context": "She did.", "qas": [question]}]}]}


def test_questions_of_both_versions(tmp_path: Path) -> None:
    [record] = read_squad(write(tmp_path, json.dumps(squad()), "a.json"))
    assert record.values["answers"] == {"text": ["She"], "answer_start": [0]}
    assert (record.values["article"], record.values["title"]) == (0, "T")
    impossible = squad(is_impossible=True)
    [record] = read_squad(write(tmp_path, json.dumps(impossible), "a.json"))
    assert record.values["answers"] == {"text": [], "answer_start": []}
    unlabelled = squad()
    del unlabelled["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    [record] = read_squad(write(tmp_path, json.dumps(unlabelled), "a.json"))
    assert "answers" not in record.values


def test_broken_questions_are_named(tmp_path: Path) -> None:
    broken = squad(answers=[{"text": "She", "answer_start": "0"}])
    with pytest.raises(ReadError, match=r"qas\[0\].answers\[0\].answer_start must be an integer"):
        list(read_squad(write(tmp_path, json.dumps(broken), "a.json")))
    twice = squad()
    twice["data"] *= 2
    with pytest.raises(RowError, match="question 2: the id 'q1' came before"):
        list(read_squad(write(tmp_path, json.dumps(twice), "a.json")))
    with pytest.raises(ReadError, match="not valid JSON"):
        list(read_squad(write(tmp_path, "{", "a.json")))


def test_real_files_are_read_whole(shared_data: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train = list(read_conll(shared_data / "ner/wnut17_train.conll.xz"))
        dev = list(read_conll(shared_data / "ner/wnut17_dev.conll.xz"))
    counts = [w.message.num_mended for w in caught if isinstance(w.message, MendedRowsWarning)]
    assert counts == [2394, 1]
    assert (len(train), len(dev)) == (3394, 1009)
    trees = list(read_conllu(shared_data / "pos/ewt_dev.conllu.xz", strict=True))
    assert len(trees) == 2001
    assert {len(tree.values["upos"]) - len(tree.values["words"]) for tree in trees} == {0}
    wikiann = read_conll(
        shared_data / "ner/wikiann_en_dev.txt.xz", strip_language=True, strict=True
    )
    assert sum(1 for _ in wikiann) == 9892
    assert sum(1 for _ in read_squad(shared_data / "qa/xquad.ar.evenarticles.json.xz")) == 612
