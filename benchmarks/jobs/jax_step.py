"""A training step of BERT written for JAX, from a checkpoint of transformers: one compiled call.

Sequences are of equal length, and the masked rows alone are projected to the vocabulary. In
bfloat16, dense layers and attention compute in it from float32 weights, as autocast does. No module
of PyTorch is imported: the peer runs in an environment of its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measuring.case import Work

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

WORDS = "bert.embeddings.word_embeddings.weight"


@dataclass(frozen=True, kw_only=True)
class JaxStep:
    """The model, the batch and the optimizer's settings of a step.

    - ``folder``: the checkpoint.
    - ``input_ids``: int32 [B, L]; ``rows``: int32 [M], the masked rows of B * L; ``labels``: [M].
    - ``precision``: of dense layers and attention, "float32" or "bfloat16".
    - ``clip_norm``: bounds the gradient's norm; the others are AdamW's.
    """

    folder: str
    input_ids: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    precision: str
    clip_norm: float
    learning_rate: float
    weight_decay: float
    betas: tuple[float, float]
    epsilon: float


def make_work(job: JaxStep, compared: int) -> Work:
    """Return a call that takes a step, and one that returns the first ``compared`` losses."""
    import jax
    from jax import numpy as jnp
    from safetensors.numpy import load_file

    folder = Path(job.folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    weights = {name: jnp.asarray(x) for name, x in load_file(folder / "model.safetensors").items()}
    # It is the table of words.
    weights.pop("cls.predictions.decoder.weight", None)
    weights.pop("cls.predictions.decoder.bias", None)
    beta_1, beta_2 = job.betas

    def step(state: Any, ids: Any, rows: Any, labels: Any) -> tuple[Any, Any]:
        weights, first, second, count = state
        loss, gradient = jax.value_and_grad(_loss)(
            weights, ids, rows, labels, config, jnp.dtype(job.precision)
        )
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(x)) for x in gradient.values()))
        shrunk = jnp.minimum(1.0, job.clip_norm / (norm + 1e-6))
        count = count + 1
        for name, x in gradient.items():
            first[name] = beta_1 * first[name] + (1 - beta_1) * (x * shrunk)
            second[name] = beta_2 * second[name] + (1 - beta_2) * jnp.square(x * shrunk)
            decay = job.weight_decay if x.ndim >= 2 else 0.0
            root = jnp.sqrt(second[name] / (1 - beta_2**count)) + job.epsilon
            update = first[name] / (1 - beta_1**count) / root
            kept = weights[name] * (1 - job.learning_rate * decay)
            weights[name] = kept - job.learning_rate * update
        return (weights, first, second, count), loss

    compiled = jax.jit(step, donate_argnums=0)
    zeros = {name: jnp.zeros_like(x) for name, x in weights.items()}
    state = (
        weights,
        zeros,
        {name: jnp.zeros_like(x) for name, x in weights.items()},
        jnp.zeros(()),
    )
    given = tuple(map(jnp.asarray, (job.input_ids, job.rows, job.labels)))
    losses: list[float] = []

    def call() -> float:
        nonlocal state
        state, loss = compiled(state, *given)
        # The weights as well as the loss: nothing of the step is left for the next.
        jax.block_until_ready(state)
        losses.append(float(loss))
        return losses[-1]

    def answer() -> list[float]:
        while len(losses) < compared:
            call()
        return losses[:compared]

    return Work(call=call, answer=answer)


def _loss(
    weights: Any, ids_BL: Any, rows_M: Any, labels_M: Any, config: dict[str, Any], dtype: Any
) -> Any:
    """Compute the mean cross-entropy of the masked tokens."""
    import jax
    from jax import numpy as jnp

    def dense(x: Any, name: str) -> Any:
        product = x.astype(dtype) @ weights[f"{name}.weight"].astype(dtype).T
        return product + weights[f"{name}.bias"].astype(dtype)

    def norm(x: Any, name: str) -> Any:
        x = x.astype(jnp.float32)
        centred = x - x.mean(-1, keepdims=True)
        spread = jnp.square(centred).mean(-1, keepdims=True) + config["layer_norm_eps"]
        return centred * jax.lax.rsqrt(spread) * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def gelu(x: Any) -> Any:
        return jax.nn.gelu(x, approximate=False)

    B, L = ids_BL.shape
    heads = config["num_attention_heads"]
    tables = "bert.embeddings"
    hidden = weights[WORDS][ids_BL] + weights[f"{tables}.position_embeddings.weight"][:L]
    hidden += weights[f"{tables}.token_type_embeddings.weight"][0]
    hidden = norm(hidden, f"{tables}.LayerNorm")
    for layer in range(config["num_hidden_layers"]):
        name = f"bert.encoder.layer.{layer}"
        query, key, value = (
            dense(hidden, f"{name}.attention.self.{part}").reshape(B, L, heads, -1)
            for part in ("query", "key", "value")
        )
        mixed = jax.nn.dot_product_attention(query, key, value).reshape(B, L, -1)
        mixed = dense(mixed, f"{name}.attention.output.dense")
        hidden = norm(mixed + hidden, f"{name}.attention.output.LayerNorm")
        raised = gelu(dense(hidden, f"{name}.intermediate.dense"))
        hidden = norm(dense(raised, f"{name}.output.dense") + hidden, f"{name}.output.LayerNorm")
    head = "cls.predictions"
    masked = hidden.reshape(B * L, -1)[rows_M]
    masked = norm(gelu(dense(masked, f"{head}.transform.dense")), f"{head}.transform.LayerNorm")
    logits = masked.astype(dtype) @ weights[WORDS].astype(dtype).T
    logits = logits.astype(jnp.float32) + weights[f"{head}.bias"]
    right = jnp.take_along_axis(logits, labels_M[:, None], axis=1)[:, 0]
    return (jax.nn.logsumexp(logits, axis=1) - right).mean()
