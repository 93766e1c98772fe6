"""The examples of docs/training-elsewhere.md train a model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import encoder_engine as ee
from encoder_engine.families.config import spec_from_config
from encoder_engine.models.heads import MaskedLM
from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
PAGE = (ROOT / "docs" / "training-elsewhere.md").read_text(encoding="utf-8")
LOSS, *LOOPS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
LIBRARIES = ("accelerate", "datasets", "lightning", "transformers")
WORDS = ["a", "bad", "film", "good", "not", "plot", "the", "very"]
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
    "type_vocab_size": 2,
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    config: dict[str, Any] = {"model_type": "bert", "vocab_size": len(vocabulary), **SIZES}
    torch.manual_seed(0)
    MaskedLM(ee.Encoder(spec_from_config(config), config=config)).save_pretrained(folder)
    ee.Tokenizer.from_pretrained(folder / "vocab.txt", lowercase=True).save(folder)
    return folder


def name_of(place: int) -> str:
    found = [name for name in LIBRARIES if re.search(rf"import {name}|from {name}", LOOPS[place])]
    return "-".join(found) or "loop"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning:lightning.*", "ignore::Warning:dill.*")
@pytest.mark.parametrize("place", range(len(LOOPS)), ids=name_of)
def test_every_loop_lowers_the_loss(
    place: int, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = name_of(place).split("-") if name_of(place) != "loop" else []
    for library in (*needed, *(["accelerate"] if "transformers" in needed else [])):
        pytest.importorskip(library, reason=f"{library} is not installed")
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    texts = [" ".join(["good", "film"] * int(n)) for n in generator.integers(2, 20, 48)]
    names: dict[str, Any] = {"path": str(checkpoint), "texts": texts}
    exec(compile(LOSS, "training-elsewhere.md", "exec"), names)
    numbers = np.arange(len(texts))
    with torch.no_grad():
        before = float(names["masked_loss"](texts, numbers))
        exec_with_gradients(LOOPS[place], names)
        if "trained" in LOOPS[place]:
            names["model"] = MaskedLM.from_pretrained(tmp_path / "trained", device="cpu")
        assert float(names["masked_loss"](texts, numbers)) < before


@torch.enable_grad()  # type: ignore[untyped-decorator, unused-ignore]
def exec_with_gradients(code: str, names: dict[str, Any]) -> None:
    exec(compile(code, "training-elsewhere.md", "exec"), names)
