"""The wheel holds one top-level package, kernels and extension included, and works by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.architecture.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

SCRIPT = """
import encoder_engine as ee, torch
from encoder_engine import _native
assert "site" in ee.__file__, ee.__file__
x = torch.randn(4, 2, 8)
layout = ee.Sequences.from_lengths([1, 3])
truth = ee.ops.attention(x, x, x, layout, implementation="reference")
assert torch.allclose(ee.ops.attention(x, x, x, layout), truth, atol=1e-5)
print(_native.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    # Without isolation the build uses what this environment has; a build in isolation is what
    # the README's commands do.
    pytest.importorskip("pybind11", reason="the build tools are not in this environment")
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    environment = os.environ | {"PATH": f"{ROOT}:{os.environ['PATH']}"}
    environment["PATH"] = f"{os.path.dirname(sys.executable)}:{environment['PATH']}"  # noqa: PTH120
    # The wheel is looked into and called once: optimizing it would be most of the time.
    given = os.environ.get("CMAKE_ARGS", "")
    environment["CMAKE_ARGS"] = f"{given} '-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG'"
    subprocess.run(
        [*build, "--quiet", "--wheel-dir", str(target), str(ROOT)], check=True, env=environment
    )
    (found,) = target.glob("*.whl")
    return found


def test_the_wheel_installs_one_top_level_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"encoder_engine"}


def test_the_wheel_holds_every_module_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    here = {path.relative_to(ROOT).as_posix() for path in (ROOT / "encoder_engine").rglob("*.py")}
    here |= {
        f"encoder_engine/{path.relative_to(ROOT)}" for path in (ROOT / "kernels").rglob("*.py")
    }
    packed = {name for name in names if name.endswith(".py")}
    assert packed == here
    assert any(name.startswith("encoder_engine/_native") and name.endswith(".so") for name in names)
    assert {"encoder_engine/py.typed", "encoder_engine/_native.pyi"} <= names


def test_the_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    environment = os.environ | {"PYTHONPATH": str(site)}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert str(site) in ran.stdout


def test_the_source_distribution_holds_what_a_build_needs(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    files = [path for end in ("cpp", "h") for path in (ROOT / "csrc").rglob(f"*.{end}")]
    files += (ROOT / "kernels").rglob("*.py")
    needed = {path.relative_to(ROOT).as_posix() for path in files}
    assert needed | {"CMakeLists.txt", "setup.py", "pyproject.toml"} <= names


def test_torch_is_no_build_requirement() -> None:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert not any("torch" in need for need in settings["build-system"]["requires"])
