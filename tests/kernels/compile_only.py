"""Runs a module with a Triton driver that compiles for a GPU that is not here and launches nothing.

``python -m tests.kernels.compile_only --target 90 pytest -q tests/ops``: everything runs up to the
launch, by the code of a real launch: specialisation of the arguments (an int of 1 is a constant),
compilation, shared memory. Then nothing is launched, so outputs hold arbitrary numbers, what a test
concludes from them is ignored, and what the driver found wrong fails it:

- a kernel that does not compile, or needs more shared memory than the GPU has;
- a grid that is empty or larger than the GPU takes;
- wgmma that ptxas serialises (C7515), and on Hopper products by the older ``mma.sync``;
- in a kernel bound by memory, loads of two bytes or one where every row is aligned.

``--count``: compile nothing, only count the distinct kernels that would be. The last line printed
is ``N kernels, M launches``. The exit code is 1 where something was found.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

# Before Triton is imported. A GPU, where there is one, is not touched.
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["TRITON_INTERPRET"] = "0"
# Nobody debugs what is compiled here: lines are left out.
os.environ.setdefault("TRITON_DISABLE_LINE_INFO", "1")
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import pytest
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from tests.kernels import sass

if TYPE_CHECKING:
    from collections.abc import Generator

# Shared memory that a program may have, in bytes, by compute capability.
SHARED_BYTES = {80: 166_912, 89: 101_376, 90: 232_448}
MOST_PROGRAMS = (2**31 - 1, 65_535, 65_535)
# Kernels of these folders are bound by memory.
BOUND_BY_MEMORY = ("layer_norm", "activation", "embedding", "pooling", "rotary")
# Heads of more would spill at the 64 rows that a wgmma takes.
WIDEST_WGMMA_HEAD = 128
NUM_THREADS = 1024


@dataclass
class Found:
    """What the driver saw: distinct kernels by name, launches, and what is wrong."""

    kernels: Counter[str] = field(default_factory=Counter)
    num_launches: int = 0
    problems: list[str] = field(default_factory=list)

    def report(self, kernel: str, what: str) -> None:
        """Note what is wrong with a kernel, once."""
        problem = f"{kernel}: {what}"
        if problem not in self.problems:
            self.problems.append(problem)


class _Utils:
    """Loads and describes, as the driver's part in C does."""

    def __init__(self, target: int) -> None:
        self._target = target

    def get_device_properties(self, _: int) -> dict[str, int]:
        return {
            "max_shared_mem": SHARED_BYTES[self._target],
            "multiprocessor_count": 132,
            "warpSize": 32,
            "max_num_regs": 65_536,
        }

    def load_binary(self, *_: object) -> tuple[int, int, int, int, int]:
        return 0, 0, 0, 0, NUM_THREADS


class Driver:
    """What Triton asks of a driver."""

    def __init__(self, target: int, found: Found) -> None:
        self._target, self._found = target, found
        self.utils = _Utils(target)

    def launcher_cls(self, source: Any, _: Any) -> Any:
        """Return what stands for the launch of a kernel."""
        name = source.fn.__name__
        return lambda *arguments: check_grid(self._found, name, arguments[:3])

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, _: int) -> None:
        pass

    def get_current_stream(self, _: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._target, 32)


def check_grid(found: Found, kernel: str, grid: tuple[int, ...]) -> None:
    """Report a grid that launches nothing or more than a GPU takes."""
    found.num_launches += 1
    if any(not 0 < size <= most for size, most in zip(grid, MOST_PROGRAMS, strict=True)):
        found.report(kernel, f"its grid is {grid}")


def check_code(
    found: Found, kernel: str, module: str, figures: sass.Figures, facts: Facts, target: int
) -> None:
    """Report products and loads that are slower than they need be."""
    where = f"{kernel} ({facts.shape})"
    if figures.serialised:
        found.report(where, "ptxas serialises its wgmma (C7515)")
    possible = facts.is_half and facts.head_dim <= WIDEST_WGMMA_HEAD
    if target == 90 and figures.mma_sync and possible:
        found.report(where, f"{figures.mma_sync} of its products are mma.sync, not wgmma")
    if module in BOUND_BY_MEMORY and facts.is_aligned and figures.narrow_loads:
        found.report(where, f"{figures.narrow_loads} loads are of two bytes or one")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a kernel was compiled for: half precision, whole 16-byte rows, its head's size."""

    shape: str
    is_half: bool
    is_aligned: bool
    head_dim: int

    @classmethod
    def of(cls, source: Any) -> Facts:
        """Read them off a source: its constants and the types of its arguments."""
        names = source.fn.arg_names
        constants = {names[path[0]]: value for path, value in source.constants.items()}
        types = [kind for kind in source.signature.values() if str(kind).startswith("*")]
        aligned = {path[0] for path in source.attrs}
        pointers = [n for n, kind in enumerate(source.signature.values()) if kind in types]
        width = constants.get("WIDTH", constants.get("HALF", 0))
        shape = ", ".join(f"{k}={v}" for k, v in constants.items() if isinstance(v, int | str))
        return cls(
            shape=shape,
            is_half=not any(kind == "*fp32" for kind in types[:1]),
            is_aligned=width > 0 and width % 64 == 0 and aligned.issuperset(pointers),
            head_dim=constants.get("HEAD_DIM", 0),
        )


