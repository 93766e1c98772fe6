"""Probes: edges, the fit, control tasks, mixes, and the verb."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from encoder_engine.analysis import probing
from encoder_engine.analysis.edges import Edge, EdgeSet, edge_states, read_edges, split_edges
from encoder_engine.analysis.probe_fit import FittedProbe, fit_probe
from encoder_engine.analysis.probing import ProbeData, probe_layers, probe_mixes
from encoder_engine.errors import InputError, RowError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from encoder_engine.analysis.subject import Subject
    from tests.analysis.conftest import Run


def test_relations_join_a_word_with_its_head_and_leave_out_the_root(conllu: Path) -> None:
    edges = read_edges(conllu, "deprel", 1)
    assert [edge.spans for edge in edges.edges] == [
        ((place, place + 1), (place - 1, place)) for place in range(1, 6)
    ]


def test_a_head_that_is_no_number_is_left_out(tmp_path: Path) -> None:
    # A superscript is a digit, but int() does not read it.
    path = tmp_path / "heads.conllu"
    path.write_text("1\ta\t_\t_\t_\t_\t\u00b2\tdet\n2\tb\t_\t_\t_\t_\t1\tdep\n\n")
    assert [edge.label for edge in read_edges(path, "deprel").edges] == ["dep"]


def test_targets_of_edge_probing_are_spans(tmp_path: Path) -> None:
    path = tmp_path / "edges.jsonl"
    target = {"span1": [0, 2], "span2": [2, 3], "label": "ARG0"}
    path.write_text(json.dumps({"text": "the good film", "targets": [target]}) + "\n")
    (edge,) = read_edges(path).edges
    assert edge.spans == ((0, 2), (2, 3))
    path.write_text(json.dumps({"text": "the", "targets": [target]}) + "\n")
    with pytest.raises(RowError, match="the text's words"):
        read_edges(path)
    path.write_text(json.dumps({"text": "the", "targets": []}) + "\n")
    with pytest.raises(InputError, match="has no edge"):
        read_edges(path)


def test_edges_of_different_kinds_are_refused(subject: Subject) -> None:
    one = EdgeSet([["a", "film"]], [Edge(0, ((0, 1),), "x"), Edge(0, ((1, 2),), "y")])
    two = EdgeSet([["a", "film"]], [Edge(0, ((0, 1), (1, 2)), "x")])
    with pytest.raises(InputError, match="have one span, the others two"):
        ProbeData.measure(subject, one, two)


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ("ARG0", "targets must be a list of objects"),
        ({"span1": [0, 1]}, "targets must be a list of objects"),
        (3, "targets must be a list of objects"),
        (["ARG0"], r"targets\[0\] must be an object"),
        ([[0, 1]], r"targets\[0\] must be an object"),
        ([{"label": "x"}], r"targets\[0\] has no span1"),
        ([{"span2": [0, 1], "label": "x"}], r"targets\[0\] has no span1"),
        *(
            ([{"span1": span, "label": "x"}], r"targets\[0\].span1 must be \[start, end\]")
            for span in ([3], 3, ["0", "1"], [0.5, 1.5], [True, 2], [1, 1], [0, 4], "01")
        ),
        ([{"span1": [0, 1], "span2": [2], "label": "x"}], r"targets\[0\].span2 must be"),
        *(
            ([{"span1": [0, 1], "label": label}], r"targets\[0\].label must be a name")
            for label in (None, {"a": 1}, [], [["x"]], 1.5, True)
        ),
    ],
)
def test_malformed_targets_are_refused_with_their_row(
    tmp_path: Path, targets: object, expected: str
) -> None:
    path = tmp_path / "edges.jsonl"
    path.write_text(json.dumps({"text": "the good film", "targets": targets}) + "\n")
    with pytest.raises(RowError, match=f"line 1: {expected}"):
        read_edges(path)


def test_a_span_is_the_mean_of_its_words(subject: Subject, tmp_path: Path) -> None:
    path = tmp_path / "edges.jsonl"
    targets = [{"span1": [0, 3], "label": "x"}, {"span1": [1, 2], "label": "y"}]
    rows = [{"text": "the good film", "targets": targets}, {"text": "a plot", "targets": []}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    states, edges = edge_states(subject, read_edges(path))
    (words,) = subject.word_states([["the", "good", "film"]])
    assert [edge.label for edge in edges] == ["x", "y"]
    expected = np.stack([words.states.mean(1), words.states[:, 1]], 1)
    bound = 8 * np.finfo(np.float32).eps * np.abs(expected).max()
    np.testing.assert_allclose(states, expected, atol=bound)


def test_the_linear_probe_is_scikit_learns_regression() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    generator = np.random.default_rng(0)
    states = generator.normal(size=(300, 8)).astype(np.float32)
    labels = (states @ generator.normal(size=(8, 3)) + generator.gumbel(size=(300, 3))).argmax(1)
    fitted = fit_probe(torch.from_numpy(states)[None], torch.from_numpy(labels), 3)
    assert fitted.converged
    peer = linear_model.LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(states, labels)
    with torch.no_grad():
        scores = fitted.probe(torch.from_numpy(states)[None]).softmax(1).numpy()
    # The objective is strongly convex with 1 / n, so a gradient of 1e-4 in each of 27 entries
    # leaves the weights within sqrt(27) * 1e-4 * n; in practice far nearer.
    assert (scores.argmax(1) == peer.predict(states)).mean() > 0.99
    assert np.abs(scores - peer.predict_proba(states)).max() < np.sqrt(27) * 1e-4 * 300


def test_a_probe_that_runs_out_of_steps_is_unconverged() -> None:
    states, labels = torch.randn(1, 50, 4), torch.arange(50) % 3
    assert not fit_probe(states, labels, 3, steps=1).converged


def test_random_labels_stay_at_chance_and_given_ones_are_learned(
    subject: Subject, conllu: Path
) -> None:
    edges = read_edges(conllu)
    data = ProbeData.measure(subject, edges, edges)
    found = probe_layers(data)
    assert found[0].accuracy == 100.0
    # A word type has one control label, so that the embeddings hold all that it needs.
    assert found[0].control == 100.0
    noise = torch.randn(data.train.shape, generator=torch.Generator().manual_seed(0))
    blind = fit_probe(noise[:1], data.train_labels, len(data.labels))
    unseen = torch.randn(data.train.shape, generator=torch.Generator().manual_seed(1))
    labels = data.train_labels.numpy()
    shares = np.bincount(labels) / len(labels)
    # Four standard deviations above the share of the most frequent label.
    bound = shares.max() + 4 * np.sqrt(0.25 / len(labels))
    assert blind.accuracy(unseen[:1], data.train_labels) < 100 * bound


def test_mixes_weigh_layers_and_an_mlp_has_a_hidden_layer(subject: Subject, conllu: Path) -> None:
    edges = read_edges(conllu)
    train = EdgeSet(edges.sentences, [e for e in edges.edges if e.sentence < 30])
    test = EdgeSet(edges.sentences, [e for e in edges.edges if e.sentence >= 30])
    data = ProbeData.measure(subject, train, test)
    mix = probe_mixes(data)
    assert sum(mix.weights) == pytest.approx(1.0)
    assert len(mix.accuracies) == 3
    assert 0 <= mix.centre <= 2
    hidden = probe_layers(data, hidden=8, control=False)
    assert [found.accuracy for found in hidden] == [100.0] * 3


def test_halves_of_one_file_are_computed_in_one_pass(
    subject: Subject, conllu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges = read_edges(conllu)
    train, test = split_edges(edges, 30)
    apart = [edge_states(subject, part) for part in (train, test)]
    passes: list[EdgeSet] = []

    def counted(subject: Subject, part: EdgeSet) -> tuple[npt.NDArray[np.float32], list[Edge]]:
        passes.append(part)
        return edge_states(subject, part)

    monkeypatch.setattr(probing, "edge_states", counted)
    data = ProbeData.measure(subject, train, test)
    assert len(passes) == 1
    means = apart[0][0].mean(1, keepdims=True)
    for found, labels, (states, kept) in zip(
        (data.train, data.test), (data.train_labels, data.test_labels), apart, strict=True
    ):
        np.testing.assert_array_equal(found.numpy(), states - means)
        assert [data.labels[n] for n in labels.tolist()] == [edge.label for edge in kept]
    ProbeData.measure(subject, train, train)
    assert len(passes) == 3


def test_what_a_layer_takes_away_counts_as_nothing(
    subject: Subject, conllu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies = iter([50.0, 70.0, 60.0])
    monkeypatch.setattr(FittedProbe, "accuracy", lambda *_: next(accuracies))
    edges = read_edges(conllu, "upos", 4)
    mix = probe_mixes(ProbeData.measure(subject, edges, edges), steps=1)
    assert mix.expected_layer == 1.0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "line", "label"),
    [
        (
            "a.jsonl",
            '{"text": "the film", "targets": [{"span1": [0, 1], "label": "%s"}]}',
            "targets",
        ),
        ("a.conll", "the %s\n", "tags"),
    ],
)
def test_the_title_names_the_labels_that_were_read(
    tiny: Path, run: Run, tmp_path: Path, name: str, line: str, label: str
) -> None:
    path = tmp_path / name
    path.write_text("".join(line % tag + "\n" for tag in ("A", "B") * 4))
    arguments = (
        "probe",
        "--model",
        tiny,
        path,
        path,
        "--no-control",
        "--steps",
        "2",
        "--device",
        "cpu",
    )
    result = run(*arguments)
    assert result.code == 0, result.errors
    assert result.output.startswith(f"Probes of {tiny}: {label}\n")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("label", ["upos", "deprel"])
def test_the_verb_probes_every_layer(
    tiny: Path, conllu: Path, run: Run, tmp_path: Path, label: str
) -> None:
    arguments = (
        "probe",
        "--model",
        tiny,
        conllu,
        conllu,
        "--label-column",
        label,
        "--mix",
        "--device",
        "cpu",
    )
    page = tmp_path / "page.html"
    result = run(*arguments, "--json", "--html", page)
    assert result.code == 0, result.errors
    found = json.loads(result.output)
    assert [layer["layer"] for layer in found["layers"]] == [0, 1, 2]
    assert "Expected layer" in page.read_text()
    result = run(*arguments, "--no-control", "--steps", "1")
    assert "Unconverged after 1 steps" in result.output
    result = run(
        "probe", "--model", tiny, conllu, "--train-rows", "30", "--device", "cpu", "--json"
    )
    assert json.loads(result.output)["test"] == 60
    assert run("probe", "--model", tiny, conllu).code == 2
