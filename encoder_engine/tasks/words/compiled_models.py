"""Models of tasks on lists of words for the compiled engine, without PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from encoder_engine.engine.outputs import Logits, TokenStates
from encoder_engine.families.checkpoints.files import CRF_FILE, SPAN_HEAD_FILE
from encoder_engine.inference.span_head import CompiledSpanHead, span_head_shapes
from encoder_engine.tasks.engines.compiled import CompiledModel
from encoder_engine.tasks.labels import softmax

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from encoder_engine.engine.compiled import CompiledEngine
    from encoder_engine.packing.tag_paths import LegalTags
    from encoder_engine.tasks.engines.source import CompiledSource
    from encoder_engine.tasks.items import TaskBatch

    Outputs = dict[str, npt.NDArray[Any]]

__all__ = ["load_spans", "load_tagger"]


def load_tagger(
    source: CompiledSource, labels: Sequence[str], legal: LegalTags | None
) -> CompiledModel:
    """Load an encoder with a tagging head; ``legal``: the legal tags of a CRF; None: no CRF."""
    engine, scores = source.load_head("token-classification", labels), {}
    if legal is not None:
        count = len(labels)
        shapes = {"start": (count,), "end": (count,), "transitions": (count, count)}
        weights = source.read_beside(CRF_FILE, "crf", shapes)
        # -inf where illegal.
        scores = {
            name: np.where(getattr(legal, name), weights[name], -np.inf).astype(np.float32)
            for name in shapes
        }

    def compute(engine: CompiledEngine, batch: TaskBatch) -> Outputs:
        return {"logits": engine.run(batch.rows, Logits(chosen=batch.chosen))[0], **scores}

    return CompiledModel(engine, compute)


def load_spans(
    source: CompiledSource,
    num_outputs: int,
    *,
    max_width: int,
    summary: str,
    hidden: int,
    dropout: float,
) -> CompiledModel:
    """Load an encoder with a span head; for the keywords, see :class:`SpanHead`."""
    del dropout
    engine = source.load_encoder()
    shapes = span_head_shapes(engine.spec.width, num_outputs, hidden=hidden, summary=summary)
    head = CompiledSpanHead(source.read_beside(SPAN_HEAD_FILE, "head", shapes), max_width=max_width)

    def compute(engine: CompiledEngine, batch: TaskBatch) -> Outputs:
        chosen = batch.chosen
        assert chosen is not None
        rows_MD = engine.run(batch.rows, TokenStates())[0][chosen]
        offsets = np.searchsorted(chosen, batch.rows.cu_seqlens)
        logits_SC = head(rows_MD, offsets, num_threads=engine.num_threads)
        return {"probabilities": softmax(logits_SC.astype(np.float64)).astype(np.float32)}

    return CompiledModel(engine, compute)
