"""Scores of causal models against transformers: log-probabilities, and answers of rerankers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from encoder_engine.cli import main
from encoder_engine.cli.tuning import fill_mask
from encoder_engine.embedding import CausalRanker, PairTemplate, Scorer
from encoder_engine.engine.compiled import CompiledCausalEngine
from encoder_engine.errors import (
    ConfigError,
    InputError,
    NonFiniteVectorError,
    TensorNamesError,
    TruncationWarning,
    UnsupportedFeatureError,
)
from encoder_engine.inference import vocabulary
from encoder_engine.ops.testing import assert_within_budget
from encoder_engine.text import Tokenizer
from encoder_engine.text.spec.tokenizer import TemplatePiece
from tests.embedding.test_families import VOCAB_SIZE, save_tokenizer
from tests.embedding.tiny_model import write_json
from tests.models.all_cases import MORE_CASES
from tests.models.cases import CASES, Case
from tests.models.exact import exact, in_float64

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = [
    "the model of a text",
    "a",
    "text of the model, the text that is longer than others",
    "x y",
]
HEADS = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
}
ENGINES = ("compiled", "torch")


def build(model_type: str, folder: Path, **changes: Any) -> tuple[Any, Any]:
    """Save a causal model with its head, and a tokenizer."""
    case = next(case for case in MORE_CASES if case.model_type == model_type)
    tokenizer = save_tokenizer("gpt2", folder)
    with_head = Case(model_type, case.config_class, HEADS[model_type], case.sizes)
    return with_head.save(folder, vocab_size=VOCAB_SIZE, **changes), tokenizer


def assert_as_theirs(found: list[Any], model: Any, rows: list[list[int]]) -> None:
    """Assert that log-probabilities are within the budget of transformers' own."""
    eager = by_transformers(model, rows)
    with in_float64():
        truth = by_transformers(exact(model), rows)
    assert [len(one) for one in found] == [len(row) - 1 for row in rows]
    for one, theirs, true in zip(found, eager, truth, strict=True):
        assert_within_budget(torch.from_numpy(one), theirs, true, terms=VOCAB_SIZE)


def assert_as_ours(found: Any, expected: Any, truth: Any) -> None:
    """Assert that numbers are within the budget of other ones of ours."""
    ours, theirs = (torch.from_numpy(np.asarray(one, np.float32)) for one in (found, expected))
    true = torch.from_numpy(np.asarray(truth, np.float64))
    assert_within_budget(ours, theirs, true, terms=VOCAB_SIZE)


