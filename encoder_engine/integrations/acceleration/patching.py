"""Accelerates whole classes of transformers: every model that is made from them afterwards."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from encoder_engine.errors import MissingDependencyError, UnknownModelTypeError
from encoder_engine.integrations.acceleration.heads.head_hooks import HeadHooks, find_heads
from encoder_engine.integrations.acceleration.replaced_forward import ReplacedForward
from encoder_engine.models import all_families

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["apply_encoder_engine", "revert_encoder_engine"]

_plain: dict[type, Callable[..., None]] = {}


def patchable() -> dict[str, type]:
    """Return the encoder classes of transformers that can be accelerated, by ``model_type``."""
    try:
        import transformers
    except ImportError:
        raise MissingDependencyError(
            "accelerating transformers' classes", library="transformers", extra="transformers"
        ) from None
    return {
        name: getattr(transformers, family.architecture)
        for name, family in all_families().items()
        if family.written_as is None
        and family.in_place
        and hasattr(transformers, family.architecture)
    }


def apply_encoder_engine(*model_types: str, pack: bool = False) -> None:
    """Accelerate every model that transformers makes of these types from now on.

    ``model_types``: such as ``"bert"``; without any, all types are accelerated. The functions
    ``apply_encoder_engine_to_bert()`` and so on accelerate one type.
    Models below a head are included, made by ``from_pretrained`` or from a configuration. Existing
    models stay as they are. A model that :func:`accelerate` refuses is refused at its first call;
    a ``pack`` that is not possible is then left out. A second call changes only ``pack``.

    Raises :class:`UnknownModelTypeError` for a type without such a class.

    >>> import transformers
    >>> apply_encoder_engine("bert")
    >>> config = transformers.BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2,
    ...                                  num_attention_heads=4, intermediate_size=64)
    >>> type(transformers.BertModel(config).forward).__name__
    'ReplacedForward'
    >>> revert_encoder_engine()
    """
    for base_class in _chosen(model_types):
        _revert(base_class)
        for patched in _with_heads(base_class):
            _plain[patched] = patched.__init__
            patched.__init__ = _accelerating(patched, pack, is_base=patched is base_class)


def revert_encoder_engine(*model_types: str) -> None:
    """Undo :func:`apply_encoder_engine`, by default for all types; existing models stay."""
    for base_class in _chosen(model_types):
        _revert(base_class)


def _chosen(model_types: tuple[str, ...]) -> list[Any]:
    known = patchable()
    for name in model_types:
        if name not in known:
            raise UnknownModelTypeError(
                f"model_type {name!r} cannot be accelerated; these can: {', '.join(known)}"
            )
    return [known[name] for name in model_types or known]


def _with_heads(base_class: Any) -> list[Any]:
    """Return an encoder's class, and the classes with heads whose models get :class:`HeadHooks`."""
    import transformers

    names = find_heads(base_class.config_class.model_type)
    heads = [getattr(transformers, name) for name in names if hasattr(transformers, name)]
    return [base_class, *heads]


def _accelerating(patched: Any, pack: bool, *, is_base: bool) -> Callable[..., None]:
    plain = _plain[patched]

    @wraps(plain)
    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        if type(self) is not patched:
            return
        if is_base:
            self.forward = ReplacedForward(self, pack=pack)
        else:
            HeadHooks(ReplacedForward).put(self)

    return initialise


def _revert(base_class: Any) -> None:
    for patched in _with_heads(base_class):
        if patched in _plain:
            patched.__init__ = _plain.pop(patched)


def __getattr__(name: str) -> Callable[..., None]:
    """Return ``apply_encoder_engine_to_<model_type>``, or the same with ``revert``, by its name."""
    for verb in (apply_encoder_engine, revert_encoder_engine):
        begin = f"{verb.__name__}_to_"
        if name.startswith(begin):
            types = {known.replace("-", "_"): known for known in patchable()}
            found = types.get(name[len(begin) :])
            if found is not None:
                return lambda **options: verb(found, **options)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
