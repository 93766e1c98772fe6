"""Calls of a causal reranker: the keywords of ``CrossEncoder``, jobs, verbs and a service."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine import load_vectors
from encoder_engine.cli import main
from encoder_engine.embedding import CausalRanker, PairTemplate, Scorer
from encoder_engine.embedding.any_model import load_ranker
from encoder_engine.errors import InputError, ResumeError, UnsupportedFeatureError
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.serving.service import Service
from encoder_engine.serving.tasks import CallOptions, kinds_of, resolve_request
from tests.embedding.causal_ranker.saved import (
    SPECIAL,
    TERMS,
    assert_as_ours,
    in_exact,
    load,
    save,
    tensor,
)
from tests.embedding.test_causal import ENGINES, PAIRS, TEMPLATE, build

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest.importorskip("sentence_transformers")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("reranker"), SPECIAL)


CALLS: dict[str, dict[str, Any]] = {
    "batch_size": {"batch_size": 2},
    "convert_to_numpy": {"convert_to_numpy": True},
    "convert_to_tensor": {"convert_to_tensor": True},
    "show_progress_bar": {"show_progress_bar": False},
    "activation_fn": {"activation_fn": torch.nn.Identity()},
    "sigmoid": {"activation_fn": torch.nn.Sigmoid()},
    "tanh": {"activation_fn": torch.tanh},
    "apply_softmax": {"apply_softmax": True},
    "prompt": {"prompt": "Find it"},
    "device": {"device": "cpu"},
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_return_what_the_library_returns(name: str, folder: Path) -> None:
    ranker, library, options = CausalRanker.from_pretrained(folder), load(folder), CALLS[name]
    inputs: list[Any] = [PAIRS, PAIRS[0], list(PAIRS[0])]
    for pairs in inputs:
        found, expected = ranker.predict(pairs, **options), library.predict(pairs, **options)
        assert type(found) is type(expected)
        truth = in_exact(library, partial(library.predict, pairs, **options))
        assert_within_budget(tensor(found), tensor(expected), tensor(truth), terms=TERMS)
    of_rank = {"batch_size", "show_progress_bar", "activation_fn", "prompt", "device"}
    if of_rank >= options.keys():
        documents = [document for _, document in PAIRS]
        call = ("a", documents, 2, True)
        rows, theirs = ranker.rank(*call, **options), library.rank(*call, **options)
        assert [row["text"] for row in rows] == [row["text"] for row in theirs]
        truth = in_exact(library, partial(library.rank, *call, **options))
        found, expected, true = (
            tensor([row["score"] for row in ranked]) for ranked in (rows, theirs, truth)
        )
        assert_within_budget(found.float(), expected.float(), true, terms=TERMS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"convert_to_numpy": False}, "convert_to_tensor=True"),
        ({"activation_fn": torch.nn.Sigmoid(), "activation": "sigmoid"}, "not both"),
        ({"device": "cuda"}, r"from_pretrained\(..., device=\)"),
        ({"pool": {}}, r"score_dataset\(workers=\)"),
        ({"chunk_size": 4}, r"score_dataset\(workers=\)"),
        ({"batch_size": 0}, "batch_size must be a positive"),
    ],
)
def test_other_meanings_are_refused_by_name(
    options: dict[str, Any], message: str, folder: Path
) -> None:
    with pytest.raises(InputError, match=message):
        CausalRanker.from_pretrained(folder, device="cpu").predict(PAIRS, **options)


def test_a_misspelt_keyword_is_no_option(folder: Path) -> None:
    ranker: Any = CausalRanker.from_pretrained(folder, device="cpu")
    with pytest.raises(TypeError, match="did you mean 'batch_size'"):
        ranker.predict(PAIRS, batchsize=4)
    with pytest.raises(TypeError, match=r"rank\(\) got an unexpected"):
        ranker.rank("a", ["b"], convert_to_tensor=True)
    with pytest.raises(InputError, match="pair 1 must be two texts"):
        ranker.predict([("a", "b"), ("a", 3)])


def test_an_instruction_is_the_prompt_of_every_call(folder: Path, tmp_path: Path) -> None:
    ranker = CausalRanker.from_pretrained(folder, device="cpu")
    query, texts = PAIRS[0][0], [document for _, document in PAIRS]
    calls: list[Callable[..., Any]] = [
        partial(ranker.score, PAIRS),
        partial(ranker.predict, PAIRS),
        partial(ranker.rank, query, texts),
    ]
    for call in calls:
        assert np.array_equal(call(instruction="Find it"), call(prompt="Find it"))
        assert not np.array_equal(call(instruction="Find it"), call())
        with pytest.raises(InputError, match="instruction or prompt, not both"):
            call(instruction="Find it", prompt="Find it")
    with pytest.raises(UnsupportedFeatureError, match="copy the directory"):
        ranker.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_a_job_writes_the_scores(
    template: PairTemplate | None, engine: Any, folder: Path, tmp_path: Path
) -> None:
    rows = [{"query": f"query {n % 5}", "text": f"text {n} row"} for n in range(30)]
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    options: dict[str, Any] = {"device": "cpu", "engine": engine, "template": template}
    ranker = CausalRanker.from_pretrained(folder, **options)
    pairs = [(row["query"], row["text"]) for row in rows]
    expected = ranker.score(pairs)
    out = tmp_path / "out"
    assert ranker.score_dataset(source, out, shard_rows=12).rows == 30
    assert_as_ours(load_vectors(out).scores, expected, folder, pairs, template=template)
    (out / "part-00001.npy").unlink()
    again = CausalRanker.from_pretrained(folder, **options)
    assert again.score_dataset(source, out, shard_rows=12).resumed_rows == 18
    assert_as_ours(load_vectors(out).scores, expected, folder, pairs, template=template)
    with pytest.raises(ResumeError, match="prompt"):
        again.score_dataset(source, out, shard_rows=12, prompt="other")
    other = replace(TEMPLATE, positive="a")
    with pytest.raises(ResumeError, match=r"answers= was"):
        CausalRanker.from_pretrained(folder, **(options | {"template": other})).score_dataset(
            source, out, shard_rows=12
        )
    reload: Any = ranker.reload()
    pair = [("a", "b")]
    np.testing.assert_array_equal(reload("cpu", 1).score(pair), ranker.score(pair))


def test_a_job_does_not_go_on_with_another_output_layer(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    build("qwen3", tmp_path, max_position_embeddings=300, tie_word_embeddings=False)
    names: list[Any] = [*ENGINES]
    engines = [Scorer.from_pretrained(tmp_path, device="cpu", engine=e).engine for e in names]
    before = [engine.fingerprint() for engine in engines]
    assert before[0] == before[1]
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    weights["lm_head.weight"] = weights["lm_head.weight"].neg()
    save_file(weights, path, {"format": "pt"})
    for name in names:
        engine = Scorer.from_pretrained(tmp_path, device="cpu", engine=name).engine
        assert engine.fingerprint() not in before


def test_the_verb_embed_scores_pairs(folder: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "a.jsonl", tmp_path / "out.npy"
    rows = [{"query": query, "text": document} for query, document in PAIRS]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    verb = ["embed", str(source), "-o", str(out), "-q", "--task", "scores", "--device", "cpu"]
    assert main([*verb, "-m", str(folder), "--prompt", "Find it"]) == 0
    expected = CausalRanker.from_pretrained(folder, device="cpu").score(PAIRS, prompt="Find it")
    assert_as_ours(load_vectors(out).scores, expected, folder, PAIRS, prompt="Find it")
    # A plain directory of a causal model's class.
    assert isinstance(load_ranker(folder.parent / "base", template=TEMPLATE), CausalRanker)


def test_a_service_ranks_pairs_alone(folder: Path) -> None:
    ranker = CausalRanker.from_pretrained(folder, device="cpu")
    kinds = kinds_of(ranker)
    assert kinds.keys() == {"rank"}
    options = resolve_request(kinds["rank"], CallOptions(raw_scores=True))
    window = kinds["rank"].tokenize_window(list(PAIRS), 0, options)
    expected = ranker.score(PAIRS, activation="identity")
    found = kinds["rank"].compute_window(window, options).vectors[:, 0]
    assert_as_ours(found, expected, folder, PAIRS, activation="identity")
    with pytest.raises(InputError, match="pair 0 must be two texts"):
        kinds["rank"].tokenize_window(["a text"], 0, options)


def test_a_service_ranks_documents(folder: Path) -> None:
    ranker = CausalRanker.from_pretrained(folder, device="cpu")
    documents = [document for _, document in PAIRS]

    async def run() -> Any:
        async with Service({"tiny": ranker}) as service:
            return (await service.rank("a", documents)).results, service.find(None).labels

    found, labels = asyncio.run(run())
    pairs = [("a", document) for document in documents]
    assert_as_ours(found, ranker.score(pairs), folder, pairs)
    assert labels == ["LABEL_0"]
