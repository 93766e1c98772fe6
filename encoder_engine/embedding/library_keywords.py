"""Keyword arguments that scripts for sentence-transformers pass: either accepted or refused.

Each class lists the keywords of its counterpart in sentence-transformers. A value that requests
the result of another method is refused, and the message names that method; an unknown keyword is a
``TypeError``.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, cast

from encoder_engine.errors import InputError
from encoder_engine.json_values import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "CommonKeywords",
    "HybridKeywords",
    "LibraryKeywords",
    "PairKeywords",
    "SparseKeywords",
    "TokenKeywords",
    "check_keywords",
    "check_names",
    "naming",
    "refuse_forms",
    "resolve_output",
    "resolve_sparse_output",
]

Output = Literal["numpy", "torch"]
SparseOutput = Literal["vectors", "sparse", "dense"]
Method = TypeVar("Method", bound="Callable[..., Any]")
# The first argument of a call in other libraries.
_FIRST = ("sentences", "inputs")
# The methods whose names are those of other libraries.
_THEIRS = ("encode", "encode_query", "encode_document", "predict")


class CommonKeywords(TypedDict, total=False):
    """Keywords of all ``encode`` and ``predict`` of sentence-transformers, and the accepted values.

    device: the device that the model is on.
    pool, chunk_size: None; for several processes, run a job over files with ``workers=``.
    processing_kwargs: None; the limit of tokens is the model's ``max_seq_length``.
    """

    device: Any
    pool: None
    chunk_size: None
    processing_kwargs: None


class LibraryKeywords(CommonKeywords, total=False):
    """More keywords of ``SentenceTransformer.encode``, and the accepted values.

    convert_to_numpy: True, as by default.
    output_value: ``"sentence_embedding"``; ``"token_embeddings"`` is :meth:`encode_tokens`.
    task: None; an adapter is chosen at loading, ``from_pretrained(task=)``.

    Others: see :class:`CommonKeywords`.
    """

    convert_to_numpy: bool
    output_value: str | None
    task: None


class PairKeywords(CommonKeywords, total=False):
    """More keywords of ``CrossEncoder.predict``, and the accepted values.

    convert_to_numpy: True, as by default.

    Others: see :class:`CommonKeywords`.
    """

    convert_to_numpy: bool


class SparseKeywords(CommonKeywords, total=False):
    """More keywords of ``SparseEncoder.encode``, and the accepted values.

    save_to_cpu: True, or False where the model is on the CPU. Results are always on the CPU.

    Others: see :class:`CommonKeywords`.
    """

    save_to_cpu: bool


class TokenKeywords(CommonKeywords, total=False):
    """More keywords of ``MultiVectorEncoder.encode``, and the accepted values.

    convert_to_numpy: True, as by default.
    convert_to_tensor: False; the result has one vector for each token.
    output_value: ``"token_embeddings"``.
    token_pooling: None.

    Others: see :class:`CommonKeywords`.
    """

    convert_to_numpy: bool
    convert_to_tensor: bool
    output_value: str | None
    token_pooling: None


class HybridKeywords(CommonKeywords, total=False):
    """Keywords of sentence-transformers for :meth:`HybridEmbedder.encode`, and the accepted values.

    convert_to_numpy: True, as by default.
    convert_to_tensor: False.

    Others: see :class:`CommonKeywords`.
    """

    convert_to_numpy: bool
    convert_to_tensor: bool


def naming(first: str) -> Callable[[Method], Method]:
    """Return a decorator that has a method refuse arguments in the form of other libraries.

    Refused are ``sentences=`` and ``inputs=``, with a message that names ``first``, the name of the
    method's own argument; positional arguments in the order of sentence-transformers; and a
    prompt's name as second argument, where the method takes the prompt's text.
    """

    def decorate(method: Method) -> Method:
        most = method.__code__.co_argcount

        @wraps(method)
        def call(*arguments: Any, **options: Any) -> Any:
            for name in _FIRST:
                if name in options:
                    raise InputError(
                        f"{method.__name__}({name}=...) is of another library: pass the values "
                        f"first, or as {first}="
                    )
            if method.__name__ in _THEIRS:
                _refuse_order(f"{method.__name__}({first}", arguments[2:], most - 2)
            second = arguments[2] if len(arguments) > 2 else None
            if isinstance(second, str) and second in getattr(arguments[0], "prompts", ()):
                raise InputError(
                    f"{method.__name__}({first}, {second!r}) would put this word before every "
                    f"text: pass prompt_name={second!r} for the prompt of that name, or "
                    f"prompt={second!r}"
                )
            return method(*arguments, **options)

        return cast("Method", call)

    return decorate


def _refuse_order(call: str, values: tuple[Any, ...], most: int) -> None:
    """Raise :class:`InputError` for positional arguments in sentence-transformers' order.

    call: the beginning of the call, for the message.
    values: the arguments from the second on.
    most: how many of them the method takes.
    """
    is_former = bool(values) and isinstance(values[0], int)
    is_current = len(values) > 2 and type(values[2]) is int
    if is_former or is_current or len(values) > most:
        names = ("prompt_name", "prompt", "batch_size", "show_progress_bar")[2 * is_former :]
        given = zip(names, values, strict=False)
        named = [f"{name}={value!r}" for name, value in given if value is not None]
        if len(values) > len(names):
            named.append("the others by their names")
        raise InputError(
            f"{call}, {', '.join(map(repr, values))}) has the order of another library: pass "
            f"{', '.join(named) or 'all but the first by name'}"
        )


def check_names(method: str, keywords: Mapping[str, Any], known: Any) -> None:
    """Raise ``TypeError`` for a keyword that ``known``, a class of keywords, does not list."""
    for name in keywords:
        if name not in known.__annotations__:
            advice = nearest(name, dict.fromkeys([*known.__annotations__, "batch_size", "prompt"]))
            raise TypeError(f"{method}() got an unexpected keyword argument {name!r}{advice}")


def check_keywords(
    method: str, keywords: Mapping[str, Any], known: Any, *, device: str, job: str | None
) -> None:
    """Raise an error for a keyword of sentence-transformers, or a value of it, that is refused.

    known: the class that lists the known keywords.
    device: the device of the model.
    job: the method that runs several processes; None: no method does.

    Raises :class:`InputError`, and ``TypeError`` for a keyword that is not known.
    """
    check_names(method, keywords, known)
    wanted = keywords.get("device")
    if wanted is not None and not _is_same(str(wanted), device):
        raise InputError(
            f"device={str(wanted)!r}, but the model is on {device}: choose the device at loading, "
            "from_pretrained(..., device=)"
        )
    for name in ("pool", "chunk_size"):
        if keywords.get(name) is not None:
            others = f"; for several processes or GPUs, see {job}(workers=)" if job else ""
            raise InputError(f"{name}= is not implemented: one process uses all threads{others}")
    for name, ours in (
        ("processing_kwargs", "set the limit of tokens by max_seq_length"),
        ("token_pooling", "every token keeps its vector"),
    ):
        if keywords.get(name) is not None:
            raise InputError(f"{name}= is not implemented: {ours}")


def resolve_output(
    method: str,
    keywords: Mapping[str, Any],
    *,
    output: str = "numpy",
    convert_to_tensor: bool,
    device: str,
    known: Any = LibraryKeywords,
    job: str = "encode_dataset",
) -> Output:
    """Return the array type of vectors that ``output`` and the keywords request.

    Exceptions: see :func:`check_keywords`.
    """
    check_keywords(method, keywords, known, device=device, job=job)
    if output not in ("numpy", "torch"):
        raise InputError(f"output must be 'numpy' or 'torch', got {output!r}")
    if keywords.get("task") is not None:
        raise InputError(
            f"task={keywords['task']!r} is not implemented: encode_query and encode_document have "
            "the prompts of a task, and from_pretrained(..., task=) chooses its adapter"
        )
    value = keywords.get("output_value", "sentence_embedding")
    if value == "token_embeddings":
        raise InputError(
            "output_value='token_embeddings' has a method of its own: encode_tokens(texts)"
        )
    if value != "sentence_embedding":
        raise InputError(
            f"output_value={value!r} is not implemented; encode(texts) returns sentence "
            "embeddings, encode_tokens(texts) token embeddings"
        )
    if convert_to_tensor:
        return "torch"
    if not keywords.get("convert_to_numpy", True) and output == "numpy":
        raise InputError(
            "convert_to_numpy=False asks for a list of tensors, which is not implemented: pass "
            "convert_to_tensor=True for one tensor of all rows"
        )
    return "torch" if output == "torch" else "numpy"


def resolve_sparse_output(
    method: str,
    keywords: Mapping[str, Any],
    known: Any,
    *,
    convert_to_tensor: bool | None,
    convert_to_sparse_tensor: bool | None,
    device: str,
) -> SparseOutput:
    """Return the form of sparse vectors that the keywords request; default: :class:`SparseVectors`.

    Exceptions: see :func:`check_keywords`.
    """
    check_keywords(method, keywords, known, device=device, job="encode_dataset")
    if keywords.get("save_to_cpu") is False and device.partition(":")[0] != "cpu":
        raise InputError(
            "save_to_cpu=False asks for a tensor on the model's device, which is not implemented: "
            f"pass convert_to_tensor=True and call .to({device!r})"
        )
    if convert_to_tensor is False:
        raise InputError(
            "convert_to_tensor=False asks for a list of tensors, which is not implemented: without "
            "it, the result is SparseVectors, whose rows are found.row(number)"
        )
    if convert_to_tensor is None and convert_to_sparse_tensor is None:
        return "vectors"
    return "dense" if convert_to_sparse_tensor is False else "sparse"


def refuse_forms(keywords: Mapping[str, Any], ours: str) -> None:
    """Raise :class:`InputError` for keywords that ask for a tensor, or for one vector of a text.

    ``ours``: how the arrays of the result are written, such as ``found.dense``; for the message.
    """
    if keywords.get("convert_to_tensor") or not keywords.get("convert_to_numpy", True):
        raise InputError(
            f"the result is not one array, and tensors of its parts are not implemented: {ours} "
            "are NumPy arrays, which torch.from_numpy takes"
        )
    value = keywords.get("output_value", "token_embeddings")
    if value != "token_embeddings":
        raise InputError(
            f"output_value={value!r} is not implemented: the result has the vectors of the tokens "
            "and their ids"
        )


def _is_same(wanted: str, device: str) -> bool:
    """Return whether a requested device is the model's; ``"cuda"`` is any of its GPUs."""
    return wanted in (device, device.partition(":")[0])