def install(target: int, *, compiles: bool = True) -> Found:
    """Make Triton compile for ``target`` (90 is sm_90) and launch nothing, in this process.

    Kernels then take tensors of a CPU.
    """
    found = Found()
    driver.set_active(Driver(target, found))
    compile_kernel = JITFunction._do_compile

    def do_compile(self: Any, key: str, signature: Any, device: int, *rest: Any) -> Any:
        name = self.fn.__name__
        found.kernels[name] += 1
        if not compiles:
            kernel = self.device_caches[device][0][key] = _Uncompiled(found, name)
            return kernel
        try:
            kernel = compile_kernel(self, key, signature, device, *rest)
            _ = kernel.run
        except Exception as error:
            last = str(error).strip().splitlines()[-1:]
            found.report(name, f"{type(error).__name__}: {''.join(last)}")
            raise
        figures = sass.count(sass.disassemble(kernel.asm["cubin"]))
        module = self.module.split(".")[-2:][0]
        check_code(found, name, module, figures, Facts.of(kernel.src), target)
        return kernel

    JITFunction._do_compile = do_compile
    from encoder_engine.kernels.common import launch

    from encoder_engine.ops import gpu
    from tests.ops import cases

    launch.is_hopper = lambda _: target >= 90
    launch.has_wgmma = lambda _: target == 90
    gpu.interpreted = lambda: True
    # What only the interpreter cannot do, or not in time.
    vars(cases).update(MATRIX_PRODUCTS=(), too_slow=lambda *_: None)
    return found


class _Uncompiled:
    """A kernel that was not compiled."""

    function = 0
    packed_metadata = ()

    def __init__(self, found: Found, name: str) -> None:
        self._found, self._name = found, name

    def launch_metadata(self, *_: object) -> None:
        return None

    def run(self, *arguments: Any) -> None:
        check_grid(self._found, self._name, arguments[:3])


class Plugin:
    """Runs the tests of the kernels alone, and fails them by what the driver found."""

    def __init__(self, found: Found) -> None:
        self._found = found

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        from tests.selection import parameters

        chosen = [item for item in items if "triton" in parameters(item).values()]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        before = len(self._found.problems)
        # Nothing was computed: whatever is concluded from that is no failure.
        with suppress(Exception):
            yield
        new = self._found.problems[before:]
        if new:
            pytest.fail("\n".join(new), pytrace=False)


def _stub_comparisons() -> None:
    """Let comparisons run ours alone, forward and backward: there is nothing to compare."""
    import torch

    from tests.ops import compare

    def run(ours: Any, _eager: Any, _truth: Any, inputs: dict[str, Any], **_: Any) -> None:
        leaves = {name: x.detach().clone().requires_grad_() for name, x in inputs.items()}
        outputs = ours(**leaves)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        torch.autograd.backward([x for x in outputs if x.requires_grad], [
            torch.ones_like(x) for x in outputs if x.requires_grad
        ])  # fmt: skip

    def run_outputs(ours: Any, _eager: Any, _truth: Any, inputs: dict[str, Any], **_: Any) -> None:
        with torch.inference_mode():
            ours(**inputs)

    vars(compare).update(compare=run, compare_outputs=run_outputs)


def main() -> int:
    """Install the driver, run the module, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, prog="python -m tests.kernels.compile_only"
    )
    parser.add_argument("--target", type=int, choices=sorted(SHARED_BYTES), default=90)
    parser.add_argument("--count", action="store_true")
    parser.add_argument("module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    found = install(given.target, compiles=not given.count)
    _stub_comparisons()
    if given.module == "pytest":
        pytest.main(["-p", "no:cacheprovider", *given.arguments], plugins=[Plugin(found)])
    else:
        sys.argv = [given.module, *given.arguments]
        try:
            runpy.run_module(given.module, run_name="__main__", alter_sys=True)
        except SystemExit:
            pass
        except Exception as error:
            sys.stdout.write(f"stopped: {type(error).__name__}: {str(error)[:200]}\n")
    for problem in found.problems:
        sys.stdout.write(f"{problem}\n")
    sys.stdout.write(f"{found.kernels.total()} kernels, {found.num_launches} launches\n")
    return int(bool(found.problems))


if __name__ == "__main__":
    sys.exit(main())
