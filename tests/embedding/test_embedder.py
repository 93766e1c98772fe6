"""The embedder's own promises: order, options, counts, and what it refuses to do silently."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
import torch

from encoder_engine.embedding import Embedder
from encoder_engine.errors import (
    DefaultPoolingWarning,
    InputError,
    NonFiniteVectorError,
    SequenceLengthError,
    TruncationWarning,
)
from encoder_engine.kinds.windows import WINDOW_TEXTS
from encoder_engine.models import Encoder
from encoder_engine.models.module_stack import pool
from encoder_engine.text import Tokenizer
from tests.embedding.tiny_model import (
    WIDTH,
    write_sentence_directory,
    write_transformers_directory,
)
from tests.vectors.drawn import Vectors, assert_vectors_agree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXTS = ["the text", "", "a row of words", "query", "q", "passage: the long text"]


@pytest.fixture
def tiny(tiny_by_engine: Embedder) -> Embedder:
    """Hold every promise by both engines."""
    return tiny_by_engine


LONG = "long " * 40


def test_every_container_of_texts_gives_the_same_vectors(tiny: Embedder) -> None:
    expected = tiny.encode(TEXTS)
    assert expected.shape == (len(TEXTS), WIDTH)
    assert expected.dtype == np.float32
    containers: list[Any] = [tuple(TEXTS), iter(TEXTS), (t for t in TEXTS), np.array(TEXTS)]
    containers += [np.array(TEXTS, dtype=object)]
    for texts in containers:
        np.testing.assert_array_equal(tiny.encode(texts), expected)


def test_a_single_text_gives_a_vector_without_a_row_axis(tiny: Embedder) -> None:
    vector = tiny.encode("the text")
    assert vector.shape == (WIDTH,)
    np.testing.assert_array_equal(vector, tiny.encode(["the text"])[0])


@pytest.mark.parametrize(("dimension", "precision"), [(WIDTH, "float32"), (2, "ubinary")])
def test_no_texts_give_no_rows_of_the_right_width(
    tiny: Embedder, dimension: int, precision: Any
) -> None:
    vectors = tiny.encode([], precision=precision)
    assert vectors.shape == (0, dimension)


def test_torch_output_holds_the_same_numbers(tiny: Embedder) -> None:
    vectors = tiny.encode(TEXTS, output="torch")
    assert isinstance(vectors, torch.Tensor)
    np.testing.assert_array_equal(vectors.numpy(), tiny.encode(TEXTS))


def assert_normalized(found: Vectors, raw: Vectors) -> None:
    """Hold the division by the length to the budget that NumPy's sets."""
    eager, truth = (
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        for vectors in (raw, raw.astype(np.float64))
    )
    assert_vectors_agree(found, eager, truth, terms=raw.shape[1])


def test_vectors_are_normalized_as_the_directory_says_unless_told_otherwise(tiny: Embedder) -> None:
    raw = tiny.encode(TEXTS, normalize_embeddings=False)
    assert_normalized(tiny.encode(TEXTS), raw)
    assert np.abs(np.linalg.norm(raw, axis=1) - 1).min() > 0.01


def test_truncated_vectors_of_a_normalizing_model_have_length_one(tiny: Embedder) -> None:
    full = tiny.encode(TEXTS, normalize_embeddings=False)
    cut = tiny.encode(TEXTS, truncate_dim=5)
    assert_normalized(cut, full[:, :5])
    raw = tiny.encode(TEXTS, truncate_dim=5, normalize_embeddings=False)
    np.testing.assert_array_equal(raw, full[:, :5])


def test_a_prompt_is_put_before_every_text(tiny: Embedder) -> None:
    expected = tiny.encode([f"query: {text}" for text in TEXTS])
    np.testing.assert_array_equal(tiny.encode(TEXTS, prompt="query: "), expected)
    np.testing.assert_array_equal(tiny.encode(TEXTS, prompt_name="query"), expected)
    np.testing.assert_array_equal(tiny.encode(TEXTS, prompt_name="document"), tiny.encode(TEXTS))


