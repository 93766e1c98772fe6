"""The part of an embedder that jobs over files use: windows of texts, and what a plan records."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from encoder_engine.embedding.jobs.pickling import PickledModel, load_again
from encoder_engine.embedding.parts import EmbedderParts
from encoder_engine.embedding.steps.window import encode_window, tokenize_window

if TYPE_CHECKING:
    from collections.abc import Callable

    from encoder_engine.embedding.options import EncodeOptions
    from encoder_engine.embedding.steps.window import EmbeddedWindow, TokenizedWindow

__all__ = ["DenseJob"]


class DenseJob(PickledModel, EmbedderParts):
    """A :class:`JobModel` over the parts of an embedder."""

    @property
    def name(self) -> str:
        """The path that the embedder was loaded from."""
        return self.loading.path if self.loading else str(self.recipe.encoder_directory)

    @property
    def stated_similarity(self) -> str | None:
        """The name of the similarity that the directory states; None: it states none."""
        return self.recipe.similarity

    def describe_model(self) -> dict[str, Any]:
        """Return what a plan records of the pooling."""
        return {
            "pooling": list(self.recipe.pooling),
            "layers": [list(pair) for pair in self.recipe.layers or ()],
        }

    def describe_options(self, options: EncodeOptions) -> dict[str, Any]:
        """Return what a plan records of the options."""
        return options.describe()

    def tokenize_window(
        self, texts: list[str], first_row: int, options: EncodeOptions
    ) -> TokenizedWindow:
        """Tokenize a window of texts; see :func:`tokenize_window`."""
        return tokenize_window(self, texts, first_row, options)

    def encode_window(self, tokenized: TokenizedWindow, options: EncodeOptions) -> EmbeddedWindow:
        """Encode and pool a tokenized window; see :func:`encode_window`."""
        return encode_window(self, tokenized, options)

    def reload(self) -> Callable[[str, int], DenseJob] | None:
        """Return a function that loads the same parts in another process; None without files."""
        if self.loading is None:
            return None
        return partial(load_again, type(self), self.loading, max_seq_length=self.max_seq_length)
