"""Files from the hub: those that a model needs, and an adapter's base by the same keywords."""

from __future__ import annotations

import json
import pickle
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from encoder_engine.embedding import (
    EmbedBatch,
    Embedder,
    MultiVectorEmbedder,
    Ranker,
    SparseEmbedder,
)
from encoder_engine.families.checkpoints.files import resolve_directory
from encoder_engine.models import MaskedLM, SequenceClassification
from tests.embedding.tiny_model import (
    WIDTH,
    write_head_directory,
    write_json,
    write_sentence_directory,
)
from tests.opening.test_late_interaction import pylate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from encoder_engine.kinds.kind import Kind

hub = pytest.importorskip("huggingface_hub")
TEXTS = ["the text", "a row of words"]
PAIRS = [(TEXTS[0], text) for text in TEXTS]
HOW: dict[str, Any] = {"token": "secret", "cache_dir": "/cache", "local_files_only": True}
ADAPTED = "encoder.layer.0.attention.self.query"


def split(folder: Path) -> None:
    """Move a directory's weights to ``base``, which an adapter beside the settings names."""
    base, weights = folder.parent / "base", load_file(folder / "model.safetensors")
    base.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.move(folder / name, base / name)
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    whole = next(name for name in weights if name.endswith(f"{ADAPTED}.weight"))
    name = f"base_model.model.{whole.removesuffix('.weight')}"
    drawn = torch.Generator().manual_seed(3)
    factors = {"A": (2, WIDTH), "B": (WIDTH, 2)}
    save_file(
        {f"{name}.lora_{k}.weight": torch.randn(s, generator=drawn) for k, s in factors.items()},
        folder / "adapter_model.safetensors",
    )
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "revision": "v1"}
    write_json(folder / "adapter_config.json", config | {"base_model_name_or_path": "someone/base"})


def token_job(path: str, **options: Any) -> Kind:
    return MultiVectorEmbedder.from_pretrained(path, **options).kind


def batch_embedder(path: str, engine: Any, **options: Any) -> Any:
    given: Any = options
    return EmbedBatch(path, engine=engine, hub=given).embedder


WRITERS: dict[str, Callable[[Path], object]] = {
    "Embedder": write_sentence_directory,
    "EmbedBatch": write_sentence_directory,
    "MultiVectorEmbedder": pylate,
    "Ranker": lambda folder: write_head_directory(folder, SequenceClassification, num_labels=1),
    "SparseEmbedder": lambda folder: write_head_directory(folder, MaskedLM),
}
LOADERS: dict[str, Callable[..., Any]] = {
    "Embedder": Embedder.from_pretrained,
    "EmbedBatch": batch_embedder,
    "MultiVectorEmbedder": token_job,
    "Ranker": Ranker.from_pretrained,
    "SparseEmbedder": SparseEmbedder.from_pretrained,
}


@pytest.mark.filterwarnings("ignore::encoder_engine.errors.MissingPoolerWarning")
@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("kind", LOADERS)
def test_the_base_of_an_adapter_is_fetched_as_the_adapter_is(
    kind: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WRITERS[kind](tmp_path / "adapter")
    split(tmp_path / "adapter")
    calls: list[dict[str, Any]] = []

    def fetch(name: str, *, allow_patterns: list[str], **options: Any) -> str:
        calls.append({"name": name, **options})
        return str(tmp_path / name.rpartition("/")[2])

    monkeypatch.setattr(hub, "snapshot_download", fetch)
    of_base = {"name": "someone/base", "revision": "v1", **HOW}
    model = LOADERS[kind]("someone/adapter", engine=engine, revision="v9", **HOW)
    assert calls[0] == {"name": "someone/adapter", "revision": "v9", **HOW}
    assert all(call == of_base for call in calls if call["name"] == "someone/base")
    assert calls[-1] == of_base
    # Another process has the directory of the adapter alone.
    reload = model.reload()
    calls.clear()
    pickle.loads(pickle.dumps(reload))("cpu", 1)
    assert calls
    assert all(call == of_base for call in calls)
    # The keywords end with the call.
    calls.clear()
    LOADERS[kind](str(tmp_path / "adapter"), engine=engine)
    assert all(call == {"name": "someone/base", "revision": "v1"} for call in calls)


def write_dense(folder: Path) -> Path:
    """Write a sentence directory with a Dense, all weights in both formats."""
    write_sentence_directory(folder)
    modules = json.loads((folder / "modules.json").read_text("utf-8"))
    kind = "sentence_transformers.models.Dense"
    modules.insert(2, {"idx": 2, "name": "2", "path": "2_Dense", "type": kind})
    write_json(folder / "modules.json", modules)
    settings = {"in_features": WIDTH, "out_features": 5, "bias": True}
    activation = {"activation_function": "torch.nn.modules.activation.Tanh"}
    write_json(folder / "2_Dense" / "config.json", settings | activation)
    drawn = torch.Generator().manual_seed(4)
    shapes = {"linear.weight": (5, WIDTH), "linear.bias": (5,)}
    tensors = {name: torch.randn(shape, generator=drawn) for name, shape in shapes.items()}
    save_file(tensors, folder / "2_Dense" / "model.safetensors")
    torch.save(tensors, folder / "2_Dense" / "pytorch_model.bin")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "SHA256SUMS").unlink()
    (folder / "openvino").mkdir()
    (folder / "openvino" / "openvino_model.bin").write_bytes(b"of another library")
    return folder


