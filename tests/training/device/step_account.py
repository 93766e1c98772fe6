"""Account for a training step on a GPU, without one: its calls, bytes and FLOPs, by fake tensors.

    python -m tests.training.device.step_account base --tokens 65536 --length 512

How it works: the step runs on PyTorch's fake tensors, which have shapes but no values. They lie on
the CPU, as a build without CUDA cannot differentiate others; the operations are made to choose what
they choose on a GPU, and autocast of the CPU stands for that of CUDA. Every call that reaches a
device is counted once, with the bytes of its inputs and outputs: what it moves if it reads and
writes each once. An operator of our own counts as one call, though some launch two kernels.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from encoder_engine import Encoder
from encoder_engine.families.config import spec_from_config
from encoder_engine.models.linear import dense_weights
from encoder_engine.objectives.masking import Masking
from encoder_engine.objectives.mlm import MLM
from encoder_engine.objectives.objective import PretrainingModel, prepare
from encoder_engine.ops import gpu, registry
from encoder_engine.ops.aten import autocast_linear
from encoder_engine.ops.aten.autocast_linear import NarrowWeights
from encoder_engine.packing import PackedBatch, Sequences, sequences
from encoder_engine.packing.clean import CleanBatch
from encoder_engine.training.pretraining.recipes import RECIPES

if TYPE_CHECKING:
    from collections.abc import Iterator


VOCABULARY = {"vocab_size": 30522, "pad_token_id": 0}
CONFIGS: dict[str, dict[str, Any]] = {
    "base": {**RECIPES["bert_base"]().model.config, **VOCABULARY},
    "large": {**RECIPES["bert_large"]().model.config, **VOCABULARY},
    "modernbert": {**RECIPES["modernbert"]().model.config, "vocab_size": 50368},
}
# They move nothing.
VIEWS = {
    "view",
    "_unsafe_view",
    "t",
    "transpose",
    "split",
    "split_with_sizes",
    "detach",
    "slice",
    "select",
    "expand",
    "permute",
    "alias",
    "unsqueeze",
    "squeeze",
    "unbind",
    "as_strided",
    "reshape",
    "_reshape_alias",
    "empty",
    "new_empty",
    "empty_like",
    "empty_strided",
    "new_empty_strided",
    "device",
    "promote_types",
    "lift_fresh",
}
PRODUCTS = {"mm", "addmm", "bmm"}


class Row(NamedTuple):
    """A kind of call: forward or backward, the operator, and the shapes of its large tensors."""

    phase: str
    operator: str
    shapes: tuple[str, ...]

    @property
    def kind(self) -> str:
        """``gemm``, ``attention``, or the operator's name."""
        if self.operator in PRODUCTS:
            return "gemm"
        return "attention" if self.operator.startswith("attention") else self.operator


