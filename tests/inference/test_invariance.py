"""Rows of a compiled encoder are bit for bit the same in any company, by any number of threads."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine.inference import CompiledEncoder
from tests.inference.test_compiled_encoder import FAMILIES, PRECISIONS, arrays, draw_batch
from tests.models.cases import Case, case_id

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore:.*pooler weights")


@pytest.mark.slow
@pytest.mark.parametrize(("case", "precision"), FAMILIES, ids=case_id)
def test_rows_depend_on_nothing_beside_their_text(
    case: Case, precision: str, tmp_path: Path
) -> None:
    case.save(tmp_path)
    by_one, by_three = (
        CompiledEncoder.from_pretrained(tmp_path, *PRECISIONS[precision], num_threads=threads)
        for threads in (1, 3)
    )
    batch = draw_batch((9, 1, 30, 17), num_types=max(1, by_one.spec.embedding.num_segments))
    ids, starts, types = arrays(batch)
    together = by_one.hidden(ids, starts, types)
    np.testing.assert_array_equal(by_three.hidden(ids, starts, types), together)
    texts = [slice(*bounds) for bounds in pairwise(starts)]
    for text in texts:
        alone = by_one.hidden(ids[text], np.array([0, text.stop - text.start]), types[text])
        np.testing.assert_array_equal(alone, together[text])
    ends = np.cumsum([0, *(text.stop - text.start for text in reversed(texts))])
    backwards = [np.concatenate([one[text] for text in reversed(texts)]) for one in (ids, types)]
    reordered = by_one.hidden(backwards[0], ends, backwards[1])
    for text, (start, stop) in zip(reversed(texts), pairwise(ends), strict=True):
        np.testing.assert_array_equal(reordered[start:stop], together[text])
