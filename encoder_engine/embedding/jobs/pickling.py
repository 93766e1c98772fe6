"""Models in other processes: loaded again, or pickled with their weights or by their path."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from encoder_engine.embedding.options import EncodeCall
from encoder_engine.errors import ChecksumError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Callable

    from encoder_engine.embedding.parts import Loading

__all__ = ["PickledModel", "load_again"]


def load_again(
    kind: Any, loading: Loading, device: str, num_threads: int | None = None, **changed: Any
) -> Any:
    """Load a model in another process; ``changed``: options that were changed since."""
    options = {**loading.options, **changed}
    return kind.from_pretrained(loading.place, device, num_threads=num_threads, **options)


class PickledModel:
    """A model whose pickle holds its weights, or names its files after ``pickle_by = "path"``.

    The latter has the path, the options of loading and a digest of what decides results. Who reads
    it loads the files, on a GPU if the model was on one and there is one, and gets a
    :class:`ChecksumError` where they are another model by then.
    """

    pickle_by: Literal["weights", "path"] = "weights"
    # The options of a call, whose defaults the digest covers.
    call_type: ClassVar[Callable[[], Any]] = EncodeCall

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.pickle_by == "weights":
            return super().__reduce_ex__(protocol)
        model: Any = self
        reload, engine = model.reload(), model.engine
        if reload is None:
            raise UnsupportedFeatureError(
                "this model was made in memory, so that a pickle has no path to name: save and "
                "load it, or set pickle_by = 'weights'"
            )
        return _load, (reload, "cpu" if engine.device == "cpu" else "auto", _digest(model))


def _digest(model: Any) -> str:
    """Return a digest of weights, tokenizer, settings and prompts."""
    # A first vector does not wait for jobs over files.
    from encoder_engine.embedding.dataset.plan import describe_embedding

    facts = describe_embedding(model, model.resolve(model.call_type()))
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
