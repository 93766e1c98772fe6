"""``encoder-engine doctor``: reports the machine, the implementations in use, and problems."""

from __future__ import annotations

from typing import Any

import click

from encoder_engine.cli.common import binary_size, print_facts, print_json


@click.command()
@click.option("--model", "-m", help="Also check this model directory, down to a first vector.")
@click.option("--accuracy", is_flag=True, help="With --model: compare its precisions on texts.")
@click.option("--texts", metavar="FILE", help="The texts to compare them on, instead of examples.")
@click.option("--column", help="The column of the texts in FILE.  [default: text]")
@click.option("--json", "as_json", is_flag=True, help="Print everything as one line of JSON.")
def doctor(
    model: str | None, accuracy: bool, texts: str | None, column: str | None, as_json: bool
) -> int:
    """Report the machine, versions, and what to mend.

    Chosen implementations and extras are listed. The exit code is 1 where something does not work.
    """
    if accuracy and model is None:
        raise click.UsageError("--accuracy is of a model; name it by --model")
    if texts is not None and not accuracy:
        raise click.UsageError("--texts is for --accuracy")
    if column is not None and texts is None:
        raise click.UsageError("--column is for --texts FILE")
    report = build_report(model, texts, column, accuracy=accuracy)
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    return int(any(finding["level"] == "problem" for finding in report["findings"]))


def build_report(
    model: str | None, texts: str | None, column: str | None, *, accuracy: bool
) -> dict[str, Any]:
    """Return the report: the facts of all checks, and the findings that follow from them."""
    from encoder_engine.cli.checks.findings import installation_findings, machine_findings
    from encoder_engine.cli.checks.machine import (
        extra_facts,
        import_torch,
        machine_facts,
        missing_instruction_sets,
        native_instruction_set,
        version_facts,
    )
    from encoder_engine.cli.checks.model_check import check_model

    machine, versions, extras = machine_facts(), version_facts(), extra_facts()
    native, missing = native_instruction_set(), missing_instruction_sets()
    findings = machine_findings(machine, versions)
    findings += installation_findings(native, missing, extras)
    report: dict[str, Any] = {
        "machine": machine,
        "versions": versions,
        "native_extension": {
            "present": native is not None,
            "instruction_set": native,
            "missing_instruction_sets": missing,
        },
        "operations": _operations("cuda" if machine["gpus"] else "cpu") if import_torch() else {},
        "extras": extras,
    }
    if model is not None and native is not None:
        report["model"], more = check_model(model)
        findings += more
    if accuracy and model is not None and native is not None:
        from encoder_engine.cli.checks.accuracy_check import check_accuracy

        report["accuracy"], more = check_accuracy(model, texts, column)
        findings += more
    report["findings"] = [finding._asdict() for finding in findings]
    return report


def _operations(device: str) -> dict[str, Any]:
    """Return each operation's chosen implementation in float32, and why others were not chosen."""
    from encoder_engine import ops

    chosen = {}
    for name in ops.operations():
        explanation = ops.explain(name, device=device, dtype="float32")
        able = [implementation for implementation, refusal in explanation if refusal is None]
        chosen[name] = {
            "device": device,
            "chosen": able[0] if able else None,
            "others": {
                implementation: refusal or f"available, not used: {able[0]} is preferred"
                for implementation, refusal in explanation
                if not able or implementation != able[0]
            },
        }
    return chosen


def _print_report(report: dict[str, Any]) -> None:
    sections = {
        "Machine": _machine_lines(report["machine"], report["native_extension"]),
        "Versions": {name: found or "not installed" for name, found in report["versions"].items()},
        "Operations": {name: _operation(facts) for name, facts in report["operations"].items()}
        or {"none": "PyTorch is not installed; the compiled engine computes on the CPU without it"},
        "Extras": {name: _extra(libraries) for name, libraries in report["extras"].items()},
    }
    if "model" in report:
        sections["Model"] = {name: _plain(value) for name, value in report["model"].items()}
    if "accuracy" in report:
        from encoder_engine.cli.checks.accuracy_check import accuracy_lines

        sections["Accuracy"] = accuracy_lines(report["accuracy"])
    for title, facts in sections.items():
        print_facts(title, facts)
        click.echo()
    click.secho("Findings", bold=True)
    if not report["findings"]:
        click.echo("  nothing to mend")
    for finding in report["findings"]:
        click.echo(f"  {finding['level']}: {finding['what']}\n    -> {finding['mend']}")


def _machine_lines(machine: dict[str, Any], native: dict[str, Any]) -> dict[str, str]:
    cores = f"{machine['usable_cores']} usable of {machine['cores']}"
    if machine["cpu_quota_cores"] is not None:
        cores += f", quota {machine['cpu_quota_cores']:g}"
    gpus = [
        f"{gpu['name']} ({gpu['compute_capability']}, {binary_size(gpu['memory_bytes'])})"
        for gpu in machine["gpus"]
    ]
    memory, sets = machine["memory_bytes"], machine["instruction_sets"]
    return {
        "system": machine["system"],
        "cpu": machine["cpu"],
        "instruction sets": "unknown" if sets is None else ", ".join(sets) or "none known",
        "cores": cores,
        "memory": "unknown" if memory is None else binary_size(memory),
        "gpu": "; ".join(gpus) or "none",
        "native extension": f"runs {native['instruction_set']}" if native["present"] else "missing",
    }


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{name}: {part}" for name, part in value.items()) or "none"
    return str(value)


def _operation(facts: dict[str, Any]) -> str:
    others = "".join(f"\n  not {name}: {reason}" for name, reason in facts["others"].items())
    return f"{facts['chosen'] or 'nothing can run it'} on {facts['device']}{others}"


def _extra(libraries: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {version or 'missing'}" for name, version in libraries.items())
