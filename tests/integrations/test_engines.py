"""The recipes for Ray, Daft, Spark and Beam: two workers, the vectors of one process."""

from __future__ import annotations

import json
import re
import shutil
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import encoder_engine as ee
from encoder_engine.errors import InputError, MissingDependencyError
from tests.architecture.sources import ROOT
from tests.embedding.tiny_model import write_sentence_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOCKS = [
    block
    for page in ("README.md", "docs/embedding.md")
    for block in re.findall(
        r"```py(?:thon)?\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL
    )
]
# What the engines warn of is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_sentence_directory(tmp_path / "model")


@pytest.fixture
def reviews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Write reviews.jsonl where the recipes look for it, and return its texts."""
    texts = [f"text {row} " + "long " * (row % 7) for row in range(300)]
    lines = [json.dumps({"id": row, "body": text}) for row, text in enumerate(texts)]
    (tmp_path / "reviews.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    # The engines' own processes find the package where it is not installed.
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return texts


def run_recipe(word: str, model: Path) -> None:
    (recipe,) = [block for block in BLOCKS if word in block]
    names = {"ee": ee, "model": str(model), "__name__": "__main__"}
    exec(compile(recipe, "recipe", "exec"), names)


def check_vectors(columns: dict[str, list[Any]], model: Path, texts: list[str]) -> None:
    assert columns["body"] == texts
    expected = ee.Embedder.from_pretrained(model).encode(texts, on_truncation="ignore")
    np.testing.assert_array_equal(np.array(columns["embedding"], dtype=np.float32), expected)


def read_parquet(folder: Path) -> dict[str, list[Any]]:
    parquet = pytest.importorskip("pyarrow.parquet")
    columns: dict[str, list[Any]] = parquet.read_table(folder).sort_by("id").to_pydict()
    return columns


@pytest.fixture
def ray_cluster(reviews: list[str]) -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="ray is not installed; it comes with the extra ray")
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
    )
    yield
    ray.shutdown()


@pytest.mark.engines
def test_the_recipe_for_ray_gives_the_vectors_of_one_process(
    ray_cluster: None, reviews: list[str], model: Path, tmp_path: Path
) -> None:
    run_recipe("import ray", model)
    check_vectors(read_parquet(tmp_path / "vectors"), model, reviews)


@pytest.mark.engines
def test_the_recipe_for_daft_gives_the_vectors_of_one_process(
    reviews: list[str], model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("daft", reason="daft is not installed; it comes with the extra daft")
    run_recipe("import daft", model)
    check_vectors(read_parquet(tmp_path / "vectors"), model, reviews)


@pytest.mark.engines
def test_the_recipe_for_spark_gives_the_vectors_of_one_process(
    reviews: list[str], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = pytest.importorskip(
        "pyspark.sql", reason="pyspark is not installed; it comes with the extra spark"
    )
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        run_recipe("import SparkSession", model)
        check_vectors(read_parquet(tmp_path / "vectors"), model, reviews)
    finally:
        if (session := sql.SparkSession.getActiveSession()) is not None:
            session.stop()


@pytest.mark.engines
def test_the_recipe_for_beam_gives_the_vectors_of_one_process(
    reviews: list[str], model: Path, tmp_path: Path
) -> None:
    pytest.importorskip(
        "apache_beam", reason="apache-beam is not installed; it comes with the extra beam"
    )
    run_recipe("import apache_beam", model)
    paths = (tmp_path / "vectors").glob("part*.jsonl")
    rows = [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]
    rows.sort(key=lambda row: int(row["id"]))
    check_vectors({name: [row[name] for row in rows] for name in rows[0]}, model, reviews)


def test_the_step_itself_runs_as_told(model: Path) -> None:
    run_recipe('embed({"body": ["one', model)


@pytest.mark.parametrize("name", ["ray", "daft"])
def test_an_engine_that_is_missing_is_named_with_its_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    integration = importlib.import_module(f"encoder_engine.integrations.{name}")
    monkeypatch.setitem(sys.modules, name, None)
    call: Any = integration.embed_dataset if name == "ray" else integration.embed_column
    with pytest.raises(MissingDependencyError, match=rf"pip install '\.\[{name}\]"):
        call(None, ee.EmbedBatch("none"), num_workers=2)


@pytest.mark.parametrize("name", ["ray", "daft"])
def test_no_workers_are_refused(name: str) -> None:
    import importlib

    pytest.importorskip(name, reason=f"{name} is not installed; it comes with the extra {name}")
    integration = importlib.import_module(f"encoder_engine.integrations.{name}")
    call: Any = integration.embed_dataset if name == "ray" else integration.embed_column
    with pytest.raises(InputError, match="num_workers"):
        call(None, ee.EmbedBatch("none"), num_workers=0)
