"""What a user would see after accelerating: the same quality, files, losses; only the time less."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.integrations import sentence_transformers as integration
from encoder_engine.integrations.transformers import accelerate
from tests.models.cases import CASES, Case

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:.*pin_memory.*:UserWarning"
)
TEXTS = ["a cat sat on the mat", "", "the weather is lovely today " * 20]
NUM_DRAWS = 300
ALONE = """
import sys
sys.modules["encoder_engine"] = None
import numpy as np
from sentence_transformers import SentenceTransformer
directory, texts, target = sys.argv[1], sys.argv[3:], sys.argv[2]
np.save(target, SentenceTransformer(directory, device="cpu").encode(texts))
"""


def load(minilm: Path) -> Any:
    library = pytest.importorskip("sentence_transformers")
    return library.SentenceTransformer(str(minilm), device="cpu")


def test_what_is_saved_loads_where_this_engine_is_not(minilm: Path, tmp_path: Path) -> None:
    model = load(minilm)
    plain = model.encode(TEXTS)
    integration.accelerate(model, pack=True)
    assert not np.array_equal(model.encode(TEXTS), plain)
    model.save(str(tmp_path / "saved"))
    arguments = [str(tmp_path / "saved"), str(tmp_path / "vectors.npy"), *TEXTS]
    command = [sys.executable, "-W", "ignore", "-c", ALONE, *arguments]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "vectors.npy"), plain)


def classifier(**changes: Any) -> Any:
    bert = CASES[0]
    sizes = bert.sizes | {"vocab_size": 31_000, "num_labels": 2}
    head = "BertForSequenceClassification"
    return Case(bert.model_type, bert.config_class, head, sizes).build(**changes)


@torch.no_grad()
def test_dropout_makes_noise_of_the_same_size() -> None:
    ids = torch.randint(5, 30_000, (4, 12), generator=torch.Generator().manual_seed(3))
    labels = torch.tensor([0, 1, 1, 0])

    def losses(model: Any) -> torch.Tensor:
        drawn = [model(input_ids=ids, labels=labels).loss for _ in range(NUM_DRAWS)]
        return torch.stack(drawn).double()

    model = classifier().train()
    theirs, ours = losses(model), losses(accelerate(model))
    # Of the difference of two means, and of the ratio of two deviations of a normal variable.
    error = ((theirs.var() + ours.var()) / NUM_DRAWS).sqrt()
    assert abs(float(theirs.mean() - ours.mean())) < 5 * float(error)
    assert abs(float((ours.std() / theirs.std()).log())) < 5 / NUM_DRAWS**0.5
