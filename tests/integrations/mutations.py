"""Accelerated models beside plain ones under the same random changes: equal, or refused by name.

    python -m tests.integrations.mutations --cases 2000 --seed 1

Each case draws a model of transformers, with or without a head, or PyTorch's own encoder, a copy of
which is accelerated. Both get the same changes of weights, modules, hooks, configuration or modes,
and the same batches, padded at either side. Outputs and gradients must lie within the budget that
the plain model's error against float64 sets, or the accelerated model must raise one of
``encoder_engine.errors``. Where a plain model fails itself, nothing is asked of the other.
"""

from __future__ import annotations

import argparse
import collections
import copy
import sys
import warnings
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import nn

from encoder_engine.errors import EncoderEngineError
from encoder_engine.integrations import torch as torch_door
from encoder_engine.integrations import transformers as door
from encoder_engine.ops.testing import floor, largest, max_error
from tests.integrations.mutation_kinds import CHANGING, COMPUTED, encoder_of, undo_all
from tests.integrations.peer_suite import HEADS
from tests.integrations.sums import terms_of, terms_of_gradients
from tests.integrations.test_transformers import NO_DROPOUT
from tests.models.cases import CASES, VOCAB_SIZE, Case
from tests.models.exact import in_float64

WAYS = ("accelerated", "accelerated", "packed", "packed", "our attention")
SIDES = ("none", "right", "right", "right", "left", "holes")
MASKS = (torch.int64, torch.int64, torch.bool, torch.float32, torch.uint8, None)
WIDTH = 32


@dataclass
class Tally:
    """What became of the cases."""

    equal: int = 0
    refused: int = 0
    plain_failed: int = 0
    wrong: list[str] = field(default_factory=list)
    kinds: collections.Counter[str] = field(default_factory=collections.Counter)

    def __str__(self) -> str:
        return (
            f"{self.equal} calls equal, {self.refused} refused by a typed error, "
            f"{self.plain_failed} failed as it comes, {len(self.wrong)} wrong"
        )


