"""The compiled engine and PyTorch's modules compute the same, each within the numeric budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.engine.compiled import CompiledEngine
from encoder_engine.engine.module import (
    EncoderModule,
    HeadEngine,
)
from encoder_engine.engine.outputs import Pooled, Scores, TokenStates, VocabularyWeights
from encoder_engine.inference import CompiledEncoder
from encoder_engine.models import Encoder, MaskedLM, SequenceClassification
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing.module_stack import DenseModule, ModuleStack
from encoder_engine.packing.pooling_modes import POOLING_MODES
from encoder_engine.packing.token_rows import TokenRows
from tests.embedding.tiny_model import VOCABULARY, WIDTH, write_head_directory

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.engine.outputs import SparseActivation, SparsePooling
    from encoder_engine.engine.protocol import EncoderEngine, Vectors

pytestmark = pytest.mark.filterwarnings(
    "ignore::encoder_engine.errors.UnusedWeightsWarning",
    "ignore::encoder_engine.errors.MissingPoolerWarning",
    "ignore::DeprecationWarning",
)
LENGTHS = (7, 3, 24, 4)
TERMS = 3 * WIDTH + 40


@pytest.fixture(scope="module")
def rows() -> TokenRows:
    """Draw ids and segments."""
    draw = np.random.default_rng(0)
    total = sum(LENGTHS)
    return TokenRows(
        ids=draw.integers(5, len(VOCABULARY), total, dtype=np.int32),
        cu_seqlens=np.cumsum([0, *LENGTHS], dtype=np.int32),
        type_ids=draw.integers(0, 2, total, dtype=np.int32),
    )


def assert_agree(ours: Vectors, theirs: Vectors, truth: Vectors) -> None:
    """Hold the compiled engine's numbers to those of a module in float64, by the budget."""
    assert ours.dtype == theirs.dtype == np.float32
    assert ours.shape == theirs.shape
    found, eager, exact = (
        torch.from_numpy(np.ascontiguousarray(values)) for values in (ours, theirs, truth)
    )
    # The engine in float64 returns float32: the budget's floor covers this rounding.
    assert_within_budget(found, eager, exact.double(), terms=TERMS)


@pytest.fixture(scope="module")
def vector_engines(tiny_directory: Path) -> tuple[EncoderEngine, EncoderEngine, EncoderEngine]:
    """Load the tiny encoder compiled, as a module, and in float64."""
    compiled: EncoderEngine = CompiledEngine(CompiledEncoder.from_pretrained(tiny_directory))
    modules: list[EncoderEngine] = [
        EncoderModule(Encoder.from_pretrained(tiny_directory, device="cpu", dtype=dtype))
        for dtype in ("float32", "float64")
    ]
    return compiled, modules[0], modules[1]


@pytest.mark.parametrize("layers", [None, ((1, 0.25), (2, -1.5))])
@pytest.mark.parametrize("dimension", [None, 5])
@pytest.mark.parametrize("num_prompt_tokens", [0, 2])
@pytest.mark.parametrize(
    ("modes", "normalized"),
    [*(((mode,), mode != "max") for mode in POOLING_MODES), (("weightedmean", "max"), True)],
)
def test_pooled_vectors_agree(
    vector_engines: tuple[EncoderEngine, ...],
    rows: TokenRows,
    modes: Any,
    normalized: bool,
    num_prompt_tokens: int,
    dimension: int | None,
    layers: Any,
) -> None:
    found = [
        engine.run(
            rows,
            Pooled(
                modes=modes,
                num_prompt_tokens=num_prompt_tokens,
                normalized=normalized,
                dimension=dimension,
                layers=layers,
            ),
        )[0]
        for engine in vector_engines
    ]
    assert found[0].shape == (len(LENGTHS), dimension or WIDTH * len(modes))
    assert_agree(found[0], found[1], found[2])


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("layers", [None, ((0, 0.5), (2, 0.5))])
def test_token_vectors_agree(
    vector_engines: tuple[EncoderEngine, ...],
    rows: TokenRows,
    layers: Any,
    projected: bool,
    normalized: bool,
) -> None:
    drawn = np.random.default_rng(1).standard_normal((6, WIDTH)).astype(np.float32)
    modules = ModuleStack((DenseModule(weight_NK=drawn),) if projected else ())
    found = [
        engine.run(rows, TokenStates(layers=layers, modules=modules, normalized=normalized))[0]
        for engine in vector_engines
    ]
    assert found[0].shape == (sum(LENGTHS), 6 if projected else WIDTH)
    assert_agree(found[0], found[1], found[2])


