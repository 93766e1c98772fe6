"""Computes the whole encoder of a transformers model by this engine, in memory.

How it works: ``accelerate`` replaces ``forward`` of the model's base by a :class:`ReplacedForward`.
Its first call makes an encoder of this engine over the model's own parameters (``shared.py``). Each
call checks that the modules are still those the config makes (``module_check.py``, 0.1 ms for
MiniLM), removes the padding, computes, and pads the result. With ``pack=True`` a compiled encoder
infers on a CPU; each call compares a hash of the weights that it has copies of
(``compiled_copy.py``).

Dimensions: B texts, L longest, T tokens without padding, D width, H heads.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch

from encoder_engine.errors import (
    EncoderEngineWarning,
    MissingDependencyError,
    UnsupportedFeatureError,
)
from encoder_engine.families.registry import find_family
from encoder_engine.integrations.acceleration.compiled_copy import CompiledCopy, refuse_compiled
from encoder_engine.integrations.acceleration.heads.head_hooks import HeadHooks
from encoder_engine.integrations.acceleration.heads.read_rows import ReadRows, find_read
from encoder_engine.integrations.acceleration.padded_batch import (
    PASSED_ON,
    begins_with_padding,
    global_rows,
    kept,
    warn_of_left_padding,
    warn_of_original,
    without_padding,
)
from encoder_engine.integrations.acceleration.shared import (
    SharedEncoder,
    eagerly,
    put_forward,
    read_spec,
    refuse_tracing,
    spread,
    take_forward,
)
from encoder_engine.models import EncoderOutput
from encoder_engine.ops.registry import requested
from encoder_engine.warn import warn_caller

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from torch import Tensor

    from encoder_engine.models import Encoder, EncoderSpec
    from encoder_engine.packing import PackedBatch

__all__ = ["ReplacedForward", "accelerate", "restore"]

Model = TypeVar("Model", bound=torch.nn.Module)
# Arguments that a forward here reads, and arguments that do not change its results.
READ = frozenset(
    [
        "attention_mask",
        "global_attention_mask",
        "input_ids",
        "output_attentions",
        "output_hidden_states",
        "position_ids",
        "return_dict",
        "token_type_ids",
    ]
)
IDLE = frozenset(["num_items_in_batch", "use_cache"])
_OUTPUTS: dict[tuple[type, bool], OutputForm] = {}


def accelerate(model: Model, *, pack: bool = False, full_logits: bool = False) -> Model:
    """Compute the encoder of a transformers model by this engine, in place; return the model.

    ``model``: an encoder or a model with one below its head, of the families of
    :func:`all_families` that transformers has.
    ``pack``: in evaluation mode on a CPU, without gradients, a compiled encoder computes. It has
    copies of the dense layers' weights, which take as much memory again. Each call compares a hash
    of the copied weights, and compiles the encoder again if a byte has changed. Hidden states,
    attention weights, global rows and positions of the caller's are computed as without it. An
    architecture that cannot be compiled gives a warning, and computes as without it.
    ``full_logits``: compute the logits of all tokens in training. By default a masked-language
    model that is called with labels in training mode computes its loss only for the labelled
    tokens; its ``logits`` then raise an error when they are read.

    Parameters are shared: optimisers train them, ``state_dict`` and ``save_pretrained`` write what
    they did before, and weights may be loaded, moved, cast or resized later. ``forward`` takes and
    returns padded tensors as before, in the same class of output, with dropout, autocast and
    gradient checkpointing (always non-reentrant); rows of padding are zero. A batch in which a text
    begins with padding is computed by transformers, with a warning. :func:`restore` undoes.

    Raises :class:`UnsupportedFeatureError` for another model, and for ``pack`` unless the model is
    float32 or bfloat16 on a CPU. A call raises it for arguments such as ``inputs_embeds``; for
    hooks on modules within the encoder; and for modules that differ from those the config makes
    (docs/integrations.md lists them).

    >>> import transformers
    >>> config = transformers.BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2,
    ...                                  num_attention_heads=4, intermediate_size=64)
    >>> model = accelerate(transformers.BertForMaskedLM(config).eval())
    >>> model(input_ids=torch.tensor([[2, 7, 9, 3]])).logits.shape
    torch.Size([1, 4, 50])
    >>> model = restore(model)
    """
    base = find_base(model)
    replaced = ReplacedForward(base, pack=pack)
    replaced.prepare()
    put_forward(base, replaced)
    HeadHooks(ReplacedForward, full_logits=full_logits).put(model)
    return model


def restore(model: Model) -> Model:
    """Restore transformers' forward of a model, in place; parameters are untouched.

    A model that is not accelerated stays as it is. Raises :class:`UnsupportedFeatureError` for an
    object that is not a transformers model, and if something else has replaced the forward since.
    """
    replaced = take_forward(_base_of(model), ReplacedForward)
    if replaced is not None:
        replaced.release()
    HeadHooks.take(model)
    return model


def find_base(model: Any) -> Any:
    """Return a transformers model's encoder; raises :class:`UnsupportedFeatureError` for others."""
    base = _base_of(model)
    class_name = type(base).__name__
    if not type(base).__module__.startswith("transformers."):
        raise UnsupportedFeatureError(
            f"{class_name} is defined in {type(base).__module__}, which may compute anything; "
            "supported are transformers' own classes"
        )
    architecture = find_family(read_spec(base).model_type).architecture
    if class_name != architecture:
        raise UnsupportedFeatureError(
            f"the model's base is {class_name}; of this family {architecture} is supported, alone "
            "or below a head"
        )
    return base