class Drawn:
    """One case: a plain model and the same accelerated, changed and called alike."""

    def __init__(self, seed: int, index: int, tally: Tally) -> None:
        self.rng = Random(f"{seed}/{index}")
        self.name = f"case {index}"
        self.tally = tally
        self.log: list[str] = []
        self.may_refuse = False
        self.way = self.rng.choice(WAYS)
        self.is_torch = self.rng.random() < 0.1
        self.plain = self._torch_model() if self.is_torch else self._transformers_model()
        self.attentions = not self.is_torch and self.rng.random() < 0.1
        if self.attentions:
            self.plain.set_attn_implementation("eager")
        self.ours = copy.deepcopy(self.plain)

    def _transformers_model(self) -> Any:
        import transformers

        case = self.rng.choice(CASES)
        stem = case.model_class.removesuffix("Model").removesuffix("Encoder")
        names = [case.model_class, *(f"{stem}For{head}" for head in HEADS)]
        names = [n for n in names if hasattr(transformers, n) and not n.startswith("T5ForS")]
        name = self.rng.choice([n for n in names if not n.endswith(("T5ForQuestionAnswering",))])
        known = getattr(transformers, case.config_class)().to_dict()
        changes = {k: v for k, v in (NO_DROPOUT | {"dropout_rate": 0.0}).items() if k in known}
        self.log.append(name)
        if self.way == "our attention" and case.model_type in (
            *("deberta-v2", "longformer", "mpnet", "t5"),
        ):
            self.way = "packed"
        return Case(case.model_type, case.config_class, name, case.sizes).build(
            seed=self.rng.randrange(1000), **changes
        )

    def _torch_model(self) -> Any:
        torch.manual_seed(self.rng.randrange(1000))
        self.log.append("TransformerEncoder")
        layer = nn.TransformerEncoderLayer(
            WIDTH,
            4,
            48,
            0.0,
            batch_first=self.rng.random() < 0.5,
            norm_first=self.rng.random() < 0.5,
            activation=self.rng.choice(["relu", "gelu"]),
        )
        norm = self.rng.choice([None, nn.LayerNorm(WIDTH)])
        encoder = nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False)
        with torch.no_grad():
            for parameter in encoder.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        return encoder.eval()

    def accelerate(self) -> None:
        """Accelerate the copy."""
        self.log.append(self.way)
        if self.is_torch:
            torch_door.accelerate(self.ours)
        elif self.way == "our attention":
            door.register()
            self.ours.set_attn_implementation(door.NAME)
        else:
            door.accelerate(self.ours, pack=self.way == "packed")

    def mutate(self) -> bool:
        """Change both alike; say whether the plain model could be changed so."""
        changing = self.rng.random() < 0.4
        kinds = CHANGING if changing else COMPUTED
        name = self.rng.choice(list(kinds))
        self.log.append(name)
        self.tally.kinds[name] += 1
        self.may_refuse |= changing
        state = self.rng.getstate()
        try:
            kinds[name](self.plain, self.rng)
        except Exception:  # Whatever a change raises, it could not be made.
            return False
        if name in ("global_hook", "patched_class"):
            return True
        self.rng.setstate(state)
        kinds[name](self.ours, self.rng)
        return True

    def run(self) -> None:
        """Change and call, some times over."""
        early = self.rng.random() < 0.5
        try:
            if early:
                self.accelerate()
                self.call()
            for _ in range(self.rng.choice([1, 1, 2, 3])):
                if not self.mutate():
                    self.tally.plain_failed += 1
                    return
                if early and self.rng.random() < 0.5:
                    self.call()
            if not early:
                self.accelerate()
            self.call()
            if self.rng.random() < 0.3:
                self.call()
        except EncoderEngineError as error:
            self.tally.refused += 1
            if not self.may_refuse:
                self._wrong(f"refused, but should be computed: {error}")
        except DifferenceError as difference:
            self._wrong(str(difference))
        except PlainError:
            self.tally.plain_failed += 1
        except Exception as error:  # What is no typed error is a fault of ours.
            self._wrong(f"untyped {type(error).__name__}: {error}")
        finally:
            undo_all()

    def _wrong(self, text: str) -> None:
        self.tally.wrong.append(f"{self.name}: {' > '.join(self.log)}: {text[:600]}")

    def call(self) -> None:
        """Call both with one batch, and compare."""
        batch, keep, side = self._torch_batch() if self.is_torch else self._batch()
        with_gradients = self.rng.random() < 0.3
        training = with_gradients and self.rng.random() < 0.5
        if self.rng.random() < 0.3:
            # Somebody evaluates or trains between.
            self.plain.train(training)
            self.ours.train(training)
        half = self.rng.random() < 0.1
        told = ", ".join(batch)
        self.log.append(f"call({side}, {told}, grad={with_gradients}, autocast={half})")
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            try:
                eager = _outputs(self.plain, batch, with_gradients)
            except Exception as error:
                raise PlainError from error
            ours = _outputs(self.ours, batch, with_gradients)
        truth = self._truth(batch, with_gradients)
        if truth is None:
            # There is nothing to measure the plain model's own error by.
            truth = {name: tensor.double() for name, tensor in eager.items()}
            if not all(bool(torch.isfinite(t).all()) for t in truth.values()):
                return
        first = keep[:, :1] == 0
        seen = keep | torch.cat([first, torch.zeros_like(keep[:, 1:])], 1)
        size = largest(*(t for name, t in truth.items() if name.startswith("grad")))
        for name, found in eager.items():
            if name not in ours:
                raise DifferenceError(f"{name} is missing")
            # Under autocast what is between is stored in half precision.
            stored = torch.bfloat16 if half else found.dtype
            self._compare(name, (ours[name], found, truth[name]), seen, size, stored)
        self.tally.equal += 1

    def _truth(self, batch: dict[str, Any], gradients: bool) -> dict[str, torch.Tensor] | None:
        try:
            exact = copy.deepcopy(self.plain)
        except RuntimeError:  # A pruned weight cannot be copied.
            return None
        with in_float64():
            exact = exact.double()
            if not self.is_torch:
                _exact_tables(exact)
            raised = {
                k: v.double() if v is not None and k == "src" else v for k, v in batch.items()
            }
            found = _outputs(exact, raised, gradients)
        finite = all(bool(torch.isfinite(t).all()) for t in found.values())
        return found if finite else None

    def _compare(
        self,
        name: str,
        values: tuple[torch.Tensor, ...],
        seen: torch.Tensor,
        size: float,
        stored: torch.dtype,
    ) -> None:
        ours, eager, truth = values
        if ours.shape != eager.shape:
            raise DifferenceError(f"{name} is {list(ours.shape)}, plain {list(eager.shape)}")
        rows = self._rows(name, ours, seen)
        num_tokens = seen.numel()
        if name.startswith("grad"):
            terms, biggest = terms_of_gradients(self.plain, num_tokens=num_tokens), size
        else:
            ours, eager, truth = ours[rows], eager[rows], truth[rows]
            terms = terms_of(self.plain, num_tokens=seen.shape[1])
            biggest = largest(truth)
        allowed = 2 * max_error(eager, truth) + floor(
            truth, stored, terms=terms, size=max(biggest, largest(truth))
        )
        error = max_error(ours, truth)
        if error > allowed:
            raise DifferenceError(f"{name}: error {error:.2e}, plain {max_error(eager, truth):.2e}")

    def _rows(self, name: str, found: torch.Tensor, seen: torch.Tensor) -> Any:
        if not self.is_torch and found.dim() > 2 and len(found) == 2 * len(seen):
            # Two choices for each text.
            seen = seen.repeat_interleave(2, 0)
        if found.dim() == 4 and found.shape[2:] == (seen.shape[1],) * 2:
            return (seen[:, None, :, None] & seen[:, None, None, :]).expand(found.shape)
        swapped = self.is_torch and not encoder_of(self.plain).layers[0].self_attn.batch_first
        seen = seen.T if swapped and not name.startswith("grad") else seen
        return seen if found.shape[:2] == seen.shape else ...

    def _mask(self, num_texts: int, length: int) -> tuple[torch.Tensor, str]:
        side = self.rng.choice(SIDES)
        mask = torch.ones(num_texts, length, dtype=torch.int64)
        for row in range(1, num_texts):
            dropped = self.rng.randrange(length)
            if side == "right":
                mask[row, length - dropped :] = 0
            elif side == "left":
                mask[row, :dropped] = 0
            elif side == "holes" and length > 2:
                self.may_refuse = True
                mask[row, 1 + dropped // 2 : 1 + dropped // 2 + self.rng.randrange(length // 2)] = 0
        return mask, side

    def _batch(self) -> tuple[dict[str, Any], torch.Tensor, str]:
        generator = torch.Generator().manual_seed(self.rng.randrange(2**30))
        num_texts, length = self.rng.randint(1, 4), self.rng.choice([1, 3, 9, 24])
        ids = torch.randint(5, VOCAB_SIZE, (num_texts, length), generator=generator)
        mask, side = self._mask(num_texts, length)
        config = self.plain.config
        if type(self.plain).__name__.endswith("MultipleChoice"):
            ids, mask_given = ids[:, None].expand(-1, 2, -1), mask[:, None].expand(-1, 2, -1)
            ids = torch.stack([ids[:, 0], (ids[:, 0] + 3) % VOCAB_SIZE], 1)
        else:
            mask_given = mask
        ids = torch.where(mask_given.bool(), ids, config.pad_token_id or 0)
        batch: dict[str, Any] = {"input_ids": ids}
        dtype = self.rng.choice(MASKS)
        if dtype is not None:
            batch["attention_mask"] = mask_given.to(dtype)
        elif side != "none":
            batch["attention_mask"] = mask_given
        if self.rng.random() < 0.2:
            batch["output_hidden_states"] = True
        if self.rng.random() < 0.2 and getattr(config, "type_vocab_size", 0) > 1:
            batch["token_type_ids"] = ids % 2
        if self.rng.random() < 0.15:
            batch["return_dict"] = False
        if self.rng.random() < 0.1 and ids.dim() == 2:
            first = 2 + (config.pad_token_id or 0)
            batch["position_ids"] = torch.arange(first, first + length).expand(num_texts, -1)
        if self.attentions and self.rng.random() < 0.5:
            self.may_refuse = True
            batch["output_attentions"] = True
        return batch, mask.bool(), side

    def _torch_batch(self) -> tuple[dict[str, Any], torch.Tensor, str]:
        generator = torch.Generator().manual_seed(self.rng.randrange(2**30))
        num_texts, length = self.rng.randint(1, 4), self.rng.choice([1, 3, 9, 24])
        rows = torch.randn(num_texts, length, WIDTH, generator=generator)
        mask, side = self._mask(num_texts, length)
        if not encoder_of(self.plain).layers[0].self_attn.batch_first:
            rows = rows.transpose(0, 1).contiguous()
        batch: dict[str, Any] = {"src": rows}
        if side != "none":
            batch["src_key_padding_mask"] = mask == 0
        return batch, mask.bool(), side


class DifferenceError(Exception):
    """Ours is not within the budget."""


class PlainError(Exception):
    """The plain model cannot compute it."""


def _outputs(model: Any, batch: dict[str, Any], gradients: bool) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    with torch.set_grad_enabled(gradients):
        result = model(**batch)
        found = _flat("", result)
        if gradients:
            main = next(iter(found.values()))
            keep = batch.get("attention_mask", batch.get("src_key_padding_mask"))
            # Of a token that is always there: the first text has no padding.
            main = main[:, :1] if "src" in batch and keep is not None else main[:1]
            weights = torch.linspace(-1, 1, main.numel(), dtype=torch.float64).to(main.dtype)
            model.zero_grad()
            if main.requires_grad:
                loss: Any = (main * weights.view_as(main)).sum()
                loss.backward()
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    found[f"grad {name}"] = parameter.grad.clone()
            model.zero_grad()
    return {name: tensor.detach() for name, tensor in found.items()}


def _flat(name: str, value: Any) -> dict[str, torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return {name: value}
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, (tuple, list)):
        items = [(str(place), one) for place, one in enumerate(value)]
    else:
        return {}
    return {k: v for key, one in items for k, v in _flat(f"{name}.{key}", one).items()}


def _exact_tables(model: Any) -> None:
    """Make tables of angles anew where they are only rounded."""
    base = encoder_of(model)
    try:
        again = dict(type(base)(copy.deepcopy(base.config)).named_buffers())
    except Exception:  # A configuration that makes no model any more.
        return
    for name, table in base.named_buffers():
        made = again.get(name)
        if (
            made is not None
            and made.is_floating_point()
            and made.shape == table.shape
            and torch.equal(made.float(), table.float())
        ):
            table.copy_(made)


def run(cases: int, seed: int, *, first: int = 0) -> Tally:
    """Draw and run cases."""
    tally = Tally()
    for index in range(first, first + cases):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Drawn(seed, index, tally).run()
    return tally


def main() -> int:
    """Run as asked, and say what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first case's number")
    options = parser.parse_args()
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    tally = run(options.cases, options.seed, first=options.first)
    print(*tally.wrong, sep="\n")
    print(", ".join(f"{name} {count}" for name, count in sorted(tally.kinds.items())))
    print(tally)
    return int(bool(tally.wrong))


if __name__ == "__main__":
    sys.exit(main())