def test_the_default_prompt_of_a_directory_is_used(tmp_path: Path) -> None:
    settings = {"prompts": {"p": "passage: "}, "default_prompt_name": "p"}
    embedder = Embedder.from_pretrained(write_sentence_directory(tmp_path, settings=settings))
    expected = embedder.encode([f"passage: {text}" for text in TEXTS], prompt="")
    np.testing.assert_array_equal(embedder.encode(TEXTS), expected)


def test_truncation_is_counted_in_one_warning_that_says_what_to_do(tiny: Embedder) -> None:
    with pytest.warns(TruncationWarning, match=r"2 of 3 texts .* 16 tokens") as caught:
        tiny.encode([LONG, "the text", LONG])
    assert len(caught) == 1
    assert cast("TruncationWarning", caught[0].message).num_truncated == 2
    assert "32" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_truncation_can_be_accepted_or_refused(tiny: Embedder) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tiny.encode([LONG], on_truncation="ignore")
    with pytest.raises(SequenceLengthError, match="text 1 ") as error:
        tiny.encode(["the text", LONG], on_truncation="error")
    assert error.value.row == 1


def test_a_raised_limit_keeps_more_of_a_long_text(tiny_directory: Path) -> None:
    embedder = Embedder.from_pretrained(tiny_directory, max_seq_length=32)
    head = " ".join(["long"] * 30)
    np.testing.assert_array_equal(
        embedder.encode(LONG, on_truncation="ignore"), embedder.encode(head)
    )


@pytest.mark.parametrize("limit", [0, 2, 33, 10**6, True, "16"])
def test_a_limit_that_makes_no_sense_is_refused(tiny_directory: Path, limit: Any) -> None:
    with pytest.raises(InputError, match="max_seq_length"):
        Embedder.from_pretrained(tiny_directory, max_seq_length=limit)


def test_a_plain_directory_is_pooled_by_the_mean_with_a_warning(tmp_path: Path) -> None:
    write_transformers_directory(tmp_path)
    with pytest.warns(DefaultPoolingWarning, match="pooling=") as caught:
        embedder = Embedder.from_pretrained(tmp_path)
    assert caught[0].filename == __file__
    assert embedder.max_seq_length == 24
    named = Embedder.from_pretrained(tmp_path, pooling="mean")
    np.testing.assert_array_equal(named.encode(TEXTS), embedder.encode(TEXTS))


def test_several_pooling_modes_stand_side_by_side(tmp_path: Path) -> None:
    write_transformers_directory(tmp_path)
    modes = ("max", "cls", "mean", "weightedmean", "lasttoken", "mean_sqrt_len_tokens")
    together = Embedder.from_pretrained(tmp_path, pooling=modes).encode(TEXTS)
    assert together.shape == (len(TEXTS), len(modes) * WIDTH)
    alone = [Embedder.from_pretrained(tmp_path, pooling=mode).encode(TEXTS) for mode in modes]
    np.testing.assert_array_equal(together, np.concatenate(alone, axis=1))


def test_a_stream_is_read_a_window_at_a_time(tiny: Embedder) -> None:
    drawn = 0

    def stream() -> Iterator[str]:
        nonlocal drawn
        for _ in range(2 * WINDOW_TEXTS + 1):
            drawn += 1
            yield "a"

    windows = tiny.encode_windows(stream())
    first = next(windows)
    assert drawn == WINDOW_TEXTS == len(first.vectors)
    rest = list(windows)
    assert [window.first_row for window in rest] == [WINDOW_TEXTS, 2 * WINDOW_TEXTS]
    assert sum(window.num_tokens for window in [first, *rest]) == 3 * (2 * WINDOW_TEXTS + 1)


def test_options_of_a_stream_are_checked_before_it_is_read(tiny: Embedder) -> None:
    with pytest.raises(InputError, match="truncate_dim"):
        tiny.encode_windows(["a"], truncate_dim=17)