def by_transformers(model: Any, rows: list[list[int]]) -> list[torch.Tensor]:
    """Return the log-probabilities of all tokens but the first."""
    found = []
    for row in rows:
        ids = torch.tensor([row])
        with torch.no_grad():
            logits = model(ids).logits[0]
        logs = torch.log_softmax(logits.to(torch.get_default_dtype()), dim=-1)
        found.append(logs[:-1].gather(1, ids[0, 1:, None])[:, 0])
    return found


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model_type", HEADS)
def test_log_probabilities_are_within_budget(
    model_type: str, engine: Any, tied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several pieces, the last of them short.
    monkeypatch.setattr(vocabulary, "PIECE_TOKENS", 128)
    monkeypatch.setattr("encoder_engine.engine.module.PIECE_TOKENS", 128)
    capped = {"final_logit_softcapping": 5.0} if model_type == "gemma3_text" else {}
    model, tokenizer = build(model_type, tmp_path, tie_word_embeddings=tied, **capped)
    scorer = Scorer.from_pretrained(tmp_path, device="cpu", engine=engine)
    found = scorer.score_tokens(TEXTS)
    assert_as_theirs(found, model, tokenizer(TEXTS)["input_ids"])
    sums = scorer.score(TEXTS)
    assert sums.dtype == np.float64
    np.testing.assert_array_equal(sums, [one.sum(dtype=np.float64) for one in found])
    # It was an array of one score, and a list of one array.
    assert scorer.score(TEXTS[0]) == scorer.score(TEXTS[:1])[0]
    np.testing.assert_array_equal(scorer.score_tokens(TEXTS[0]), scorer.score_tokens(TEXTS[:1])[0])


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text"])
def test_a_file_that_does_not_say_whether_tables_are_tied_has_the_familys_default(
    model_type: str, tmp_path: Path
) -> None:
    import transformers

    build(model_type, tmp_path, tie_word_embeddings=model_type == "gemma3_text")
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    config.pop("tie_word_embeddings", None)
    write_json(tmp_path / "config.json", config)
    scorer = Scorer.from_pretrained(tmp_path, device="cpu")
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    rows = [scorer.tokenizer.encode(text).tolist() for text in TEXTS]
    assert_as_theirs(scorer.score_tokens(TEXTS), model, rows)


@pytest.mark.parametrize("engine", ENGINES)
def test_tokens_of_a_context_are_not_counted(engine: Any, tmp_path: Path) -> None:
    build("qwen3", tmp_path)
    scorer = Scorer.from_pretrained(tmp_path, device="cpu", engine=engine)
    context = "a model, and "
    found = scorer.score_tokens(TEXTS, context=context)
    whole = scorer.score_tokens([context + text for text in TEXTS])
    exact = Scorer.from_pretrained(tmp_path, device="cpu", dtype="float64")
    truth = exact.score_tokens([context + text for text in TEXTS])
    for one, other, true, text in zip(found, whole, truth, TEXTS, strict=True):
        assert 0 < len(one) <= len(text)
        assert_as_ours(one, other[-len(one) :], true[-len(one) :])


def test_a_token_at_the_end_is_counted_with_a_context_and_without(tmp_path: Path) -> None:
    build("qwen3", tmp_path)
    scorer = Scorer.from_pretrained(tmp_path, device="cpu")
    number = scorer.tokenizer.token_to_id("a")
    assert number is not None
    end = TemplatePiece(kind="special", type_id=0, tokens=("a",), ids=(number,))
    spec = scorer.tokenizer.spec
    scorer.tokenizer = Tokenizer(replace(spec, single=(*spec.single, end)))
    (whole,) = scorer.score_tokens(["a model of text"])
    (found,) = scorer.score_tokens([" of text"], context="a model")
    assert 1 < len(found) < len(whole)
    exact = Scorer.from_pretrained(tmp_path, device="cpu", dtype="float64")
    exact.tokenizer = scorer.tokenizer
    (truth,) = exact.score_tokens(["a model of text"])
    assert_as_ours(found, whole[-len(found) :], truth[-len(found) :])


def test_scores_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    build("gpt2", tmp_path)
    scorer = Scorer.from_pretrained(tmp_path, device="cpu")
    compute = scorer.engine.run

    def damaged(rows: Any, *outputs: Any) -> Any:
        (found,) = compute(rows, *outputs)
        return (np.where(rows.ids == rows.ids[-1], np.nan, found),)

    scorer.engine.run = damaged  # type: ignore[method-assign]
    with pytest.raises(NonFiniteVectorError, match="the first of text 0"):
        scorer.score(["a text"])


@pytest.mark.parametrize("kind", [Scorer, CausalRanker])
def test_a_local_directory_has_no_revision(kind: Any, tmp_path: Path) -> None:
    build("gpt2", tmp_path)
    with pytest.raises(ConfigError, match="has no revision 'v1'"):
        kind.from_pretrained(tmp_path, revision="v1")


def test_texts_of_one_token_or_none_have_no_probability_to_add(tmp_path: Path) -> None:
    build("gpt2", tmp_path)
    scorer = Scorer.from_pretrained(tmp_path)
    np.testing.assert_array_equal(scorer.score(["a", ""]), [0.0, 0.0])
    assert scorer.score([]).shape == (0,)
    assert scorer.score("a text").shape == ()


def test_long_texts_are_scored_up_to_the_limit(tmp_path: Path) -> None:
    build("gpt2", tmp_path)
    scorer = Scorer.from_pretrained(tmp_path, max_seq_length=8)
    with pytest.warns(TruncationWarning):
        (found,) = scorer.score_tokens(["a text that is too long"])
    assert len(found) == 7


def test_what_has_no_probabilities_is_refused(tmp_path: Path) -> None:
    CASES[0].save(tmp_path / "bert")
    with pytest.raises(UnsupportedFeatureError, match="whose tokens see later ones"):
        Scorer.from_pretrained(tmp_path / "bert")
    build("gpt2", tmp_path / "gpt2")
    scorer = Scorer.from_pretrained(tmp_path / "gpt2")
    with pytest.raises(InputError, match="context must be a str"):
        scorer.score(["a"], context=3)  # type: ignore[arg-type]
    case = next(case for case in MORE_CASES if case.model_type == "llama")
    save_tokenizer("gpt2", tmp_path / "bare")
    case.save(tmp_path / "bare", vocab_size=VOCAB_SIZE, tie_word_embeddings=False)
    with pytest.raises(TensorNamesError, match="saved without its output layer"):
        Scorer.from_pretrained(tmp_path / "bare")


def test_the_verb_scores_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fill_mask, "WINDOW_TEXTS", 3)
    build("qwen3", tmp_path / "model", max_position_embeddings=60)
    source, output = tmp_path / "a.jsonl", tmp_path / "scores.jsonl"
    texts = [*TEXTS, ""]
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    verb = ["score", "--model", str(tmp_path / "model"), str(source), "--device", "cpu"]
    assert main([*verb, "-o", str(output)]) == 0
    rows = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    expected = Scorer.from_pretrained(tmp_path / "model", device="cpu").score_tokens(texts)
    assert [row["text"] for row in rows] == texts
    assert [row["tokens"] for row in rows] == [len(part) for part in expected]
    exact = Scorer.from_pretrained(tmp_path / "model", device="cpu", dtype="float64")
    sums = [row["log_likelihood"] for row in rows]
    assert_as_ours(sums, [part.sum() for part in expected], exact.score(texts))
    found = [row["perplexity"] for row in rows]
    assert found[-1] is None
    assert found[0] == math.exp(-sums[0] / rows[0]["tokens"])
    assert "perplexity" in capsys.readouterr().out
    assert main([*verb, "-o", str(tmp_path / "b.jsonl"), "--single-tokens"]) == 2
    assert "--single-tokens is for masked models" in capsys.readouterr().err
    source.write_text('{"text": "a"}\n' * 4 + json.dumps({"text": "a " * 60}) + "\n", "utf-8")
    assert main([*verb, "-o", str(tmp_path / "c.jsonl")]) == 1
    assert "line 5: the text has more tokens than the model takes (60)" in capsys.readouterr().err
    assert not (tmp_path / "c.jsonl").exists()


