"""Short batches of the torch engine go through a captured encoder where a GPU has graphs.

On a CPU a captured encoder computes the layout of a bucket without a graph, with the encoder's bits
where kernels are native; ``tests/models/captured/test_graphs.py`` compares the engine's on a GPU.
"""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.engine.module import (
    EncoderModule,
    HeadEngine,
)
from encoder_engine.engine.outputs import Pooled, Scores, TokenStates, VocabularyWeights
from encoder_engine.errors import ImplementationError, TokenIdError
from encoder_engine.families.config import spec_from_config
from encoder_engine.models import CapturedEncoder, Encoder, MaskedLM, SequenceClassification
from encoder_engine.models.captured import short_batches
from encoder_engine.packing.token_rows import TokenRows
from tests.models.captured.families import LEAST_ID, NUM_IDS, SIZES, computing, make_encoder
from tests.models.captured.recorded import record_graphs

if TYPE_CHECKING:
    from collections.abc import Callable

    from encoder_engine.packing.pooling_modes import PoolingMode

LENGTHS = (7, 1, 24, 4)


@pytest.fixture(autouse=True)
def graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the engine take the CPU for a device with graphs."""
    monkeypatch.setattr(short_batches, "uses_graphs", lambda _device: True)


def draw_rows(lengths: tuple[int, ...] = LENGTHS, *, with_types: bool = False) -> TokenRows:
    ids = np.random.default_rng(0).integers(LEAST_ID, NUM_IDS, sum(lengths), dtype=np.int32)
    return TokenRows(
        ids=ids,
        cu_seqlens=np.cumsum([0, *lengths], dtype=np.int32),
        # Of the families here BERT alone has two segments.
        type_ids=ids % 2 if with_types else None,
    )


def left(engine: Any, monkeypatch: pytest.MonkeyPatch, call: Callable[[Any], Any]) -> Any:
    """Return what the encoder itself computes."""
    with monkeypatch.context() as patched:
        patched.setattr(engine.short, "_num_failures", 3)
        return call(engine)


def is_captured(engine: Any) -> bool:
    return engine.short._captured is not None


def two_results(engine: EncoderModule) -> tuple[Any, ...]:
    modes: tuple[PoolingMode, ...] = ("mean", "max")
    return engine.run(draw_rows(), Pooled(modes=modes), TokenStates())


CALLS: dict[str, Callable[[EncoderModule], Any]] = {
    "mean": lambda engine: engine.run(draw_rows(), Pooled(modes=("mean",), normalized=True))[0],
    "first rows": lambda engine: engine.run(draw_rows(), Pooled(modes=("cls",)))[0],
    "last rows": lambda engine: engine.run(draw_rows(), Pooled(modes=("lasttoken",)))[0],
    "tokens": lambda engine: engine.run(draw_rows(with_types=True), TokenStates())[0],
    "both": lambda engine: np.concatenate([np.ravel(one) for one in two_results(engine)]),
}


@pytest.mark.parametrize("name", CALLS)
def test_vectors_are_those_of_the_encoder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = EncoderModule(make_encoder("bert"))
    expected = left(engine, monkeypatch, CALLS[name])
    assert not is_captured(engine)
    assert np.array_equal(CALLS[name](engine), expected)
    assert is_captured(engine)


@pytest.mark.parametrize("model_type", ["bert", "roberta", "modernbert"])
def test_scores_and_logits_are_those_of_the_model(
    model_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = make_encoder(model_type)
    ranker = HeadEngine(SequenceClassification(encoder, num_labels=3))
    sparse = HeadEngine(MaskedLM(encoder))
    calls: list[tuple[Any, Callable[[Any], Any]]] = [
        (ranker, lambda engine: engine.run(draw_rows(), Scores(activation="identity"))[0]),
        *(
            (
                sparse,
                lambda engine, pooling=pooling: engine.run(
                    draw_rows(), VocabularyWeights(pooling=pooling, activation="log1p_relu")
                )[0],
            )
            for pooling in ("max", "sum")
        ),
    ]
    for engine, call in calls:
        assert np.array_equal(call(engine), left(engine, monkeypatch, call))
        assert is_captured(engine)


def test_changed_modules_are_left_to_the_encoder_until_they_are_restored() -> None:
    engine = EncoderModule(make_encoder("bert"))
    engine.run(draw_rows(), TokenStates())[0]
    hook = engine.encoder.blocks[0].register_forward_hook(lambda _m, _i, output: output)
    expected = engine.run(draw_rows(), TokenStates())[0]
    assert not is_captured(engine)
    assert not engine.short.takes(1)
    hook.remove()
    assert np.array_equal(engine.run(draw_rows(), TokenStates())[0], expected)
    assert is_captured(engine)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError(), ImplementationError()])
def test_a_batch_that_fails_to_be_captured_is_left_to_the_encoder_and_after_three_all(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = EncoderModule(make_encoder("bert"))
    expected = engine.run(draw_rows(), TokenStates())[0]

    def fail(*_: object, **__: object) -> None:
        raise error

    for can_be_captured in (True, True, False):
        with monkeypatch.context() as patched:
            patched.setattr(CapturedEncoder, "__call__", fail)
            assert np.array_equal(engine.run(draw_rows(), TokenStates())[0], expected)
            assert not is_captured(engine)
        assert np.array_equal(engine.run(draw_rows(), TokenStates())[0], expected)
        assert is_captured(engine) is can_be_captured


def test_global_rows_are_left_to_the_model() -> None:
    config = {"model_type": "longformer", **SIZES, "attention_window": [4, 12]}
    config |= {"type_vocab_size": 1, "pad_token_id": 1}
    encoder = Encoder(spec_from_config(config), config=config).eval()
    ranker = HeadEngine(SequenceClassification(encoder, num_labels=2))
    with torch.no_grad():
        expected = ranker.model(ranker._batch(draw_rows())).numpy()
    assert np.array_equal(ranker.run(draw_rows(), Scores())[0], expected)
    assert not is_captured(ranker)


@pytest.mark.slow
def test_a_second_batch_is_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = record_graphs(monkeypatch)
    engine = EncoderModule(make_encoder("bert"))
    with computing("bert", "triton"):
        found = [engine.run(draw_rows(), TokenStates())[0] for _ in range(3)]
        expected = left(
            engine, monkeypatch, lambda engine: engine.run(draw_rows(), TokenStates())[0]
        )
    assert [graph.num_replays for graph in recorded] == [2]
    assert all(np.array_equal(one, expected) for one in found)


def test_longer_batches_and_autocast_are_left_to_the_encoder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = EncoderModule(make_encoder("bert"))
    monkeypatch.setattr(short_batches, "MAX_FLOAT32_TOKENS", sum(LENGTHS) - 1)
    engine.run(draw_rows(), TokenStates())[0]
    assert not is_captured(engine)
    monkeypatch.setattr(short_batches, "MAX_FLOAT32_TOKENS", sum(LENGTHS))
    with torch.autocast("cpu", torch.bfloat16):
        engine.run(draw_rows(), TokenStates())[0]
    assert not is_captured(engine)
    engine.run(draw_rows(), TokenStates())[0]
    assert is_captured(engine)


def test_a_model_trained_meanwhile_is_put_into_evaluation_mode() -> None:
    engine = EncoderModule(make_encoder("bert"))
    expected = engine.run(draw_rows(), TokenStates())[0]
    engine.encoder.embedding.train()
    assert np.array_equal(engine.run(draw_rows(), TokenStates())[0], expected)
    assert is_captured(engine)


def test_a_compiled_module_is_not_compiled_for_a_bucket() -> None:
    engine = EncoderModule(make_encoder("bert"))
    expected = engine.run(draw_rows(), TokenStates())[0]

    def fail(*_: object) -> None:
        raise AssertionError("it is compiled")

    engine.encoder.compile(backend=fail)
    assert np.array_equal(engine.run(draw_rows(), TokenStates())[0], expected)
    assert is_captured(engine)


def test_hooks_of_the_head_see_every_batch() -> None:
    ranker = HeadEngine(SequenceClassification(make_encoder("bert"), num_labels=1))
    seen: list[object] = []
    ranker.model.register_forward_hook(lambda *_: seen.append(0))
    ranker.run(draw_rows(), Scores())[0]
    assert seen


def test_half_precision_takes_more_tokens() -> None:
    encoder = make_encoder("bert")
    assert [EncoderModule(encoder).short.takes(n) for n in (1024, 1025)] == [True, False]
    encoder.to(torch.bfloat16)
    assert [EncoderModule(encoder).short.takes(n) for n in (4096, 4097)] == [True, False]


def test_wrong_ids_are_refused_and_the_next_batch_is_captured() -> None:
    engine = EncoderModule(make_encoder("bert"))
    wrong = TokenRows(
        ids=np.array([NUM_IDS], dtype=np.int32), cu_seqlens=np.array([0, 1], dtype=np.int32)
    )
    with pytest.raises(TokenIdError, match=f"token id {NUM_IDS} at row 0"):
        engine.run(wrong, TokenStates())[0]
    engine.run(draw_rows(), TokenStates())[0]
    assert is_captured(engine)


def test_a_copy_captures_for_itself() -> None:
    engine = EncoderModule(make_encoder("bert"))
    expected = engine.run(draw_rows(), TokenStates())[0]
    copied: EncoderModule = copy.deepcopy(engine)
    assert not is_captured(copied)
    assert pickle.loads(pickle.dumps(engine.short)).takes(1)
    with torch.no_grad():
        copied.encoder.embedding.tokens.weight.add_(1.0)
    assert not np.array_equal(copied.run(draw_rows(), TokenStates())[0], expected)
    assert np.array_equal(engine.run(draw_rows(), TokenStates())[0], expected)