def test_nan_never_leaves_as_a_vector(tiny_directory: Path) -> None:
    embedder = Embedder.from_pretrained(tiny_directory, engine="torch")
    assert isinstance(embedder.encoder, Encoder)
    token = int(embedder.tokenizer.encode("query")[1])
    with torch.no_grad():
        embedder.encoder.embedding.tokens.weight[token] = float("nan")
    texts = ["the text"] * WINDOW_TEXTS + ["query", "row", "the query"]
    with pytest.raises(NonFiniteVectorError, match="2 texts") as error:
        embedder.encode(texts)
    assert error.value.rows == (WINDOW_TEXTS, WINDOW_TEXTS + 2)


def test_a_text_without_any_token_has_no_vector(tiny: Embedder) -> None:
    spec = tiny.tokenizer.spec
    bare = replace(spec, single=tuple(piece for piece in spec.single if piece.kind == "first"))
    embedder = Embedder(tiny.encoder, Tokenizer(bare), tiny.recipe)
    assert embedder.encode(["the text", "a"]).shape == (2, WIDTH)
    with pytest.raises(InputError, match="text 2 has no token") as error:
        embedder.encode(["the text", "a", " ", ""])
    assert error.value.row == 2


def test_segments_of_the_tokenizers_template_reach_the_encoder(tiny: Embedder) -> None:
    spec = tiny.tokenizer.spec
    second = replace(spec, single=tuple(replace(piece, type_id=1) for piece in spec.single))
    embedder = Embedder(tiny.encoder, Tokenizer(second), tiny.recipe)
    batch = embedder.tokenizer.encode_batch(TEXTS).to_packed()
    with torch.inference_mode():
        hidden_TD = Encoder.from_pretrained(tiny.recipe.encoder_directory)(batch).last_hidden_state
    expected = pool(hidden_TD, batch.sequences, ("mean",), normalized=True).numpy()
    found = embedder.encode(TEXTS)
    np.testing.assert_array_equal(found, expected)
    assert np.abs(found - tiny.encode(TEXTS)).max() > 0.01


def test_an_encoder_left_in_training_mode_gives_no_noise(tiny: Embedder) -> None:
    spec = tiny.engine.spec
    encoder = Encoder(replace(spec, embedding=replace(spec.embedding, dropout=0.5)))
    embedder = Embedder(encoder, tiny.tokenizer, tiny.recipe)
    expected = embedder.encode(TEXTS)
    encoder.train()
    np.testing.assert_array_equal(embedder.encode(TEXTS), expected)
    encoder.train()
    np.testing.assert_array_equal(next(embedder.encode_windows(TEXTS)).vectors, expected)
    assert embedder.encoder is encoder
    assert not encoder.training


def test_threads_share_an_embedder(tiny: Embedder) -> None:
    expected = [tiny.encode(TEXTS[index:]) for index in range(4)]

    def work(index: int) -> list[Any]:
        return [tiny.encode(TEXTS[index % 4 :]) for _ in range(5)]

    with ThreadPoolExecutor(16) as threads:
        for index, found in enumerate(threads.map(work, range(16))):
            for vectors in found:
                np.testing.assert_array_equal(vectors, expected[index % 4])


def test_progress_is_silent_away_from_a_terminal(
    tiny: Embedder, capsys: pytest.CaptureFixture[str]
) -> None:
    np.testing.assert_array_equal(tiny.encode(TEXTS, show_progress_bar=True), tiny.encode(TEXTS))
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal_counts_the_texts(
    tiny: Embedder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    tiny.encode(TEXTS, show_progress_bar=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{len(TEXTS)}/{len(TEXTS)}" in captured.err


def test_an_unknown_option_is_refused_by_the_method_that_got_it(tiny: Embedder) -> None:
    with pytest.raises(
        TypeError, match=r"encode_windows\(\) got .* 'promt'; did you mean 'prompt'"
    ):
        tiny.encode_windows(["a text"], promt="query: ")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"encode_long\(\) got an unexpected .* 'on_truncation'"):
        tiny.encode_long(["a text"], on_truncation="error")  # type: ignore[call-arg]
