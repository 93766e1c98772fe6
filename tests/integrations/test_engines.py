"""The recipes for Ray, Daft, Spark and Beam: two workers, the vectors of one process."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import encoder_engine as ee
from encoder_engine.errors import InputError, MissingDependencyError
from encoder_engine.integrations.ray import check_cluster
from tests.architecture.sources import ROOT
from tests.embedding.tiny_model import write_sentence_directory
from tests.prediction.published import publish

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = (ROOT / "docs" / "embedding.md").read_text("utf-8")
BLOCKS = re.findall(r"```py(?:thon)?\n(.*?)```", PAGE, re.DOTALL)
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


@pytest.mark.engines
@pytest.mark.parametrize(
    ("options", "numbers", "mend"),
    [
        ({"num_workers": 4}, "need 5, the cluster has 4", {"num_workers": 3}),
        ({"num_workers": 4}, "need 5, the cluster has 4", {"cpus_per_worker": 0.75}),
        ({"num_workers": 1, "cpus_per_worker": 4}, "need 5", {"cpus_per_worker": 3}),
        ({"num_workers": 2, "gpus_per_worker": 1}, "2 workers of 1 GPUs", {"gpus_per_worker": 0}),
    ],
)
def test_more_workers_than_ray_has_cores_are_refused(
    ray_cluster: None, model: Path, options: dict[str, Any], numbers: str, mend: dict[str, Any]
) -> None:
    """Ray waited without end, and without a word."""
    import ray

    from encoder_engine.integrations.ray import embed_dataset

    rows, embed = ray.data.from_items([{"text": "a row"}]), ee.EmbedBatch(model)
    ((name, value),) = mend.items()
    with pytest.raises(InputError, match=rf"{numbers}.*{name}={value}"):
        embed_dataset(rows, embed, **options)
    found = embed_dataset(rows, embed, **(options | mend)).take_all()
    np.testing.assert_array_equal(found[0]["embedding"], embed.embedder.encode("a row"))


DAFT_ON_RAY = """
import daft, ray, sys
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
daft.set_runner_ray()
import encoder_engine as ee
from encoder_engine.errors import InputError
from encoder_engine.integrations.daft import embed_column
rows, embed = daft.from_pydict({"text": ["a row"]}), ee.EmbedBatch(sys.argv[1])
for options in ({"num_workers": 3}, {"num_workers": 2, "gpus_per_worker": 1}, {"num_workers": 2}):
    try:
        found = rows.with_column("v", embed_column(rows["text"], embed, **options)).to_pydict()
        print(len(found["v"][0]) == embed.dimension)
    except InputError as error:
        print(error)
"""


@pytest.mark.engines
def test_more_workers_than_daft_on_ray_has_cores_are_refused(
    reviews: list[str], model: Path
) -> None:
    """A process chooses Daft's runner once."""
    for name in ("ray", "daft"):
        pytest.importorskip(name, reason=f"{name} is not installed; it comes with the extra {name}")
    ran = subprocess.run(
        [sys.executable, "-c", DAFT_ON_RAY, str(model)], capture_output=True, text=True, check=True
    )
    cores, gpus, made = ran.stdout.splitlines()[-3:]
    assert "need 3, the cluster has 2" in cores
    assert cores.endswith("pass num_workers=2")
    assert "need 2, the cluster has 0" in gpus
    assert gpus.endswith("pass gpus_per_worker=0")
    assert made == "True"


@pytest.mark.parametrize(
    ("cpus", "num_workers", "options", "advice"),
    [
        (
            2,
            2,
            {"cpus_per_worker": 1, "gpus_per_worker": 0},
            "pass num_workers=1, or cpus_per_worker=0.5",
        ),
        (1, 2, {"cpus_per_worker": 1, "gpus_per_worker": 0}, "add nodes"),
        (0, 2, {"cpus_per_worker": 0, "gpus_per_worker": 0}, "add nodes"),
        (0, 1, {"gpus_per_worker": 0}, "add nodes"),
        (4, 2, {"cpus_per_worker": 1, "gpus_per_worker": 1}, "pass gpus_per_worker=0"),
    ],
)
def test_the_advice_for_a_cluster_that_is_too_small_can_be_followed(
    cpus: int, num_workers: int, options: dict[str, float], advice: str
) -> None:
    cluster = SimpleNamespace(
        is_initialized=lambda: True, cluster_resources=lambda: {"CPU": float(cpus)}
    )
    with pytest.raises(InputError, match=f"end: {advice}$"):
        check_cluster(cluster, num_workers, **options)
    if advice.startswith("pass"):
        for setting in advice.removeprefix("pass ").split(", or "):
            name, value = setting.split("=")
            changed: Any = {"num_workers": num_workers, **options, name: float(value)}
            check_cluster(cluster, **changed)


@pytest.fixture
def tagger(tmp_path: Path) -> Path:
    publish(tmp_path, "bert", "BertForTokenClassification", ["O", "B-PER", "I-PER"])
    return tmp_path


@pytest.mark.engines
def test_ray_adds_the_predictions_of_one_process(ray_cluster: None, tagger: Path) -> None:
    import ray

    from encoder_engine.integrations.ray import predict_dataset

    step = ee.PredictBatch(str(tagger), device="cpu", text_column="body")
    rows = predict_dataset(ray.data.read_json("reviews.jsonl"), step, num_workers=2).take_all()
    expected = step({"body": [row["body"] for row in rows]})["entities"]
    assert [list(map(dict, row["entities"])) for row in rows] == expected


@pytest.mark.engines
def test_daft_adds_the_predictions_of_one_process(reviews: list[str], tagger: Path) -> None:
    daft = pytest.importorskip("daft", reason="daft is not installed; it comes with the extra daft")
    from encoder_engine.integrations.daft import predict_column

    step = ee.PredictBatch(str(tagger), device="cpu", text_column="body")
    rows = daft.read_json("reviews.jsonl")
    found = rows.with_column("found", predict_column(rows["body"], step, num_workers=2)).to_pydict()
    expected = step({"body": found["body"]})["entities"]
    assert [row["entities"] for row in found["found"]] == expected
    pairs = ee.PredictBatch(str(tagger), pair_column="other")
    with pytest.raises(InputError, match="leave pair_column out"):
        predict_column(rows["body"], pairs, num_workers=2)
