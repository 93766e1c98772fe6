"""Builds encoder_engine._native with CMake and maps kernels/ to encoder_engine.kernels."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import OptionError

ROOT = Path(__file__).parent.resolve()


class PythonBuild(build_py):
    """Copy the modules of today: setuptools leaves those of an earlier build, deleted since."""

    def run(self) -> None:
        """Remove what an earlier build left, then copy."""
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib), ignore_errors=True)
        super().run()


class CMakeBuild(build_ext):
    """Let CMake compile the one extension; setuptools only says where it goes."""

    def build_extension(self, ext: Extension) -> None:
        """Configure and build the target named like the extension's last part."""
        import pybind11

        output = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        build = Path(self.build_temp).resolve() / ext.name
        build.mkdir(parents=True, exist_ok=True)
        # What an earlier build was given does not hold for this one.
        (build / "CMakeCache.txt").unlink(missing_ok=True)
        configure = [
            "cmake",
            *("-S", str(ROOT), "-B", str(build)),
            *_asked_for(),
            f"-DCMAKE_BUILD_TYPE={'Debug' if self.debug else 'Release'}",
            f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={output}",
            "-DENCODER_ENGINE_BINDINGS=ON",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
        ]
        ninja = shutil.which("ninja")
        if ninja:
            # Named each time: an isolated build's ninja is gone by the next one.
            configure += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
        target = ext.name.rpartition(".")[2]
        subprocess.run(configure, check=True)
        subprocess.run(
            ["cmake", "--build", str(build), "--target", target, "--parallel"], check=True
        )


def _asked_for() -> list[str]:
    given = os.environ.get("CMAKE_ARGS", "")
    try:
        return shlex.split(given)
    except ValueError as error:
        raise OptionError(f"CMAKE_ARGS holds no options for CMake, {error}: {given}") from error


# kernels/ has no __init__.py of its own: a PyPI package of that name exists, and the repository
# root is on sys.path under pytest and python -m.
FOLDERS = [path.parent.relative_to(ROOT) for path in sorted(ROOT.glob("kernels/**/__init__.py"))]
KERNELS = {f"encoder_engine.{'.'.join(folder.parts)}": folder.as_posix() for folder in FOLDERS}

setup(
    packages=[*find_packages(include=["encoder_engine", "encoder_engine.*"]), *KERNELS],
    package_dir=KERNELS,
    ext_modules=[Extension("encoder_engine._native", sources=[])],
    cmdclass={"build_py": PythonBuild, "build_ext": CMakeBuild},
)