def _base_of(model: Any) -> Any:
    try:
        from transformers import PreTrainedModel
    except ImportError:
        raise MissingDependencyError(
            "accelerating a transformers model", library="transformers", extra="transformers"
        ) from None
    if isinstance(model, PreTrainedModel):
        return model.base_model
    message = f"this takes a model of transformers, got {type(model).__name__}"
    library = type(model).__module__.partition(".")[0]
    if library == "peft":
        message += ": pass what its merge_and_unload() returns"
    elif library == "sentence_transformers":
        message += ": use the functions of encoder_engine.integrations.sentence_transformers"
    elif isinstance(model, torch.nn.Module):
        message += (
            ": pass the transformers model within; for nn.TransformerEncoder there is "
            "encoder_engine.integrations.torch"
        )
    raise UnsupportedFeatureError(message)


class ReplacedForward:
    """What ``accelerate`` puts in the place of a transformers encoder's ``forward``.

    It is a callable, not a module, so ``state_dict`` and ``save_pretrained`` do not see it.
    """

    def __init__(self, base: Any, *, pack: bool = False) -> None:
        self.base = base
        self.pack = pack
        self._shared: SharedEncoder | None = None
        self._compiled: CompiledCopy | None = None
        self._refusal: str | None = None
        self._has_warned = self._has_warned_of_refusal = False

    @property
    def __signature__(self) -> inspect.Signature:
        """The signature of the original ``forward``."""
        plain = inspect.signature(type(self.base).forward)
        return plain.replace(parameters=list(plain.parameters.values())[1:])

    @property
    def __code__(self) -> CodeType:
        """The original ``forward``'s code: PyTorch's exporter reads argument names from it."""
        code: CodeType = inspect.unwrap(type(self.base).forward).__code__
        return code

    @property
    def recomputes(self) -> bool:
        """Return whether the last call recomputes blocks in backward (gradient checkpointing)."""
        return self._shared is not None and self._shared.recomputes

    def prepare(self) -> None:
        """Build the engine's encoder now, for its errors to be raised before the first call."""
        encoder = self._make_current().encoder
        if self.pack and not _has_kernels(encoder):
            raise UnsupportedFeatureError(
                f"pack needs float32 or bfloat16 on a CPU, this model is {encoder.dtype} on "
                f"{encoder.device}; leave it out"
            )
        self._warn_of_refusal(encoder.spec)

    def _warn_of_refusal(self, spec: EncoderSpec) -> None:
        if self._refusal is not None and not self._has_warned_of_refusal:
            self._has_warned_of_refusal = True
            message = (
                f"pack=True changes nothing for this {spec.model_type} model: {self._refusal}; it "
                "is accelerated as without pack"
            )
            warn_caller(EncoderEngineWarning(message), passed_on=PASSED_ON)

    def release(self) -> None:
        """Drop the engine's encoder and all copies of weights."""
        self._shared = self._compiled = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute what the original ``forward`` returns for these arguments."""
        refuse_tracing()
        if torch.compiler.is_compiling():
            return eagerly(self._compute, *args, **kwargs)
        return self._compute(*args, **kwargs)

    def _compute(self, *args: Any, **kwargs: Any) -> Any:
        named = self._named(args, kwargs)
        shared = self._follow()
        encoder = shared.encoder
        keep_BL = kept(named["input_ids"], named.get("attention_mask"))
        read = find_read(named["input_ids"])
        if begins_with_padding(keep_BL) or (read is not None and read.has_any(~keep_BL)):
            return self._call_original(named, read, keep_BL)
        batch = without_padding(encoder.spec, named, keep_BL)
        with_hidden = self._requested(named, "output_hidden_states")
        with_attentions = self._requested(named, "output_attentions")
        if with_attentions:
            _refuse_attentions(encoder.spec, encoder.training)
        in_all = global_rows(named, keep_BL, batch)
        rows = None
        if read is not None and read.selected:
            rows = read.rows_within(batch.sequences, keep_BL)
        is_plain = batch.position_ids is None and in_all is None and rows is None
        if is_plain and not (with_hidden or with_attentions) and self._may_compile(encoder):
            output = self._compute_compiled(encoder, batch)
        else:
            output = encoder(
                batch,
                output_hidden_states=with_hidden,
                output_attentions=with_attentions,
                output_pooled=read is None or read.output_weight is None,
                global_rows=in_all,
                rows=rows,
            )
        form = _form_of_output(self.base)
        result = form.kind(**_padded(output, keep_BL, read if rows is not None else None))
        if named.get("return_dict", self.base.config.return_dict) is not False:
            return result
        values = result.to_tuple()
        return (values[0], None, *values[1:]) if form.names_missing_pooler else values

    def _call_original(self, named: dict[str, Any], read: ReadRows | None, keep_BL: Tensor) -> Any:
        """Have transformers compute a batch that the engine does not; warn once, with the reason.

        Either texts begin with padding: heads and poolers read the first column, padding or not,
        and the engine does not compute padding. Or positions of padding have labels.
        """
        if not self._has_warned:
            self._has_warned = True
            if begins_with_padding(keep_BL):
                warn_of_left_padding("attention_mask")
            else:
                warn_of_original("labels are not -100 at padding", "set those to -100")
        given = {name: value for name, value in named.items() if name in READ}
        output = type(self.base).forward(self.base, **given)
        if read is None or not read.selected:
            return output
        rows = read.shaped(output[0][read.places_BL])
        if isinstance(output, tuple):
            return rows, *output[1:]
        output.last_hidden_state = rows
        return output

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        named = kwargs
        if args:
            # Too many are refused here as by any function, and so is what is given twice.
            placed = self.__signature__.bind_partial(*args).arguments
            twice = sorted(placed.keys() & kwargs.keys())
            if twice:
                raise TypeError(f"forward() got multiple values for argument {twice[0]!r}")
            named = placed | kwargs
        named = {name: value for name, value in named.items() if value is not None}
        kind = type(self.base).__name__
        unknown = sorted(named.keys() - READ - IDLE)
        if unknown:
            raise UnsupportedFeatureError(
                f"an accelerated {kind} does not compute {', '.join(unknown)}; leave that out, or "
                "call restore(model) to use it"
            )
        if "input_ids" not in named:
            raise UnsupportedFeatureError(
                f"an accelerated {kind} needs input_ids, and there are none; pass them, or call "
                "restore(model)"
            )
        return named

    def _requested(self, named: dict[str, Any], name: str) -> bool:
        requested = named.get(name, getattr(self.base.config, name, False))
        if not isinstance(requested, bool):
            raise UnsupportedFeatureError(
                f"an accelerated model takes {name}=True or False, not {requested!r}; pass True "
                "and index the result, or call restore(model)"
            )
        return requested

    def _follow(self) -> SharedEncoder:
        shared = self._make_current()
        self._warn_of_refusal(shared.encoder.spec)
        if shared.follow() or shared.encoder.training:
            self._compiled = None
        return shared

    def _make_current(self) -> SharedEncoder:
        # Another thread's call may replace either at any time.
        shared = self._shared
        if shared is None or not shared.is_current():
            self._compiled = None
            self._shared = shared = SharedEncoder(self.base)
            self._refusal = refuse_compiled(shared.encoder.spec) if self.pack else None
        return shared

    def _may_compile(self, encoder: Encoder) -> bool:
        if not self.pack or self._refusal is not None or not _has_kernels(encoder):
            return False
        # Autocast computes matrix products in half precision, in another order.
        gradients = encoder.training or torch.is_grad_enabled()
        return not (gradients or torch.is_autocast_enabled("cpu") or requested())

    def _compute_compiled(self, encoder: Encoder, batch: PackedBatch) -> EncoderOutput:
        compiled = self._compiled
        if compiled is None or not compiled.is_current():
            # Free the old copy before the new one is made.
            compiled = self._compiled = None
            compiled = CompiledCopy(self.base)
            self._compiled = compiled
        hidden_TD = compiled.hidden(batch)
        pooler = encoder.pooler
        return EncoderOutput(
            last_hidden_state=hidden_TD,
            sequences=batch.sequences,
            pooler_output=None if pooler is None else pooler(hidden_TD, batch.sequences),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the model and ``pack``; the engine's encoder is made again when needed."""
        return {"base": self.base, "pack": self.pack}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore from :meth:`__getstate__`; the engine's encoder is made at the next call."""
        self.__init__(state["base"], pack=state["pack"])  # type: ignore[misc]


