"""What README and the first pages show of the demo and of the example, made by one command.

    python -m studies.first_screen

Runs the demo (``make demo``) and ``examples/own_model.py``; a minute of two cores. Writes the
picture with its caption to docs/_static, and the figures into README and docs/tutorials.
"""

import importlib
import re
import tempfile
from pathlib import Path

import depthmup
from depthmup.cli import main as depthmup_command
from depthmup.records.finding import change, change_span
from depthmup.reports.sentences import advice

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "_static" / "transfer.svg"
README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorials" / "ten-minutes.md"
SCHEMES = {
    "depth-mup": "Depth-muP",
    "block-multiplier": "branches scaled, learning rate not: (1/2, 0)",
    "sp": "no depth rule: the standard parametrization, SP",
    "ode": "branches divided by the depth: ODE",
}


def table(report: depthmup.Report) -> str:
    """README's rows: every scheme's drift and verdict."""
    rows = []
    for found in report.study().headline.transfers:
        drift = found.drift
        fails = [o.size["depth"] for o in found.optima if not o.log2_lr.known]
        note = f"; depth {fails[0]:.0f} does not train" if fails else ""
        span = change_span(drift.low, drift.high)
        rows.append(
            f"| {SCHEMES[found.scheme]} | {change(drift.value)} ({span}){note} | {found.verdict} |"
        )
    return "\n".join(rows)


def replaced(path: Path, pattern: str, new: str) -> None:
    """Writes the one place of a page that a pattern names."""
    text = path.read_text(encoding="utf-8")
    found = re.findall(pattern, text)
    if len(found) != 1:
        raise SystemExit(f"Expected {pattern!r} once in {path}; found it {len(found)} times.")
    path.write_text(re.sub(pattern, lambda _: new, text), encoding="utf-8")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        depthmup_command(["transfer", "--preset", "small", "--out", folder])
        report = depthmup.load(folder)
    report.figure("transfer").save(PICTURE)
    replaced(README, r"(?m)^> \*\*.*\*\*$", f"> **{advice(*report.studies)}**")
    runs = len(report.records)
    replaced(README, r"trains \d+ small residual", f"trains {runs} small residual")
    replaced(
        README, r"(?m)(?:^\| [^|\n]+ \| [^|\n]+% \([^|\n]+ \| \w+ \|\n)+", table(report) + "\n"
    )
    losses = importlib.import_module("examples.own_model").main()
    small, planned, plain = (f"{losses[name]:.2f}" for name in ("small", "planned", "plain"))
    with_and_without = f"{planned} with a plan, and {plain} without."
    replaced(README, r"\S+ with a plan, and \S+ without\.", with_and_without)
    replaced(TUTORIAL, r"(?m)^planned \S+, plain \S+$", f"planned {planned}, plain {plain}")
    replaced(TUTORIAL, r"(?m)^0\.0039: \S+$", f"0.0039: {small}")


if __name__ == "__main__":
    main()
