"""Importing the package costs little more than importing torch: judged by what is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from encoder_engine.families.facts.spec import (
    AttentionSpec,
    BlockSpec,
    EmbeddingSpec,
    EncoderSpec,
    FeedForwardSpec,
)
from encoder_engine.models import Encoder
from tests.architecture.sources import imports, sources
from tests.embedding.tiny_model import write_sentence_directory

if TYPE_CHECKING:
    from pathlib import Path

HEAVY = {
    "torch._dynamo",
    "torch._inductor",
    "torch.distributed.fsdp",
    "asyncio",
    "multiprocessing.pool",
}
ALLOWED = {"encoder_engine", "numpy", "safetensors", "torch"}
SCRIPT = """
import sys, json, torch
before = set(sys.modules)
from encoder_engine import *
loaded = sorted(set(sys.modules) - before)
print(json.dumps({"loaded": loaded, "cuda": torch.cuda.is_initialized()}))
"""
# The floors that stand without PyTorch, and the root.
WITHOUT_TORCH = """
import sys
import encoder_engine
from encoder_engine import Tokenizer, load_vectors
import encoder_engine.families.registry, encoder_engine.families.config
import encoder_engine.inputs.readers
import encoder_engine.text.training.train
encoder_engine.families.registry.all_families()
assert "torch" not in sys.modules
"""
LOADING = """
import sys, json, torch
before = set(sys.modules)
import numpy as np
import encoder_engine as ee
from encoder_engine.packing import pack
for dtype in ("float32", "bfloat16"):
    encoder = ee.Encoder.from_pretrained(sys.argv[1], device="cpu", dtype=dtype)
    with torch.inference_mode():
        encoder(pack([[1, 2, 3]]))
    encoder.compile_for_inference().hidden(np.array([1, 2, 3]), np.array([0, 3]))
print(json.dumps(sorted(set(sys.modules) - before)))
"""
# What the standard library takes milliseconds to import, and a first vector does not need.
UNUSED = {"csv", "difflib", "pkgutil", "secrets", "shutil", "zipfile"}
FIRST_VECTOR = """
import sys, json
import numpy as np
before = set(sys.modules)
from encoder_engine import Embedder
Embedder.from_pretrained(sys.argv[1]).encode(["the text"])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_nothing_heavy_is_loaded_and_cuda_is_not_initialised() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    found = json.loads(ran.stdout)
    tops = {name.split(".")[0] for name in found["loaded"]}
    foreign = tops - ALLOWED - set(sys.stdlib_module_names)
    # Modules that the extension or the editable install bring under their own names.
    foreign = {name for name in foreign if not name.startswith(("__editable__", "_native"))}
    assert not foreign, f"import encoder_engine loads {sorted(foreign)}"
    assert found["cuda"] is False
    assert not HEAVY & set(found["loaded"])


def test_tokenizers_families_inputs_and_vectors_do_without_torch() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT_TORCH], check=True)


def test_loading_and_calling_an_encoder_leaves_the_compiler_out(tmp_path: Path) -> None:
    spec = EncoderSpec(
        model_type="bert",
        width=8,
        embedding=EmbeddingSpec(
            vocab_size=9, width=8, num_positions=16, num_segments=2, padding_id=0
        ),
        blocks=(
            BlockSpec(
                attention=AttentionSpec(num_heads=2, head_dim=4),
                feed_forward=FeedForwardSpec(width=8),
            ),
        ),
        pooler=True,
    )
    Encoder(spec).save_pretrained(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOADING, tmp_path],
        capture_output=True,
        text=True,
        check=True,
    )
    # Drawing weights on no device once brought torch._dynamo, sympy and triton: 2 s and 100 MB.
    assert not (HEAVY | {"sympy", "triton"}) & set(json.loads(ran.stdout))


def test_a_first_vector_leaves_out_what_it_does_not_need(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FIRST_VECTOR, write_sentence_directory(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(json.loads(ran.stdout))
    assert "encoder_engine.embedding.embedder" in loaded
    assert not (UNUSED | {"torch"}) & loaded


def test_every_dataclass_is_made_by_the_packages_form() -> None:
    found = [
        (found.importer, found.line)
        for path in sources("encoder_engine")
        for found in imports(path)
        if found.imported == "dataclasses.dataclass"
        and found.importer != "encoder_engine.dataclass"
    ]
    assert not found, "import it from encoder_engine.dataclass, which compiles nothing"
