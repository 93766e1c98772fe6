"""The core under Clang, and for a processor whose Python is not at hand."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CLANGS = ("clang++", *(f"clang++-{version}" for version in range(14, 23)))
CROSS = "aarch64-linux-gnu-g++"
EMULATOR = "qemu-aarch64"
LIBRARIES = "/usr/aarch64-linux-gnu"


def run(*command: str) -> str:
    """Run a command; its output is shown where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def need(*tools: str) -> None:
    """Skip where a program is missing."""
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def oldest_clang() -> str:
    """Give the name of the oldest Clang there is."""
    found = [name for name in (*CLANGS[1:], CLANGS[0]) if shutil.which(name)]
    if not found:
        pytest.skip("there is no Clang from version 14 on")
    return found[0]


def write_toolchain(folder: Path) -> Path:
    """Write what CMake must know of the other processor."""
    path = folder / "aarch64.cmake"
    path.write_text(
        "set(CMAKE_SYSTEM_NAME Linux)\n"
        "set(CMAKE_SYSTEM_PROCESSOR aarch64)\n"
        f"set(CMAKE_CXX_COMPILER {CROSS})\n"
        f"set(CMAKE_FIND_ROOT_PATH {LIBRARIES})\n"
    )
    return path


def build(folder: Path, *options: str) -> Path:
    """Build the unit tests; their warnings are errors."""
    need("cmake", "ninja")
    named = [f"-DENCODER_ENGINE_{name}=ON" for name in ("TESTS", "WERROR")]
    run("cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", *named, *options)
    run("cmake", "--build", str(folder), "--parallel", "2", "--target", "encoder_engine_tests")
    return folder / "csrc" / "tests" / "encoder_engine_tests"


def test_no_compiler_is_asked_what_the_processor_has() -> None:
    """Clang knows few features by name, and fails on the others."""
    for path in (ROOT / "csrc").rglob("*.cpp"):
        assert not re.search(r"__builtin_cpu_\w+\(", path.read_text(encoding="utf-8")), path


def test_clang_takes_the_features_of_the_processor() -> None:
    source = ROOT / "csrc" / "common" / "cpu_features.cpp"
    flags = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{ROOT / 'csrc'}")
    run(oldest_clang(), *flags, str(source))


def test_another_processor_is_configured_without_its_python(tmp_path: Path) -> None:
    need("cmake", "ninja", CROSS)
    toolchain = f"-DCMAKE_TOOLCHAIN_FILE={write_toolchain(tmp_path)}"
    run("cmake", "-S", str(ROOT), "-B", str(tmp_path / "build"), "-G", "Ninja", toolchain)


@pytest.mark.exhaustive
def test_unit_tests_pass_under_clang(tmp_path: Path) -> None:
    options = (f"-DCMAKE_CXX_COMPILER={oldest_clang()}", "-DENCODER_ENGINE_BINDINGS=OFF")
    assert run(str(build(tmp_path, *options))).strip() == "ok"


@pytest.mark.exhaustive
def test_unit_tests_pass_on_another_processor(tmp_path: Path) -> None:
    need(CROSS, EMULATOR)
    toolchain = f"-DCMAKE_TOOLCHAIN_FILE={write_toolchain(tmp_path)}"
    program = build(tmp_path / "build", toolchain)
    assert run(EMULATOR, "-L", LIBRARIES, str(program)).strip() == "ok"
