"""GLiNER models find the entities that the library gliner finds, in texts of any length."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import encoder_engine as ee
from encoder_engine.embedding import Ranker
from encoder_engine.errors import (
    ConfigError,
    InputError,
    NonFiniteWeightsError,
    TensorNamesError,
    TensorShapeError,
    TextError,
    TruncationWarning,
    UnsupportedFeatureError,
)
from encoder_engine.inference import prompted_spans
from encoder_engine.inference.lstm import CompiledLstm
from encoder_engine.prediction.any_predictor import load_predictor
from encoder_engine.tasks.prompted_spans import WORD
from tests.golden.gliner_golden import TEXTS

if TYPE_CHECKING:
    from encoder_engine.engine.protocol import EngineChoice

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "gliner_golden.json").read_text())
CASES = list(GOLDEN["cases"])


def write(case: str, folder: Path) -> Path:
    for name, content in GOLDEN["cases"][case]["files"].items():
        (folder / name).write_bytes(zlib.decompress(base64.b64decode(content)))
    return folder


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write("bert", tmp_path)


def change(directory: Path, **settings: Any) -> None:
    path = directory / "gliner_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("case", CASES)
def test_entities_are_those_of_gliner(case: str, engine: EngineChoice, tmp_path: Path) -> None:
    assert GOLDEN["texts"] == TEXTS
    tagger = ee.SpanTagger.from_pretrained(write(case, tmp_path), engine=engine)
    for call in GOLDEN["cases"][case]["calls"]:
        found = tagger.entities(
            TEXTS, call["labels"], threshold=call["threshold"], nested=call["nested"]
        )
        for text, entities, expected in zip(TEXTS, found, call["found"], strict=True):
            ours = {(one.label, one.start, one.stop): one.score for one in entities}
            theirs = {tuple(one[:3]): one[3] for one in expected}
            assert ours.keys() == theirs.keys()
            assert all(abs(ours[place] - theirs[place]) < 1e-5 for place in theirs)
            assert all(one.text == text[one.start : one.stop] for one in entities)
    assert any(found)


def test_entities_do_not_depend_on_the_other_texts(directory: Path) -> None:
    tagger = ee.SpanTagger.from_pretrained(directory)
    labels = ["person", "place"]
    together = tagger.entities(TEXTS, labels, threshold=0.0)
    assert together == [tagger.entities(text, labels, threshold=0.0) for text in TEXTS]
    assert together == tagger.entities(TEXTS, labels, threshold=0.0, batch_tokens=1)
    assert tagger.entities([], labels) == []


def test_every_span_of_a_long_text_is_scored_once(directory: Path) -> None:
    text = " ".join(f"{word} no. {number}" for number, word in enumerate(["sea", "cat"] * 100))
    tagger = ee.SpanTagger.from_pretrained(directory)
    task: Any = tagger.text_task
    task = replace(task, labels=("place",))
    items = task.encode([text], tagger.tokenizer, tagger.windows)
    assert len(items) > 5
    assert items.num_tokens.max() <= 192
    chars, owned = items.ragged("chars"), items.column("owned")
    spans = [
        (int(chars.of(item)[first, 0]), int(chars.of(item)[last, 1]))
        for item in range(len(items))
        for first in range(int(owned[item]))
        for last in range(first, min(first + task.max_width, len(chars.of(item))))
    ]
    starts = [found.span() for found in WORD.finditer(text)]
    expected = [
        (starts[first][0], starts[last][1])
        for first in range(len(starts))
        for last in range(first, min(first + task.max_width, len(starts)))
    ]
    assert spans == expected
    (found,) = tagger.entities([text], ["place"], threshold=0.0)
    assert max(one.stop for one in found) == len(text)
    change(directory, max_len=9)
    short = ee.SpanTagger.from_pretrained(directory)
    task = short.text_task
    task = replace(task, labels=("place",))
    items = task.encode([text], short.tokenizer, short.windows)
    assert np.diff(items.ragged("chars").offsets).max() == 9


def test_spans_do_not_depend_on_how_many_are_in_memory(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tagger = ee.SpanTagger.from_pretrained(directory)
    expected = tagger.entities(TEXTS, ["place"], threshold=0.0)
    monkeypatch.setattr(prompted_spans, "_MOST_WORDS", 3)
    assert tagger.entities(TEXTS, ["place"], threshold=0.0) == expected


def test_a_word_beyond_the_limit_is_cut_and_counted(directory: Path) -> None:
    tagger = ee.SpanTagger.from_pretrained(directory)
    text = f"one {'-'.join('a' * 200)} two"
    with pytest.warns(TruncationWarning, match="1 of 2 rows have more tokens"):
        found = tagger.entities(["one", text], ["place"], threshold=0.0)
    assert found[1][-1].stop == len(text)


def test_a_word_without_a_token_moves_no_other(directory: Path) -> None:
    # gliner gives each word after one the vector of the word that follows it.
    tagger = ee.SpanTagger.from_pretrained(directory)
    task: Any = tagger.text_task
    task = replace(task, labels=("place",))
    items = task.encode(["one \u0301 two"], tagger.tokenizer, tagger.windows)
    assert items.ragged("chars").of(0).tolist() == [[0, 3], [4, 5], [6, 9]]
    assert sorted(set(items.ragged("words").of(0).tolist())) == [0, 2]
    tagger.entities("one \u0301 two", ["place"], threshold=0.0)


def test_an_lstm_is_that_of_torch() -> None:
    import torch

    torch.manual_seed(0)
    own = torch.nn.LSTM(6, 3, num_layers=2, bidirectional=True, batch_first=True)
    weights = {name: value.detach().numpy() for name, value in own.named_parameters()}
    lengths = [4, 0, 1, 7]
    rows = torch.randn(sum(lengths), 6)
    offsets = np.r_[0, np.cumsum(lengths)]
    found = CompiledLstm(weights, 2)(rows.numpy(), offsets, num_threads=1)
    own = own.double()
    for first, last in pairwise(offsets):
        if first < last:
            expected = own(rows[None, first:last].double())[0][0].detach().numpy()
            # Float32 by the same formula rounds by less.
            plain = own.float()(rows[None, first:last])[0][0].detach().numpy()
            own = own.double()
            budget = 2 * np.abs(plain - expected).max() + 1e-6
            assert np.abs(found[first:last] - expected).max() <= budget


VARIANTS = [
    ("labels_encoder", "sentence-transformers/all-MiniLM-L6-v2", "bi-encoder"),
    ("labels_decoder", "gpt2", "generates labels"),
    ("relations_layer", "biaffine", "relations"),
    ("span_mode", "token_level", "markerV0"),
    ("span_encoder_config", {"model_type": "rnn"}, "encoder of spans"),
    ("post_fusion_schema", "l2l-l2t-t2t", "fuses"),
    ("fuse_layers", True, "mixes"),
    ("precomputed_prompts_mode", True, "labels of its own"),
    ("words_splitter_type", "jieba", "word splitter"),
    ("decoder_config", {"model_type": "gpt2"}, "streaming"),
]


@pytest.mark.parametrize(("name", "value", "what"), VARIANTS, ids=[one[0] for one in VARIANTS])
def test_other_variants_are_refused_by_name(
    name: str, value: Any, what: str, directory: Path
) -> None:
    change(directory, **{name: value})
    with pytest.raises(UnsupportedFeatureError, match=f"{name} is .*{what}.*the library gliner"):
        ee.SpanTagger.from_pretrained(directory)


def test_damaged_directories_are_refused(directory: Path) -> None:
    path = directory / "model.safetensors"
    weights = load_file(path)
    name = next(name for name in weights if name.endswith("prompt_rep_layer.0.weight"))
    for changed, error in (
        ({**weights, name: weights[name][:-1]}, TensorShapeError),
        ({**weights, name: weights[name] * np.float32(np.nan)}, NonFiniteWeightsError),
        ({one: w for one, w in weights.items() if one != name}, TensorNamesError),
        ({**weights, "model.other": weights[name]}, TensorNamesError),
    ):
        save_file(changed, path)
        with pytest.raises(error, match=r"prompt_rep_layer|other"):
            ee.SpanTagger.from_pretrained(directory)
    save_file(weights, path)
    change(directory, subtoken_pooling="median")
    with pytest.raises(ConfigError, match="one of first, last, mean, max, got 'median'"):
        ee.SpanTagger.from_pretrained(directory)
    change(directory, subtoken_pooling="first", encoder_config=None)
    with pytest.raises(ConfigError, match=r"encoder_config is missing.*save_pretrained"):
        ee.SpanTagger.from_pretrained(directory)


def test_labels_that_cannot_be_asked_for_are_refused(directory: Path) -> None:
    tagger = ee.SpanTagger.from_pretrained(directory)
    labels: Any
    for labels, message in (
        ("person", "pass \\['person'\\]"),
        ([], "one or more names"),
        (["a", " "], "not blank"),
        (["a", "b", "a"], "'a' is given twice"),
        (["a <<ENT>> b"], "a label holds it"),
        ([f"label number {n}" for n in range(20)], "give fewer labels at a time"),
    ):
        with pytest.raises(InputError, match=message):
            tagger.entities("a text", labels)
    with pytest.raises(InputError, match=r"threshold must be from 0 to below 1, got 1.5"):
        tagger.entities("a text", ["a"], threshold=1.5)
    texts: Any = ["a text", None]
    with pytest.raises(TextError, match=r"row 1|text 1"):
        tagger.entities(texts, ["a"])


def test_other_classes_name_the_one_that_loads_it(directory: Path) -> None:
    for load in (ee.Embedder.from_pretrained, Ranker.from_pretrained, ee.Tagger.from_pretrained):
        with pytest.raises(UnsupportedFeatureError, match=r"SpanTagger\.from_pretrained"):
            load(directory)
    tagger = load_predictor(directory)
    assert isinstance(tagger, ee.SpanTagger)
    with pytest.raises(UnsupportedFeatureError, match=r"SpanTagger\.entities\(texts, labels"):
        tagger.predict([["a", "text"]])
