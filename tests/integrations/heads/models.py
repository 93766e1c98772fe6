"""Models with heads, without dropout, and labelled batches for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from tests.integrations.test_transformers import dropless
from tests.models.cases import CASES, Case, one_per_family
from tests.models.test_families import padded_inputs, token_rows

LENGTHS = [9, 1, 17, 17, 3]
IGNORED = -100
HEAD_DROPOUTS = ("classifier_dropout_prob", "seq_classif_dropout")


def with_head(case: Case, head: str) -> Case:
    """Return the case of a family's model with a head."""
    return replace(case, model_class=f"{case.model_class.removesuffix('Model')}For{head}")


def has_head(case: Case, head: str) -> bool:
    """Return whether transformers has the class."""
    import transformers

    return hasattr(transformers, with_head(case, head).model_class)


def heads(head: str) -> list[Case]:
    """Return one model of every family that has the head."""
    return [with_head(case, head) for case in one_per_family() if has_head(case, head)]


def build(case: Case, **changes: Any) -> Any:
    """Make a model of a case in training mode, without dropout."""
    import transformers

    known = getattr(transformers, case.config_class)().to_dict()
    rates = {key: 0.0 for key in HEAD_DROPOUTS if key in known}
    return dropless(replace(case, sizes=case.sizes | rates | changes)).train()


def bert(head: str = "MaskedLM", **changes: Any) -> Any:
    """Make a small BERT with a head in training mode, without dropout."""
    return build(with_head(CASES[0], head), **changes)


def labelled_batch(model: Any, *, seed: int = 0) -> dict[str, torch.Tensor]:
    """Return a batch in which about a third of the tokens have labels."""
    ids, mask = padded_inputs(model, token_rows(LENGTHS))
    generator = torch.Generator().manual_seed(seed)
    chosen = (torch.rand(ids.shape, generator=generator) < 0.3) & mask.bool()
    labels = torch.where(chosen, ids, IGNORED)
    labels[0, 1] = ids[0, 1]
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def loss_and_gradients(
    model: Any, batch: dict[str, torch.Tensor], **more: Any
) -> dict[str, torch.Tensor]:
    """Return the loss and the gradient of every parameter that has one, by name."""
    model.zero_grad()
    loss = model(**batch, **more).loss
    loss.backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return {"loss": loss.detach(), **found}
