"""Loading reads one part of a checkpoint at a time: memory never holds the file and the model."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file

import encoder_engine as ee
from encoder_engine.families.config import spec_from_config

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
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
from benchmarks.measuring.memory import call_peak
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
def directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Save a model of 150 MiB in both formats, and a small one."""
    root = tmp_path_factory.mktemp("models")
    found = {name: root / name for name in ("small", "safetensors", "bin")}
    for name in ("small", "safetensors"):
        config = CONFIG | {"num_hidden_layers": 1 if name == "small" else LAYERS}
        ee.Encoder(spec_from_config(config), config=config).save_pretrained(found[name])
    found["bin"].mkdir()
    shutil.copy(found["safetensors"] / "config.json", found["bin"])
    torch.save(
        load_file(found["safetensors"] / "model.safetensors"), found["bin"] / "pytorch_model.bin"
    )
    yield found
    shutil.rmtree(root)


def peak_share(directories: dict[str, Path], kind: str, precision: str) -> float:
    """Return the peak memory that loading adds, as a share of the file's size."""
    command: list[str | Path] = [
        sys.executable,
        "-c",
        MEASURE,
        directories["small"],
        directories[kind],
        precision,
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    if not ran.stdout.strip():
        pytest.skip("this system does not tell a process' peak memory")
    size = (directories["safetensors"] / "model.safetensors").stat().st_size
    return float(ran.stdout) * 2**20 / size


@pytest.mark.parametrize(
    "precision",
    ["float32", *(pytest.param(n, marks=pytest.mark.exhaustive) for n in ("bfloat16", "int8"))],
)
def test_beside_what_is_kept_there_are_never_more_than_a_few_layers(
    directories: dict[str, Path], precision: str
) -> None:
    # A layer as it is in the file, its projections joined, and the layer cast.
    layers = 2 if precision == "float32" else 3
    assert peak_share(directories, "safetensors", precision) < HELD[precision] / 4 + layers / LAYERS


def test_of_a_bin_that_is_read_whole_what_was_cast_is_let_go_of(
    directories: dict[str, Path],
) -> None:
    assert peak_share(directories, "bin", "bfloat16") < 1 + 3 / LAYERS
