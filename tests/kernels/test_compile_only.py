"""The operators compile for GPUs that are not here, by the code of a real launch.

An int of 1, an empty sequence, a head of 24: a launch compiles for its arguments, which neither the
interpreter nor the table of tests/kernels/ahead_of_time.py sees.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

triton = pytest.importorskip("triton", reason="triton is not installed")
CHECK = "tests.kernels.first_checks"


def compile_only(*arguments: str, seconds: int = 600) -> tuple[int, str]:
    """Run a module by the driver, in a process: in this one Triton may be interpreting."""
    command = [sys.executable, "-m", "tests.kernels.compile_only", *arguments]
    # The driver chooses for itself.
    plain = {name: x for name, x in os.environ.items() if not name.startswith("TRITON_INTERPRET")}
    ran = subprocess.run(
        command, cwd=ROOT, env=plain, capture_output=True, text=True, timeout=seconds, check=False
    )
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", ["80", "90"])
def test_attention_of_one_token_compiles_with_its_gradients(target: str) -> None:
    code, printed = compile_only("--target", target, CHECK, "--lengths", "1", "0")
    assert code == 0, printed
    assert " kernels, " in printed


@pytest.mark.exhaustive
@pytest.mark.parametrize("head_dim", [64, 128])
def test_attention_in_gluon_compiles_with_the_gradients_of_the_other_kernels(head_dim: int) -> None:
    code, printed = compile_only(
        CHECK, "--head-dim", str(head_dim), "--gluon", "128", "--lengths", "300", "0", "77"
    )
    assert code == 0, printed
    # Forward, delta, and two of gradients; a call that is refused launches nothing.
    assert "4 kernels, 4 launches" in printed


@pytest.mark.parametrize(
    "lengths", [("300", "0", "77"), pytest.param(("600", "1"), marks=pytest.mark.exhaustive)]
)
def test_the_gradients_in_gluon_compile(lengths: tuple[str, ...]) -> None:
    code, printed = compile_only(CHECK, "--gluon-gradients", "--gluon", "64", "--lengths", *lengths)
    assert code == 0, printed
    # Forward, delta, and one of all gradients.
    assert "3 kernels, 3 launches" in printed


def test_layer_norm_with_dropout_compiles_and_reads_whole_vectors() -> None:
    code, printed = compile_only(CHECK, "--norm", "0.1")
    assert code == 0, printed


@pytest.mark.exhaustive
@pytest.mark.parametrize("head_dim", ["32", "64", "128"])
@pytest.mark.parametrize("dropout", ["0", "0.1"])
def test_attention_multiplies_by_wgmma_with_and_without_dropout(
    head_dim: str, dropout: str
) -> None:
    code, printed = compile_only(CHECK, "--head-dim", head_dim, "--dropout", dropout)
    assert code == 0, printed


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", ["80", "90"])
def test_every_test_of_the_operators_compiles(target: str) -> None:
    code, printed = compile_only(
        "--target", target, "pytest", "-q", "tests/ops", "tests/test_packing.py", seconds=7200
    )
    assert code == 0, printed[-4000:]


BROKEN = """
import torch, triton, triton.language as tl

@triton.jit
def _broken_kernel(x_pointer, number, SIZE: tl.constexpr):
    tl.store(x_pointer + tl.arange(0, SIZE), number.to(tl.int64))

def launch(number, grid=1, size=16):
    _broken_kernel[(grid,)](torch.zeros(size, dtype=torch.int64), number, SIZE=size)
"""


def test_what_is_wrong_with_a_launch_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = "launch(7)\nlaunch(7, grid=0)\nlaunch(7, grid=2**31)\nlaunch(1)\n"
    (tmp_path / "broken.py").write_text(f"{BROKEN}\n{calls}", encoding="utf-8")
    folders = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))
    code, printed = compile_only("broken")
    assert code == 1, printed
    assert "_broken_kernel: its grid is (0, 1, 1)" in printed
    assert "_broken_kernel: its grid is (2147483648, 1, 1)" in printed
    # An int of 1 is a constant, which has no ``to``.
    assert "_broken_kernel: CompilationError" in printed
    assert "2 kernels, 3 launches" in printed


def test_slow_code_is_reported() -> None:
    # Imported late: it makes Triton compile where it is imported first.
    script = (
        "from tests.kernels import compile_only as c, sass\n"
        "from dataclasses import replace\n"
        "found = c.Found()\n"
        "facts = c.Facts(shape='d64', is_half=True, is_aligned=True, head_dim=64)\n"
        "plain = sass.count('')\n"
        "for module, figures in (\n"
        "    ('attention', replace(plain, wgmma=16, groups=16)),\n"
        "    ('attention', replace(plain, mma_sync=4)),\n"
        "    ('layer_norm', replace(plain, narrow_loads=3)),\n"
        "    ('attention', replace(plain, narrow_loads=3)),\n"
        "):\n"
        "    c.check_code(found, 'kernel', module, figures, facts, 90)\n"
        "print(found.problems)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.stdout.count("kernel (d64)") == 3, ran.stdout + ran.stderr
    assert "C7515" in ran.stdout
    assert "4 of its products are mma.sync" in ran.stdout
    assert "3 loads are of two bytes or one" in ran.stdout
