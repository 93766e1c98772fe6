"""Measure the host's time of a training step on a GPU, without one: kernels are not launched.

    OMP_NUM_THREADS=1 python -m tests.training.device.host_time --layers 12

How it works: the step of a small model runs on the CPU, whose own operations take little at such
sizes. Triton's launches go as far as its driver, which is replaced by one that starts nothing;
matrix products of dense layers make their results without computing them. CPU time, of one thread.
"""

from __future__ import annotations

import argparse
import os

os.environ["TRITON_INTERPRET"] = "0"
import time
from collections import Counter
from statistics import median
from typing import Any, ClassVar
from unittest import mock

import torch
import torch.nn.functional as F  # noqa: N812
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from encoder_engine import Encoder
from encoder_engine.families.config import spec_from_config
from encoder_engine.models.linear import dense_weights
from encoder_engine.objectives.objective import PretrainingModel, prepare
from encoder_engine.ops import registry
from encoder_engine.ops.aten import autocast_linear
from encoder_engine.ops.aten.autocast_linear import NarrowWeights
from encoder_engine.training.optim import clip_gradient
from tests.training.device.step_account import as_on_a_gpu, draw_clean

VOCABULARY = 128
CONFIG = {
    "model_type": "bert",
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_attention_heads": 1,
    "intermediate_size": 64,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "pad_token_id": 0,
}
WARM_UPS = 5


class Utilities:
    """Answers Triton's questions about the device."""

    def get_device_properties(self, _device: int) -> dict[str, int]:
        """Return those of an H200."""
        return {"max_shared_mem": 232448, "multiprocessor_count": 132, "warpSize": 32}


class Driver:
    """A driver of an H200 that starts nothing."""

    utils = Utilities()

    def get_current_device(self) -> int:
        """Return the number of the only device."""
        return 0

    def get_current_stream(self, _device: int) -> int:
        """Return the default stream."""
        return 0

    def get_current_target(self) -> GPUTarget:
        """Return what kernels are compiled for."""
        return GPUTarget("cuda", 90, 32)


class Kernel:
    """A compiled kernel, whose launches are counted."""

    function, packed_metadata = 0, (4, 1, 0)
    launches: ClassVar[Counter[str]] = Counter()

    def __init__(self, name: str) -> None:
        self.name = name

    def launch_metadata(self, *_: object) -> None:
        """Return nothing: no profiler listens."""

    def run(self, *_: object) -> None:
        """Count a launch."""
        self.launches[self.name] += 1


def not_compiled(self: Any, key: Any, _signature: Any, device: int, *_: object) -> Kernel:
    """Take the place of a compilation."""
    kernel = Kernel(self.fn.__name__)
    self.device_caches[device][0][key] = kernel
    return kernel


def not_multiplied(
    left_TK: torch.Tensor, weight_NK: torch.Tensor, _bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Take the place of a dense layer."""
    return left_TK.new_empty(len(left_TK), len(weight_NK))


def no_product(left: torch.Tensor, right: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Take the place of a gradient's product."""
    return left.new_empty(len(left), right.shape[1], dtype=dtype)


def measure(layers: int, dropout: float, steps: int) -> dict[str, float]:
    """Return the milliseconds of each part of a step, their medians over steps."""
    clean, objective = draw_clean(VOCABULARY, tokens=32, length=16)
    drops = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    config = {**CONFIG, **drops, "num_hidden_layers": layers}
    driver.set_active(Driver())
    with (
        as_on_a_gpu(),
        mock.patch.object(JITFunction, "_do_compile", not_compiled),
        mock.patch.object(F, "linear", not_multiplied),
        mock.patch.object(autocast_linear, "_product", no_product),
    ):
        model = PretrainingModel(
            Encoder(spec_from_config(config), config=config).train(), [objective]
        )
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        narrow = NarrowWeights(dense_weights(model), torch.bfloat16)
        parts: dict[str, list[float]] = {}
        for step in range(WARM_UPS + steps):
            clocks = [time.process_time()]
            inputs = prepare(clean, [objective], seed=step)
            clocks.append(time.process_time())
            with narrow.used():
                with (
                    registry.residual(torch.bfloat16),
                    torch.autocast("cpu", dtype=torch.bfloat16),
                ):
                    found = model(inputs)["mlm"]
                    loss = found.total / found.num_terms
                clocks.append(time.process_time())
                torch.autograd.backward(loss)
                clocks.append(time.process_time())
            clip_gradient(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            clocks.append(time.process_time())
            if step < WARM_UPS:
                continue
            for name, before, after in zip(
                ("inputs", "forward", "backward", "update"), clocks, clocks[1:], strict=False
            ):
                parts.setdefault(name, []).append((after - before) * 1e3)
    return {name: median(taken) for name, taken in parts.items()}


def main() -> None:
    """Print the milliseconds of each part."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(options.layers, options.dropout, options.steps)
    for name, taken in found.items():
        print(f"{name:9} {taken:7.2f} ms")
    launches = sum(Kernel.launches.values()) / (WARM_UPS + options.steps)
    print(
        f"sum       {sum(found.values()):7.2f} ms, {launches:.0f} launches of Triton's, "
        f"Triton {triton.__version__}, PyTorch {torch.__version__}"
    )


if __name__ == "__main__":
    main()
