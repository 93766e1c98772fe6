"""Small random encoders of families that differ in what they compute from the layout."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from encoder_engine import ops
from encoder_engine.families.config import spec_from_config
from encoder_engine.models import Encoder
from tests.computing import computed_by
from tests.models.cases import DEBERTA, t5_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

# Ids of all vocabularies, without padding.
LEAST_ID, NUM_IDS = 4, 120
SIZES = {
    "vocab_size": NUM_IDS,
    "hidden_size": 28,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 92,
    "max_position_embeddings": 96,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "bert": SIZES | {"type_vocab_size": 2, "pad_token_id": 0},
    "roberta": SIZES | {"type_vocab_size": 1, "pad_token_id": 1},
    "mpnet": SIZES | {"relative_attention_num_buckets": 32, "pad_token_id": 1},
    # The first block sees all, the second a window.
    "modernbert": SIZES
    | {"local_attention": 12, "global_attn_every_n_layers": 2, "pad_token_id": 0},
    "deberta-v2": SIZES
    | {"type_vocab_size": 0, "pos_att_type": "p2c|c2p", "conv_kernel_size": 3, "conv_act": "gelu"}
    | DEBERTA,
    "t5": t5_sizes(28, 2, 2, d_kv=14, relative_attention_num_buckets=32),
}
FAMILIES = tuple(OPTIONS)


def make_encoder(model_type: str) -> Encoder:
    """Make a random encoder of a family, in evaluation mode."""
    config = {"model_type": model_type, **OPTIONS[model_type]}
    torch.manual_seed(0)
    encoder = Encoder(spec_from_config(config), config=config)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return encoder.eval()


def draw_ids(lengths: list[int], seed: int = 0) -> list[list[int]]:
    """Draw token ids of sequences of these lengths, none of them padding."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(LEAST_ID, NUM_IDS, (n,), generator=generator).tolist() for n in lengths]


@contextmanager
def computing(model_type: str, implementation: str) -> Iterator[None]:
    """Have a family computed by one implementation, but what that refuses of it by PyTorch."""
    with computed_by(implementation, requires_grad=False):
        if (model_type, implementation) != ("t5", "triton"):
            yield
            return
        # Its embedding has no norm.
        with ops.use("aten", operation="embedding"):
            yield
