"""Builds wheels for other systems and Pythons on one machine, with Zig's Clang.

``python deploy/wheels/build.py --targets ... --pythons ... --output dist``; see docs/release.md.
The C++ core of a target is compiled once, and its bindings once for each Python. The same commit
gives the same bytes.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
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


# glibc 2.17 is that of manylinux2014. auditwheel reads the tag of a Linux wheel from what it links.
TARGETS = {
    "linux-x86_64": Target(
        zig="x86_64-linux-gnu.2.17",
        platform="linux_x86_64",
        suffix=".cpython-{}-x86_64-linux-gnu.so",
    ),
    "linux-arm64": Target(
        zig="aarch64-linux-gnu.2.17",
        platform="linux_aarch64",
        suffix=".cpython-{}-aarch64-linux-gnu.so",
    ),
    "musllinux-x86_64": Target(
        zig="x86_64-linux-musl",
        platform="linux_x86_64",
        suffix=".cpython-{}-x86_64-linux-musl.so",
    ),
    "musllinux-arm64": Target(
        zig="aarch64-linux-musl",
        platform="linux_aarch64",
        suffix=".cpython-{}-aarch64-linux-musl.so",
    ),
    "macos-arm64": Target(
        zig="aarch64-macos.11.0", platform="macosx_11_0_arm64", suffix=".cpython-{}-darwin.so"
    ),
    "macos-x86_64": Target(
        zig="x86_64-macos.11.0", platform="macosx_11_0_x86_64", suffix=".cpython-{}-darwin.so"
    ),
    "windows-x86_64": Target(
        zig="x86_64-windows-gnu", platform="win_amd64", suffix=".cp{}-win_amd64.pyd"
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
    digits = python.replace(".", "")
    suffix = target.suffix.format(digits)
    settings = {
        "CMAKE_TOOLCHAIN_FILE": Path(__file__).with_name("zig.cmake"),
        "ENCODER_ENGINE_TARGET": target.zig,
        "ENCODER_ENGINE_ZIG": zig(),
        "Python_INCLUDE_DIR": headers(python, folder / "include"),
        "PYTHON_MODULE_EXTENSION": suffix,
        "PYTHON_MODULE_DEBUG_POSTFIX": "",
        "PYTHON_IS_DEBUG": "OFF",
    }
    if target.platform.startswith("win"):
        settings["Python_LIBRARY"] = windows_library(folder / "include" / f"python{python}", digits)
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
    if not target.platform.startswith("linux"):
        return Path(shutil.copy(wheel, output))
    audited = folder / "audited"
    shutil.rmtree(audited, ignore_errors=True)
    command = ["-m", "auditwheel", "repair", "--wheel-dir", str(audited), str(wheel)]
    if target.zig.endswith("musl"):
        # Zig calls musl libc.so. So does musl, whatever its file is called; auditwheel knows
        # Alpine's.
        command.append("--exclude=libc.so")
    run(sys.executable, *command, environment=environment)
    (wheel,) = audited.glob("*.whl")
    return Path(shutil.copy(wheel, output))


def zig() -> Path:
    """Find Zig's program."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise SystemExit("ziglang is not installed; pip install '.[release]' brings it")
    return Path(spec.origin).with_name("zig")


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


def windows_library(folder: Path, digits: str) -> Path:
    """Turn the headers in a folder into those of Windows; return an import library of their names.

    Windows wants to know of each name which DLL holds it, and the headers declare them all.
    """
    shutil.copy2(Path(__file__).with_name("windows-pyconfig.h"), folder / "pyconfig.h")
    code = "".join(path.read_text("utf-8") for path in sorted(folder.rglob("*.h")))
    names = sorted(set(re.findall(r"\bPyAPI_(FUNC|DATA)\([^()]*\)\s*(?:\(\*)?(\w+)", code)))
    lines = [f"{name}{' DATA' * (kind == 'DATA')}\n" for kind, name in names]
    definition, library = folder / "python.def", folder / f"python{digits}.lib"
    definition.write_text(f"LIBRARY python{digits}.dll\nEXPORTS\n{''.join(lines)}", "ascii")
    run(str(zig()), "dlltool", "-m", "i386:x86-64", "-d", str(definition), "-l", str(library))
    return library


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
