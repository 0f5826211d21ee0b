"""In a notebook a sweep shows one line that changes in place; elsewhere it is silent."""

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from own_models import SOURCE, batch, make
from sweeps import FOUR_RUNS, measure

import depthmup
from depthmup import notebook
from depthmup.notebook import time_left
from depthmup.sweep import Progress
from depthmup.tables import example


class Cell:
    """The output of a notebook's cell: the texts that each display handle has shown."""

    def __init__(self):
        self.handles = []

    def display(self, data, *, raw, display_id):
        assert raw
        assert display_id is True
        shown = [data["text/plain"]]
        self.handles.append(shown)
        return SimpleNamespace(update=lambda data, raw: shown.append(data["text/plain"]))


@pytest.fixture
def cell(monkeypatch):
    """A kernel as IPython shows it to code."""
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    output = Cell()
    display.display = output.display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return output


def test_one_line_follows_the_sweep(cell, monkeypatch, capsys):
    monkeypatch.setattr(notebook, "SECONDS_BETWEEN_UPDATES", 0.0)
    measure(make, batch=batch, **FOUR_RUNS)
    [shown] = cell.handles
    first, *steps, last = shown
    assert first == "training: starting"
    assert last.startswith("training: done, 4 runs in ")
    # Of the two depths, 4 is trained first: twice the work of 2, so two thirds of all.
    assert any(line.startswith("training: 2 of 4 runs, 67% of the work, ") for line in steps)
    assert not any("\n" in line for line in shown)
    assert capsys.readouterr() == ("", "")


def test_it_is_updated_seldom(cell, monkeypatch):
    monkeypatch.setattr(notebook, "SECONDS_BETWEEN_UPDATES", 1000.0)
    measure(make, batch=batch, **FOUR_RUNS)
    [shown] = cell.handles
    assert len(shown) == 2


def test_it_says_that_a_sweep_was_stopped(cell):
    class Stopping:
        def write(self, record):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(make, batch=batch, log=Stopping(), **FOUR_RUNS)
    [shown] = cell.handles
    assert shown[-1].startswith("training: stopped, 1 run in ")


def test_who_asks_for_progress_gets_it_and_no_line(cell):
    told = []
    measure(make, batch=batch, progress=told.append, **FOUR_RUNS)
    assert told[-1].done == 4
    assert cell.handles == []


def test_nothing_is_shown_outside_of_a_notebook(capsys):
    measure(make, batch=batch, **FOUR_RUNS)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_of_ipython_is_no_notebook(cell):
    sys.modules["IPython"].get_ipython = lambda: SimpleNamespace()
    measure(make, batch=batch, **FOUR_RUNS)
    assert cell.handles == []


@pytest.mark.long
def test_a_real_kernel_shows_one_line(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="`make docs` installs it")
    nbclient = pytest.importorskip("nbclient", reason="`make docs` installs it")
    pytest.importorskip("ipykernel", reason="`make docs` installs it")
    source = Path(depthmup.__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{source}")
    (tmp_path / "mine.py").write_text(SOURCE)
    code = (
        "import depthmup\n"
        "from mine import batch, make\n"
        "design = depthmup.Design(base={'width': 16, 'depth': 2}, depth=(2, 4), lrs=(1e-3, 4e-3),\n"
        "                         steps=6, seeds=1, window=3, schemes='depth-mup')\n"
        "report = depthmup.transfer(depthmup.Model(make, batch=batch), design)"
    )
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbclient.NotebookClient(page, timeout=120).execute()
    [output] = page.cells[0].outputs
    assert output.output_type == "display_data"
    assert output.data["text/plain"].startswith("training: done, 4 runs in ")


def test_reports_and_plans_are_text_in_a_kernel(monkeypatch):
    """Rich shows a table in Jupyter and leaves the file empty, unless it is told not to."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setitem(sys.modules, "IPython", None)
    report = depthmup.fit(
        example(), axes={"depth": "n_layers"}, lr="lr", loss="final_loss", by=("scheme",)
    )
    assert "depth-mup" in str(report)
    plan = depthmup.plan(make(16, 2), make(16, 2), example_inputs=torch.zeros(2, 16))
    assert "hidden" in str(plan)


def test_no_time_is_predicted_before_it_is_known_within_a_factor_of_two():
    # Workers start: seconds for a ten-thousandth of the work would make hours of minutes.
    assert "left: not known" in time_left(Progress(done=0, cells=40, fraction=1e-4, elapsed=7.0))
    search = Progress(done=9, cells=12, fraction=0.05, elapsed=9.0, why="depth 16")
    assert time_left(search) == "(depth 16)"
    assert time_left(replace(search, fraction=0.9)) == "1 s left in this round (depth 16)"


def test_runs_of_a_command_that_start_slowly_have_a_range_or_no_time():
    """Imports take as long at every size: by work alone 1 of 6 runs foretold twice the time."""
    # 2 of 6 runs, a third of the work in four of them.
    some = Progress(done=2, cells=6, fraction=2 / 9, elapsed=20.0, of_runs=2 / 6)
    assert time_left(some) == "40 s to 1 min 10 s left"
    # At depths 2 to 32 the first of five runs is a sixty-second part of the work.
    first = Progress(done=4, cells=20, fraction=8 / 62, elapsed=20.0, of_runs=0.5)
    assert "not known" in time_left(first)