def test_the_line_of_a_text_whose_scores_are_not_finite_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fill_mask, "WINDOW_TEXTS", 2)
    build("qwen3", tmp_path / "model")
    compute = CompiledCausalEngine.run

    def damaged(engine: Any, rows: Any, *outputs: Any) -> Any:
        (found,) = compute(engine, rows, *outputs)
        if rows.lengths.max() > 8:
            found[np.repeat(rows.lengths == rows.lengths.max(), rows.lengths)] = np.nan
        return (found,)

    monkeypatch.setattr(CompiledCausalEngine, "run", damaged)
    source = tmp_path / "a.jsonl"
    texts = ["a", "x y", "a", "a " * 9]
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    verb = ["score", "--model", str(tmp_path / "model"), str(source), "--device", "cpu"]
    assert main([*verb, "-o", str(tmp_path / "scores.jsonl")]) == 1
    assert "a.jsonl, line 4: the model computes NaN or infinity" in capsys.readouterr().err


TEMPLATE = PairTemplate(
    prefix="system: judge the document.\n",
    suffix="\nanswer:",
    body="task: {instruction} query: {query} document: {document}",
    instruction="rank",
    positive="y",
    negative="n",
)
PAIRS = [("a model", "the model of texts"), ("text", "x"), ("a", "text of the model, the text")]


@pytest.mark.parametrize("engine", ENGINES)
def test_answers_are_those_of_transformers(engine: Any, tmp_path: Path) -> None:
    model, tokenizer = build("qwen3", tmp_path, max_position_embeddings=300)
    ranker = CausalRanker.from_pretrained(
        tmp_path, device="cpu", engine=engine, template=TEMPLATE, activation="identity"
    )
    texts = [
        TEMPLATE.prefix
        + TEMPLATE.body.format(instruction=TEMPLATE.instruction, query=query, document=document)
        + TEMPLATE.suffix
        for query, document in PAIRS
    ]
    answers = [tokenizer(word)["input_ids"][0] for word in ("y", "n")]

    def odds(model: Any) -> torch.Tensor:
        with torch.no_grad():
            last = [model(torch.tensor([tokenizer(t)["input_ids"]])).logits[0, -1] for t in texts]
        return torch.stack([row[answers[0]] - row[answers[1]] for row in last])

    found = ranker.score(PAIRS)
    with in_float64():
        truth = odds(exact(model))
    assert_within_budget(torch.from_numpy(found), odds(model), truth, terms=3 * 48)
    shares = ranker.score(PAIRS, activation="sigmoid")
    assert_within_budget(
        torch.from_numpy(shares), odds(model).sigmoid(), truth.sigmoid(), terms=3 * 48
    )
    ranked = ranker.rank("a model", ["x", "the model", "y"], top_k=2, return_documents=True)
    assert len(ranked) == 2
    assert ranked[0]["score"] >= ranked[1]["score"]


