"""Write one of each kind of file that later versions have to open, in a folder named by the day.

``python tests/earlier/make.py``. The folder stays as it is from then on.
"""

import contextlib
import datetime
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from own_models import SOURCE, make

import depthmup
from depthmup.cli import main

SWEEP = "--base width=16 depth=2 --depths 2 4 8 --steps 4 --workers 1 --target depth=16"
COMMANDS = {
    # The paper's networks, a person's model, a function that trains, and a search.
    "grid": "transfer --preset tiny --schemes depth-mup --base 16x2 --depths 2,4,8 --steps 20 "
    "--lrs 8e-3 1.6e-2 3.2e-2 --seeds 2 --target depth=16",
    "model": f"transfer --model mine.py:make {SWEEP} --lrs 8e-3 1.6e-2 3.2e-2 --seeds 2 "
    "--own-init fan_in --schemes completep",
    "train": f"transfer --train mine.py:train {SWEEP} --lrs 2.5e-2 5e-2 0.1 0.2 0.4 --seeds 2",
    "search": f"transfer --train mine.py:train {SWEEP} --budget 40",
    "fit": "fit runs.csv --axes depth=layers --lr lr --loss loss --seed seed --target depth=64",
    "evidence": "reproduce erratum2",
}


def table() -> str:
    rows = ["layers,lr,seed,loss"]
    for depth in (4, 8, 16, 32):
        for octave in range(-9, -2):
            for seed in range(2):
                loss = 2 + 0.1 * (octave + 6 + 0.1 * depth.bit_length()) ** 2 + 0.003 * seed
                rows.append(f"{depth},{2.0**octave},{seed},{loss:.6f}")
    return "\n".join([*rows, rows[1]]) + "\n"


def write(folder: Path) -> None:
    folder.mkdir()
    with contextlib.chdir(folder):
        Path("mine.py").write_text(SOURCE)
        Path("runs.csv").write_text(table())
        for name, words in COMMANDS.items():
            if main([*words.split(), "--out", name]) not in (0, 5):
                raise SystemExit(f"{name} failed")
            for page in (Path(name) / "report.html", Path(name) / "evidence.html"):
                page.unlink(missing_ok=True)
        plan = depthmup.plan(make(64, 4), make(16, 2), example_inputs=(torch.zeros(2, 16),))
        plan.save("plan.json")
        for name in ("mine.py", "runs.csv"):
            Path(name).unlink()
        shutil.rmtree("__pycache__", ignore_errors=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:  # stores note the paths of a person's files
        write(Path(made) / "here")
        shutil.move(Path(made) / "here", Path(__file__).parent / datetime.date.today().isoformat())
