"""Pipelines behind HTTP: Hugging Face's inference form, beside the pipelines themselves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import encoder_engine as ee
from encoder_engine.cli.serve import _load
from encoder_engine.errors import UnsupportedFeatureError
from encoder_engine.serving.server import Server
from encoder_engine.serving.service import Service
from encoder_engine.serving.tasks import CallOptions
from tests.prediction.peer_models import TEXTS, write_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from encoder_engine.prediction.pipeline_base import Pipeline

pytestmark = pytest.mark.slow
NER = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
QUESTIONS = [{"question": "who is in New York", "context": text} for text in TEXTS[:3]]
# Of each task: an input, others, and parameters of two calls.
CALLS: dict[str, tuple[Any, list[Any], list[dict[str, Any]]]] = {
    "token-classification": (TEXTS[0], TEXTS[:4], [{}, {"aggregation_strategy": "simple"}]),
    "question-answering": (QUESTIONS[0], QUESTIONS, [{}, {"top_k": 2, "max_answer_len": 3}]),
    "zero-shot-classification": (
        TEXTS[0],
        TEXTS[:2],
        [{"candidate_labels": ["a", "b"]}, {"candidate_labels": "x,y", "multi_label": True}],
    ),
    "fill-mask": ("the <mask> film", ["a <mask>", "<mask> is bad"], [{}, {"top_k": 2}]),
    "text-classification": (TEXTS[0], TEXTS[:4], [{}, {"top_k": 2}]),
}
HEADS: dict[str, tuple[str, list[str]]] = {
    "token-classification": ("token", NER),
    "question-answering": ("question", []),
    "zero-shot-classification": ("sequence", ["contradiction", "neutral", "entailment"]),
    "fill-mask": ("masked", []),
    "text-classification": ("sequence", ["bad", "good", "so so"]),
}


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pipeline]:
    found = {}
    for task, (head, labels) in HEADS.items():
        folder = tmp_path_factory.mktemp(task)
        write_model(folder, "roberta", head, labels, max_length=512)
        found[task] = ee.pipeline(task, folder, device="cpu", num_threads=1)
    return found


@pytest.fixture(scope="module")
def url(pipelines: dict[str, Pipeline]) -> Iterator[str]:
    with Server(Service(pipelines)) as server:
        yield server.url


def scored(result: dict[str, Any]) -> tuple[list[str], list[float]]:
    return result["labels"], result["scores"]


@pytest.mark.parametrize("task", CALLS)
def test_calls_answer_as_the_pipeline(task: str, pipelines: dict[str, Pipeline], url: str) -> None:
    single, several, calls = CALLS[task]
    for parameters in calls:
        for inputs in (single, several):
            body = {"inputs": inputs, "parameters": parameters, "options": {"use_cache": False}}
            found = httpx.post(f"{url}/models/{task}", json=body)
            expected = pipelines[task](inputs, **parameters)
            if task == "text-classification":
                expected = pipelines[task](inputs, **{"top_k": 3} | parameters)
                expected = expected if inputs is several else [expected]
            if task == "zero-shot-classification":
                rows = expected if isinstance(expected, list) else [expected]
                expected = [
                    [{"label": n, "score": p} for n, p in zip(*scored(one), strict=True)]
                    for one in rows
                ]
                expected = expected if inputs is several else expected[0]
            assert found.json() == expected


def test_the_first_model_answers_at_the_root(pipelines: dict[str, Pipeline], url: str) -> None:
    first = next(iter(pipelines.values()))
    assert httpx.post(url, json={"inputs": TEXTS[0]}).json() == first(TEXTS[0])


def test_the_hub_s_client_reads_the_answers(
    pipelines: dict[str, Pipeline], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import InferenceClient, constants

    # The address is this machine's.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)

    def client(task: str) -> InferenceClient:
        return InferenceClient(model=f"{url}/models/{task}", token="unused")

    tagger = pipelines["token-classification"]
    groups = client("token-classification").token_classification(
        TEXTS[0], aggregation_strategy="simple"
    )
    expected = tagger(TEXTS[0], aggregation_strategy="simple")
    assert [(one.entity_group, one.start, one.end, one.score) for one in groups] == [
        (one["entity_group"], one["start"], one["end"], one["score"]) for one in expected
    ]
    answer: Any = client("question-answering").question_answering(
        QUESTIONS[0]["question"], QUESTIONS[0]["context"]
    )
    expected = pipelines["question-answering"](QUESTIONS[0])
    assert (answer.answer, answer.score) == (expected["answer"], expected["score"])
    labels = client("zero-shot-classification").zero_shot_classification(TEXTS[0], ["a", "b"])
    expected = pipelines["zero-shot-classification"](TEXTS[0], candidate_labels=["a", "b"])
    assert [(one.label, one.score) for one in labels] == list(
        zip(expected["labels"], expected["scores"], strict=True)
    )
    classes = client("text-classification").text_classification(TEXTS[0], top_k=2)
    expected = pipelines["text-classification"](TEXTS[0], top_k=2)
    assert [(one.label, one.score) for one in classes] == [
        (one["label"], one["score"]) for one in expected
    ]
    filled = client("fill-mask").fill_mask("the <mask> film", top_k=2)
    expected = pipelines["fill-mask"]("the <mask> film", top_k=2)
    assert [(one.token, one.sequence) for one in filled] == [
        (one["token"], one["sequence"]) for one in expected
    ]


@pytest.mark.parametrize(
    ("task", "body", "said"),
    [
        ("token-classification", {"inputs": TEXTS[0], "parameters": {"strides": 1}}, "strides"),
        ("token-classification", {"inputs": TEXTS[0], "parameters": {"top_k": 1}}, "takes agg"),
        ("token-classification", {"inputs": []}, "inputs is empty"),
        ("token-classification", {"inputs": 3}, "inputs"),
        ("token-classification", {"inputs": "x", "parameters": {"stride": -1}}, "stride"),
        ("question-answering", {"inputs": "who"}, "text 0"),
        ("question-answering", {"inputs": [QUESTIONS[0], {"question": "who"}]}, "text 1"),
        ("zero-shot-classification", {"inputs": TEXTS[0]}, "labels must be one or more"),
        ("fill-mask", {"inputs": "no mask"}, "text 0"),
    ],
)
def test_what_a_pipeline_refuses_is_answered_by_a_client_s_error(
    task: str, body: dict[str, Any], said: str, url: str
) -> None:
    found = httpx.post(f"{url}/models/{task}", json=body)
    assert 400 <= found.status_code < 500
    assert said in found.text


def test_a_bad_input_fails_its_own_request_alone(pipelines: dict[str, Pipeline]) -> None:
    reader = pipelines["question-answering"]

    async def ask(service: Service, inputs: list[Any]) -> Any:
        return await service.predict(inputs, options=CallOptions(parameters="{}"))

    async def run() -> list[Any]:
        async with Service({"reader": reader}) as service:
            asked = [[one] for one in QUESTIONS] + [[{"question": "who"}]]
            calls = [ask(service, inputs) for inputs in asked]
            return await asyncio.gather(*calls, return_exceptions=True)

    *answers, failed = asyncio.run(run())
    assert [one.results for one in answers] == [[reader(one)] for one in QUESTIONS]
    assert "row 0" in str(failed)


def test_the_command_serves_what_a_directory_states(
    pipelines: dict[str, Pipeline], tmp_path: Path
) -> None:
    options = {"task": "auto", "dtype": "auto", "quantization": None, "device": "cpu", "threads": 1}
    for task in ("token-classification", "question-answering"):
        path = pipelines[task].model.path
        assert path is not None
        loaded = _load(path, options)
        assert (type(loaded), loaded.task) == (type(pipelines[task]), task)
    model = pipelines["text-classification"].model
    # As TEI does, others' classifiers are rankers; named, they are pipelines.
    assert isinstance(_load(model.path, options), ee.embedding.Ranker)
    assert _load(model.path, options | {"task": "text-classification"})("x") == pipelines[
        "text-classification"
    ]("x")
    with pytest.raises(UnsupportedFeatureError, match="cannot be served"):
        Service({"classifier": model})
    del tmp_path
