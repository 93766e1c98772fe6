"""The tasks that a server's models do for requests, and the options of a request.

For each task a :class:`Kind` of the model says what is computed of texts. Texts are tokenized on
admission and computed in batches with those of other requests, by the kind that the model's own
methods use, so a served text gets the same bytes as a direct call. An option that the task does not
support is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from encoder_engine.errors import InputError, UnsupportedFeatureError
from encoder_engine.kinds.model import Model
from encoder_engine.kinds.options import document_prompt, query_prompt

if TYPE_CHECKING:
    from encoder_engine.kinds.kind import Kind
    from encoder_engine.kinds.options import OnTruncation

__all__ = [
    "CallOptions",
    "OptionError",
    "Task",
    "Text",
    "check_prompt",
    "kinds_of",
    "resolve_request",
]

Task = Literal["embed", "sparse", "tokens", "rank", "classify", "predict"]
# The kind of results of each task.
KIND_OF: dict[Task, str] = {
    "embed": "dense",
    "sparse": "sparse",
    "tokens": "tokens",
    "rank": "scores",
    "classify": "labels",
    "predict": "calls",
}
# A text, a pair, the token ids of a text, int32 [n], or the input of a pipeline.
Text = str | tuple[str, str] | np.ndarray[Any, np.dtype[np.int32]] | Mapping[str, Any]


class CallOptions(NamedTuple):
    """The options of a request; each task supports some, and refuses the others.

    prompt_name: the name of a prompt of the model; None: the prompt for ``input_type``, or the
        default.
    input_type: ``"query"`` or ``"document"``.
    normalize: whether vectors are scaled to length 1; None: the model's setting.
    dimensions: the leading features to keep; None: the model's setting.
    refuses_long: refuse texts longer than the model's limit instead of truncating them; None: the
        service's setting.
    raw_scores: return logits as scores.
    truncation_side: the side at which long texts are truncated; None: the tokenizer's.
    parameters: the keywords of a pipeline's call, as JSON.
    """

    prompt_name: str | None = None
    input_type: Literal["query", "document"] | None = None
    normalize: bool | None = None
    dimensions: int | None = None
    refuses_long: bool | None = None
    raw_scores: bool = False
    truncation_side: Literal["left", "right"] | None = None
    parameters: str | None = None

    @property
    def on_truncation(self) -> OnTruncation:
        """The model's ``on_truncation``: "error" if ``refuses_long``, else "ignore"."""
        return "error" if self.refuses_long else "ignore"


class OptionError(InputError):
    """An option of a request is wrong; ``param`` is its name."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


def kinds_of(model: Any) -> dict[Task, Kind]:
    """Return, by task, the :class:`Kind` that computes the task's results with a model.

    Raises :class:`UnsupportedFeatureError` for an object that has none.
    """
    kinds = model.kinds() if isinstance(model, Model) else {}
    if getattr(model, "num_labels", 1) != 1:
        # Several scores have no order.
        kinds.pop("scores", None)
    found = {task: kinds[name] for task, name in KIND_OF.items() if name in kinds}
    if not found:
        raise UnsupportedFeatureError(
            f"{type(model).__name__} cannot be served; serve an Embedder, a StaticEmbedder, a "
            "SparseEmbedder, a MultiVectorEmbedder, a HybridEmbedder, a Ranker or a pipeline"
        )
    return found


def resolve_request(kind: Kind, request: CallOptions) -> Any:
    """Check a request's options, and return them in the form that :meth:`Kind.resolve` returns.

    Raises :class:`OptionError` and :class:`InputError`.
    """
    for name in ("input_type", "normalize", "dimensions", "raw_scores", "parameters"):
        if name not in kind.requested and getattr(request, name) not in (None, False):
            raise OptionError(name, f"{name} has no meaning for {kind.noun}; leave it out")
    width = getattr(kind.model, "dimension", 0)
    if request.dimensions is not None and not 1 <= request.dimensions <= width:
        raise OptionError(
            "dimensions", f"dimensions must lie in 1..{width}, got {request.dimensions}"
        )
    own = kind.of_request(request)
    if "prompt_name" not in own:
        own["prompt_name"] = _prompt_name(kind.model.prompts, request)
    return kind.resolve(on_truncation=request.on_truncation, **own)


def check_prompt(prompts: Mapping[str, str], name: str) -> None:
    """Raise :class:`InputError` for an unknown prompt.

    The message does not repeat the name, which may be a text. TEI's clients read the known names
    from between the brackets.
    """
    if name not in prompts:
        raise OptionError(
            "prompt_name", f"no prompt has this name. Available prompts: [{', '.join(prompts)}]"
        )


def _prompt_name(prompts: Mapping[str, str], options: CallOptions) -> str | None:
    """Return the name of the prompt that a request selects; None: the default.

    Raises :class:`InputError` for an unknown name; the message does not repeat the name, which may
    be a text.
    """
    name = options.prompt_name
    if name is not None:
        check_prompt(prompts, name)
    if name is not None or options.input_type is None:
        return name
    return query_prompt(prompts) if options.input_type == "query" else document_prompt(prompts)
