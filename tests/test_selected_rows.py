"""Selected rows know their sequences and places, and refuse what is no list of rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from encoder_engine import SelectedRows, Sequences, ops
from encoder_engine.errors import BatchError

LAYOUT = Sequences.from_lengths([3, 0, 2, 5, 0])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_rows_are_counted_and_placed_by_sequence(dtype: torch.dtype) -> None:
    selected = SelectedRows(torch.tensor([0, 2, 3, 9], dtype=dtype), LAYOUT)
    assert len(selected) == 4
    assert selected.within.lengths.tolist() == [2, 0, 1, 1, 0]
    assert selected.places.tolist() == [0, 2, 0, 4]
    assert selected.places.dtype == torch.int32


def test_groups_hold_every_selected_row_once_and_nothing_else() -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        layout = Sequences.from_lengths(generator.integers(0, 4, size=8).tolist())
        kept = np.flatnonzero(generator.random(layout.num_tokens) < 0.5)
        selected = SelectedRows(torch.from_numpy(kept), layout)
        seen = []
        for group in selected.groups:
            rows = group.rows.view(-1, group.length)
            places = group.selected.view(-1, group.places.shape[1])
            found = rows.gather(1, group.places)
            assert torch.equal(found, selected.rows[places])
            seen += places.flatten().tolist()
        assert sorted(seen) == list(range(len(kept)))
        joined = torch.tensor(seen, dtype=torch.int64)
        order = selected.grouped_order
        assert torch.equal(joined if order is None else joined[order], torch.arange(len(kept)))


def test_attention_by_groups_copies_nothing_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    selections = [
        SelectedRows(torch.tensor([0, 4, 9]), LAYOUT),
        SelectedRows.of_unattended(LAYOUT, [1, 0, 0, 2, 0]),
    ]
    x = torch.ones(LAYOUT.num_tokens, 1, 16)

    def refuse(_: torch.Tensor) -> None:
        raise AssertionError("on a GPU, it would wait for the device")

    monkeypatch.setattr(torch.Tensor, "cpu", refuse)
    for selected in selections:
        query = x[selected.rows]
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                found = ops.attention(
                    *(query, x, x, selected.sequences), query_rows=selected, implementation="aten"
                )
            torch.testing.assert_close(found, query)


def test_rows_that_two_lists_share_are_found() -> None:
    one = SelectedRows(torch.tensor([0, 2, 4, 9]), LAYOUT)
    places, both = one.shared_with(SelectedRows(torch.tensor([1, 2, 9]), LAYOUT))
    assert places.tolist() == [1, 3]
    assert both.rows.tolist() == [2, 9]


def test_rows_of_another_device_are_queries_of_the_same_keys() -> None:
    selected = SelectedRows.of_unattended(LAYOUT, [1, 0, 0, 2, 0])
    there = selected.to("meta")
    assert there.rows.device == there.places.device == there.within.device == torch.device("meta")
    assert there.within.lengths.tolist() == selected.within.lengths.tolist()
    assert there.indices.tolist() == selected.indices.tolist()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (torch.tensor([0.0]), "int32 or int64"),
        (torch.tensor([[0]]), r"\[1, 1\]"),
        (torch.tensor([0], device="meta"), "meta"),
        (torch.tensor([0, 10]), "rows 0 to 9"),
        (torch.tensor([-1, 3]), "from -1"),
        (torch.tensor([0, 5, 3]), r"rows\[2\] is 3 after 5"),
        (torch.tensor([4, 4]), r"rows\[1\] is 4 after 4"),
    ],
)
def test_what_is_no_list_of_rows_is_refused(rows: torch.Tensor, message: str) -> None:
    with pytest.raises(BatchError, match=message):
        SelectedRows(rows, LAYOUT)


def test_rows_made_under_inference_mode_can_train() -> None:
    with torch.inference_mode():
        selected = SelectedRows(torch.tensor([0, 2]), Sequences.from_lengths([3]))
        groups = selected.groups
    assert not selected.places.is_inference()
    assert not groups[0].rows.is_inference()
