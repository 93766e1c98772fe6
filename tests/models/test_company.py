"""In every family a text's hidden states keep their bits, whatever company and threads it has."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
import torch

import encoder_engine as ee
from encoder_engine.packing import pack
from tests.models.all_cases import ALL_CASES
from tests.models.cases import CASES, VOCAB_SIZE, Case, one_per_family

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers.*")
HEADS = ("num_attention_heads", "n_heads", "num_heads")
LENGTHS = range(1, 28)


def with_one_head(case: Case) -> Case:
    """Give a case a single head: a lone sequence then is a lone product, which MKL shares out."""
    (key,) = (key for key in HEADS if key in case.sizes)
    return replace(case, sizes=case.sizes | {key: 1})


FIRST = {case.model_type: case for case in CASES}
SINGLE = [with_one_head(case) for case in FIRST.values()]
# Of 32 and 64 features a head, single heads of DeBERTa depended on the threads; of 16 never.
WIDE = [replace(FIRST["deberta-v2"], sizes=FIRST["deberta-v2"].sizes | sizes) for sizes in (
    {"hidden_size": 32, "num_attention_heads": 1, "pos_att_type": ["p2c"]},
    {"hidden_size": 64, "num_attention_heads": 1, "pos_att_type": ["c2p"]},
    {"hidden_size": 64, "num_attention_heads": 1, "pos_att_type": ["p2c", "c2p"]},
)]  # fmt: skip


EVERY = [*ALL_CASES, *SINGLE, *WIDE]
SHORT_RUN = [*one_per_family(ALL_CASES), *SINGLE, *WIDE]


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Leave the number of threads as it was."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("case", "trials"),
    [
        *((case, 8) for case in SHORT_RUN),
        *(pytest.param(case, 40, marks=pytest.mark.exhaustive) for case in EVERY),
    ],
    ids=lambda value: str(value.id if isinstance(value, Case) else value),
)
def test_company_and_threads_change_no_bit(case: Case, tmp_path: Path, trials: int) -> None:
    case.save(tmp_path)
    encoder = ee.Encoder.from_pretrained(tmp_path, device="cpu")
    chance = random.Random(0)
    texts = [[chance.randrange(5, VOCAB_SIZE - 1) for _ in range(length)] for length in LENGTHS]
    torch.set_num_threads(1)
    with torch.no_grad():
        alone = cache(lambda number: encoder(pack([texts[number]])).last_hidden_state.clone())
        for _ in range(trials):
            by = chance.randint(1, 3)
            numbers = [chance.randrange(len(texts)) for _ in range(chance.randrange(1, 6))]
            expected = [alone(number) for number in numbers]
            torch.set_num_threads(by)
            found = encoder(pack([texts[number] for number in numbers])).last_hidden_state
            parts = found.split([len(texts[number]) for number in numbers])
            torch.set_num_threads(1)
            for part, other in zip(parts, expected, strict=True):
                assert torch.equal(part, other), f"{len(other)} tokens"
