"""The core under sanitizers: its unit tests, and a short run of every fuzz target."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
TARGETS = sorted(path.stem for path in (ROOT / "csrc" / "fuzz").glob("fuzz_*.cpp"))
SECONDS = 7


def why_not() -> str | None:
    """Return the reason why nothing can be built here, or None."""
    for tool in ("cmake", "ninja"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        return "there is no C++ compiler"
    return None


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build everything with AddressSanitizer and UndefinedBehaviorSanitizer."""
    names = ["encoder_engine_tests", *(f"{target}_standalone" for target in TARGETS)]
    return build_with("address,undefined", names, tmp_path_factory.mktemp("sanitized"))


def build_with(sanitizers: str, names: list[str], folder: Path) -> Path:
    """Build programs under sanitizers."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    import pybind11

    settings = {
        "CMAKE_BUILD_TYPE": "RelWithDebInfo",
        "CMAKE_CXX_FLAGS_RELWITHDEBINFO": "-O1 -g1",
        "ENCODER_ENGINE_FUZZ": "ON",
        "ENCODER_ENGINE_TESTS": "ON",
        "ENCODER_ENGINE_SANITIZE": sanitizers,
        "Python_EXECUTABLE": sys.executable,
        "pybind11_DIR": pybind11.get_cmake_dir(),
    }
    options = [f"-D{name}={value}" for name, value in settings.items()]
    run("cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", *options)
    run("cmake", "--build", str(folder), "--parallel", "2", "--target", *names)
    return folder


def run(*command: str, folder: Path | None = None) -> str:
    """Run a command; its output is shown where it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def test_unit_tests_pass_under_sanitizers(build: Path) -> None:
    assert run(str(build / "csrc" / "tests" / "encoder_engine_tests")).strip() == "ok"


def test_threads_pass_under_thread_sanitizer(tmp_path: Path) -> None:
    build = build_with("thread", ["encoder_engine_tests"], tmp_path)
    program = str(build / "csrc" / "tests" / "encoder_engine_tests")
    assert run(program, "threads").strip() == "ok"


@pytest.mark.parametrize("target", TARGETS)
def test_a_short_run_of_a_fuzz_target_finds_nothing(
    build: Path, tmp_path: Path, target: str
) -> None:
    seeds = tmp_path / "seeds"
    run(sys.executable, str(ROOT / "csrc" / "fuzz" / "make_seeds.py"), str(seeds))
    program = str(build / "csrc" / "fuzz" / f"{target}_standalone")
    found = run(program, "--seconds", str(SECONDS), str(seeds), folder=tmp_path)
    executions = int(found.splitlines()[-1].split()[0])
    assert executions > len(list(seeds.iterdir()))
    assert found.endswith("executions, nothing found\n")


def test_a_fuzz_target_says_what_it_takes(build: Path) -> None:
    program = str(build / "csrc" / "fuzz" / f"{TARGETS[0]}_standalone")
    for arguments in (["--seconds", "x"], ["--other", "1"], ["no-such-file"]):
        done = subprocess.run([program, *arguments], capture_output=True, check=False)
        assert done.returncode == 2