@pytest.fixture
def download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Serve ``tmp_path / "repository"`` as the hub would; return the names of what was fetched."""
    fetched: list[str] = []

    def fetch(_: str, *, allow_patterns: list[str]) -> str:
        source, target = tmp_path / "repository", tmp_path / "snapshot"
        names = [p.relative_to(source).as_posix() for p in source.rglob("*") if p.is_file()]
        for name in hub.utils.filter_repo_objects(names, allow_patterns=allow_patterns):
            if not (target / name).exists():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source / name, target / name)
                fetched.append(name)
        return str(target)

    monkeypatch.setattr(hub, "snapshot_download", fetch)
    return fetched


@pytest.mark.parametrize("of_dense", ["model.safetensors", "pytorch_model.bin", "both"])
@pytest.mark.parametrize("of_encoder", ["model.safetensors", "pytorch_model.bin", "both"])
def test_each_module_has_its_weights_in_its_own_format(
    of_encoder: str, of_dense: str, tmp_path: Path, download: list[str]
) -> None:
    expected = Embedder.from_pretrained(write_dense(tmp_path / "whole"), device="cpu").encode(TEXTS)
    folder = write_dense(tmp_path / "repository")
    wanted = set()
    for place, kept in (("", of_encoder), ("2_Dense/", of_dense)):
        for name in ("model.safetensors", "pytorch_model.bin"):
            if kept not in (name, "both"):
                (folder / place / name).unlink()
        wanted.add(f"{place}{'model.safetensors' if kept == 'both' else kept}")
    embedder = Embedder.from_pretrained("someone/model", device="cpu")
    np.testing.assert_array_equal(embedder.encode(TEXTS), expected)
    assert {name for name in download if name.endswith((".bin", ".safetensors"))} == wanted


def test_a_router_has_its_weights_in_any_format(tmp_path: Path, download: list[str]) -> None:
    folder = tmp_path / "repository"
    write_json(folder / "modules.json", [{"path": "", "type": "sentence_transformers.x.Router"}])
    kinds = {"": "Transformer", "1_SpladePooling": "SpladePooling", "query_0_Table": "Table"}
    types = {place: f"sentence_transformers.models.{kind}" for place, kind in kinds.items()}
    write_json(folder / "router_config.json", {"types": types})
    files = ("pytorch_model.bin", "query_0_Table/model.safetensors", "1_SpladePooling/x.bin")
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"weights")
    resolve_directory("someone/router")
    assert set(files) - set(download) == {"1_SpladePooling/x.bin"}


def test_weights_beside_an_adapter_come_in_any_format(tmp_path: Path, download: list[str]) -> None:
    (tmp_path / "repository").mkdir()
    files = ("adapter_config.json", "adapter_model.safetensors", "pytorch_model.bin")
    for name in files:
        (tmp_path / "repository" / name).write_bytes(b"{}")
    resolve_directory("someone/model")
    assert sorted(download) == sorted(files)
