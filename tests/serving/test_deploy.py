"""Deployment files agree with the server, and systemd is told what it waits for."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from typing import TYPE_CHECKING

import pytest
import yaml

from encoder_engine import quota as quota_module
from encoder_engine.cli.serve import serve
from encoder_engine.serving.http.app import asgi_app
from encoder_engine.serving.notify import Notifier
from encoder_engine.serving.options import ServingOptions
from encoder_engine.serving.service import Service
from encoder_engine.serving.threads import available_threads
from tests import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from encoder_engine.embedding import Embedder

DEPLOY = ROOT / "deploy"


def known_variables() -> set[str]:
    """Return the variables that the command reads."""
    names = {f"ENCODER_ENGINE_{str(option.name).upper()}" for option in serve.params}
    for option in serve.params:
        found = option.envvar or ()
        names |= {found} if isinstance(found, str) else set(found)
    return names


def test_every_variable_is_an_option() -> None:
    for path in (path for path in DEPLOY.iterdir() if path.is_file()):
        named = set(re.findall(r"ENCODER_ENGINE_[A-Z_]+", path.read_text("utf-8")))
        assert named <= known_variables(), path.name


def test_probes_are_routes_and_the_grace_covers_the_end(tiny: Embedder) -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8")))
    pod = documents[0]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    routes = asgi_app(Service({"tiny": tiny})).routes
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert ("GET", container[probe]["httpGet"]["path"]) in routes
    options = ServingOptions()
    before = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] >= before + options.drain_timeout + 5
    unit = (DEPLOY / "encoder-engine.service").read_text("utf-8")
    stop = re.search(r"TimeoutStopSec=(\d+)", unit)
    assert stop is not None
    assert int(stop[1]) >= options.drain_timeout + 5


@pytest.mark.parametrize(
    ("stated", "threads"),
    [("max 100000\n", 6), ("200000 100000\n", 2), ("150000 100000", 2), ("5000 100000", 1)],
)
def test_threads_are_those_that_the_container_pays_for(
    stated: str, threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text(stated, "ascii")
    monkeypatch.setattr(quota_module, "QUOTA", quota)
    monkeypatch.setattr("encoder_engine.serving.threads.check_threads", lambda _: 6)
    assert available_threads() == threads
    quota.unlink()
    old = {"OLD_QUOTA": "300000\n", "OLD_PERIOD": "100000\n"}
    for name, value in old.items():
        (tmp_path / name).write_text(value, "ascii")
        monkeypatch.setattr(quota_module, name, tmp_path / name)
    assert available_threads() == 3


def test_systemd_is_told_of_progress_alone(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(5.0)
        variables = {
            "NOTIFY_SOCKET": str(path),
            "WATCHDOG_USEC": "30000",
            "WATCHDOG_PID": str(os.getpid()),
        }
        notifier = Notifier.from_environment(variables)

        async def run() -> list[bytes]:
            lives = True
            notifier.ready(lambda: lives)
            await asyncio.sleep(0.05)
            lives = False
            await asyncio.sleep(0.02)
            while True:
                try:
                    listener.settimeout(0.0)
                    found.append(listener.recv(100))
                except BlockingIOError:
                    break
            await asyncio.sleep(0.05)
            notifier.stopping()
            notifier.close()
            listener.settimeout(1.0)
            return [listener.recv(100)]

        found: list[bytes] = []
        last = asyncio.run(run())
    assert found[0] == b"READY=1"
    assert set(found[1:]) == {b"WATCHDOG=1"}
    assert last == [b"STOPPING=1"]
    Notifier.from_environment({}).stopping()
