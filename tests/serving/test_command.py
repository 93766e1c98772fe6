"""``encoder-engine serve`` reads its options, and its exit status says how it ended."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from encoder_engine.cli import cli
from encoder_engine.serving import server as server_module

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what the command would serve."""
    found: dict[str, Any] = {}

    def run(service: Any, **options: Any) -> int:
        found.update(options, service=service)
        return 0

    monkeypatch.setattr(server_module, "run_server", run)
    return found


def invoke(*arguments: str, env: dict[str, str] | None = None) -> Any:
    return CliRunner().invoke(cli, ["serve", *arguments], env=env)


@pytest.mark.parametrize("ending", ["", "S"])
def test_every_option_may_come_from_the_environment(
    tiny_directory: Path, served: dict[str, Any], ending: str
) -> None:
    env = {
        f"ENCODER_ENGINE_MODEL{ending}": f"one={tiny_directory} two={tiny_directory}",
        f"ENCODER_ENGINE_ALLOWED_HOST{ending}": "a.example b.example",
        f"ENCODER_ENGINE_CORS_ORIGIN{ending}": "http://a.example",
        "ENCODER_ENGINE_PORT": "8123",
        "ENCODER_ENGINE_BATCH_MS": "7.5",
        "ENCODER_ENGINE_DRAIN_TIMEOUT": "inf",
        "ENCODER_ENGINE_NO_PAGE": "1",
        "ENCODER_ENGINE_LOG_FORMAT": "text",
    }
    ran = invoke(env=env)
    assert ran.exit_code == 0, ran.output
    assert list(served["service"].models) == ["one", "two"]
    assert served["service"].options.batch_ms == 7.5
    assert served["service"].options.drain_timeout == float("inf")
    assert served["limits"].allowed_hosts == ("a.example", "b.example")
    assert (served["port"], served["page"]) == (8123, False)
    assert served["cors_origins"] == ("http://a.example",)


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (("{0}", "{0}"), "two models are named"),
        (("a={0}", "a={0}"), "two models are named a"),
        (("a=",), "a model is PATH or NAME=PATH"),
        (("={0}",), "a model is PATH or NAME=PATH"),
    ],
)
def test_models_have_different_names(
    tiny_directory: Path, served: dict[str, Any], models: tuple[str, ...], said: str
) -> None:
    arguments = [part for model in models for part in ("-m", model.format(tiny_directory))]
    ran = invoke(*arguments)
    assert ran.exit_code == 2
    assert said in ran.output
    assert not served


def test_a_taken_port_is_a_failure_with_its_reason(tiny_directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = invoke("-m", str(tiny_directory), "--port", port)
    assert ran.exit_code == 1
    assert f"port {port}" in str(ran.exception) + ran.output
