"""``encoder-engine serve``: serves models over HTTP with the APIs of OpenAI, TEI and Cohere."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from encoder_engine.cli import option
from encoder_engine.cli.common import print_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from encoder_engine.serving.http.guard import Keys

_PIPELINES = (
    *("text-classification", "token-classification", "zero-shot-classification"),
    *("question-answering", "fill-mask", "feature-extraction"),
)
_TASKS = ("auto", "embed", "sparse", "tokens", "hybrid", "rank", "classify", *_PIPELINES)
# The ends of classes of transformers, and what their models do.
_HEADS = {
    "ForSequenceClassification": "rank",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
}
MIB = 2**20


@click.command(context_settings={"auto_envvar_prefix": "ENCODER_ENGINE"})
@click.option(
    "--model", "-m", "models", multiple=True, required=True, metavar="[NAME=]PATH",
    envvar=["ENCODER_ENGINE_MODEL", "ENCODER_ENGINE_MODELS"],
    help="A model: a directory or hub id; repeatable, the first is the default.",
)  # fmt: skip
@option.choice("--task", _TASKS, "What the models do; auto: what their directories state.", "auto")
@click.option("--dtype", default="auto", show_default=True, help="float32, bfloat16, ...")
@option.choice("--quantization", ["int8"], "Round the dense layers.")
@option.device
@option.number("--threads", "CPU threads.  [default: all cores, or the quota]")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True)
@click.option("--unix-socket", help="Listen at this path instead.")
@click.option(
    "--api-key-file", type=click.Path(exists=True, dir_okay=False),
    help="Lines of name:key; without it no key is needed.",
)  # fmt: skip
@click.option(
    "--allowed-host", "allowed_hosts", multiple=True,
    envvar=["ENCODER_ENGINE_ALLOWED_HOST", "ENCODER_ENGINE_ALLOWED_HOSTS"],
    help="A name that Host may have beside localhost; repeatable, * for any.",
)  # fmt: skip
@click.option(
    "--cors-origin", "cors_origins", multiple=True, help="A page's origin; repeatable.",
    envvar=["ENCODER_ENGINE_CORS_ORIGIN", "ENCODER_ENGINE_CORS_ORIGINS"],
)  # fmt: skip
@click.option(
    "--accept-token-ids", is_flag=True,
    help="Take token ids of the model's own tokenizer instead of texts.",
)  # fmt: skip
@option.value(
    "--batch-ms", "The time that one client's texts in a batch may take, in ms.", 20.0, kind=float
)
@option.number("--lanes", "Batches at a time, each with an equal share of the threads.", 1)
@click.option("--max-texts", type=click.IntRange(min=1), default=2048, show_default=True)
@click.option("--max-body-mib", type=click.IntRange(min=1), default=16, show_default=True)
@option.number("--max-queue-tokens", "[default: 10 seconds' work]")
@click.option("--max-queue-mib", type=click.IntRange(min=1), default=256, show_default=True)
@click.option("--max-answer-mib", type=click.IntRange(min=1), default=256, show_default=True)
@option.number("--max-connections", "Half as many requests may wait; the others are refused.", 4096)
@option.value("--timeout", "Seconds of a request.", 60.0, kind=float)
@click.option("--drain-delay", type=float, default=0.0, show_default=True)
@click.option("--drain-timeout", type=float, default=30.0, show_default=True)
@option.choice(
    "--truncation", ["cut", "refuse"], "What happens to texts beyond a model's limit.", "cut"
)
@click.option(
    "--access-log", type=click.Choice(["errors", "all", "off"]), default="errors", show_default=True
)
@click.option(
    "--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True
)
@click.option("--http", type=click.Choice(["auto", "h11", "httptools"]), default="auto")
@click.option("--metrics-public", is_flag=True, help="GET /metrics takes no key, and any Host.")
@click.option("--no-page", is_flag=True, help="Serve no page for browsers at GET /.")
def serve(models: tuple[str, ...], **options: Any) -> None:
    """Serve models over HTTP.

    GET / is a page to try them; /openapi.json lists the routes. Every option may be given by the
    environment, as ENCODER_ENGINE_PORT; several values are separated by spaces. SIGTERM ends the
    server after it has answered the accepted requests. Exit status: 0: all were answered; 1: the
    server did not start, or a request was not computed within the drain timeout; 2: wrong options.
    """
    from encoder_engine.errors import MissingDependencyError

    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        from encoder_engine.serving.http.access import AccessLog
        from encoder_engine.serving.http.guard import Limits
        from encoder_engine.serving.server import run_server
    except ModuleNotFoundError as error:
        raise MissingDependencyError("serving", library=str(error.name), extra="serve") from None
    from encoder_engine.serving.options import ServingOptions
    from encoder_engine.serving.service import Service

    keys = _read_keys(options["api_key_file"])
    _configure_log()
    service = Service(
        _load_all(models, options),
        ServingOptions(
            batch_ms=options["batch_ms"],
            lanes=options["lanes"],
            max_texts=options["max_texts"],
            max_requests=max(1, options["max_connections"] // 2),
            max_queue_tokens=options["max_queue_tokens"],
            max_queue_bytes=options["max_queue_mib"] * MIB,
            max_answer_bytes=options["max_answer_mib"] * MIB,
            timeout=options["timeout"],
            accept_token_ids=options["accept_token_ids"],
            truncation=options["truncation"],
            drain_delay=options["drain_delay"],
            drain_timeout=options["drain_timeout"],
        ),
    )
    facts = {
        name: ", ".join((*served.tasks, *_prompts(served.prompts)))
        for name, served in service.models.items()
    }
    code = run_server(
        service,
        host=options["host"],
        port=options["port"],
        unix_socket=options["unix_socket"],
        http=options["http"],
        ready=lambda address: print_facts(f"Serving at {address}", facts),
        keys=keys,
        limits=Limits(
            max_body_bytes=options["max_body_mib"] * MIB,
            max_connections=options["max_connections"],
            allowed_hosts=options["allowed_hosts"],
        ),
        cors_origins=options["cors_origins"],
        page=not options["no_page"],
        metrics_public=options["metrics_public"],
        access_log=AccessLog(options["access_log"], form=options["log_format"], stream=sys.stderr),
    )
    raise SystemExit(code)


def _prompts(prompts: Mapping[str, str]) -> list[str]:
    """Return ``["prompts a, b"]``, the names of a model's non-empty prompts; [] without any.

    The line that the server prints at its start shows them, because clients that omit prompts get
    worse vectors.
    """
    named = [name for name, text in prompts.items() if text]
    return [f"prompts {', '.join(named)}"] if named else []


def _read_keys(path: str | None) -> Keys | None:
    from encoder_engine.serving.http.guard import Keys

    if path is None:
        return None
    try:
        return Keys.read(Path(path).read_text("utf-8"))
    except ValueError as error:
        raise click.UsageError(f"{path}: {error}") from None


def _configure_log() -> None:
    """Log the service to standard error, and only errors of uvicorn."""
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("encoder_engine.serving")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    # A line for every malformed request would let anybody fill the log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


def _load_all(models: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Load the model of each ``[NAME=]PATH``; return them by name, or by the path's last part."""
    paths: dict[str, str] = {}
    for model in models:
        name, equals, path = model.partition("=")
        if not equals:
            name, path = Path(model).name or model, model
        if not name or not path:
            raise click.UsageError(f"{model}: a model is PATH or NAME=PATH")
        if name in paths:
            raise click.UsageError(
                f"two models are named {name}, {paths[name]} and {path}; name them: NAME=PATH"
            )
        paths[name] = path
    return {name: _load(path, options) for name, path in paths.items()}


