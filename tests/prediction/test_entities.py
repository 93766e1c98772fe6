"""Entities of raw texts, beside transformers' token-classification pipeline, and by schemes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest

import encoder_engine as ee
from encoder_engine.errors import InputError, TextError
from encoder_engine.ops.cpu import native_instruction_set
from encoder_engine.prediction.entities import (
    Aggregation,
    Entity,
    EntityLabel,
    EntityTask,
    read_labels,
)
from encoder_engine.tasks.task import Windows
from encoder_engine.tasks.token_classification import TokenClassificationTask
from tests.finetuning.task_rows import write_task_model
from tests.prediction.peer_models import FAMILIES, TEXTS, real_texts, write_model

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(native_instruction_set() is None, reason="the extension is not built"),
    pytest.mark.filterwarnings("ignore:Tokenizer does not support real words:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*"),
]
AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)
IOB = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
# Of the scores of both libraries in float32; measured: 2.3e-6.
CLOSE = 1e-5
ENGINES: tuple[Any, ...] = ("compiled", "torch")


def by_transformers(folder: Path, aggregation: str, texts: list[str], **options: Any) -> Any:
    """Return label, start, stop and score of each text's entities by transformers' pipeline."""
    import transformers

    pipe = transformers.pipeline(
        "token-classification",
        str(folder),
        aggregation_strategy=aggregation,
        device="cpu",
        **options,
    )
    return [
        [
            (one.get("entity", one.get("entity_group")), one["start"], one["end"], one["score"])
            for one in row
        ]
        for row in pipe(texts)
    ]


def assert_same(ours: list[list[Entity]], theirs: Any, texts: list[str]) -> None:
    for text, mine, row in zip(texts, ours, theirs, strict=True):
        assert [one[:3] for one in mine] == [one[:3] for one in row], text
        for one, (_, start, stop, score) in zip(mine, row, strict=True):
            assert one.text == text[start:stop]
            assert type(one.score) is float
            assert abs(one.score - float(score)) <= CLOSE


def short_texts(tagger: ee.Tagger, texts: list[str]) -> list[str]:
    """Leave out the texts whose end transformers' pipeline does not read."""
    lengths = tagger.tokenizer.encode_batch(texts).lengths
    return [
        text
        for text, length in zip(texts, lengths.tolist(), strict=True)
        if length <= tagger.windows.max_length
    ]


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_entities_are_those_of_transformers(
    family: str, aggregation: Aggregation, tmp_path: Path
) -> None:
    folder = write_model(tmp_path, family, "token", IOB)
    expected = by_transformers(folder, aggregation, TEXTS)
    assert sum(map(len, expected)) > 10
    for engine in ENGINES:
        tagger = ee.Tagger.from_pretrained(folder, "cpu", engine=engine)
        assert_same(tagger.entities(TEXTS, aggregation=aggregation), expected, TEXTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [
        *("bert", "roberta"),
        *(pytest.param(n, marks=pytest.mark.exhaustive) for n in ("distilbert", "xlm-roberta")),
    ],
)
def test_entities_of_real_texts_are_those_of_transformers(
    family: str, tmp_path: Path, shared_data: Path
) -> None:
    folder = write_model(tmp_path, family, "token", IOB)
    tagger = ee.Tagger.from_pretrained(folder, "cpu")
    texts = short_texts(tagger, real_texts(shared_data, 80))
    assert len(texts) > 20
    for aggregation in AGGREGATIONS:
        found = tagger.entities(texts, aggregation=aggregation)
        assert_same(found, by_transformers(folder, aggregation, texts), texts)


@pytest.mark.slow
@pytest.mark.parametrize("stride", [0, 7, 30])
@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
def test_windows_of_a_stride_are_those_of_transformers(
    family: str, stride: int, tmp_path: Path
) -> None:
    folder = write_model(tmp_path, family, "token", IOB)
    texts = [" ".join(TEXTS), TEXTS[0], " ".join(TEXTS) * 3]
    expected = by_transformers(folder, "simple", texts, stride=stride)
    tagger = ee.Tagger.from_pretrained(folder, "cpu")
    assert isinstance(tagger.task, TokenClassificationTask)
    task = EntityTask.of(tagger.task, stride=stride)
    found = [[one.entity for one in row] for row in tagger.predict_examples(texts, task=task)]
    assert_same(found, expected, texts)
    with pytest.raises(InputError, match="windows cannot share 62"):
        tagger.predict_examples(texts, task=EntityTask.of(tagger.task, stride=62))


@pytest.fixture
def tagger(tmp_path: Path) -> ee.Tagger:
    """Load a small model of others with labels of BIO."""
    return ee.Tagger.from_pretrained(write_model(tmp_path, "bert", "token", IOB), "cpu")


def test_the_end_of_a_long_text_is_found(tagger: ee.Tagger) -> None:
    text = "John lives in New York and Mary in Berlin. " * 30
    found = tagger.entities(text, aggregation="none")
    assert len(tagger.tokenizer.encode(text)) > 5 * tagger.windows.max_length
    # The first row ends before character 300.
    assert found[-1].stop > 1000
    # Each character in one token, in order, as without windows.
    assert [one.start for one in found] == sorted(one.start for one in found)
    assert isinstance(tagger.task, TokenClassificationTask)
    task = EntityTask.of(tagger.task, aggregation="none", ignored=())
    (every,) = tagger.predict_examples([text], task=task)
    expected = tagger.tokenizer.encode_batch([text], None, False, return_offsets=True)
    assert [tuple(one.entity[1:3]) for one in every] == [
        tuple(pair) for pair in expected.offsets.tolist()
    ]
    assert [one.place for one in every] == list(range(1, len(every) + 1))
    assert [one.token_id for one in every] == expected.ids.tolist()


