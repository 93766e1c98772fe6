"""Labels texts with their language, by py3langid (extra ``clean``): 97 languages, no network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from encoder_engine.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Language", "LanguageLabeller"]


class Language(NamedTuple):
    """An ISO 639-1 code, and its probability among the languages that the labeller considers."""

    code: str
    probability: float


class LanguageLabeller:
    """Labels texts with a language; ``among``: the languages to choose from; empty: all.

    Raises :class:`MissingDependencyError` without py3langid, and :class:`InputError` for a language
    that it does not know.
    """

    def __init__(self, among: Sequence[str] = ()) -> None:
        try:
            from py3langid.langid import MODEL_FILE, LanguageIdentifier
        except ImportError:
            raise MissingDependencyError(
                "labelling languages", library="py3langid", extra="clean"
            ) from None
        self._identifier: Any = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        self.check(among)
        if among:
            self._identifier.set_languages(list(among))

    def check(self, languages: Sequence[str]) -> None:
        """Raise :class:`InputError` for a language code that this labeller never returns."""
        known = set(self._identifier.labels)
        unknown = sorted(set(languages) - known)
        if unknown:
            raise InputError(f"no language {unknown[0]!r}; there are {', '.join(sorted(known))}")

    def label(self, text: str) -> Language:
        """Return the most probable language of a text."""
        code, probability = self._identifier.classify(text)
        return Language(str(code), float(probability))
