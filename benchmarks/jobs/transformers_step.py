"""A training step of transformers' model with our weights, in its fastest configurations.

Sequences are padded to the longest; of equal length, no mask is given, so that SDPA may take its
fastest kernel. The batch is on the device beforehand, and the gradient's norm stays there: nothing
waits for the device but the loss, where it is read. Compiled, cuDNN's attention is taken first.
"""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
import weakref
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.jobs.training_step import OPTIMIZER

if TYPE_CHECKING:
    from collections.abc import Callable

    from encoder_engine.models.training_model import Inputs, TrainingModel

VARLEN = "varlen"
# cuDNN's is the fastest of them on Hopper; PyTorch takes FlashAttention-2 first.
BACKENDS = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
# The folders of models, each of which several candidates load.
_saved: weakref.WeakKeyDictionary[TrainingModel, str] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, kw_only=True)
class Way:
    """Settings with which transformers' model is trained.

    - ``auto``: the name of the class that loads it.
    - ``masked_rows``: project the masked rows alone to the vocabulary, by hand. Without it the
      library's own loss is taken, which projects every row.
    - ``packed``: the sequences end to end, by flash-attn where it is installed, else by torch's
      ``varlen_attn``; no padding is computed.
    - ``compiled``: torch compiles the blocks (one is compiled, and all have its code) and the head
      with the loss; with ``graphs``, captured as CUDA graphs.
    """

    auto: str = "AutoModelForMaskedLM"
    masked_rows: bool = False
    packed: bool = False
    compiled: bool = False
    graphs: bool = False


def make_their_step(
    model: TrainingModel, inputs: Inputs, way: Way, *, device: str, precision: str
) -> Callable[[], Tensor]:
    """Load our weights into transformers' model; return a call that takes a step.

    The call returns the loss before the step's update, on the device.
    """
    theirs = _load(model, way).to(device).train()
    if way.compiled:
        mode = "reduce-overhead" if way.graphs else None
        for block in next(m for m in theirs.modules() if isinstance(m, nn.ModuleList)):
            block.compile(dynamic=False, mode=mode)
    loss_of = _make_loss(theirs, inputs, way, device)
    decayed = [p for p in theirs.parameters() if p.dim() >= 2]
    others = [p for p in theirs.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": OPTIMIZER.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=OPTIMIZER.learning_rate,
        betas=OPTIMIZER.betas,
        eps=OPTIMIZER.epsilon,
        fused=True,
    )
    assert OPTIMIZER.clip_norm is not None
    clip_norm = OPTIMIZER.clip_norm
    half = precision in ("bfloat16", "float16")

    def step() -> Tensor:
        if way.graphs:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        with ExitStack() as contexts:
            if half:
                contexts.enter_context(torch.autocast(device, getattr(torch, precision)))
            if way.compiled and device == "cuda":
                contexts.enter_context(sdpa_kernel(BACKENDS, set_priority=True))
            loss = loss_of()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(theirs.parameters(), clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def saved(model: TrainingModel) -> str:
    """Return a temporary folder with the model's checkpoint; it is deleted with the model."""
    if model not in _saved:
        folder = tempfile.TemporaryDirectory()
        weakref.finalize(model, folder.cleanup)
        model.save_pretrained(folder.name)
        _saved[model] = folder.name
    return _saved[model]


def _load(model: TrainingModel, way: Way) -> Any:
    import transformers

    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if way.packed:
        transformers.AttentionInterface.register(VARLEN, make_packed_attention())
    return getattr(transformers, way.auto).from_pretrained(
        saved(model), attn_implementation=VARLEN if way.packed else "sdpa"
    )


def _make_loss(theirs: Any, inputs: Inputs, way: Way, device: str) -> Callable[[], Tensor]:
    """Return a function that computes the mean loss of the batch."""
    inputs = inputs.to(device)
    sequences = inputs.batch.sequences
    given = _packed(theirs, inputs) if way.packed else _padded(inputs)
    if "target" in inputs.targets:
        targets = inputs.targets["target"]
        return lambda: F.cross_entropy(theirs(**given).logits.float(), targets)
    assert inputs.rows is not None
    rows, labels = inputs.rows.rows[inputs.targets["rows"]], inputs.targets["labels"]
    if not way.packed:
        rows = sequences.sequence_ids[rows] * sequences.max_seqlen + sequences.positions[rows]
    dense = torch.full((given["input_ids"].numel(),), -100, device=device)
    dense[rows] = labels
    if not way.masked_rows and not way.compiled:
        shaped = dense.view(given["input_ids"].shape)
        return lambda: theirs(**given, labels=shaped).loss

    def head(hidden_BLD: Tensor) -> Tensor:
        hidden_ND = hidden_BLD.flatten(0, 1)
        if way.masked_rows:
            hidden_ND = hidden_ND[rows]
        # BERT's head holds the projection, ModernBERT's does not.
        own = getattr(theirs, "cls", None)
        logits = own(hidden_ND) if own is not None else theirs.decoder(theirs.head(hidden_ND))
        return F.cross_entropy(logits.float(), labels if way.masked_rows else dense)

    project = torch.compile(head, dynamic=False) if way.compiled else head
    return lambda: project(theirs.base_model(**given)[0])


def _padded(inputs: Inputs) -> dict[str, Tensor]:
    sequences = inputs.batch.sequences
    shape = (len(sequences), sequences.max_seqlen)
    ids = inputs.batch.input_ids.new_zeros(shape, dtype=torch.int64)
    place = (sequences.sequence_ids, sequences.positions)
    ids[place] = inputs.batch.input_ids.long()
    if len(set(sequences.lengths.tolist())) == 1:
        return {"input_ids": ids}
    mask = torch.zeros_like(ids)
    mask[place] = 1
    # A mask of a row for each sequence would be looked at on the host, whether it hides anything.
    return {"input_ids": ids, "attention_mask": mask[:, None, None, :].bool()}


def _packed(theirs: Any, inputs: Inputs) -> dict[str, Any]:
    sequences = inputs.batch.sequences
    return {
        "input_ids": inputs.batch.input_ids.long()[None],
        "position_ids": sequences.positions.long()[None],
        # A mask by kind of layer is taken as it is; packed sequences need none.
        "attention_mask": dict.fromkeys(set(theirs.config.layer_types)),
        "ends": sequences.cu_seqlens,
        "longest": sequences.max_seqlen,
    }


def make_packed_attention() -> Callable[..., tuple[Tensor, None]]:
    """Make an attention function as transformers registers them, for sequences laid end to end."""
    attend: Any = importlib.import_module("torch.nn.attention.varlen").varlen_attn
    scale = "scale"
    if importlib.util.find_spec("flash_attn"):
        attend = importlib.import_module("flash_attn").flash_attn_varlen_func
        scale = "softmax_scale"

    def attend_packed(
        _module: nn.Module,
        query_BHTD: Tensor,
        key_BHTD: Tensor,
        value_BHTD: Tensor,
        _mask: Tensor | None,
        *,
        scaling: float,
        ends: Tensor,
        longest: int,
        sliding_window: int | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        query, key, value = (x[0].transpose(0, 1) for x in (query_BHTD, key_BHTD, value_BHTD))
        # As for FlashAttention, transformers counts the token itself.
        side = -1 if sliding_window is None else sliding_window - 1
        output_THD = attend(
            *(query, key, value, ends, ends, longest, longest),
            window_size=(side, side),
            **{scale: scaling},
        )
        return output_THD[None], None

    return attend_packed
