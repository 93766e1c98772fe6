"""Builds wheels for other systems and Pythons on one machine, with Zig's Clang.

``python deploy/wheels/build.py --targets ... --pythons ... --output dist``; see docs/release.md.
The C++ core of a target is compiled once, and its bindings once for each Python. The same commit
gives the same bytes.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A system and processor, as Zig and the names of wheels and extensions call it."""

    zig: str
    platform: str
    suffix: str


# glibc 2.17 is that of manylinux2014; auditwheel reads the tag from what a wheel links.
TARGETS = {
    "linux-x86_64": Target(
        zig="x86_64-linux-gnu.2.17", platform="linux_x86_64", suffix="x86_64-linux-gnu"
    ),
    "linux-arm64": Target(
        zig="aarch64-linux-gnu.2.17", platform="linux_aarch64", suffix="aarch64-linux-gnu"
    ),
}


def main(arguments: list[str] | None = None) -> None:
    """Build each target for each Python."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--pythons", nargs="+", choices=PYTHONS, default=list(PYTHONS))
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "wheels")
    chosen = parser.parse_args(arguments)
    chosen.output.mkdir(parents=True, exist_ok=True)
    for name in chosen.targets:
        for python in chosen.pythons:
            wheel = build(TARGETS[name], python, chosen.build / name, chosen.output)
            print(f"{wheel.name}  {wheel.stat().st_size / 1e6:.2f} MB", flush=True)


def build(target: Target, python: str, folder: Path, output: Path) -> Path:
    """Build one wheel into ``output``; ``folder`` keeps the compiled core for the next Python."""
    zig = importlib.util.find_spec("ziglang")
    if zig is None or zig.origin is None:
        raise SystemExit("ziglang is not installed; pip install '.[release]' brings it")
    digits = python.replace(".", "")
    suffix = f".cpython-{digits}-{target.suffix}.so"
    settings = {
        "CMAKE_TOOLCHAIN_FILE": Path(__file__).with_name("zig.cmake"),
        "ENCODER_ENGINE_TARGET": target.zig,
        "ENCODER_ENGINE_ZIG": Path(zig.origin).with_name("zig"),
        "Python_INCLUDE_DIR": headers(python, folder / "include"),
        "PYTHON_MODULE_EXTENSION": suffix,
        "PYTHON_MODULE_DEBUG_POSTFIX": "",
        "PYTHON_IS_DEBUG": "OFF",
    }
    environment = os.environ | {
        "CMAKE_ARGS": " ".join(f"'-D{name}={value}'" for name, value in settings.items()),
        "SETUPTOOLS_EXT_SUFFIX": suffix,
        "SOURCE_DATE_EPOCH": run("git", "log", "-1", "--format=%ct").strip(),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    made = folder / "wheel"
    shutil.rmtree(made, ignore_errors=True)
    os.umask(0o022)
    # One name of the build's folder for all Pythons: the core is not compiled again.
    command = ["setup.py", "--quiet", "build", f"--build-base={folder}", f"--build-temp={folder}"]
    command += ["bdist_wheel", f"--dist-dir={made}", f"--bdist-dir={folder / 'packed'}"]
    run(sys.executable, *command, environment=environment)
    (untagged,) = made.glob("*.whl")
    tags = [f"--python-tag=cp{digits}", f"--abi-tag=cp{digits}"]
    tags += [f"--platform-tag={target.platform}", "--remove", str(untagged)]
    run(sys.executable, "-m", "wheel", "tags", *tags, environment=environment)
    (wheel,) = made.glob("*.whl")
    audited = folder / "audited"
    shutil.rmtree(audited, ignore_errors=True)
    command = ["-m", "auditwheel", "repair", "--wheel-dir", str(audited), str(wheel)]
    run(sys.executable, *command, environment=environment)
    (wheel,) = audited.glob("*.whl")
    return Path(shutil.copy(wheel, output))


def headers(python: str, folder: Path) -> Path:
    """Copy a Python's headers, of PYTHON_HEADERS, pyenv or the system, into a folder of their own.

    Debian's configuration header is apart from them, beside headers of this machine's C library.
    """
    name = f"python{python}"
    places = [Path(place) for place in os.environ.get("PYTHON_HEADERS", "").split(os.pathsep)]
    places += sorted(Path.home().glob(f".pyenv/versions/{python}.*/include"), reverse=True)
    places += [Path("/usr/local/include"), Path("/usr/include")]
    for place in places:
        if (place / name / "Python.h").is_file():
            shutil.copytree(place / name, folder / name, dirs_exist_ok=True)
            for config in place.glob(f"*-linux-gnu/{name}/pyconfig.h"):
                shutil.copy2(config, folder / name)
            return folder / name
    raise SystemExit(
        f"the headers of Python {python} are not here; install it with its headers, set "
        f"PYTHON_HEADERS to a folder that holds {name}/Python.h, or choose others by --pythons"
    )


def run(*command: str, environment: dict[str, str] | None = None) -> str:
    """Run a command in the checkout; raise with its output where it fails."""
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
