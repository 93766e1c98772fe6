"""Classifies texts by labels given in the call, with a natural language inference model.

How it works: the text is a premise, and each label makes a hypothesis (Yin et al. 2019). All
hypotheses of all texts are rows of the same packed batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from encoder_engine.errors import InputError, TruncationWarning, UnsupportedFeatureError
from encoder_engine.kinds.texts import open_texts
from encoder_engine.prediction.predictor import BATCH_TOKENS, Predictor
from encoder_engine.tasks.batching import encode_windows, window_items
from encoder_engine.tasks.labels import check_labels, softmax
from encoder_engine.tasks.predicting import predict_batches
from encoder_engine.tasks.sequence_classification import SequenceClassificationTask
from encoder_engine.warn import warn_caller

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

__all__ = ["ZeroShotClassifier", "ZeroShotPrediction"]


class ZeroShotPrediction(NamedTuple):
    """The labels of a text, the most probable first, and their scores, float64 [C]."""

    labels: tuple[str, ...]
    scores: npt.NDArray[np.float64]


class ZeroShotClassifier(Predictor):
    """Classifies texts by any labels, with a model that was fine-tuned on NLI.

    Raises :class:`UnsupportedFeatureError` for a model none of whose labels is an entailment.
    """

    tasks = ("sequence-classification",)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        task = self.task
        assert isinstance(task, SequenceClassificationTask)
        found = [_find(task.labels, start) for start in ("entail", "contra")]
        if found[0] is None:
            raise UnsupportedFeatureError(
                f"none of the labels {', '.join(task.labels)} is an entailment: this is no model "
                "of NLI; Classifier.from_pretrained predicts its own labels"
            )
        self._entailment, contradiction = found
        if contradiction is None:
            contradiction = _find(task.labels, "not")
        # Where the model has two labels, the other one.
        if contradiction is None and len(task.labels) == 2:
            contradiction = 1 - found[0]
        self._contradiction = contradiction

    def predict(
        self,
        texts: str | Iterable[str],
        labels: Sequence[str],
        *,
        template: str = "This example is {}.",
        multi_label: bool = False,
        batch_tokens: int = BATCH_TOKENS,
    ) -> Any:
        """Score each label for each text: a list, or the prediction of a single ``str``.

        labels: a list; unlike in transformers' pipeline, a string is not split at commas.
        template: the hypothesis, with ``{}`` in place of the label.
        multi_label: score each label alone, entailment against contradiction; False: the scores of
            a text's labels add up to 1. One label is always scored alone.

        A text beyond the model's limit is truncated, with a :class:`TruncationWarning`. Raises
        :class:`InputError` for no label or an empty one, for a template without ``{}``, and for
        scores of single labels where no label of the model is a contradiction.
        """
        names = check_labels(labels)
        if not isinstance(template, str) or "{}" not in template:
            raise InputError(f"template must hold {{}} at the place of a label, got {template!r}")
        alone = multi_label or len(names) == 1
        if alone and self._contradiction is None:
            raise InputError(
                "the model has no label of contradiction to score a label alone; give two labels "
                "or more, without multi_label"
            )
        opened = open_texts(texts)
        premises = list(opened.rows)
        logits = self._logits(premises, [template.replace("{}", n) for n in names], batch_tokens)
        entailed = logits[:, :, self._entailment]
        if alone:
            both = np.stack([logits[:, :, self._contradiction], entailed], axis=-1)
            scores = softmax(both.reshape(-1, 2))[:, 1].reshape(entailed.shape)
        else:
            scores = softmax(entailed)
        found = []
        for row in scores:
            order = np.argsort(-row, kind="stable")
            found.append(ZeroShotPrediction(tuple(names[n] for n in order), row[order]))
        return found[0] if opened.single else found

    def _logits(
        self, premises: list[str], hypotheses: list[str], batch_tokens: int
    ) -> npt.NDArray[np.float64]:
        """Return the NLI model's logits of each premise with each hypothesis, float64 [N, H, C]."""
        task: Any = self.task
        shape = (len(premises), len(hypotheses), len(task.labels))
        if not premises:
            return np.zeros(shape)
        encoding = encode_windows(
            self.tokenizer,
            self.windows,
            [premise for premise in premises for _ in hypotheses],
            hypotheses * len(premises),
            truncation="only_first",
        )
        items, examples = window_items(encoding), [None] * (shape[0] * shape[1])
        cut = items.num_truncated // len(hypotheses)
        if cut:
            warn_caller(
                TruncationWarning(
                    f"{cut} of {len(premises)} texts have more tokens than the model reads, and "
                    "were cut; shorten or split them",
                    num_truncated=cut,
                )
            )
        parts = predict_batches(
            self.engine, task, items, examples, batch_tokens=batch_tokens, finite=True
        )
        return np.stack([one.logits for _, part in parts for one in part]).reshape(shape)


def _find(labels: Sequence[str], start: str) -> int | None:
    names = [name.lower() for name in labels]
    return next((n for n, name in enumerate(names) if name.startswith(start)), None)
