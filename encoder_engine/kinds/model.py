"""The base of models: a tokenizer, an engine, and the kinds of results that models compute."""

from __future__ import annotations

import hashlib
import json
from abc import ABCMeta, abstractmethod
from copy import copy
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from encoder_engine.dataclass import dataclass
from encoder_engine.errors import ChecksumError, UnsupportedFeatureError
from encoder_engine.families.checkpoints.files import hub_of_base
from encoder_engine.text import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from encoder_engine.engine.choosing import EngineRequest
    from encoder_engine.engine.limits import MemoryLimit
    from encoder_engine.kinds.kind import Kind

__all__ = ["Loading", "Model"]


@dataclass(frozen=True, kw_only=True)
class Loading:
    """The arguments that a model was loaded with; another process loads the same model with them.

    path: the path as it was given.
    options: the keywords of ``from_pretrained`` except device and threads.
    place: the absolute path, valid in every working directory.
    """

    path: str
    options: Mapping[str, Any]
    place: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", str(Path(self.path).absolute()))


class Model(metaclass=ABCMeta):
    """A tokenizer, an engine that computes the encoder, settings, and the arguments of loading.

    engine: an :class:`Engine`.
    max_seq_length: the most tokens of a row, special tokens included; None: no limit.
    loading: the arguments of loading; None: the model was made in memory.
    pickle_by: the content of a pickle. ``"weights"``: the weights. ``"path"``: the path, the
    options of loading and a digest of the model. Unpickling then loads the files, on a GPU if the
    model was on one and there is one, and raises :class:`ChecksumError` if the files have changed;
    pickling a model that was made in memory raises :class:`UnsupportedFeatureError`.
    """

    engine: Any
    tokenizer: Tokenizer
    max_seq_length: Any
    memory_limit: MemoryLimit
    loading: Loading | None = None
    pickle_by: Literal["weights", "path"] = "weights"

    @property
    @abstractmethod
    def prompts(self) -> Mapping[str, str]:
        """The prompts that the model's directory states, by name."""

    @property
    def default_prompt_name(self) -> str | None:
        """The name of the prompt for calls that name none; None: these have no prompt."""
        return None

    @abstractmethod
    def kinds(self) -> dict[str, Kind]:
        """Return the kinds of results that the model computes, by name, its own first.

        They are ``dense``, ``sparse``, ``tokens``, ``scores``, ``labels``, ...; each reads the
        model's settings as they are now.
        """

    @property
    def kind(self) -> Kind:
        """The first of :meth:`kinds`, for which the model was made."""
        return next(iter(self.kinds().values()))

    @property
    def device(self) -> str:
        """The device that computes the model, written as in PyTorch."""
        return str(self.engine.device)

    @property
    def path(self) -> str | None:
        """The path that the model was loaded from; None: it was made in memory."""
        return self.loading.path if self.loading else None

    @property
    def name(self) -> str:
        """The path that the model was loaded from, or "memory"."""
        return self.path or "memory"

    def loaded_from(self, directory: Path, request: EngineRequest, **options: Any) -> Self:
        """Record how the model was loaded, as ``loading``, and return the model.

        ``directory``: its path. ``request``, ``options``: the keywords of ``from_pretrained``.
        """
        stated = {**request.options(self.engine.name), **options, **hub_of_base()}
        self.loading = Loading(path=str(directory), options=stated)
        return self

    def changed_options(self) -> dict[str, Any]:
        """Return the present values of those options of ``from_pretrained`` that can be set later.

        A model that is loaded again in another process gets these values.
        """
        return {}

    def truncating(self, side: Literal["left", "right"]) -> Self:
        """Return a copy of the model that truncates texts at a side; the weights are shared."""
        found = copy(self)
        found.tokenizer = Tokenizer(replace(self.tokenizer.spec, truncation_side=side))
        return found

    @classmethod
    def load_again(
        cls, loading: Loading, device: str, num_threads: int | None = None, **changed: Any
    ) -> Any:
        """Load the same model in another process; ``changed``: see :meth:`changed_options`."""
        options: dict[str, Any] = {**loading.options, **changed}
        load: Any = cls.from_pretrained  # type: ignore[attr-defined]
        return load(loading.place, device, num_threads=num_threads, **options)

    def reload(self) -> Callable[..., Any] | None:
        """Return a picklable function that loads the same model in another process.

        The function's arguments are a device and a number of threads. None: the model was made in
        memory.
        """
        if self.loading is None:
            return None
        return partial(type(self).load_again, self.loading, **self.changed_options())

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.pickle_by == "weights":
            return super().__reduce_ex__(protocol)
        reload = self.reload()
        if reload is None:
            raise UnsupportedFeatureError(
                "this model was made in memory, so that a pickle has no path to name: save and "
                "load it, or set pickle_by = 'weights'"
            )
        return _load, (reload, "cpu" if self.device == "cpu" else "auto", _digest(self))


def _digest(model: Model) -> str:
    """Return a digest of a model's weights, tokenizer, settings and prompts."""
    # Imported here, so that a first vector does not wait for it.
    from encoder_engine.kinds.plan import describe_results

    facts = describe_results(model.kind, model.kind.resolve())
    # Another machine may have other devices and libraries.
    del facts["versions"], facts["model"]["device"], facts["model"]["engine"]
    text = json.dumps([facts, dict(model.prompts)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _load(reload: Callable[..., Any], device: str, digest: str) -> Any:
    model = reload(device, None)
    if _digest(model) != digest:
        raise ChecksumError(
            f"{model.name} has changed since its model was pickled by path, or the model had been "
            "changed in memory: put the former files back, or load the new ones by from_pretrained"
        )
    model.pickle_by = "path"
    return model
