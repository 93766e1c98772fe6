"""Measures what a request costs the server beside its model: ``python -m benchmarks serving-cost``.

The model returns fixed vectors (``jobs/stubbed_server.py``), so that the CPU time of the event
loop's thread is HTTP, JSON, tokenizer, queue and answer. A bare ASGI application that answers a
body of the same size under uvicorn alternates with it: the least that a server of this kind takes.
CPU time is counted, because other load distorts it least; printed are the median and the least of
the rounds.
"""

from __future__ import annotations

import json
import sys
from statistics import median

import click

from benchmarks.cases.embedding import SEED, minilm_directory
from benchmarks.cases.serving import MAX_LENGTH, PATH
from benchmarks.jobs.http_load import closed_loop
from benchmarks.jobs.http_servers import ServerProcess, ServingJob
from benchmarks.measuring.case import EmbeddingJob
from benchmarks.texts import corpus

CLIENTS, NUM_TEXTS = 32, 200
COMMAND = (sys.executable, "-m", "benchmarks.jobs.stubbed_server", "--port", "{port}")


@click.command("serving-cost")
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--requests", type=click.IntRange(min=CLIENTS), default=4000, show_default=True)
def serving_cost(rounds: int, requests: int) -> None:
    """Measure the server's CPU a request, engine stubbed, beside bare uvicorn's."""
    texts = corpus.short_sentences(corpus.read_documents("bundled"), NUM_TEXTS, seed=SEED)
    job = EmbeddingJob(
        directory=str(minilm_directory()),
        texts=tuple(texts),
        max_length=MAX_LENGTH,
        threads=1,
        precision="float32",
    )
    encoded = ServingJob(job=job, connections=CLIENTS, texts_each=1).bodies()
    forms = {
        "float": tuple(body.replace(b'"base64"', b'"float"') for body in encoded),
        "base64": encoded,
    }
    ours = ServerProcess((*COMMAND, "--directory", "{directory}"), job, ready="/health/ready")
    spent: dict[tuple[str, str], list[float]] = {}
    bare: dict[str, ServerProcess] = {}
    try:
        for form, bodies in forms.items():
            (answer,) = closed_loop(ours.target(PATH, bodies[:1]), connections=1, requests=1)
            size = ("--bare", str(len(answer.body)))
            bare[form] = ServerProcess((*COMMAND, *size), job, ready="/")
        for number in range(rounds + 1):
            for form, bodies in forms.items():
                for name, server in (("ours", ours), ("bare", bare[form])):
                    target, before = server.target(PATH, bodies), server.loop_seconds()
                    answers = closed_loop(target, connections=CLIENTS, requests=requests)
                    used = server.loop_seconds() - before
                    if any(answer.status != 200 for answer in answers):
                        raise click.ClickException("a request was not answered")
                    # The first round warms up.
                    if number:
                        spent.setdefault((name, form), []).append(1e6 * used / requests)
    finally:
        for server in (ours, *bare.values()):
            server.stop()
    for (name, form), found in spent.items():
        facts = {"median_us": round(median(found), 1), "least_us": round(min(found), 1)}
        click.echo(json.dumps({"server": name, "form": form, **facts}))
