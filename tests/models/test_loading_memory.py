"""Loading reads one part of a checkpoint after the other: never is all of it there beside ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import encoder_engine as ee
from encoder_engine.models.config import spec_from_config

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
LAYERS = 12
# Bytes of a loaded weight, of four in the file.
HELD = {"float32": 4, "bfloat16": 2, "int8": 1}
CONFIG = {
    "model_type": "bert",
    "vocab_size": 1000,
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
}
# A process of its own, in which small tensors have been loaded before: what is counted is weights.
MEASURE = """
import sys
from benchmarks.memory import call_peak
from encoder_engine import Encoder
kept = []
def load(directory):
    options = {"quantization": "int8"} if sys.argv[3] == "int8" else {"dtype": sys.argv[3]}
    kept.append(Encoder.from_pretrained(directory, device="cpu", **options))
load(sys.argv[1])
peak = call_peak(lambda: load(sys.argv[2]), "cpu")
print("" if peak is None else peak.mib)
"""


@pytest.fixture(scope="module")
def peak_share(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], float]:
    """Say how much loading a model of 150 MiB adds at most, as a share of its file."""
    directory = tmp_path_factory.mktemp("model")
    for name, layers in (("small", 1), ("large", LAYERS)):
        config = CONFIG | {"num_hidden_layers": layers}
        ee.Encoder(spec_from_config(config), config=config).save_pretrained(directory / name)
    file_mib = (directory / "large" / "model.safetensors").stat().st_size / 2**20

    def measure(precision: str) -> float:
        ran = subprocess.run(
            [sys.executable, "-c", MEASURE, directory / "small", directory / "large", precision],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        if not ran.stdout.strip():
            pytest.skip("this system does not tell a process' peak memory")
        return float(ran.stdout) / file_mib

    return measure


@pytest.mark.parametrize("precision", HELD)
def test_beside_what_is_kept_there_are_never_more_than_a_few_layers(
    peak_share: Callable[[str], float], precision: str
) -> None:
    # A layer as it is in the file, its projections joined, and the layer cast.
    layers = 2 if precision == "float32" else 3
    assert peak_share(precision) < HELD[precision] / 4 + layers / LAYERS
