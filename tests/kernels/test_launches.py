"""A kernel runs on the GPU of its tensors, reads vectors in any layout, and is compiled in CI."""

from __future__ import annotations

import ast
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch

from encoder_engine import ops
from encoder_engine.ops import gpu
from encoder_engine.packing import Sequences
from tests import ROOT
from tests.kernels.ahead_of_time import variants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
interpreted = pytest.mark.skipif(
    DEVICE == "cpu" and not gpu.interpreted(), reason="neither a GPU nor TRITON_INTERPRET=1"
)
SOURCES = sorted((ROOT / "kernels").rglob("*.py"))
# Shared memory that a program may have on sm_89.
LEAST_SHARED_BYTES = 101_376
# What copies values of a tensor to the host.
READS = ("item", "tolist", "cpu", "numpy", "nonzero")


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            yield node


def decorators(function: ast.FunctionDef) -> set[str]:
    return {ast.unparse(decorator) for decorator in function.decorator_list}


def launches(function: ast.FunctionDef) -> bool:
    """Say whether a function calls ``_name_kernel[grid](...)``."""
    return any(
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id.endswith("_kernel")
        for node in ast.walk(function)
    )


def test_every_launcher_runs_on_the_device_of_its_tensors() -> None:
    found = {f"{path.name}:{f.name}": f for path in SOURCES for f in functions(path) if launches(f)}
    assert found
    assert [name for name, f in found.items() if "on_device" not in decorators(f)] == []


def test_no_launcher_waits_for_the_device() -> None:
    # Reading a value would wait for it, and a CUDA graph could not be captured.
    reads = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path in SOURCES
        if not path.stem.endswith("reference")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Attribute) and node.attr in READS)
        or (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("int", "float", "bool")
            and any(isinstance(part, ast.Subscript) for part in ast.walk(node))
        )
    ]
    assert reads == []


