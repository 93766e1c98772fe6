"""The report of made-up results: nothing lost, failed or left out is hidden."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.__main__ import README, main
from benchmarks.records import results as records
from benchmarks.records.runs import default, facing
from benchmarks.registry import all_cases
from benchmarks.report.left_out import left_out_lines
from benchmarks.report.page import make_page, summary_reading
from benchmarks.report.readme import BEGIN, END, readme_table, write_readme
from benchmarks.tests.made_up import AWKWARD, lines

SHORT = "embedding/minilm-float32-short"


def test_the_page_counts_wins_and_names_losses_failures_and_who_is_absent() -> None:
    won, lost = lines(SHORT, 0.5, 0.6), lines("embedding/minilm-int8-skewed", 1.0, 0.8)
    broken, *others = lines("geglu/forward", 1.0, 2.0)
    broken = dataclasses.replace(broken, p50_ms=None, status="gate failed", reason="too far off")
    busy = [dataclasses.replace(r, other_cores=0.5) for r in lines("encoder/mixed", 0.3, 0.9)]
    page = make_page([*won, *lost, broken, *others, *busy])
    assert "In 2 of 4 comparisons encoder-engine" in page
    assert "It is slower in: MiniLM in int8: passages of mixed length (0.80x peer" in page
    assert "**0.80x, slower**" in page
    assert "no right result in: geglu/forward, encoder-engine (too far off)" in page
    assert "| absent | skipped | not installed |" in page
    assert "| wrong | wrong results | mean cosine is too low |" in page
    assert "so their figures scatter more: encoder/mixed." in page
    assert "- absent: skipped: not installed" in page.partition("## Every case")[2]


def test_who_is_alone_beside_is_called_no_fastest_of_others() -> None:
    contest = lines(SHORT, 1.0, 2.0)
    alone = lines("drop_in/encode-skewed", 1.0, 11.0)
    alone = [r for r in alone if r.candidate in ("encoder-engine", AWKWARD, "absent")]
    reading = summary_reading([contest, alone])
    assert "In 1 of 1 comparison " in reading
    assert "Of 1 more, with one other tool alone, it is in 1." in reading
    beside = [facing(run)[0].beside for run in (contest, alone)]
    assert beside == [f"best of 3: {AWKWARD}", f"beside: {AWKWARD}"]


def test_an_operation_is_shown_with_the_implementation_that_calls_take() -> None:
    first, *others = lines("layer_norm/forward", 2.0, 1.0)
    triton = dataclasses.replace(first, candidate="encoder-engine triton")
    quicker = dataclasses.replace(triton, candidate="encoder-engine aten", p50_ms=0.5)
    assert [pair.ours for pair in facing([triton, quicker, *others])] == [triton]
    # The machine cannot run it: calls take the next.
    absent = dataclasses.replace(triton, p50_ms=None, status="skipped")
    assert [pair.ours for pair in facing([absent, quicker, *others])] == [quicker]
    # It failed: another one does not stand in for it.
    failed = dataclasses.replace(triton, p50_ms=None, status="failed")
    assert not facing([failed, quicker, *others])
    # A variant that users ask for comes first in its case.
    captured = dataclasses.replace(first, case="encoder_short/1-text", candidate="captured")
    plain = dataclasses.replace(first, case="encoder_short/1-text")
    assert default([captured, plain, *others]) is plain


def test_restricted_runs_count_in_no_summary() -> None:
    slow = lines(SHORT, 2.0, 1.0, isa="avx2")
    assert "In 1 of 1 comparison " in summary_reading([lines(SHORT, 1.0, 2.0), slow])
    assert "Slower in" not in readme_table([slow])


def test_a_part_of_the_texts_is_held_to_no_target() -> None:
    page = make_page([dataclasses.replace(r, quick=True) for r in lines(SHORT, 1, 2)])
    assert "A first answer, on a part of the texts" in page
    assert "## Targets" not in page
    assert "## Targets" in make_page(lines(SHORT, 1, 2))


def test_readmes_table_has_losses_and_what_is_not_measured() -> None:
    table = readme_table([lines("embedding/minilm-int8-skewed", 1.0, 0.8)])
    assert "**0.80x, slower**" in table
    assert "a step of pretraining in bfloat16, BERT-base | not measured yet |" in table
    assert "Slower in" not in table
    lost = readme_table([lines("tokenizer/xlmr-load", 2.0, 1.0), lines("import/package", 2.0, 1.0)])
    assert (
        "Slower in 1 of 1 other comparisons</summary>Unigram (XLM-R): loading the vocabulary (0.50x"
        in lost
    )
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert write_readme(text, []) == f"before\n{readme_table([])}\nafter\n"
    with pytest.raises(ValueError, match="lacks the table's markers"):
        write_readme("nothing", [])


def test_the_recorded_results_make_a_page_and_readmes_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = list(records.read())
    text = README.read_text("utf-8")
    expected = write_readme(text, records.latest_runs(results))
    assert text == expected, "run: python -m benchmarks report --readme"
    assert main(["report"]) == 0
    assert capsys.readouterr().out == make_page(results)
    assert "Nothing has been measured yet" in make_page([])


def test_what_a_run_left_out_is_listed_by_its_reason() -> None:
    known = all_cases()
    chosen = [SHORT, "geglu/forward", "import/package"]
    results = lines("geglu/forward", 1.0, 2.0) * 2
    known |= {SHORT: dataclasses.replace(known[SHORT], unavailable=lambda: "no model")}
    found = left_out_lines(known, chosen, results, otherwise="too late")
    assert found[:2] == [f"- `{SHORT}`: no model", "- `import/package`: too late"]
    assert "- absent: not installed" in found
    assert "- wrong in geglu/forward: mean cosine is too low" in found
    more, on_gpu = found[-2:]
    num_gpu = sum("cpu" not in spec.devices for spec in known.values())
    assert on_gpu.startswith(f"- {num_gpu} cases on an NVIDIA GPU")
    assert more.startswith(f"- {len(known) - 3 - num_gpu} more cases")
    assert "1 of `geglu`" in more
    assert "68 of `embedding`" in more
