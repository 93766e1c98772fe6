"""The parts of an embedder that its stages share: tokenizer, encoder, recipe, limits."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.dataclass import dataclass
from encoder_engine.embedding.engines.choosing import vector_engine
from encoder_engine.embedding.limits import MemoryLimit, default_batch_tokens
from encoder_engine.embedding.options import (
    EncodeCall,
    EncodeOptions,
    check_options,
    resolve_batch_tokens,
    resolve_dimension,
    resolve_prompt,
)
from encoder_engine.errors import ConfigError, InputError
from encoder_engine.vectors.precision import quantize_vectors

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from encoder_engine.embedding.directory.recipe import PoolingRecipe
    from encoder_engine.inference import CompiledEncoder
    from encoder_engine.models import Encoder
    from encoder_engine.text import Tokenizer

__all__ = ["EmbedderParts", "Loading", "smallest", "token_limit"]


@dataclass(frozen=True, kw_only=True)
class Loading:
    """The arguments of a model's loading, with which another process loads the same.

    path: as it was given.
    options: those of ``from_pretrained`` but the device and the threads.
    place: the path, which holds in every working directory.
    """

    path: str
    options: Mapping[str, Any]
    place: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", str(Path(self.path).absolute()))


class EmbedderParts:
    """A matching tokenizer, encoder and pooling recipe, and the limits of a call.

    ``engine`` computes the vectors of ``encoder``.

    Raises :class:`ConfigError` where a token id would lie outside the encoder's vocabulary, where
    the pooling was made for another width, or where the limit leaves no room for a token.
    """

    def __init__(
        self, encoder: CompiledEncoder | Encoder, tokenizer: Tokenizer, recipe: PoolingRecipe
    ) -> None:
        self.recipe = recipe
        self.encoder = encoder
        spec = self.engine.spec
        recipe.check_width(spec.width)
        self.tokenizer = tokenizer.fitted_to(spec.embedding.vocab_size)
        # None where the parts were put together in memory.
        self.loading: Loading | None = None
        self.memory_limit = MemoryLimit()
        self._max_seq_length = limit = smallest(recipe.max_seq_length, spec.max_length)
        if limit is not None and limit < self._least_length():
            raise ConfigError(
                f"{recipe.encoder_directory} limits texts to {limit} tokens, which leaves no room "
                f"beside the special tokens; set a limit of at least {self._least_length()} in "
                "the file, or pass max_seq_length="
            )

    @property
    def encoder(self) -> CompiledEncoder | Encoder:
        """The encoder, as it was passed or loaded; a new one gets an engine of its own."""
        return self._encoder

    @encoder.setter
    def encoder(self, encoder: CompiledEncoder | Encoder) -> None:
        self._encoder = encoder
        self.engine = vector_engine(encoder, self.recipe.modules)

    @property
    def max_seq_length(self) -> int | None:
        """Tokens kept of each text, special tokens included; None: no limit."""
        return self._max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        limit, least = self.engine.spec.max_length, self._least_length()
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(
                f"max_seq_length must be a whole number of at least {least}, got {value!r}"
            )
        if limit is not None and value > limit:
            raise InputError(f"max_seq_length is {value}, the model has {limit} positions")
        self._max_seq_length = value

    def _least_length(self) -> int:
        """Return the special tokens of a text plus one."""
        return len(self.tokenizer.encode("")) + 1

    @property
    def dimension(self) -> int:
        """Features of a vector before ``truncate_dim``."""
        return self.recipe.modules.width(self.engine.spec.width * len(self.recipe.pooling))

    @property
    def prompts(self) -> Mapping[str, str]:
        """The named prompts of the directory."""
        return self.recipe.prompts

    def resolve(self, call: EncodeCall) -> EncodeOptions:
        """Check the options of a call and fill in the directory's settings for those not given."""
        recipe, engine = self.recipe, self.engine
        prompt = resolve_prompt(
            call.prompt, call.prompt_name, recipe.prompts, recipe.default_prompt_name
        )
        normalized = call.normalize_embeddings
        default_tokens = default_batch_tokens(engine.spec, engine.device, engine.dtype)
        return check_options(
            EncodeOptions(
                prompt=prompt,
                num_prompt_tokens=self._count_prompt_tokens(prompt),
                normalized=recipe.normalized if normalized is None else normalized,
                dimension=resolve_dimension(call.truncate_dim, recipe.truncate_dim, self.dimension),
                precision=call.precision,
                batch_tokens=resolve_batch_tokens(call.batch_tokens, default_tokens),
                on_truncation=call.on_truncation,
                batch_size=call.batch_size,
            )
        )

    def _count_prompt_tokens(self, prompt: str) -> int:
        """Count the leading tokens that pooling leaves out: the prompt's and the opening [CLS]."""
        if not prompt or self.recipe.include_prompt:
            return 0
        ids = self.tokenizer.encode(prompt)
        special = self.tokenizer.encode("")
        closed = len(special) > 0 and ids[-1] == special[-1]
        if self._max_seq_length is not None and len(ids) >= self._max_seq_length:
            raise InputError(
                f"the prompt has {len(ids)} tokens and leaves no room for a text: "
                f"the limit is {self._max_seq_length}"
            )
        return len(ids) - int(closed)

    def stored_dimension(self, options: EncodeOptions) -> int:
        """Return the length of a stored vector: features, or bytes of packed bits."""
        return int(self.no_vectors(options).shape[1])

    def no_vectors(self, options: EncodeOptions) -> npt.NDArray[np.generic]:
        """Return the result of an empty call: [0, D] of the precision's type."""
        return quantize_vectors(np.zeros((0, options.dimension), np.float32), options.precision)


def token_limit(value: int | None, positions: int | None, *, least: int = 1) -> int | None:
    """Return the most tokens of a text: a limit, at most the model's positions; None: no limit.

    Raises :class:`InputError` for a limit that is not a whole number of at least ``least``.
    """
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and (not whole or value < least):
        raise InputError(
            f"max_seq_length must be a whole number of at least {least}, got {value!r}"
        )
    return smallest(value, positions)


def smallest(*limits: int | None) -> int | None:
    """Return the smallest limit; None: there is none."""
    return min((limit for limit in limits if limit is not None), default=None)