def _load(path: str, options: dict[str, Any]) -> Any:
    from encoder_engine.embedding import MultiVectorEmbedder, Ranker, SparseEmbedder
    from encoder_engine.embedding.any_model import load_dense, load_ranker
    from encoder_engine.embedding.hybrid import HybridEmbedder
    from encoder_engine.serving.threads import available_threads

    task = _stated_task(path) if options["task"] == "auto" else options["task"]
    loaders: dict[str, Any] = {
        "sparse": SparseEmbedder.from_pretrained,
        "tokens": MultiVectorEmbedder.from_pretrained,
        "hybrid": HybridEmbedder.from_pretrained,
        "rank": load_ranker,
        "classify": Ranker.from_pretrained,
    }
    given = {name: options[name] for name in ("dtype", "quantization", "device")}
    threads = options["threads"] or available_threads()
    if task in _PIPELINES:
        from encoder_engine.prediction.pipeline import pipeline

        return pipeline(task, path, num_threads=threads, **given)
    return loaders.get(task, load_dense)(path, num_threads=threads, **given)


def _stated_task(path: str) -> str:
    """Return the task to serve a directory for: by its sentence-transformers type, or its head.

    Classifiers of finetune are served as pipelines, published ones as rankers, as TEI does.
    """
    from encoder_engine.families.checkpoints.files import resolve_directory
    from encoder_engine.opening.json_files import read_value
    from encoder_engine.opening.modules import is_hybrid
    from encoder_engine.prediction.classifier import Classifier
    from encoder_engine.prediction.predictor import model_directory
    from encoder_engine.tasks.task_folder import TASK, load_task

    directory = model_directory(resolve_directory(path))
    if (directory / TASK).is_file():
        task = load_task(directory).task.name
        task = "text-classification" if task in Classifier.tasks else task
        if task in _PIPELINES:
            return task
    stated = directory / "config_sentence_transformers.json"
    if stated.is_file():
        kind = read_value(stated).object().get("model_type")
        named = {"SparseEncoder": "sparse", "MultiVectorEncoder": "tokens", "CrossEncoder": "rank"}
        if kind in named:
            return named[str(kind)]
    config = directory / "config.json"
    if config.is_file() and not (directory / "modules.json").is_file():
        architectures = read_value(config).object().get("architectures") or [""]
        for ending, task in _HEADS.items():
            if str(architectures[0]).endswith(ending):
                return task
    return "hybrid" if is_hybrid(directory) else "embed"
