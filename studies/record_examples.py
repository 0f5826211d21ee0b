"""Record the small measurements that examples in docstrings show.

    python -m studies.record_examples

A study with its certificate, a coordinate check and a prediction, all measured as anybody would;
some minutes of one core. Written to src/depthmup/reports/examples.json.
"""

import importlib
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

import depthmup
from depthmup.records.codec import encode

ROOT = Path(__file__).parents[1]
FILE = ROOT / "src" / "depthmup" / "reports" / "examples.json"
TRANSFER = "transfer --preset small --schemes depth-mup,sp --target depth=256 --out example"


class Block(nn.Module):
    """x + tanh(W x)."""

    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.linear(x))


def make(width: int, depth: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(16, width, bias=False),
        *(Block(width) for _ in range(depth)),
        nn.Linear(width, 4, bias=False),
    )


def command(line: str, folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "depthmup", *line.split()], cwd=folder, check=True)
    return folder / line.split()[-1]


def main() -> None:
    own = importlib.import_module("examples.own_model")
    model = depthmup.Model(make, batch=own.batch)
    with tempfile.TemporaryDirectory() as temporary:
        report = depthmup.load(command(TRANSFER, Path(temporary)))
    check = depthmup.check(
        model, scheme="depth-mup", optimizer="adam", widths=(64, 128, 256), depths=(4, 8, 16)
    )
    study = report.study()
    recorded = {
        "study": replace(study, windows=study.windows[-1:]),
        "certificate": report.certificates[0],
        "check": check,
        "prediction": depthmup.predict(model, base=(64, 4), depths=(8, 16)),
    }
    # A line for each, so that a difference of two versions says which of them changed.
    lines = [
        f"{json.dumps(name)}: {json.dumps(encode(value), separators=(',', ':'), allow_nan=False)}"
        for name, value in recorded.items()
    ]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    FILE.write_text(text.replace(f"{temporary}/", ""), encoding="utf-8")


if __name__ == "__main__":
    main()