def _has_kernels(encoder: Encoder) -> bool:
    """Return whether compiled encoders support this encoder's device and dtype."""
    return encoder.device.type == "cpu" and encoder.dtype in (torch.float32, torch.bfloat16)


def _refuse_attentions(spec: EncoderSpec, training: bool) -> None:
    if any(block.attention.global_projections for block in spec.blocks):
        raise UnsupportedFeatureError(
            f"an accelerated {spec.model_type} cannot return attention weights, which transformers "
            "lays out by window; call restore(model) first"
        )
    if training:
        raise UnsupportedFeatureError(
            "an accelerated model cannot return attention weights in training mode; call "
            "model.eval(), or restore(model), first"
        )


def _padded(output: EncoderOutput, keep_BL: Tensor, read: ReadRows | None) -> dict[str, Any]:
    """Return the fields of a ModelOutput, with packed rows in padded form.

    ``read``: the rows that the head reads; the last hidden states have only these. None: all.
    """
    last_TD = output.last_hidden_state
    last = spread(last_TD, keep_BL) if read is None else read.shaped(last_TD)
    named: dict[str, Any] = {"last_hidden_state": last}
    if output.pooler_output is not None:
        named["pooler_output"] = output.pooler_output
    if output.hidden_states is not None:
        *earlier, last_TD = output.hidden_states
        padded = [spread(rows, keep_BL) for rows in earlier]
        named["hidden_states"] = (*padded, last if read is None else spread(last_TD, keep_BL))
    if output.attentions is not None:
        named["attentions"] = tuple(_spread_both(p, keep_BL) for p in output.attentions)
    return named