def test_a_long_document_loses_its_end_and_not_the_suffix(tmp_path: Path) -> None:
    build("qwen3", tmp_path)
    ranker = CausalRanker.from_pretrained(tmp_path, template=TEMPLATE, max_seq_length=90)
    with pytest.warns(TruncationWarning):
        ranker.score([("a", "text " * 50)])
    rows = ranker.format.rows([("a", "text " * 50)], "rank", max_length=90, num_threads=1)
    assert len(rows.ids) == 90
    suffix = ranker.tokenizer.encode_batch([TEMPLATE.suffix], add_special_tokens=False).ids
    np.testing.assert_array_equal(rows.ids[-len(suffix) :], suffix)


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "gemma3_text"])
def test_the_default_template_is_for_its_family_alone(model_type: str, tmp_path: Path) -> None:
    build(model_type, tmp_path)
    with pytest.raises(ConfigError, match=r"names no words around a pair.*PairTemplate\(\.\.\.\)"):
        CausalRanker.from_pretrained(tmp_path, device="cpu")
    engine = Scorer.from_pretrained(tmp_path, device="cpu").engine
    tokenizer = Tokenizer.from_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="the model is a "):
        CausalRanker(engine, tokenizer)
    ranker = CausalRanker.from_pretrained(tmp_path, device="cpu", template=TEMPLATE)
    expected = CausalRanker(engine, tokenizer, template=TEMPLATE)
    found = [one.score(PAIRS, on_truncation="ignore") for one in (ranker, expected)]
    np.testing.assert_array_equal(found[0], found[1])


def test_a_model_whose_tokens_see_later_ones_is_no_causal_ranker(tmp_path: Path) -> None:
    CASES[0].save(tmp_path)
    save_tokenizer("bert", tmp_path)
    with pytest.raises(UnsupportedFeatureError, match=r"Ranker\.from_pretrained loads"):
        CausalRanker.from_pretrained(tmp_path)


def test_an_instruction_that_no_word_of_the_template_takes_is_refused(tmp_path: Path) -> None:
    build("qwen3", tmp_path, max_position_embeddings=300)
    template = replace(TEMPLATE, body="{query} {document}")
    ranker = CausalRanker.from_pretrained(tmp_path, template=template)
    ranker.score(PAIRS)
    with pytest.raises(InputError, match=r"has no \{instruction\}"):
        ranker.score(PAIRS, instruction="find")


def test_rankers_that_cannot_answer_are_refused(tmp_path: Path) -> None:
    build("qwen3", tmp_path, max_position_embeddings=300)
    ranker = CausalRanker.from_pretrained(tmp_path, template=TEMPLATE)
    engine: Any = ranker.engine
    for answers in ((), (1, 2, 3)):
        with pytest.raises(ConfigError, match="or of the positive alone, got"):
            CausalRanker(engine, ranker.tokenizer, template=TEMPLATE, answers=answers)
    # The instruction alone would be all that the model reads.
    with pytest.raises(ConfigError, match="leaves no room for a pair"):
        ranker.score(PAIRS, instruction="rank the documents " * 40)
    with pytest.raises(ConfigError, match="the answer 'yes' is 3 tokens"):
        CausalRanker.from_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="leaves no room for a pair"):
        CausalRanker.from_pretrained(tmp_path, template=TEMPLATE, max_seq_length=20)
    for body in ("{query} {answer}", "{query}", "{query} {document} {}", "{query} {document"):
        with pytest.raises(ConfigError, match="the body"):
            CausalRanker.from_pretrained(tmp_path, template=replace(TEMPLATE, body=body))
