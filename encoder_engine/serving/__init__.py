"""Serves models to many clients, over HTTP or from Python; requests share batches."""

from typing import TYPE_CHECKING

from encoder_engine.lazy import lazy_names

if TYPE_CHECKING:
    from encoder_engine.serving.http.app import asgi_app
    from encoder_engine.serving.options import ServingOptions
    from encoder_engine.serving.server import Server
    from encoder_engine.serving.service import Service

__all__ = ["Server", "Service", "ServingOptions", "asgi_app"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Server": "server",
        "Service": "service",
        "ServingOptions": "options",
        "asgi_app": "http.app",
    },
)
