"""Masks are filled, and texts scored, as sums of a masked language model's log softmax."""

from __future__ import annotations

import json
import math
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet
import pytest
import torch

import encoder_engine as ee
from encoder_engine.cli import main
from encoder_engine.errors import InputError
from encoder_engine.models.heads import MaskedLM

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

TEXTS = ["a good film", "the plot", "goodbad not veryvery"]


@pytest.fixture
def directory(checkpoint: Path) -> Path:
    """Add a head for masked tokens, and pieces of words to the vocabulary's end."""
    path = checkpoint / "vocab.txt"
    lines = path.read_text().splitlines()
    lines[lines.index("plot")] = "##bad"
    lines[lines.index("not")] = "##very"
    path.write_text("\n".join(lines) + "\n")
    torch.manual_seed(1)
    encoder = ee.Encoder.from_pretrained(checkpoint, device="cpu")
    model = MaskedLM(encoder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    target = checkpoint.parent / "mlm"
    model.save_pretrained(target)
    ee.Tokenizer.from_pretrained(path, lowercase=True).save(target)
    return target


@pytest.fixture
def log_shares(directory: Path) -> Any:
    """Return log softmax [T, V] of transformers' model."""
    library = pytest.importorskip("transformers")
    model = library.AutoModelForMaskedLM.from_pretrained(directory).eval()

    @torch.no_grad()
    def compute(ids: list[int]) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = model(torch.tensor([ids])).logits[0].log_softmax(1).numpy()
        return found

    return compute


@pytest.mark.slow
def test_masks_are_filled_as_by_transformers(directory: Path, log_shares: Any) -> None:
    filler = ee.MaskFiller.from_pretrained(directory, "cpu")
    ids = filler.tokenizer.encode("a [MASK] the [MASK]").tolist()
    shares = log_shares(ids)
    [found] = filler.fill(["a [MASK] the [MASK]"], top_k=3)
    for mask, place in enumerate((2, 4)):
        best = np.argsort(-shares[place])[:3]
        assert [one.token_id for one in found[mask]] == best.tolist()
        expected = np.exp(shares[place][best])
        np.testing.assert_allclose([c.probability for c in found[mask]], expected, rtol=1e-4)
    # With a beam as wide as the vocabulary the best filling is that of all of them.
    size = filler.tokenizer.vocab_size
    [joint] = filler.fill_jointly(["a [MASK] the [MASK]"], top_k=size)
    scores = {}
    for one, two in product(range(size), repeat=2):
        filled = [*ids[:2], one, *ids[3:]]
        scores[one, two] = shares[2][one] + log_shares(filled)[4][two]
    best_pair = max(scores, key=lambda pair: scores[pair])
    assert joint[0].tokens == tuple(filler.tokenizer.id_to_token(n) for n in best_pair)
    assert joint[0].log_probability == pytest.approx(scores[best_pair], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("within_words", [True, False])
def test_texts_are_scored_token_by_token(
    directory: Path, log_shares: Any, within_words: bool
) -> None:
    filler = ee.MaskFiller.from_pretrained(directory, "cpu")
    mask = filler.tokenizer.mask_token_id
    for text, found in zip(TEXTS, filler.score(TEXTS, within_words=within_words), strict=True):
        ids = filler.tokenizer.encode(text).tolist()
        expected = []
        for place in range(1, len(ids) - 1):
            masked = list(ids)
            masked[place] = mask
            later = place + 1
            while within_words and (filler.tokenizer.id_to_token(ids[later]) or "")[:2] == "##":
                masked[later] = mask
                later += 1
            expected.append(log_shares(masked)[place][ids[place]])
        np.testing.assert_allclose(found.log_probabilities, expected, rtol=1e-4)
        assert found.pseudo_perplexity == pytest.approx(math.exp(-np.mean(expected)), rel=1e-4)
    assert filler.score([""])[0].tokens == ()


@pytest.mark.slow
def test_a_target_takes_as_many_masks_as_pieces(directory: Path, log_shares: Any) -> None:
    filler = ee.MaskFiller.from_pretrained(directory, "cpu")
    found = {one.target: one for one in filler.rank("a [MASK] film", ["good", "goodbad"])}
    assert found["goodbad"].pieces == ("good", "##bad")
    mask = filler.tokenizer.mask_token_id
    head, *_ = ids = filler.tokenizer.encode("a goodbad film").tolist()
    both = log_shares([head, ids[1], mask, mask, *ids[4:]])[2][ids[2]]
    both += log_shares([head, ids[1], ids[2], mask, *ids[4:]])[3][ids[3]]
    assert found["goodbad"].log_probability == pytest.approx(both, rel=1e-4)
    with pytest.raises(InputError, match="has 2 masks"):
        filler.rank("[MASK] [MASK]", ["good"])
    with pytest.raises(InputError, match=r"text 0 has no \[MASK\]"):
        filler.fill(["a film"])
    with pytest.raises(InputError, match="text 1 has 66 tokens, the model takes 64"):
        filler.score(["a", "a " * 64])


def test_the_verbs_fill_and_score(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for more in ([], ["--joint"], ["--target", "good", "--target", "bad"]):
        command = ["fill-mask", str(directory), "a [MASK] film", "--device", "cpu", "--json"]
        assert main([*command, *more]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == (2 if "--target" in more else 5)
        assert all(json.loads(line) for line in lines)
    texts, output = tmp_path / "texts.jsonl", tmp_path / "scores.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    assert main(["score", str(directory), str(texts), "-o", str(output), "--device", "cpu"]) == 0
    assert len(output.read_text().splitlines()) == 3
    assert "pseudo-perplexity" in capsys.readouterr().out
    score = ["score", str(directory), str(texts), "--device", "cpu"]
    assert main([*score, "-o", str(tmp_path / "scores.parquet")]) == 0
    table = pyarrow.parquet.read_table(tmp_path / "scores.parquet")
    assert table.to_pylist() == [json.loads(line) for line in output.read_text().splitlines()]
    capsys.readouterr()
    for name, message in (("scores.jsonl", "exists"), ("scores.csv", "must end in .jsonl")):
        assert main([*score, "-o", str(tmp_path / name)]) == 1
        assert message in capsys.readouterr().err
