"""Trains the same model by transformers' loop and by ours on the same text, several seeds each.

transformers takes its own model, collator and optimizer; both see as many tokens of the same
blocks, and both are then judged by one evaluation. Prints held-out losses and tokens a second::

    python -m tests.training.side_by_side_long CORPUS --steps 1000 --set batch.tokens=2048
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from encoder_engine.models.heads import MaskedLM
from encoder_engine.training import Trainer
from encoder_engine.training.pretraining.recipe_reader import find_recipe
from encoder_engine.training.schedule import learning_rate_factor


def train_ours(
    corpus: str, steps: int, seed: int, folder: Path, chosen: list[str]
) -> tuple[Trainer, float, float]:
    """Return the trainer, its held-out loss, and tokens a second."""
    settings = [f"data.corpus={corpus}", f"run.steps={steps}", f"run.seed={seed}"]
    settings += [f"run.evaluate_every={steps}", f"run.checkpoint_every={steps}", *chosen]
    trainer = Trainer(find_recipe("tiny", settings), folder)
    speeds: list[float] = []
    scores = trainer.run(lambda progress: speeds.append(progress.speed["tokens_per_second"]))
    return trainer, scores["mlm_loss"], float(np.median(speeds))


def train_theirs(trainer: Trainer, steps: int, seed: int) -> tuple[float, float]:
    """Train transformers' model on the same blocks; its held-out loss, and tokens a second."""
    from transformers import (
        AutoTokenizer,
        BertConfig,
        BertForMaskedLM,
        DataCollatorForLanguageModeling,
    )

    recipe, folder = trainer.recipe, trainer.directory
    torch.manual_seed(seed)
    config = {k: v for k, v in trainer.model.encoder.config.items() if k != "model_type"}
    model: Any = BertForMaskedLM(BertConfig(**config)).train()
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    collate = DataCollatorForLanguageModeling(
        tokenizer, mlm_probability=recipe.objectives.mask_probability
    )
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}],
        betas=recipe.optimizer.betas,
        eps=recipe.optimizer.epsilon,
    )
    loader = trainer.course._loader(trainer.text.training, seed=seed, alpha=None)
    speeds: list[float] = []
    for step, (clean, _) in zip(range(steps), loader.batches(), strict=False):
        began = time.perf_counter()
        rows = np.split(clean.input_ids, clean.cu_seqlens[1:-1])
        batch = collate([{"input_ids": row.tolist()} for row in rows])
        for group in optimizer.param_groups:
            group["lr"] = recipe.optimizer.learning_rate * learning_rate_factor(
                recipe.schedule, step, steps
            )
        torch.autograd.backward(model(**batch).loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        speeds.append(clean.cu_seqlens[-1] / (time.perf_counter() - began))
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        own = trainer.model.heads["mlm"]  # type: ignore[index]
        assert isinstance(own, MaskedLM)
        loaded = MaskedLM.from_pretrained(scratch, device="cpu")
        state = loaded.state_dict()
        own.load_state_dict({name: state[name] for name in own.state_dict()})
    return trainer.evaluate()["mlm_loss"], float(np.median(speeds))


def main() -> None:
    """Train, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    for seed in range(given.seeds):
        with tempfile.TemporaryDirectory() as scratch:
            trainer, loss, speed = train_ours(
                given.corpus, given.steps, seed, Path(scratch) / "run", given.set
            )
            other, slower = train_theirs(trainer, given.steps, seed)
        print(
            f"seed {seed}: held-out loss {loss:.4f}, transformers {other:.4f}; "
            f"{speed:,.0f} tokens/s, transformers {slower:,.0f}: {speed / slower:.2f} times",
            flush=True,
        )


if __name__ == "__main__":
    main()
