"""A loading parses config.json once, and takes the checksum of each file once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from encoder_engine import files, json_values
from encoder_engine.embedding import Embedder, Ranker, SparseEmbedder
from encoder_engine.files import write_checksums
from encoder_engine.models import MaskedLM, SequenceClassification
from tests.embedding.tiny_model import write_head_directory, write_sentence_directory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MODELS: dict[Any, Callable[[Path], Path]] = {
    Embedder: write_sentence_directory,
    Ranker: lambda folder: write_head_directory(folder, SequenceClassification, num_labels=1),
    SparseEmbedder: lambda folder: write_head_directory(folder, MaskedLM),
}


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize("kind", MODELS)
def test_each_file_is_read_once(
    kind: Any, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = MODELS[kind](tmp_path / "model")
    names = [path.relative_to(directory).as_posix() for path in directory.rglob("*.*")]
    write_checksums(directory, [name for name in names if (directory / name).is_file()])
    hashed: Counter[str] = Counter()
    parsed: Counter[str] = Counter()
    sha256, parse = files.file_sha256, json_values.parse_json

    def count_sha256(path: Path) -> str:
        hashed[path.relative_to(directory).as_posix()] += 1
        return sha256(path)

    def count_parse(text: str, path: Path, *options: Any, **more: Any) -> Any:
        parsed[path.relative_to(directory).as_posix()] += 1
        return parse(text, path, *options, **more)

    monkeypatch.setattr(files, "file_sha256", count_sha256)
    monkeypatch.setattr(json_values, "parse_json", count_parse)
    kind.from_pretrained(directory, device="cpu", engine=engine)
    recorded = set(files.recorded_checksums(directory))
    assert hashed.keys() == recorded - {"SHA256SUMS"}
    assert set(hashed.values()) == {1}
    assert parsed["config.json"] == 1
