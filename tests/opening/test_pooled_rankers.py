"""Cross-encoders whose scores a Dense module makes of a pooled vector, as the library has them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.embedding import Embedder, Ranker
from encoder_engine.errors import ConfigError, UnsupportedFeatureError
from encoder_engine.ops.testing import floor
from encoder_engine.vectors.stored_vectors import load_vectors
from tests.embedding.tiny_model import write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path

library = pytest.importorskip("sentence_transformers")
PAIRS = [("the cat sat", "a dog"), ("a", "the the the cat"), ("cat", "a mat")]


def write_directory(folder: Path, modes: tuple[str, ...], num_labels: int) -> Any:
    """Write a cross-encoder of a transformer, pooling and two dense layers; return the library's.

    Its weights are random.
    """
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    base = write_sentence_directory(folder / "base")
    (base / "modules.json").unlink()
    (base / "sentence_bert_config.json").unlink(missing_ok=True)
    torch.manual_seed(3)
    transformer = Transformer(str(base))
    width = transformer.get_embedding_dimension()
    hidden = Dense(width * len(modes), 8)
    scores = Dense(
        *(8, num_labels),
        activation_function=torch.nn.Identity(),
        module_output_name="scores",
    )
    theirs = library.CrossEncoder(
        modules=[transformer, Pooling(width, pooling_mode=modes), hidden, scores], device="cpu"
    )
    theirs.save_pretrained(str(folder / "model"))
    return theirs


@pytest.mark.parametrize("engine", ["compiled", "torch"])
@pytest.mark.parametrize(("modes", "num_labels"), [(("mean",), 1), (("cls", "max"), 3)])
def test_scores_are_those_of_the_library(
    modes: tuple[str, ...], num_labels: int, engine: Any, tmp_path: Path
) -> None:
    theirs = write_directory(tmp_path, modes, num_labels)
    ranker = Ranker.from_pretrained(tmp_path / "model", device="cpu", engine=engine)
    assert ranker.num_labels == num_labels
    found, expected = ranker.predict(PAIRS), theirs.predict(PAIRS)
    assert found.shape == expected.shape
    size = float(np.abs(expected).max())
    bound = 2 * floor(torch.tensor(size), torch.float32, terms=200, size=size)
    np.testing.assert_allclose(found, expected, rtol=0, atol=float(bound))
    if num_labels == 1:
        assert ranker.activation == "sigmoid"
        ranked = ranker.rank("the cat", ["a dog", "the cat sat"])
        assert [one["corpus_id"] for one in ranked] == [
            one["corpus_id"] for one in theirs.rank("the cat", ["a dog", "the cat sat"])
        ]


def test_a_job_scores_as_the_ranker_does(tmp_path: Path) -> None:
    write_directory(tmp_path, ("mean",), 1)
    ranker = Ranker.from_pretrained(tmp_path / "model", device="cpu")
    lines = [json.dumps({"query": one, "text": two}) for one, two in PAIRS]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    ranker.score_dataset(tmp_path / "pairs.jsonl", tmp_path / "scores.npy", workers=1)
    stored = load_vectors(tmp_path / "scores.npy").scores
    np.testing.assert_array_equal(np.asarray(stored).reshape(-1), ranker.score(PAIRS))


def test_files_of_different_models_are_refused(tmp_path: Path) -> None:
    write_directory(tmp_path, ("mean",), 1)
    path = tmp_path / "model" / "1_Pooling" / "config.json"
    config = json.loads(path.read_text())
    key = next(name for name in config if name.endswith("embedding_dimension"))
    path.write_text(json.dumps(config | {key: 17}))
    with pytest.raises(ConfigError, match="the pooling expects vectors of 17 features"):
        Ranker.from_pretrained(tmp_path / "model", device="cpu")


def test_the_way_out_of_a_refusal_can_be_followed(tmp_path: Path) -> None:
    write_directory(tmp_path, ("mean",), 1)
    with pytest.raises(UnsupportedFeatureError, match=r"Ranker\.from_pretrained"):
        Embedder.from_pretrained(tmp_path / "model", device="cpu")
    ranker = Ranker.from_pretrained(tmp_path / "model", device="cpu")
    with pytest.raises(UnsupportedFeatureError, match="copy"):
        ranker.save_pretrained(tmp_path / "saved")
