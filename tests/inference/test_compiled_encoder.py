"""The compiled encoder against the PyTorch module: the same bits, for every family and head."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import encoder_engine as ee
from encoder_engine import _native, ops
from encoder_engine.engine.module import EncoderModule
from encoder_engine.errors import (
    BatchError,
    CheckpointFileError,
    ConfigError,
    InputError,
    SequenceLengthError,
    TokenIdError,
    UnknownNameError,
    UnsupportedFeatureError,
)
from encoder_engine.inference import CompiledEncoder
from encoder_engine.models import heads
from encoder_engine.ops.cpu import native_instruction_set
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing import pack
from tests.inference.native_module import use_native_products
from tests.models.all_cases import ALL_CASES, with_each
from tests.models.cases import CASES, VOCAB_SIZE, Case, case_id, one_per_family
from tests.models.test_heads import MODELS, PAIRS, build, pair_id
from tests.selection import covering

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.families.facts.head_layout import HeadLayout
    from encoder_engine.packing import PackedBatch

pytestmark = [
    pytest.mark.skipif(
        native_instruction_set() in (None, "portable"),
        reason="the module would not compute with the same kernels here",
    ),
    pytest.mark.filterwarnings("ignore:.*pooler weights"),
    pytest.mark.filterwarnings("ignore::encoder_engine.errors.UnusedWeightsWarning"),
]
LENGTHS = (9, 1, 30, 0, 17)
PRECISIONS = {
    "float32": ("float32", None),
    "bfloat16": ("bfloat16", None),
    "int8": ("bfloat16", "int8"),
    "int8 in float32": ("float32", "int8"),
}
# In the usual run every family in float32, bfloat16 and int8.
FAMILIES = covering(
    product(one_per_family(ALL_CASES), PRECISIONS),
    lambda case, name: [(case.model_type, name) if name != "int8 in float32" else name],
)
MODES: tuple[ops.PoolingMode, ...] = ("mean", "cls", "lasttoken", "max")
GATED = [
    next(case for case in ALL_CASES if case.model_type == name)
    for name in ("modernbert", "nomic_bert", "llama", "qwen3", "gemma3_text", "mt5")
]
BERT = next(case for case in CASES if case.model_type == "bert")


def draw_batch(lengths: tuple[int, ...] = LENGTHS, *, num_types: int = 1) -> PackedBatch:
    generator = torch.Generator().manual_seed(5)
    rows = [torch.randint(5, VOCAB_SIZE, (n,), generator=generator).tolist() for n in lengths]
    return pack(rows, token_type_ids=[[n % num_types for n in range(len(row))] for row in rows])


def arrays(batch: PackedBatch) -> tuple[Any, ...]:
    types = batch.token_type_ids
    assert types is not None
    return tuple(x.numpy().astype(np.int32) for x in (batch.input_ids, batch.cu_seqlens, types))


def load(
    case: Case, folder: Path, precision: str, **sizes: int
) -> tuple[ee.Encoder, CompiledEncoder]:
    case.save(folder, **sizes)
    dtype, quantization = PRECISIONS[precision]
    module = ee.Encoder.from_pretrained(
        folder, device="cpu", dtype=dtype, quantization=quantization
    )
    return module, CompiledEncoder.from_pretrained(folder, dtype, quantization)


@pytest.mark.parametrize(("case", "precision"), with_each(PRECISIONS), ids=case_id)
def test_every_family_has_the_modules_bits(case: Case, precision: str, tmp_path: Path) -> None:
    module, compiled = load(case, tmp_path, precision)
    assert compiled.fingerprint() == EncoderModule(module).fingerprint()
    use_native_products(module)
    batch = draw_batch(num_types=max(1, module.spec.embedding.num_segments))
    layers = tuple({0: 0.5, 1: -0.25, module.spec.num_layers: 2.0}.items())
    found = [
        compiled.hidden(*arrays(batch)),
        compiled.hidden(*arrays(batch), layers=layers),
        *(compiled.pooled(*arrays(batch), mode=mode, normalized=True) for mode in MODES),
    ]
    expected = by_module(module, batch, layers)
    if module.spec.convolution is None:
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == np.float32
            np.testing.assert_array_equal(one, other.numpy())
    else:
        # The module's convolution is not packed: its sums are in another order.
        exact = ee.Encoder.from_pretrained(tmp_path, device="cpu", dtype="float64")
        truth = by_module(exact, batch, layers)
        for one, other, true in zip(found, expected, truth, strict=True):
            within = (torch.from_numpy(one).to(module.dtype), other.to(module.dtype), true)
            assert_within_budget(*within, terms=3 * module.spec.width)
    assert (compiled.quantization, compiled.spec) == (module.quantization, module.spec)
    assert f"torch.{compiled.dtype}" == str(module.dtype)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("case", GATED, ids=case_id)
def test_a_product_that_gates_has_the_modules_bits(
    case: Case, precision: str, tmp_path: Path
) -> None:
    # Halves of whole panels, which the other test's are not.
    width = {"d_ff" if "d_ff" in case.sizes else "intermediate_size": 3 * _native.PANEL_WIDTH}
    module, compiled = load(case, tmp_path, precision, **width)
    assert module.spec.blocks[0].feed_forward.gated
    use_native_products(module)
    batch = draw_batch()
    (rows, *_) = by_module(module, batch, ((0, 1.0),))
    np.testing.assert_array_equal(compiled.hidden(*arrays(batch)), rows.numpy())


# In the usual run every case, every head of every family, and heads and families in either
# precision, not every pair of them.
HEADS_IN_DTYPES = covering(
    ((*pair, dtype) for pair in PAIRS for dtype in ("float32", "bfloat16")),
    lambda case, layout, dtype: [case.id, *combinations((case.model_type, layout.task, dtype), 2)],
)


def by_module(
    module: ee.Encoder, batch: PackedBatch, layers: tuple[tuple[int, float], ...]
) -> list[torch.Tensor]:
    """Return the last rows, the sum of layers, and the pooled vectors, in float32 or float64."""
    wide = torch.promote_types(module.dtype, torch.float32)
    with torch.inference_mode():
        states = module(batch, output_hidden_states=True).hidden_states
        assert states is not None
        mixed: Any = sum(weight * states[layer].to(wide) for layer, weight in layers)
        rows = states[-1].to(wide)
        pooled = [ops.pooling(rows, batch.sequences, mode=mode, normalize=True) for mode in MODES]
    return [rows, mixed, *pooled]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "layout", "dtype"), HEADS_IN_DTYPES, ids=pair_id)
def test_every_head_has_the_modules_logits(
    case: Case, layout: HeadLayout, dtype: str, tmp_path: Path
) -> None:
    build(case, layout, tmp_path)
    model = MODELS[layout.task].from_pretrained(tmp_path, device="cpu", dtype=dtype)
    compiled = CompiledEncoder.from_pretrained(tmp_path, dtype, head=layout.task)
    batch = draw_batch((9, 1, 30, 17))
    with torch.inference_mode():
        expected = logits(model, batch)
        truth = logits(model.double(), batch)
    found = torch.from_numpy(compiled.logits(*arrays(batch))).to(expected.dtype)
    assert compiled.head == layout.task
    # The module's head is not packed: its sums are in another order.
    assert_within_budget(found, expected, truth, terms=3 * model.encoder.spec.width)


CHOSEN = np.array([0, 3, 8, 9, 21, 22, 56], np.int32)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "layout", "dtype"), HEADS_IN_DTYPES, ids=pair_id)
def test_logits_of_chosen_rows_have_the_bits_of_all(
    case: Case, layout: HeadLayout, dtype: str, tmp_path: Path
) -> None:
    build(case, layout, tmp_path)
    compiled = CompiledEncoder.from_pretrained(tmp_path, dtype, head=layout.task)
    given = arrays(draw_batch((9, 1, 30, 17)))
    every = compiled.logits(*given)
    if len(every) == 4:
        with pytest.raises(UnsupportedFeatureError, match="reads texts, not tokens"):
            compiled.logits(*given, rows=CHOSEN)
        return
    for rows in (CHOSEN, CHOSEN[:0]):
        np.testing.assert_array_equal(compiled.logits(*given, rows=rows), every[rows])
    for wrong in ([1, 0], [0, 0], [-1, 2], [0, 57]):
        with pytest.raises(BatchError, match="ascending places among the 57 tokens"):
            compiled.logits(*given, rows=np.array(wrong, np.int32))


def logits(model: heads.HeadModel, batch: PackedBatch) -> torch.Tensor:
    output = model.encode(batch)
    if isinstance(model, heads.MaskedLM):
        return model.logits_of(output.last_hidden_state)
    return model.numbers(output)


def test_a_texts_vector_depends_on_nothing_beside_it(tmp_path: Path) -> None:
    BERT.save(tmp_path)
    compiled = CompiledEncoder.from_pretrained(tmp_path)
    batch = draw_batch()
    ids, starts, types = arrays(batch)
    together = compiled.pooled(ids, starts, types)
    for row, (start, stop) in enumerate(pairwise(starts)):
        alone = compiled.pooled(
            ids[start:stop], np.array([0, stop - start], np.int32), types[start:stop]
        )
        np.testing.assert_array_equal(alone[0], together[row])


@pytest.mark.parametrize("threads", [1, 3])
def test_bits_depend_on_no_number_of_threads(threads: int, tmp_path: Path) -> None:
    BERT.save(tmp_path)
    batch = draw_batch((40, 50, 60))
    by_two = CompiledEncoder.from_pretrained(tmp_path, num_threads=2)
    others = CompiledEncoder.from_pretrained(tmp_path, num_threads=threads)
    np.testing.assert_array_equal(by_two.hidden(*arrays(batch)), others.hidden(*arrays(batch)))


def test_sixteen_threads_share_one_encoder(tmp_path: Path) -> None:
    BERT.save(tmp_path)
    compiled = CompiledEncoder.from_pretrained(tmp_path)
    batches = [draw_batch(tuple(range(1 + n, 12 + n))) for n in range(16)]
    expected = [compiled.hidden(*arrays(batch)) for batch in batches]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda batch: compiled.hidden(*arrays(batch)), batches * 4))
    for one, other in zip(expected * 4, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_empty_batch_has_no_rows(tmp_path: Path) -> None:
    BERT.save(tmp_path)
    compiled = CompiledEncoder.from_pretrained(tmp_path)
    none = np.zeros(0, np.int32)
    assert compiled.hidden(none, np.zeros(1, np.int32)).shape == (0, compiled.spec.width)
    assert compiled.pooled(none, np.zeros(1, np.int32)).shape == (0, compiled.spec.width)


def test_bad_batches_are_refused(tmp_path: Path) -> None:
    BERT.save(tmp_path)
    compiled = CompiledEncoder.from_pretrained(tmp_path)
    starts = np.array([0, 2], np.int32)
    with pytest.raises(TokenIdError, match=f"token id {VOCAB_SIZE} at row 0, position 1"):
        compiled.hidden(np.array([1, VOCAB_SIZE], np.int32), starts)
    with pytest.raises(TokenIdError, match="token id -1"):
        compiled.hidden(np.array([1, -1], np.int64), starts)
    with pytest.raises(TokenIdError, match="token type id 7"):
        compiled.hidden(np.array([1, 2]), starts, np.array([0, 7]))
    with pytest.raises(BatchError, match="cu_seqlens must rise"):
        compiled.hidden(np.array([1, 2, 3]), starts)
    with pytest.raises(BatchError, match="flat array of integers"):
        compiled.hidden(np.array([1.0, 2.0]), starts)
    with pytest.raises(BatchError, match="beyond 32 bits"):
        compiled.hidden(np.array([1, 2**40]), starts)
    with pytest.raises(SequenceLengthError, match="row 0 has 97 tokens, the model takes 96"):
        compiled.hidden(np.ones(97, np.int32), np.array([0, 97], np.int32))


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    BERT.save(tmp_path)
    with pytest.raises(ConfigError, match="float32, bfloat16 for a compiled encoder"):
        CompiledEncoder.from_pretrained(tmp_path, "float16")
    with pytest.raises(UnsupportedFeatureError, match="quantization='int4'"):
        CompiledEncoder.from_pretrained(tmp_path, quantization="int4")
    with pytest.raises(UnsupportedFeatureError, match="without a head"):
        CompiledEncoder.from_pretrained(tmp_path).logits(np.ones(1, np.int32), np.array([0, 1]))


@pytest.mark.slow
def test_nothing_of_it_imports_pytorch(tmp_path: Path) -> None:
    BERT.save(tmp_path)
    program = (
        "import sys; sys.modules['torch'] = None; sys.modules['triton'] = None\n"
        "import numpy as np\n"
        "from encoder_engine.inference import CompiledEncoder\n"
        "encoder = CompiledEncoder.from_pretrained(sys.argv[1])\n"
        "rows = encoder.pooled(np.ones(3, np.int32), np.array([0, 3], np.int32))\n"
        "assert rows.shape == (1, encoder.spec.width), rows.shape\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)


def test_a_file_that_is_written_to_is_noticed(tmp_path: Path) -> None:
    BERT.save(tmp_path)
    compiled = CompiledEncoder.from_pretrained(tmp_path)
    batch, path = draw_batch(), tmp_path / "model.safetensors"
    before = compiled.hidden(*arrays(batch))
    content = path.read_bytes()
    # Another file in its place: the encoder keeps the pages of the one that it has loaded.
    path.rename(tmp_path / "model.safetensors.old")
    path.write_bytes(bytes(len(content)))
    np.testing.assert_array_equal(compiled.hidden(*arrays(batch)), before)
    path.unlink()
    np.testing.assert_array_equal(compiled.hidden(*arrays(batch)), before)
    (tmp_path / "model.safetensors.old").rename(path)
    with path.open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"oops")
    with pytest.raises(CheckpointFileError, match="was written to while an encoder reads"):
        compiled.hidden(*arrays(batch))


def test_a_file_that_is_overwritten_with_its_former_times_is_noticed(tmp_path: Path) -> None:
    BERT.save(tmp_path)
    compiled = CompiledEncoder.from_pretrained(tmp_path)
    batch, path = draw_batch(), tmp_path / "model.safetensors"
    before, times = compiled.hidden(*arrays(batch)), path.stat()
    content = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    # Another status, the same content.
    np.testing.assert_array_equal(compiled.hidden(*arrays(batch)), before)
    header = 8 + int.from_bytes(content[:8], "little")
    path.write_bytes(content[:header] + bytes(len(content) - header))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(CheckpointFileError, match="was written to while an encoder reads"):
        compiled.hidden(*arrays(batch))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_pickled_encoder_has_the_same_bits(precision: str, tmp_path: Path) -> None:
    _, compiled = load(BERT, tmp_path, precision)
    again = pickle.loads(pickle.dumps(compiled))
    batch = draw_batch(num_types=2)
    np.testing.assert_array_equal(again.hidden(*arrays(batch)), compiled.hidden(*arrays(batch)))
    assert again.fingerprint() == compiled.fingerprint()


def test_scales_of_a_saved_int8_encoder_are_no_pages_of_the_file(tmp_path: Path) -> None:
    BERT.save(tmp_path / "plain")
    module = ee.Encoder.from_pretrained(tmp_path / "plain", device="cpu")
    module.quantize().save_pretrained(tmp_path / "int8")
    compiled = CompiledEncoder.from_pretrained(tmp_path / "int8", "bfloat16")
    batch, path = draw_batch(), tmp_path / "int8" / "model.safetensors"
    before = compiled.hidden(*arrays(batch))
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        file.seek(8 + size)
        file.write(bytes(path.stat().st_size - 8 - size))
    np.testing.assert_array_equal(compiled.hidden(*arrays(batch)), before)


def test_layers_are_checked_sorted_and_added(tmp_path: Path) -> None:
    BERT.save(tmp_path)
    compiled = CompiledEncoder.from_pretrained(tmp_path)
    batch, last = draw_batch(), compiled.spec.num_layers
    sorted_ = compiled.hidden(*arrays(batch), layers=((0, 0.5), (last, 1.0)))
    mixed = compiled.hidden(*arrays(batch), layers=((last, 0.75), (0, 0.5), (last, 0.25)))
    np.testing.assert_array_equal(mixed, sorted_)
    for wrong in (((99, 1.0),), ((-1, 1.0),), ((True, 1.0),), ()):
        with pytest.raises(InputError, match=r"there is no layer|layers is empty"):
            compiled.hidden(*arrays(batch), layers=wrong)
    for weight in (np.nan, np.inf):
        with pytest.raises(InputError, match="weight of layer 0 must be a finite number, got"):
            compiled.hidden(*arrays(batch), layers=((0, weight),))


def test_arguments_of_a_batch_are_checked(tmp_path: Path) -> None:
    BERT.save(tmp_path)
    compiled = CompiledEncoder.from_pretrained(tmp_path)
    ids, offsets, types = arrays(draw_batch())
    with pytest.raises(UnknownNameError, match=r"no pooling mode 'foo'; there are cls, mean"):
        compiled.pooled(ids, offsets, types, mode="foo")
    for number, name in enumerate(("ids", "cu_seqlens", "type_ids")):
        listed: list[Any] = [ids, offsets, types]
        listed[number] = listed[number].tolist()
        with pytest.raises(BatchError, match=rf"{name} must be an array, got list"):
            compiled.pooled(*listed)


def test_a_call_does_not_wait_for_another_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A lock that another thread holds is never opened in a forked child.
    BERT.save(tmp_path)
    compiled, given = CompiledEncoder.from_pretrained(tmp_path), arrays(draw_batch())
    expected = compiled.pooled(*given)
    reached, go_on, plain = threading.Event(), threading.Event(), np.arange

    def arange(*bounds: Any, **options: Any) -> Any:
        if not reached.is_set():
            reached.set()
            go_on.wait()
        return plain(*bounds, **options)

    monkeypatch.setattr(np, "arange", arange)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(compiled.pooled, *given)
        assert reached.wait(60)
        try:
            np.testing.assert_array_equal(pool.submit(compiled.pooled, *given).result(60), expected)
        finally:
            go_on.set()
        np.testing.assert_array_equal(first.result(), expected)


@pytest.mark.parametrize("wrong", [0, -3, 1.5, "2", True, 1025, 2**40])
def test_threads_are_a_whole_number(wrong: Any, tmp_path: Path) -> None:
    BERT.save(tmp_path)
    with pytest.raises(ConfigError, match="num_threads must be a whole number above 0"):
        CompiledEncoder.from_pretrained(tmp_path, num_threads=wrong)


def test_offsets_that_wrap_are_refused(tmp_path: Path) -> None:
    BERT.save(tmp_path)
    compiled = CompiledEncoder.from_pretrained(tmp_path)
    starts = np.array([0, 2**31 - 1, -2, 5], np.int32)
    with pytest.raises(BatchError, match="cu_seqlens must rise"):
        compiled.hidden(np.ones(5, np.int32), starts)


def test_a_text_without_an_attended_token_is_refused(tmp_path: Path) -> None:
    BERT.save(tmp_path)
    compiled = CompiledEncoder.from_pretrained(tmp_path)
    ids, starts = np.ones(5, np.int32), np.array([0, 2, 5], np.int32)
    with pytest.raises(BatchError, match="no token of row 1 is attended to: all 3") as caught:
        compiled.hidden(ids, starts, unattended=np.array([1, 3]))
    assert caught.value.row == 1
    with pytest.raises(BatchError, match="flat array of integers"):
        compiled.hidden(ids, starts, unattended=np.array([0.5, 0.0]))


def test_a_relative_path_keeps_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    BERT.save(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    compiled = CompiledEncoder.from_pretrained("model")
    monkeypatch.chdir("/")
    with (tmp_path / "model" / "model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"oops")
    with pytest.raises(CheckpointFileError, match="was written to while an encoder reads"):
        compiled.hidden(*arrays(draw_batch()))


def test_integers_are_no_weights(tmp_path: Path) -> None:
    BERT.save(tmp_path)
    module = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    found = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    name = "blocks.0.attention.qkv.weight"
    with pytest.raises(CheckpointFileError, match=f"{name} is int64"):
        CompiledEncoder.from_parameters(module.spec, found | {name: found[name].astype(np.int64)})


def test_a_gate_across_panels_is_refused() -> None:
    plan = _native.Plan()
    target = plan.add_buffer(4 * 96)
    with pytest.raises(ValueError, match="a multiple of 64, got 96"):
        plan.packed_linear(False, "silu", 0, 8, 96, 0, target, gated=True)
