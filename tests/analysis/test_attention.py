"""The attention page: its numbers are those of the weights, its script is its own."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import encoder_engine as ee
from encoder_engine import analysis
from encoder_engine.analysis.subject import Subject
from encoder_engine.analysis.text_attention import attention_page, measure_attention
from encoder_engine.errors import InputError
from tests.analysis.conftest import encoder_of

if TYPE_CHECKING:
    from tests.analysis.conftest import Run

MARKUP = "the <script>alert(1)</script> film <img src=http://a.example/b onerror=alert(1)> </pre>"


class Elements(HTMLParser):
    """Collects the elements and the scripts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data


def test_the_greatest_weights_are_those_of_the_encoder(subject: Subject) -> None:
    text = "the good film !"
    found = measure_attention(subject, text, top_k=3)
    assert found.words == ["[CLS]", "the", "good", "film", "!", "[SEP]"]
    assert found.weights.heads == [(0, 0), (0, 1), (1, 0), (1, 1)]
    batch = subject.tokenizer.encode_batch([text]).to_packed("cpu")
    with torch.no_grad():
        output = subject.encoder(batch, output_attentions=True)
    for number, (layer, head) in enumerate(found.weights.heads):
        weights = output.attentions[layer][0, head].numpy()
        np.testing.assert_array_equal(found.weights.keys[number, :, 0], weights.argmax(1))
        best = np.sort(weights, axis=1)[:, :-4:-1]
        # Eight bits.
        assert np.abs(found.weights.shares[number] / 255 - best).max() <= 0.5 / 255 + 1e-6


def test_subwords_are_joined_to_words(tmp_path: Path) -> None:
    subject = wide_subject(tmp_path)
    found = measure_attention(subject, "abab ab", top_k=9, layers=[3])
    assert found.words == ["[CLS]", "abab", "ab", "[SEP]"]
    assert found.weights.keys.shape == (12, 4, 4)
    with torch.no_grad():
        batch = subject.tokenizer.encode_batch(["abab ab"]).to_packed("cpu")
        whole = subject.encoder(batch, output_attentions=True).attentions[3][0].numpy()
    summed = np.add.reduceat(whole, [0, 1, 3, 4], axis=2)
    between = np.stack([summed[:, 0], summed[:, 1:3].mean(1), summed[:, 3], summed[:, 4]], 1)
    ours = np.zeros_like(between)
    np.put_along_axis(ours, found.weights.keys, found.weights.shares / 255, 2)
    assert np.abs(ours - between).max() <= 0.5 / 255 + 1e-6


def wide_subject(folder: Path) -> Subject:
    """Return twelve layers of twelve heads, as many as BERT-base has."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ab", "##ab"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    encoder = encoder_of(len(vocabulary), width=48, layers=12, heads=12, positions=512)
    return Subject(encoder=encoder, tokenizer=ee.Tokenizer.from_pretrained(folder / "vocab.txt"))


@pytest.mark.slow
def test_a_page_of_512_tokens_and_144_heads_is_less_than_1_mb(tmp_path: Path) -> None:
    subject = wide_subject(tmp_path)
    page = attention_page(subject, "ab " * 510)
    assert len(page.encode()) < 1_000_000
    assert page.count("<button") == 144
    with pytest.raises(InputError, match=r"513 tokens, a page shows up to 512"):
        attention_page(subject, "ab " * 511)
    with pytest.raises(InputError, match=r"layers are 0 to 11, got 12"):
        attention_page(subject, "ab", layers=[12])
    with pytest.raises(InputError, match="top_k is -1, expected at least 1"):
        attention_page(subject, "ab", top_k=-1)


def test_the_only_script_is_the_pages_own(subject: Subject) -> None:
    page = attention_page(subject, MARKUP, title="<script>alert(2)</script>")
    elements = Elements(page)
    own = Path(ee.__file__).parent / "pages" / "weights.js"
    assert elements.scripts == [own.read_text(encoding="utf-8")]
    assert not {"img", "link", "iframe", "object"} & {tag for tag, _ in elements.tags}
    assert not [facts for _, facts in elements.tags if {"src", "href"} & facts.keys()]
    policy = next(
        f["content"] or "" for tag, f in elements.tags if tag == "meta" and "content" in f
    )
    assert policy.startswith("default-src 'none'")
    assert "'unsafe-inline'" not in policy.partition("script-src")[2]


@pytest.mark.filterwarnings("ignore")
def test_the_verb_prints_words_and_writes_the_page(tiny: Path, run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    arguments = ("attention", "--model", tiny, "a good film", "--device", "cpu")
    result = run(*arguments, "--html", page, "--json", "--layers", "1", "--top", "2")
    assert result.code == 0, result.errors
    found = json.loads(result.output)
    assert found["words"] == ["[CLS]", "a", "good", "film", "[SEP]"]
    assert [(one["layer"], one["head"]) for one in found["heads"]] == [(1, 0), (1, 1)]
    assert np.shape(found["heads"][0]["weights"]) == (5, 2)
    assert "</html>" in page.read_text()
    assert "1.1 " in run(*arguments).output
    assert "such as 0,5" in run(*arguments, "--layers", "x").errors
    # A missing folder was found after the model had been computed.
    lost = run(
        "attention",
        "--model",
        tmp_path / "no model",
        "a",
        "--html",
        tmp_path / "none" / "page.html",
    )
    assert "none is not a directory; make it first" in lost.errors


def test_every_public_name_is_no_module() -> None:
    modules = {path.stem for path in Path(analysis.__file__).parent.glob("*.py")}
    assert not modules & set(analysis.__all__)
    for name in analysis.__all__:
        assert callable(getattr(analysis, name))
