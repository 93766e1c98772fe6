"""The engine of a loading: which one, why, and what is said where it cannot compute."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.embedding import Embedder, MultiVectorEmbedder, Ranker, SparseEmbedder
from encoder_engine.engine import choosing
from encoder_engine.engine.choosing import EngineRequest, refuse_compiled
from encoder_engine.engine.module import EncoderModule
from encoder_engine.errors import (
    ConfigError,
    DeviceMemoryError,
    ImplementationError,
    MissingDependencyError,
)
from encoder_engine.inference import CompiledEncoder
from encoder_engine.models import Encoder, MaskedLM, SequenceClassification
from encoder_engine.opening.compiling import compile_directory
from tests.embedding.tiny_model import write_head_directory, write_transformers_directory

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.models.heads import HeadModel

TEXTS = ["the text", "", "a row of words"]
pytestmark = pytest.mark.filterwarnings(
    "ignore::encoder_engine.errors.DefaultPoolingWarning",
    "ignore::encoder_engine.errors.UnusedWeightsWarning",
    "ignore::DeprecationWarning",
)


@pytest.mark.parametrize(
    ("options", "engine"),
    [
        ({}, "compiled"),
        ({"device": "auto"}, "compiled"),
        ({"dtype": "bfloat16"}, "compiled"),
        ({"dtype": torch.bfloat16, "device": torch.device("cpu")}, "compiled"),
        ({"quantization": "int8"}, "compiled"),
        ({"dtype": "float64"}, "torch"),
        ({"dtype": torch.float16}, "torch"),
        ({"engine": "torch"}, "torch"),
        ({"engine": "compiled"}, "compiled"),
    ],
    ids=str,
)
def test_an_engine_is_chosen_by_device_and_precision(
    tiny_directory: Path, options: dict[str, Any], engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "_gpu_is_available", lambda: False)
    embedder = Embedder.from_pretrained(tiny_directory, **{"device": "cpu", **options})
    assert embedder.engine.name == engine
    assert isinstance(embedder.encoder, CompiledEncoder if engine == "compiled" else Encoder)
    assert f"engine={engine!r}" in repr(embedder)
    assert embedder.loading is not None
    assert embedder.loading.options["engine"] == engine
    assert embedder.encode(TEXTS).shape == (3, 16)


def test_a_gpu_is_used_where_there_is_one(
    tiny_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "_gpu_is_available", lambda: True)
    found: list[str] = []

    class Recorder:
        """Records the device that PyTorch's modules are loaded to."""

        @staticmethod
        def from_pretrained(directory: Path, *, device: str, **_: Any) -> Encoder:
            found.append(device)
            return Encoder.from_pretrained(directory, device="cpu")

    modules = SimpleNamespace(Encoder=Recorder)
    monkeypatch.setattr(choosing, "torch_engine", lambda _purpose: modules)
    for device, count in (("auto", 1), ("cpu", 1), ("cuda:0", 2)):
        choosing.load_model(tiny_directory, EngineRequest(device=device))
        assert len(found) == count
    choosing.load_model(tiny_directory, EngineRequest(quantization="int8"))
    assert found == ["auto", "cuda:0"]


def test_a_refusal_of_the_compiled_engine_is_a_sentence(tiny_directory: Path) -> None:
    def refuse(**request: Any) -> str | None:
        return refuse_compiled(tiny_directory, EngineRequest(**request))

    assert refuse() is None
    assert refuse(device="cuda:1") == "it computes on a CPU, not on cuda:1"
    assert refuse(dtype="float16") == "it computes float32, bfloat16 and int8, not float16"
    with pytest.raises(ImplementationError, match=r"not float64; leave engine= out"):
        Embedder.from_pretrained(tiny_directory, dtype="float64", engine="compiled")
    with pytest.raises(ConfigError, match="auto, compiled, torch"):
        Embedder.from_pretrained(tiny_directory, engine="onnx")  # type: ignore[arg-type]


