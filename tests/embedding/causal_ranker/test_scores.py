"""Causal rerankers as sentence-transformers 6.2 saves them: the same rows and scores."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.embedding import CausalRanker
from encoder_engine.engine.outputs import Pooled
from encoder_engine.errors import InputError, TruncationWarning
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.packing.token_rows import TokenRows
from tests.embedding.causal_ranker.saved import (
    CASES,
    LONG_PAIRS,
    SPECIAL,
    assert_as_theirs,
    load,
    save,
    tensor,
)
from tests.embedding.test_causal import ENGINES, PAIRS, TEMPLATE

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("sentence_transformers")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.mark.parametrize("length", [None, 90])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_the_library(
    name: str, engine: Any, length: int | None, tmp_path: Path
) -> None:
    limit: dict[str, Any] = {} if length is None else {"model_max_length": length}
    folder = save(tmp_path, **CASES[name], **limit)
    library = load(folder)
    ranker = CausalRanker.from_pretrained(folder, device="cpu", engine=engine)
    assert ranker.max_seq_length == (length or 300)
    pairs = PAIRS if length is None else LONG_PAIRS
    found = ranker.score(pairs, activation="identity", on_truncation="ignore")
    assert_as_theirs(found, library, pairs, torch.nn.Identity())
    # The directory states no activation but the library's default, which it saves.
    assert_as_theirs(ranker.score(pairs, on_truncation="ignore"), library, pairs)
    alone = [ranker.score([pair], activation="identity", on_truncation="ignore") for pair in pairs]
    assert_as_theirs(np.concatenate(alone), library, pairs, torch.nn.Identity())


@pytest.mark.parametrize("name", ["special", "merged", "loop", "structured", "text"])
def test_rows_are_those_of_the_library(name: str, tmp_path: Path) -> None:
    """Every length of a document around the limit, where words and texts share tokens."""
    folder = save(tmp_path, **CASES[name], model_max_length=90)
    ranker = CausalRanker.from_pretrained(folder, device="cpu")
    library = load(folder)[0]
    documents = [letters[:n] for letters in ("the " * 30, "\n" * 90) for n in range(90)]
    pairs = [("the query", document) for document in documents]
    for prompt in ("", "Find {it}"):
        options: dict[str, Any] = {"max_length": ranker.max_seq_length, "num_threads": 1}
        rows = ranker.format.rows(pairs, prompt, **options)
        parts = np.split(rows.ids, rows.cu_seqlens[1:-1])
        for pair, part in zip(pairs, parts, strict=True):
            features = library.preprocess([pair], prompt=prompt)
            assert part.tolist() == features["input_ids"][0].tolist(), pair


def test_prompts_are_the_system_message(tmp_path: Path) -> None:
    folder = save(tmp_path, **CASES["prompts"])
    ranker, library = CausalRanker.from_pretrained(folder, device="cpu"), load(folder)
    plain = ranker.score(PAIRS, activation="identity")
    found = [
        ranker.score(PAIRS, prompt="other", activation="identity"),
        ranker.score(PAIRS, instruction="other", activation="identity"),
    ]
    np.testing.assert_array_equal(found[0], found[1])
    assert_as_theirs(found[0], library, PAIRS, torch.nn.Identity(), prompt="other")
    assert not np.array_equal(found[0], plain)
    empty = ranker.score(PAIRS, prompt_name="b", activation="identity")
    assert_as_theirs(empty, library, PAIRS, torch.nn.Identity(), prompt_name="b")
    with pytest.raises(InputError, match="no prompt 'c'"):
        ranker.score(PAIRS, prompt_name="c")
    with pytest.raises(InputError, match="instruction or prompt, not both"):
        ranker.score(PAIRS, prompt="a", instruction="b")


@pytest.mark.parametrize("name", ["Identity", "Sigmoid"])
def test_the_activation_is_the_directorys(name: str, tmp_path: Path) -> None:
    function = getattr(torch.nn, name)()
    folder = save(tmp_path, SPECIAL, activation_fn=function)
    found = CausalRanker.from_pretrained(folder, device="cpu").score(PAIRS)
    assert_as_theirs(found, load(folder), PAIRS)


def test_the_limit_of_the_settings_is_the_librarys(tmp_path: Path) -> None:
    folder = save(tmp_path, SPECIAL, text={"max_length": 100})
    ranker = CausalRanker.from_pretrained(folder, device="cpu")
    assert ranker.max_seq_length == 100
    with pytest.warns(TruncationWarning):
        found = ranker.score(LONG_PAIRS, activation="identity")
    assert_as_theirs(found, load(folder), LONG_PAIRS, torch.nn.Identity())
    # The limit is the directory's too where its words are not.
    other = CausalRanker.from_pretrained(folder, device="cpu", template=TEMPLATE)
    assert other.max_seq_length == 100


def test_int8_rounds_the_blocks_and_not_the_answers(tmp_path: Path) -> None:
    folder = save(tmp_path, SPECIAL)
    plain = CausalRanker.from_pretrained(folder, device="cpu").score(PAIRS, activation="identity")
    ranker = CausalRanker.from_pretrained(folder, dtype="float32", quantization="int8")
    assert ranker.engine.quantization == "int8"
    found = ranker.score(PAIRS, activation="identity")
    assert not np.array_equal(found, plain)
    engine: Any = ranker.engine
    rows = ranker.format.rows(PAIRS, "", max_length=None, num_threads=1)
    last_BD = tensor(engine.run(TokenRows.of(rows), Pooled(modes=("lasttoken",)))[0])
    answers_KD = tensor(engine.vocabulary_layer.weight[[30, 7]])
    eager_BK, truth_BK = (rows @ answers_KD.to(rows).T for rows in (last_BD, last_BD.double()))
    eager, truth = (logits[:, 0] - logits[:, 1] for logits in (eager_BK, truth_BK))
    size = float(truth_BK.abs().max())
    assert_within_budget(tensor(found), eager, truth, terms=last_BD.shape[1], size=size)
    alone = np.concatenate([ranker.score([pair], activation="identity") for pair in PAIRS])
    assert_within_budget(tensor(alone), eager, truth, terms=last_BD.shape[1], size=size)
    other = CausalRanker.from_pretrained(folder, quantization="int8", template=TEMPLATE)
    assert other.score(PAIRS).shape == (len(PAIRS),)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pair_without_a_token_is_refused(engine: Any, tmp_path: Path) -> None:
    ranker = CausalRanker.from_pretrained(save(tmp_path, None), device="cpu", engine=engine)
    with pytest.raises(InputError, match="pair 1 has no token") as found:
        ranker.score([("a", "b"), ("", "")])
    assert found.value.row == 1
    assert ranker.score([]).shape == (0,)
    assert ranker.score([("", "b")]).shape == (1,)


def test_the_instruction_of_a_given_template_is_not_the_directorys(tmp_path: Path) -> None:
    folder = save(tmp_path, **CASES["prompts"])
    template = replace(TEMPLATE, instruction="find")
    ranker = CausalRanker.from_pretrained(folder, device="cpu", template=template)
    found = ranker.score(PAIRS)
    assert np.array_equal(found, ranker.score(PAIRS, instruction="find"))
    assert np.array_equal(
        ranker.score(PAIRS, prompt_name="a"), ranker.score(PAIRS, prompt="task {a}")
    )
    assert not np.array_equal(found, ranker.score(PAIRS, prompt_name="a"))