def test_a_prompts_tokens_decide_nothing_but_the_context(
    vector_engines: tuple[EncoderEngine, ...], rows: TokenRows
) -> None:
    compiled = vector_engines[0]
    tokens = compiled.run(rows, TokenStates())[0]
    ends = rows.cu_seqlens[1:].tolist()
    kept = [tokens[end - n + 2 : end] for end, n in zip(ends, LENGTHS, strict=True)]
    pooled = compiled.run(rows, Pooled(modes=("max",), num_prompt_tokens=2))[0]
    np.testing.assert_array_equal(pooled, np.stack([part.max(0) for part in kept]))


@pytest.mark.parametrize("num_labels", [1, 3])
@pytest.mark.parametrize("activation", ["identity", "sigmoid"])
def test_scores_agree(tmp_path: Path, rows: TokenRows, num_labels: int, activation: Any) -> None:
    folder = write_head_directory(tmp_path, SequenceClassification, num_labels=num_labels)
    compiled = CompiledEngine(
        CompiledEncoder.from_pretrained(folder, head="sequence-classification")
    )
    found = [compiled.run(rows, Scores(activation=activation))[0]]
    assert compiled.num_labels == num_labels
    for dtype in ("float32", "float64"):
        model = SequenceClassification.from_pretrained(folder, device="cpu", dtype=dtype)
        module = HeadEngine(model)
        assert module.num_labels == num_labels
        found.append(module.run(rows, Scores(activation=activation))[0])
    assert_agree(found[0], found[1], found[2])


@pytest.mark.parametrize("pooling", ["max", "sum"])
@pytest.mark.parametrize("activation", ["relu", "log1p_relu"])
def test_vocabulary_weights_agree(
    tmp_path: Path, rows: TokenRows, pooling: SparsePooling, activation: SparseActivation
) -> None:
    folder = write_head_directory(tmp_path, MaskedLM)
    compiled: EncoderEngine = CompiledEngine(
        CompiledEncoder.from_pretrained(folder, head="masked-lm")
    )
    found = [compiled.run(rows, VocabularyWeights(pooling=pooling, activation=activation))[0]]
    for dtype in ("float32", "float64"):
        module: EncoderEngine = HeadEngine(
            MaskedLM.from_pretrained(folder, device="cpu", dtype=dtype)
        )
        found.append(module.run(rows, VocabularyWeights(pooling=pooling, activation=activation))[0])
    assert_agree(found[0], found[1], found[2])


@pytest.mark.parametrize(
    ("dtype", "quantization"), [("float32", None), ("bfloat16", None), ("float32", "int8")]
)
def test_both_engines_tell_the_same_facts(
    tiny_directory: Path, dtype: str, quantization: str | None
) -> None:
    module: EncoderEngine = EncoderModule(
        Encoder.from_pretrained(tiny_directory, "cpu", dtype, quantization)
    )
    compiled: EncoderEngine = CompiledEngine(
        CompiledEncoder.from_pretrained(tiny_directory, dtype, quantization)
    )
    assert (compiled.name, module.name) == ("compiled", "torch")
    for fact in ("spec", "dtype", "device", "quantization"):
        assert getattr(compiled, fact) == getattr(module, fact), fact
    assert (compiled.dtype, compiled.device) == (dtype, "cpu")
    # Stores of vectors made by one engine are searched by the other.
    assert compiled.fingerprint() == module.fingerprint()
    assert module.versions() == {"torch": torch.__version__}
    assert compiled.versions() == {}


@pytest.mark.parametrize("kind", [MaskedLM, SequenceClassification])
def test_the_head_counts_in_the_fingerprint(kind: Any, tmp_path: Path) -> None:
    folder = write_head_directory(tmp_path, kind)
    model = kind.from_pretrained(folder, device="cpu")
    module = HeadEngine(model)
    compiled = CompiledEngine(CompiledEncoder.from_pretrained(folder, head=kind.task))
    before = module.fingerprint()
    assert before == compiled.fingerprint()
    with torch.no_grad():
        model.head.output.bias.add_(1.0)
    assert module.fingerprint() != before
    model.save_pretrained(folder)
    changed = CompiledEngine(CompiledEncoder.from_pretrained(folder, head=kind.task))
    assert module.fingerprint() == changed.fingerprint()