def _spread_both(packed_BHMM: Tensor, keep_BL: Tensor) -> Tensor:
    """Return packed attention weights in padded form, [B, H, L, L], zero elsewhere."""
    length, num_heads, longest = keep_BL.shape[1], *packed_BHMM.shape[1:3]
    places_BL = (keep_BL.cumsum(1) - 1).clamp(min=0)
    rows = places_BL[:, None, :, None].expand(-1, num_heads, -1, longest)
    columns = places_BL[:, None, None, :].expand(-1, num_heads, length, -1)
    both_BLL = keep_BL[:, :, None] & keep_BL[:, None, :]
    spread = packed_BHMM.gather(2, rows).gather(3, columns)
    return spread.masked_fill(~both_BLL[:, None], 0.0)


class OutputForm(NamedTuple):
    """A model's output class, and whether its tuples hold None in the place of a missing pooler."""

    kind: Callable[..., Any]
    names_missing_pooler: bool


def _form_of_output(base: Any) -> OutputForm:
    """Return the form of a model's output, found by a call with one token, once per class."""
    known = type(base), getattr(base, "pooler", None) is None
    if known not in _OUTPUTS:
        forked = [base.device] if base.device.type == "cuda" else []
        token = torch.zeros(1, 1, dtype=torch.int64, device=base.device)
        with torch.no_grad(), torch.random.fork_rng(forked):
            named, plain = (
                type(base).forward(base, input_ids=token, return_dict=requested)
                for requested in (True, False)
            )
        missing = known[1] and len(plain) > 1 and plain[1] is None
        _OUTPUTS[known] = OutputForm(type(named), missing)
    return _OUTPUTS[known]