def test_a_compiled_directory_has_one_engine(
    tiny_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "compiled"
    compile_directory(tiny_directory, folder)
    monkeypatch.setattr(choosing, "_gpu_is_available", lambda: True)
    embedder = Embedder.from_pretrained(folder)
    assert embedder.engine.name == "compiled"
    original = Embedder.from_pretrained(tiny_directory, device="cpu")
    np.testing.assert_array_equal(embedder.encode(TEXTS), original.encode(TEXTS))
    others: list[dict[str, Any]] = [{"dtype": "float64"}, {"device": "cuda"}, {"engine": "torch"}]
    for options in others:
        with pytest.raises(ConfigError, match="the directory that it was compiled from"):
            Embedder.from_pretrained(folder, **options)


def test_without_the_extension_the_compiled_engine_refuses(
    tiny_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "_import_compiled", lambda: None)
    assert refuse_compiled(tiny_directory, EngineRequest()) == "the extension is not built"


def test_a_compiled_directory_is_refused_by_name_without_the_extension(
    tiny_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_directory(tiny_directory, tmp_path / "compiled")
    monkeypatch.setattr(choosing, "_import_compiled", lambda: None)
    with pytest.raises(ConfigError, match=r"holds a compiled encoder.*extension is not built"):
        Embedder.from_pretrained(tmp_path / "compiled")


def test_where_pytorch_is_needed_and_absent_one_line_says_so(
    tiny_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "encoder_engine.engine.module")
    monkeypatch.delattr("encoder_engine.engine.module")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError) as caught:
        Embedder.from_pretrained(tiny_directory, device="cpu", dtype="float64")
    assert caught.value.library == caught.value.extra == "torch"
    message = str(caught.value)
    assert "\n" not in message
    assert "not float64" in message
    assert "pip install '.[torch]'" in message
    embedder = Embedder.from_pretrained(tiny_directory, device="cpu")
    assert embedder.encode(TEXTS).shape == (3, 16)
    with pytest.raises(MissingDependencyError, match="output='torch' needs torch"):
        embedder.encode(TEXTS, output="torch")


def test_an_encoder_that_was_passed_stays_that_object(tiny_directory: Path) -> None:
    loaded = Embedder.from_pretrained(tiny_directory, device="cpu")
    expected = loaded.encode(TEXTS)
    for encoder, name in (
        (Encoder.from_pretrained(tiny_directory, device="cpu"), "torch"),
        (CompiledEncoder.from_pretrained(tiny_directory), "compiled"),
    ):
        embedder = Embedder(encoder, loaded.tokenizer, loaded.recipe)
        assert embedder.encoder is encoder
        assert embedder.engine.name == name
        np.testing.assert_allclose(embedder.encode(TEXTS), expected, rtol=1e-5, atol=1e-5)
        loaded.encoder = encoder
        assert loaded.engine.name == name


def test_all_four_embedders_choose(tmp_path: Path) -> None:
    ranking = write_head_directory(tmp_path / "ranking", SequenceClassification, num_labels=1)
    masked = write_head_directory(tmp_path / "masked", MaskedLM)
    for engine in ("compiled", "torch"):
        assert Ranker.from_pretrained(ranking, "cpu", engine=engine).engine.name == engine
        assert SparseEmbedder.from_pretrained(masked, "cpu", engine=engine).engine.name == engine
    assert "engine" in MultiVectorEmbedder.from_pretrained.__annotations__


@pytest.mark.parametrize("kind", ["scores", "vocabulary", "token_vectors", "pooled"])
def test_every_embedder_splits_a_batch_that_does_not_fit(tmp_path: Path, kind: str) -> None:
    heads: dict[str, type[HeadModel]] = {"scores": SequenceClassification, "vocabulary": MaskedLM}
    folder = write_transformers_directory(tmp_path)
    if kind in heads:
        write_head_directory(folder, heads[kind])
    texts = [f"text {'long ' * (n % 7)}{n}" for n in range(40)]
    if kind == "scores":
        ranker = Ranker.from_pretrained(folder, device="cpu")
        holder: Any = ranker.engine.encoder

        def compute() -> Any:
            return ranker.score([(text, "row") for text in texts])
    elif kind == "vocabulary":
        sparse = SparseEmbedder.from_pretrained(folder, device="cpu")
        holder = sparse.engine.encoder  # type: ignore[attr-defined]

        def compute() -> Any:
            return sparse.encode(texts).dense()
    else:
        embedder = Embedder.from_pretrained(folder, device="cpu")
        holder = embedder.encoder

        def compute() -> Any:
            if kind == "token_vectors":
                return embedder.encode_tokens(texts).vectors
            return embedder.encode(texts)

    expected = compute()
    methods = {"scores": "logits", "vocabulary": "logits", "token_vectors": "hidden"}
    name = methods.get(kind, "pooled")
    whole, tried = getattr(holder, name), []

    def small(ids: Any, *arguments: Any, **options: Any) -> Any:
        tried.append(len(ids))
        if len(ids) > 60:
            raise MemoryError("no room")
        return whole(ids, *arguments, **options)

    setattr(holder, name, small)
    np.testing.assert_array_equal(compute(), expected)
    assert max(tried) > 60

    def full(*_arguments: Any, **_options: Any) -> Any:
        raise MemoryError("no room")

    setattr(holder, name, full)
    with pytest.raises(DeviceMemoryError, match=r"(text|pair) \d+ has \d+ tokens, and cpu has too"):
        compute()


def test_threads_are_the_callers(tiny_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Embedder.from_pretrained(tiny_directory, device="cpu", num_threads=3)
    assert compiled.engine.num_threads == 3
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    Embedder.from_pretrained(tiny_directory, device="cpu", num_threads=3, engine="torch")
    assert asked == [3]


def test_a_module_engine_follows_its_encoder(tiny_directory: Path) -> None:
    encoder = Encoder.from_pretrained(tiny_directory, device="cpu")
    engine = EncoderModule(encoder)
    encoder.to(torch.bfloat16)
    assert engine.dtype == "bfloat16"


@pytest.mark.filterwarnings("ignore::encoder_engine.errors.TruncationWarning")
def test_doctor_names_the_engine(tiny_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from encoder_engine.cli.checks.model_check import check_model

    facts, _ = check_model(str(tiny_directory))
    assert facts["engine"] == "compiled on cpu"
    assert json.dumps(facts)
    monkeypatch.setattr(CompiledEncoder, "supports", lambda _spec: "it has no such layer")
    facts, _ = check_model(str(tiny_directory))
    assert facts["engine"] == "torch on cpu; the compiled one: it has no such layer"
