"""Tasks on words: every word is read once, comes back in place, and is decoded legally."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from encoder_engine import Tokenizer
from encoder_engine.errors import ConfigError, InputError, MendedRowsWarning, RowError
from encoder_engine.inputs.records import Record
from encoder_engine.tasks.registry import task_from_values, task_values
from encoder_engine.tasks.span_classification import SpanClassificationTask, SpanExample
from encoder_engine.tasks.task import Windows
from encoder_engine.tasks.token_classification import TaggedExample, TokenClassificationTask
from encoder_engine.tasks.words.span_selection import (
    PredictedSpan,
    Span,
    best_threshold,
    crossing,
    select_spans,
)
from tests.models.structured.test_crf import is_legal
from tests.text.formats.test_library import make_modernbert, make_roberta

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from encoder_engine.tasks.task import Task

LABELS = ("O", "B-X", "B-Y", "I-X", "I-Y")


def draw_words(seed: int, count: int) -> tuple[str, ...]:
    """Draw words of 1 to 9 subwords, unknown ones, and ones without a token."""
    rng = random.Random(seed)
    pieces = ["a", "ab", "\u200b\u0007", "\U0001f600", "b" * 9, "abba"]
    return tuple(rng.choice(pieces) for _ in range(count))


@pytest.mark.filterwarnings("ignore::encoder_engine.errors.MendedRowsWarning")
@pytest.mark.parametrize("max_length", [8, 16, 64, 4096])
@pytest.mark.parametrize("subwords", ["first", "all"])
def test_labels_come_back_in_place_whatever_the_windows(
    tokenizer: Tokenizer, subwords: Any, max_length: int
) -> None:
    examples = [
        TaggedExample(words, tuple(random.Random(len(words)).choices(LABELS, k=len(words))))
        for words in (draw_words(seed, 1 + 40 * seed) for seed in range(5))
    ]
    task = TokenClassificationTask(labels=LABELS, scheme="bio", subwords=subwords)
    items = task.encode(examples, tokenizer, Windows(max_length=max_length))
    assert items.rows.lengths.max() <= max_length
    # A model that gives each row its gold tag: what comes back is the gold, but for silent words.
    gold = items.ragged("tags").values
    logits = np.full((len(gold), len(LABELS)), -5.0)
    logits[np.arange(len(gold)), gold] = 5.0
    predictions = task.decode({"logits": logits}, items, examples)
    for example, prediction in zip(examples, predictions, strict=True):
        assert example.tags is not None
        silent = [
            len(tokenizer.encode(word, add_special_tokens=False)) == 0 for word in example.words
        ]
        expected = tuple(
            "O" if there else tag for tag, there in zip(example.tags, silent, strict=True)
        )
        assert prediction.tags == expected


@pytest.mark.parametrize("maker", [make_roberta, make_modernbert], ids=["roberta", "modernbert"])
def test_models_read_the_words_of_a_sentence_as_its_text(
    maker: Callable[[Path], Path], tmp_path: Path
) -> None:
    # Byte-level tokens hold the space before a word: "the hello" was read as "thehello".
    tokenizer = Tokenizer.from_pretrained(maker(tmp_path))
    words = ("the", "hello", ",", "world")
    expected = tokenizer.encode(" ".join(words)).tolist()
    tagged = TaggedExample(words, ("B-X", "O", "O", "O"))
    spans = SpanExample(words, frozenset({Span(0, 1, "X")}))
    fitted: list[tuple[Task[Any, Any], Any]] = [
        (TokenClassificationTask().fit([tagged]), tagged),
        (SpanClassificationTask().fit([spans]), spans),
    ]
    for task, example in fitted:
        items = task.encode([example], tokenizer, Windows(max_length=64))
        assert items.rows.ids.tolist() == expected
        assert items.ragged("words").values.tolist() == [0, 1, 2, 3]
        # A model that was saved without the setting reads the words as it was trained to.
        values = {name: value for name, value in task_values(task).items() if name != "spaced"}
        former = task_from_values(values.pop("name"), values)
        alone = tokenizer.encode_batch([words], is_split_into_words=True).ids.tolist()
        items = former.encode([example], tokenizer, Windows(max_length=64))
        assert items.rows.ids.tolist() == alone != expected


def test_words_without_a_token_are_counted(tokenizer: Tokenizer) -> None:
    task = TokenClassificationTask(labels=LABELS, scheme="bio")
    with pytest.warns(MendedRowsWarning, match="1 words of 1 sentences have no token"):
        task.encode([TaggedExample(("a", "\u0007"))], tokenizer, Windows(max_length=8))


@pytest.mark.parametrize("decoding", ["constrained", "crf"])
def test_decoded_tags_are_legal(tokenizer: Tokenizer, decoding: Any) -> None:
    examples = [TaggedExample(("a",) * 30), TaggedExample(("b",))]
    task = TokenClassificationTask(labels=LABELS, scheme="bio", decoding=decoding)
    items = task.encode(examples, tokenizer, Windows(max_length=12))
    drawn = np.random.default_rng(0).normal(size=(31, 5))
    outputs = {"logits": drawn}
    if decoding == "crf":
        legal = task.legal_tags
        for name in ("start", "end", "transitions"):
            outputs[name] = np.where(getattr(legal, name), 0.0, -np.inf)
    for prediction in task.decode(outputs, items, examples):
        classes = np.array([LABELS.index(tag) for tag in prediction.tags])
        assert is_legal(task.legal_tags, classes)


def test_tags_are_mended_aloud_or_refused() -> None:
    record = Record({"words": ["a", "b", "c"], "tags": ["I-X", "I-X", "I-Y"]}, "f.conll", 3)
    task = TokenClassificationTask()
    example = task.read(record)
    assert (example.tags, example.num_mended) == (("B-X", "I-X", "B-Y"), 2)
    with pytest.raises(RowError, match=r"f\.conll, line 3: word 0 has the tag 'I-X' after 'O'"):
        TokenClassificationTask(strict=True).read(record)
    fitted = task.fit([example])
    assert fitted.labels == ("O", "B-X", "B-Y", "I-X", "I-Y")
    with pytest.raises(RowError, match="the label 'B-Z' is unknown"):
        fitted.read(Record({"words": ["a"], "tags": ["B-Z"]}))
    with pytest.raises(RowError, match="1 words and 2 tags"):
        fitted.read(Record({"words": ["a"], "tags": ["O", "O"]}))
    plain = task.fit([TaggedExample(("a", "b"), ("NN", "VB"))])
    assert (plain.scheme, plain.labels) == ("plain", ("NN", "VB"))
    assert task_from_values(task.name, task_values(fitted)) == fitted


def test_tags_that_were_mended_are_refused_in_a_plain_scheme() -> None:
    # The rows of another scheme that look like BIO had become B-X where others kept I-X.
    rows = [["I-X", "O"], ["I-X", "E-X"]]
    examples = [
        TokenClassificationTask().read(Record({"words": ["a", "b"], "tags": tags})) for tags in rows
    ]
    with pytest.raises(ConfigError, match="the tag 'E-X' is not BIO, but 1 tags"):
        TokenClassificationTask().fit(examples)
    plain = TokenClassificationTask(scheme="plain")
    kept = [plain.read(Record({"words": ["a", "b"], "tags": tags})) for tags in rows]
    assert plain.fit(kept).labels == ("E-X", "I-X", "O")


def test_contradictory_settings_are_refused() -> None:
    for wrong in (
        {"decoding": "crf", "subwords": "all"},
        {"decoding": "constrained", "scheme": "plain"},
        {"pooling": "mean"},
    ):
        with pytest.raises(ConfigError):
            task_from_values("token-classification", wrong)


def test_every_span_is_answered_for_by_one_window(tokenizer: Tokenizer) -> None:
    spans = frozenset({Span(0, 2, "X"), Span(7, 10, "Y"), Span(29, 30, "X")})
    example = SpanExample(("a",) * 30, spans)
    task = SpanClassificationTask().fit([example])
    assert (task.labels, task.max_width, task.covered) == (("X", "Y"), 3, 1.0)
    items = task.encode([example], tokenizer, Windows(max_length=12, stride=4))
    assert len(items) > 3
    classes = task._classes(items)[1]
    assert (classes >= 0).sum() == 30 + 29 + 28
    shares = np.zeros((len(classes), 3))
    shares[np.arange(len(classes)), np.maximum(classes, 0)] = 1.0
    [prediction] = task.decode({"probabilities": shares}, items, [example])
    assert frozenset(Span(*span[:3]) for span in prediction.spans) == spans
    assert task.score([example], [prediction])["span_f1"] == 100.0


@pytest.mark.parametrize("settings", [{}, {"labels": ("X",)}, {"labels": ("X",), "max_width": 4}])
def test_rows_without_a_span_are_refused_in_fit(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="the training rows have 0 labels"):
        SpanClassificationTask(**settings).fit([SpanExample(("a",), frozenset())])


def test_spans_are_selected_flat_or_nested() -> None:
    candidates = [
        PredictedSpan(0, 4, "X", 0.9),
        PredictedSpan(1, 2, "Y", 0.8),
        PredictedSpan(3, 6, "X", 0.7),
        PredictedSpan(5, 7, "X", 0.6),
    ]
    assert [span.start for span in select_spans(candidates, nested=False)] == [0, 5]
    assert [span.start for span in select_spans(candidates, nested=True)] == [0, 1, 5]
    assert crossing((0, 2), (1, 3), nested=True)
    assert not crossing((0, 2), (2, 3), nested=False)
    gold = [frozenset({Span(0, 4, "X")})]
    assert best_threshold(gold, [candidates], 0.5) == pytest.approx(0.85)


def test_gold_spans_that_overlap_are_refused() -> None:
    entities = [
        {"start": 0, "stop": 3, "label": "X"},
        {"start": 1, "stop": 2, "label": "Y"},
    ]
    record = Record({"words": ["a", "b", "c"], "entities": entities})
    with pytest.raises(RowError, match=r"overlap; set task\.nested"):
        SpanClassificationTask().read(record)
    example = SpanClassificationTask(nested=True).read(record)
    assert example.spans == frozenset({Span(0, 3, "X"), Span(1, 2, "Y")})
    entities[1] = {"start": 2, "stop": 4, "label": "Y"}
    with pytest.raises(RowError, match=r"entities\[1\] runs from 2 to 4"):
        SpanClassificationTask(nested=True).read(record)


def test_entity_labels_without_the_outside_tag_are_refused_in_fit() -> None:
    task = TokenClassificationTask(labels=("B-X", "I-X"))
    example = task.read(Record({"words": ["a", "b"], "tags": ["B-X", "I-X"]}))
    with pytest.raises(ConfigError, match=r"task\.labels B-X, I-X has no O"):
        task.fit([example])
    # A label of another scheme ended the first evaluation that predicted it.
    mixed = TokenClassificationTask(labels=("O", "B-X", "I-X", "MISC"))
    with pytest.raises(ConfigError, match=r"task\.labels has 'MISC', and BIO has"):
        mixed.fit([example])