class Account(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts calls, bytes and FLOPs of what is computed under it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.phase = "forward"
        self.calls: Counter[Row] = Counter()
        self.bytes: Counter[Row] = Counter()
        self.flops = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        """Count a call."""
        result = function(*arguments, **(keywords or {}))
        name = function._schema.name.split("::")[1]
        if name in VIEWS:
            return result
        read = {id(x): x for x in _tensors((arguments, keywords))}
        moved = [*read.values(), *_tensors(result)]
        row = Row(self.phase, name, tuple(_described(x) for x in moved if x.numel() > 10_000))
        self.calls[row] += 1
        self.bytes[row] += sum(x.numel() * x.element_size() for x in moved)
        if name in PRODUCTS:
            left, right = list(_tensors(arguments))[-2:]
            self.flops += 2 * left.numel() * right.shape[-1]
        return result

    @property
    def traffic(self) -> int:
        """The bytes moved by everything but matrix products and attention."""
        apart = ("gemm", "attention")
        return sum(count for row, count in self.bytes.items() if row.kind not in apart)


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (x for x in tree_leaves(tree) if isinstance(x, torch.Tensor))


def _described(x: torch.Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"


def account(
    config: dict[str, Any],
    *,
    tokens: int,
    length: int,
    residual: torch.dtype = torch.bfloat16,
) -> Account:
    """Account for forward and backward of a masked-language-model step in bfloat16."""
    clean, objective = draw_clean(config["vocab_size"], tokens, length)
    inputs = prepare(clean, [objective], seed=1)
    counted, mode = Account(), FakeTensorMode(allow_non_fake_inputs=True)
    with as_on_a_gpu():
        encoder = Encoder(spec_from_config(config), config=config).train()
        model = PretrainingModel(encoder, [objective])
        parameters: dict[str, torch.Tensor] = {
            name: torch.nn.Parameter(mode.from_tensor(weight.detach()))
            for name, weight in model.named_parameters()
        }
        names = {id(weight): name for name, weight in model.named_parameters()}
        dense = [parameters[names[id(weight)]] for weight in dense_weights(model)]
        narrow = NarrowWeights(dense, torch.bfloat16)
        with mode, counted, narrow.used():
            with registry.residual(residual), torch.autocast("cpu", dtype=torch.bfloat16):
                found = torch.func.functional_call(model, parameters, (inputs,))["mlm"]
            loss = found.total / found.num_terms
            counted.phase = "backward"
            torch.autograd.backward(loss)
    return counted


def draw_clean(vocab_size: int, tokens: int, length: int) -> tuple[CleanBatch, MLM]:
    """Draw sequences of a length, and return the objective that masks them."""
    generator = np.random.default_rng(0)
    offsets = np.arange(0, tokens + 1, length, dtype=np.int32)
    special = np.zeros(tokens, bool)
    special[offsets[:-1]] = special[offsets[1:] - 1] = True
    clean = CleanBatch(
        input_ids=generator.integers(5, vocab_size, tokens).astype(np.int32),
        cu_seqlens=offsets,
        numbers=np.arange(tokens // length, dtype=np.int64),
        special=special,
        word_starts=np.ones(tokens, bool),
    )
    return clean, MLM(masking=Masking(mask_id=4, vocab_size=vocab_size))


@contextlib.contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Choose Triton's kernels, and read the layout of sequences on the host as on a GPU."""
    with contextlib.ExitStack() as changed:
        for name in registry.operations():
            for implementation in registry.find_operation(name).implementations:
                # A frozen dataclass.
                for predicate, value in _choice(implementation.name).items():
                    before = getattr(implementation, predicate)
                    object.__setattr__(implementation, predicate, value)
                    changed.callback(object.__setattr__, implementation, predicate, before)
        for place, name, value in (
            (sequences, "_tiles", _on_host(sequences._tiles)),
            (Sequences, "offsets", property(_on_host(Sequences.__dict__["offsets"].fget))),
            (PackedBatch, "_check_range", _nothing),
            (ops_module("masked_projection"), "_check_values", _nothing),
            (ops_module("rotary"), "_check_positions", _nothing),
            (gpu, "is_gpu", lambda _: True),
            (gpu, "is_by_triton", lambda _: True),
            (autocast_linear, "_product", _wide_product),
        ):
            changed.enter_context(mock.patch.object(place, name, value))
        yield


def ops_module(name: str) -> Any:
    """Return a module of ``ops``, not the function of its name."""
    return sys.modules[f"encoder_engine.ops.{name}"]


def _on_host(function: Any) -> Any:
    """Return a function that computes real values, on the host, where others are fake."""

    def compute(*arguments: Any) -> Any:
        with _disable_current_modes():
            return function(*arguments)

    return compute


def _wide_product(left: torch.Tensor, right: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a matrix product in a dtype: one call, which PyTorch has on a GPU alone."""
    product: torch.Tensor = torch.ops.aten.mm(left, right)
    return product.new_empty(product.shape, dtype=dtype)


def _nothing(*_: object) -> None: ...


def _choice(implementation: str) -> dict[str, Any]:
    if implementation == "triton":
        return {"refuse": lambda _: None, "automatic": lambda _: True}
    if implementation == "native":
        return {"refuse": lambda _: "it computes on the CPU", "automatic": lambda _: False}
    return {}


def main() -> None:
    """Print the account of a model's step."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", choices=CONFIGS)
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--residual", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--shapes", action="store_true", help="list every kind of call")
    options = parser.parse_args()
    found = account(
        CONFIGS[options.model],
        tokens=options.tokens,
        length=options.length,
        residual=getattr(torch, options.residual),
    )
    if options.shapes:
        for row, count in found.bytes.most_common():
            calls = f"{found.calls[row]:4} {row.phase:8} {row.operator}"
            print(f"{count / 1e9:8.3f} GB {calls}", *row.shapes)
    kinds: Counter[tuple[str, str]] = Counter()
    number: Counter[tuple[str, str]] = Counter()
    for row, count in found.bytes.items():
        kinds[row.phase, row.kind] += count
        number[row.phase, row.kind] += found.calls[row]
    for (phase, kind), count in kinds.most_common():
        print(f"{phase:8} {kind:32} {number[phase, kind]:5} calls {count / 1e9:9.3f} GB")
    print(
        f"{sum(number.values())} calls, {found.traffic / 1e9:.1f} GB beside GEMM and attention, "
        f"{found.flops / 1e12:.1f} TFLOP"
    )


if __name__ == "__main__":
    main()