@interpreted
@pytest.mark.parametrize("with_gradients", [False, True])
def test_tiles_of_the_backward_pass_are_made_for_gradients_alone(
    with_gradients: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequences = Sequences.from_lengths([70, 3], device=DEVICE)
    query, key, value = torch.zeros(3, 73, 2, 16, device=DEVICE).unbind()
    asked: list[int] = []
    make = Sequences.tiles

    def tiles(layout: Sequences, block: int) -> torch.Tensor:
        asked.append(block)
        return make(layout, block)

    monkeypatch.setattr(Sequences, "tiles", tiles)
    with torch.set_grad_enabled(with_gradients):
        ops.attention(query, key, value, sequences, implementation="triton")
    assert len(asked) == (3 if with_gradients else 1)


def test_every_kernel_is_in_the_compile_table() -> None:
    kernels = {
        f.name
        for path in SOURCES
        for f in functions(path)
        if "triton.jit" in decorators(f) and f.name.endswith("_kernel")
    }
    assert kernels == {variant.kernel for variant in variants()}


class OnSecondDevice(torch.Tensor):
    """A tensor that says it is on the second of several GPUs."""

    is_cuda = True
    device = torch.device("cuda:1")


@pytest.mark.parametrize(("current", "entered"), [(0, ["cuda:1"]), (1, [])])
def test_a_launcher_enters_the_device_of_its_first_tensor(
    current: int, entered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from encoder_engine.kernels.common.launch import on_device

    devices = []

    @contextmanager
    def enter(device: torch.device) -> Iterator[None]:
        devices.append(str(device))
        yield

    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(torch.cuda, "device", enter)
    launcher = on_device(lambda given, other: (len(given), other))
    there = torch.zeros(3).as_subclass(OnSecondDevice)
    assert launcher((there, None), 7) == (2, 7)
    assert devices == entered


def strided(*shape: int) -> torch.Tensor:
    """Draw a tensor whose neighbours are two apart in memory."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, 2, generator=generator).to(DEVICE)[..., 0]


ROWS = strided(6, 32)
LAYOUT = Sequences.from_lengths([5, 1], device=DEVICE)
HEADS = strided(6, 2, 16)
LABELS = torch.tensor([3, 0, 1, 7, 7, 2], device=DEVICE)


def attend(bias: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
    return ops.attention(
        HEADS, HEADS, HEADS, LAYOUT,
        relative_bias_HR=bias, alibi_slopes_H=slopes.detach(), implementation="triton",
    )  # fmt: skip


def project(mode: Any, bias: torch.Tensor) -> torch.Tensor:
    return ops.masked_cross_entropy(
        ROWS, torch.arange(6, device=DEVICE), LABELS, strided(20, 32), bias,
        mode=mode, implementation="triton",
    )  # fmt: skip


CALLS: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...]]] = {
    "layer norm": (
        lambda w, b: ops.layer_norm(ROWS, w, b, epsilon=1e-5, implementation="triton"), (32, 32)
    ),
    "rms norm": (
        lambda w, _: ops.rms_norm(ROWS, w, epsilon=1e-5, implementation="triton"), (32, 32)
    ),
    "gelu": (lambda b: ops.bias_gelu(ROWS, b, implementation="triton"), (32,)),
    "geglu": (lambda b: ops.geglu(ROWS, b, implementation="triton"), (32,)),
    "attention": (attend, (-1, 2)),
    "masked projection, stored": (lambda b: project("stored", b), (20,)),
    "masked projection, tiled": (lambda b: project("tiled", b), (20,)),
}  # fmt: skip


@interpreted
@pytest.mark.parametrize("name", CALLS)
def test_a_strided_parameter_is_read_as_its_copy_is(name: str) -> None:
    call, sizes = CALLS[name]
    vectors = [strided(2, 5) if size < 0 else strided(size) for size in sizes]
    results = []
    for given in (vectors, [x.contiguous() for x in vectors]):
        leaves = [x.detach().requires_grad_() for x in given]
        output = call(*leaves)
        used = torch.autograd.grad(output.float().square().sum(), leaves, allow_unused=True)
        results.append([output, *(x for x in used if x is not None)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize(
    ("columns", "itemsize", "bounds"),
    [
        (30_522, 2, [(0, 30_520), (30_520, 30_522)]),
        (30_522, 4, [(0, 30_520), (30_520, 30_522)]),
        (30_524, 4, [(0, 30_524)]),
        (30_528, 2, [(0, 30_528)]),
        (5, 2, [(0, 5)]),
    ],
)
def test_a_vocabulary_is_multiplied_in_whole_vectors(
    columns: int, itemsize: int, bounds: list[tuple[int, int]]
) -> None:
    from encoder_engine.kernels.masked_projection.config import whole_vectors

    assert [(x.start, x.stop) for x in whole_vectors(columns, itemsize)] == bounds


@pytest.mark.parametrize("head_dim", [32, 48, 64, 96, 128])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("term", [None, "dropout", "bias", "listed"])
def test_attention_describes_only_what_it_reads_by_descriptors(
    head_dim: int, masked: bool, term: str | None
) -> None:
    from encoder_engine.kernels.attention.config import Extras, Longest, choose_launches

    extras = Extras(masked=masked)
    if term is not None:
        extras = extras._replace(**{term: True})
    # Of a window or a causal border every block is masked, and read by pointers.
    widths = {None: (64, 128), "dropout": (128,), "bias": (), "listed": (128,)}[term]
    for keys in (256, 2048):
        launches = choose_launches(head_dim, itemsize=2, extras=extras, longest=Longest(keys, keys))
        assert launches.forward.described is (head_dim in widths and not masked)


@pytest.mark.parametrize("width", [384, 1024, 4096, 5120, 16384])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_layer_norm_reads_no_more_ahead_than_any_gpu_has_room_for(
    width: int, itemsize: int
) -> None:
    from encoder_engine.kernels.common.launch import row_tile
    from encoder_engine.kernels.layer_norm.backward import num_stages

    tile = row_tile(width)
    ahead = num_stages(tile, itemsize) - 1
    # Of the gradients of both outputs and of the sum; consumer GPUs have the least shared memory.
    assert 3 * ahead * tile.rows * tile.width * itemsize <= LEAST_SHARED_BYTES
    assert ahead == 0 or width <= 4096
