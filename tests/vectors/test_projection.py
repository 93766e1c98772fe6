"""Points of stored vectors: the directions numpy finds, on rows evenly apart, in any blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from encoder_engine.errors import InputError, MissingDependencyError
from encoder_engine.vectors import store_files
from encoder_engine.vectors.projection import project
from encoder_engine.vectors.stored_vectors import StoredVectors

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt


def stored(path: Path, vectors: npt.NDArray[np.generic]) -> StoredVectors:
    np.save(path, vectors)
    return StoredVectors(path)


@pytest.fixture
def vectors() -> npt.NDArray[np.float32]:
    """Vectors that vary most along two directions, and are far from the origin."""
    chance = np.random.default_rng(0)
    spread = chance.standard_normal((500, 12)) * np.array([9, 4, *[0.5] * 10])
    turned = np.linalg.qr(chance.standard_normal((12, 12)))[0]
    return np.asarray(spread @ turned + 30, dtype=np.float32)


def test_points_are_the_principal_components(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: npt.NDArray[np.float32]
) -> None:
    monkeypatch.setattr(store_files, "BLOCK_ROWS", 64)
    found = project(stored(tmp_path / "a.npy", vectors), "pca", most_rows=10_000)
    centred = vectors.astype(np.float64) - vectors.astype(np.float64).mean(axis=0)
    _, values, directions = np.linalg.svd(centred, full_matrices=False)
    truth = centred @ directions[:2].T
    for column in (0, 1):
        cosine = np.dot(truth[:, column], found.points[:, column]) / (
            np.linalg.norm(truth[:, column]) * np.linalg.norm(found.points[:, column])
        )
        # Both are sums in float64 of what float32 stored: a singular vector keeps half its digits.
        assert abs(cosine) >= 1 - np.sqrt(np.finfo(np.float64).eps)
    share = values[0] ** 2 / (values**2).sum()
    assert found.axes[0] == f"principal component 1 ({share:.1%} of the variance)"


def test_of_many_rows_those_evenly_apart_are_shown(
    tmp_path: Path, vectors: npt.NDArray[np.float32]
) -> None:
    store = stored(tmp_path / "a.npy", vectors)
    few, all_ = project(store, "pca", most_rows=5), project(store, "pca", most_rows=500)
    assert few.rows.tolist() == [0, 124, 249, 374, 499]
    np.testing.assert_array_equal(few.points, all_.points[few.rows])


def test_what_makes_no_plane_is_refused(tmp_path: Path) -> None:
    for vectors in (np.zeros((2, 4), np.float32), np.zeros((9, 1), np.float32)):
        with pytest.raises(InputError, match="plane"):
            project(stored(tmp_path / "a.npy", vectors), "pca", most_rows=100)
    with pytest.raises(InputError, match="bits"):
        project(stored(tmp_path / "a.npy", np.zeros((9, 4), np.uint8)), "pca", most_rows=100)
    with pytest.raises(InputError, match="most_rows"):
        project(stored(tmp_path / "a.npy", np.zeros((9, 4), np.float32)), "pca", most_rows=2)


def test_equal_vectors_are_one_point(tmp_path: Path) -> None:
    found = project(stored(tmp_path / "a.npy", np.ones((9, 4), np.float32)), "pca", most_rows=100)
    np.testing.assert_array_equal(found.points, np.zeros((9, 2)))


def test_umap_keeps_groups_apart_and_needs_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = np.random.default_rng(0)
    centres = np.repeat(np.eye(2, 8) * 10, 40, axis=0)
    vectors = (centres + chance.standard_normal((80, 8))).astype(np.float32)
    store = stored(tmp_path / "a.npy", vectors)
    with monkeypatch.context() as missing:
        missing.setitem(__import__("sys").modules, "umap", None)
        with pytest.raises(MissingDependencyError, match=r"pip install '\.\[plot\]"):
            project(store, "umap", most_rows=100)
    pytest.importorskip("umap", reason="umap-learn is not installed; it comes with the extra plot")
    found, again = (project(store, "umap", most_rows=100) for _ in range(2))
    np.testing.assert_array_equal(found.points, again.points)
    groups = found.points[:40], found.points[40:]
    distance = np.linalg.norm(groups[0].mean(axis=0) - groups[1].mean(axis=0))
    assert distance > max(np.linalg.norm(group.std(axis=0)) for group in groups)
