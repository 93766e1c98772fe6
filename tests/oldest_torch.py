"""Tests of a CPU that fail with PyTorch before 2.12, and why; they are skipped with it.

Those of a GPU, and of the compiled engine, pass with it as well.
"""

from __future__ import annotations

import pytest
import torch

ROWS = "oneDNN before 3.11, PyTorch's before 2.12, sums in an order that depends on the rows"
WARNS = "PyTorch before 2.12 warns of its own sparse tensors"
DYNAMO = "torch.compile of PyTorch before 2.12 fails by itself"
DTYPES = "PyTorch before 2.12 mixes float32 into the reference in float64"
WEIGHTS = "PyTorch before 2.12 draws other weights from a seed, with which nothing differs"
# By the beginning of the test's name; "torch" in brackets: of PyTorch's engine alone.
FAILS = {
    "tests/models/test_company.py": ROWS,
    "tests/models/captured/test_encoder.py": ROWS,
    "tests/ops/linear/test_linear.py::test_a_row_is_bit_equal_whatever_comes_with_it": ROWS,
    "tests/embedding/test_invariance.py[torch]": ROWS,
    "tests/embedding/test_breadth.py[torch]": ROWS,
    "tests/embedding/test_hybrid.py::test_the_outputs_are_those_of_flagembedding[torch]": ROWS,
    "tests/embedding/test_hybrid.py::test_one_output_has_the_bits_of_all[torch]": ROWS,
    "tests/opening/test_late_interaction.py::test_an_expanded_query[torch]": ROWS,
    "tests/engine/test_short_batches.py": ROWS,
    "tests/kinds/test_memory.py::test_a_batch_that_does_not_fit": ROWS,
    "tests/prediction/test_single.py::test_a_single_row_gives_its_prediction[torch]": ROWS,
    "tests/libraries/test_migration.py::test_a_row_of_the_page_holds[sentence-transf": WARNS,
    "tests/embedding/test_library_keywords.py::test_a_sparse_embedder_returns": WARNS,
    "tests/integrations/test_saving_doors.py::test_compiling_leaves": DYNAMO,
    "tests/models/test_compile.py::test_a_quantized_encoder_is_one_graph": DYNAMO,
    "tests/prediction/test_pipeline_differences.py::test_an_entity_without_characters": WEIGHTS,
    "tests/objectives/vectors/test_beside_library.py::test_pairs_and_triplets": DTYPES,
}
IS_OLD = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 12)


def skip_failing(item: pytest.Item) -> None:
    """Skip a test that this PyTorch fails."""
    if not IS_OLD or item.get_closest_marker("gpu"):
        return
    for name, reason in FAILS.items():
        start, of_torch, _ = name.partition("[torch]")
        if item.nodeid.startswith(start) and (not of_torch or "torch" in item.nodeid[len(start) :]):
            item.add_marker(pytest.mark.skip(reason=reason))