def test_each_token_is_read_where_its_context_is_greatest() -> None:
    task = EntityTask(labels=IOB, scheme="bio")
    windows = list(task._windows(25, 10, 4))
    assert windows == [(0, 10, 0, 8), (6, 16, 8, 14), (12, 22, 14, 18), (15, 25, 18, 25)]
    contexts = np.full((25, len(windows)), -1)
    for number, window in enumerate(windows):
        tokens = np.arange(window.start, window.stop)
        contexts[tokens, number] = np.minimum(tokens - window.start, window.stop - 1 - tokens)
        read = np.arange(window.first, window.last)
        assert (contexts[read, number] >= 0).all()
    for number, window in enumerate(windows):
        read = contexts[window.first : window.last]
        assert (read[:, number] == read.max(1)).all()


def test_a_text_has_the_same_entities_alone_and_beside_others(tagger: ee.Tagger) -> None:
    texts = [*TEXTS, "John lives in New York and Mary in Berlin. " * 9]
    together = tagger.entities(texts, aggregation="average")
    assert together == [tagger.entities(text, aggregation="average") for text in texts]
    assert tagger.entities(texts, aggregation="average", batch_tokens=1) == together
    assert tagger.entities([]) == []
    assert tagger.entities("") == []
    json.dumps(together)


def test_what_is_no_text_is_refused_with_its_row(tagger: ee.Tagger) -> None:
    with pytest.raises(TextError, match="text 1 must be a str, got None") as caught:
        tagger.entities(["a", None])  # type: ignore[list-item]
    assert caught.value.row == 1
    with pytest.raises(TextError) as caught:
        tagger.entities(["a", "b", "\ud800"])
    assert caught.value.row == 2
    with pytest.raises(InputError, match="got 'frist'; did you mean 'first'"):
        tagger.entities(["a"], aggregation="frist")  # type: ignore[arg-type]


SCHEMES = [
    # IOB1: I- begins an entity, B- only after one of its type.
    (("O", "I-X", "B-X", "I-Y"), "I-X I-X B-X I-Y O I-Y", ["X01", "X2", "Y3", "Y5"]),
    (("O", "B-X", "I-X", "E-X", "S-X"), "B-X I-X E-X E-X S-X B-X", ["X02", "X3", "X4", "X5"]),
    (("O", "B-X", "I-X", "L-X", "U-X"), "B-X L-X U-X U-X O I-X", ["X01", "X2", "X3", "X5"]),
    (("O", "B-X", "M-X", "E-X", "S-X"), "B-X M-X M-X E-X O S-X", ["X03", "X5"]),
    (("DATE-TIME", "CARD-NO", "O"), "DATE-TIME DATE-TIME O CARD-NO", ["DATE-TIME01", "CARD-NO3"]),
    # Letters of no scheme: there is no B- of their type.
    (("O", "S-X", "E-MAIL"), "S-X S-X E-MAIL", ["S-X01", "E-MAIL2"]),
    (("NOUN", "."), "NOUN . .", ["NOUN0", ".12"]),
]


@pytest.mark.parametrize(("labels", "tags", "expected"), SCHEMES, ids=lambda value: str(value)[:9])
def test_labels_are_decoded_by_their_scheme(
    labels: tuple[str, ...], tags: str, expected: list[str], tagger: ee.Tagger
) -> None:
    task = EntityTask(labels=labels, scheme="plain")
    text = "abcdefgh"[: len(tags.split())]
    items = task.encode([text], tagger.tokenizer, Windows(max_length=64))
    wanted = [labels.index(tag) for tag in tags.split()]
    logits = np.where(np.arange(len(labels)) == np.array(wanted)[:, None], 50.0, 0.0)
    (found,) = task.decode({"logits": logits}, items, [text])
    entities = [one.entity for one in found]
    spans = ["".join(map(str, dict.fromkeys((one.start, one.stop - 1)))) for one in entities]
    names = [one.label + span for one, span in zip(entities, spans, strict=True)]
    assert names == expected
    assert [one.text for one in entities] == [text[one.start : one.stop] for one in entities]


def test_labels_say_where_entities_begin_and_end() -> None:
    assert read_labels(["O", "B-X", "I-X", "E-X", "E-Y", "B-", "X"]) == (
        EntityLabel("O"),
        EntityLabel("X", begins=True),
        EntityLabel("X"),
        EntityLabel("X", ends=True),
        EntityLabel("E-Y"),
        EntityLabel("B-"),
        EntityLabel("X"),
    )


@pytest.mark.parametrize(
    "settings", [{"decoding": one, "scheme": "bio"} for one in ("argmax", "constrained", "crf")]
)
def test_entities_of_an_own_tagger_are_those_of_its_words(
    checkpoint: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    folder = write_task_model(tmp_path / "model", checkpoint, "token-classification", settings)
    # Every word of the vocabulary is one token.
    words = ["the", "film", "not", "very", "bad", "a", "good", "plot", "the"]
    for engine in ENGINES:
        tagger = ee.Tagger.from_pretrained(folder, "cpu", engine=engine)
        (tagged,) = tagger.predict([words])
        starts = np.r_[0, np.cumsum([len(word) + 1 for word in words])]
        found = tagger.entities(" ".join(words), aggregation="first")
        tags = ["O"] * len(words)
        for one in found:
            inside = [n for n in range(len(words)) if one.start <= starts[n] < one.stop]
            for number, word in enumerate(inside):
                tags[word] = f"{'I' if number else 'B'}-{one.label}"
            scores = tagged.probabilities[inside]
            assert abs(one.score - scores.mean()) <= CLOSE
        assert found
        merged = [tag if tag == "O" else tag[2:] for tag in tagged.tags]
        assert [tag if tag == "O" else tag[2:] for tag in tags] == merged
