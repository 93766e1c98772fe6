"""The pinned versions install on every supported platform and Python, from PyPI alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import ROOT

# PyPI's own index and nothing that this machine may have besides: no folder, mirror or CPU build.
OWN = ("PIP_", "UV_")
PLATFORMS = {
    "x86_64-manylinux_2_28": {},
    "aarch64-manylinux_2_28": {},
    # torch's wheels ask for macOS 14.
    "aarch64-apple-darwin": {"MACOSX_DEPLOYMENT_TARGET": "14.0"},
    "x86_64-pc-windows-msvc": {},
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("platform", PLATFORMS)
def test_pins_resolve(platform: str, python: str) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(OWN)}
    certificates = os.environ.get("PIP_CERT")
    if certificates:
        environment["SSL_CERT_FILE"] = certificates
    command = [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "--no-config"]
    command += ["--quiet", "--extra", "torch", "--extra", "dev", "-c", "constraints.txt"]
    command += ["--python-platform", platform, "--python-version", python]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment | PLATFORMS[platform],
        capture_output=True,
        text=True,
        check=False,
    )
    if any(word in done.stderr for word in ("error sending request", "dns error", "timed out")):
        pytest.skip(f"the package index does not answer: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    pins = {line for line in (ROOT / "constraints.txt").read_text().split() if "==" in line}
    resolved = {word for word in done.stdout.split() if "==" in word}
    assert {pin for pin in resolved if pin.startswith(("torch==", "transformers=="))} <= pins
    assert any(word.startswith("torch==") for word in resolved)
