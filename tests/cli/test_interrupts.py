"""Ctrl-C and SIGTERM reach a command wherever it is."""

import gc
import signal
import subprocess
import sys
import time
import weakref
from importlib import import_module

import pytest

from depthmup.cli import main
from depthmup.cli.interrupts import INTERRUPTED, TERMINATED, Terminated, interruptible, status_of

main_module = import_module("depthmup.cli.main")  # the function hides it


class Referent: ...


@pytest.fixture(autouse=True)
def usual_handlers():
    """Those of a fresh process: Ray, which other tests start, leaves a handler of its own."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _interrupted_in_a_callback(number):
    referent = Referent()
    reference = weakref.ref(referent, lambda gone: signal.raise_signal(number))
    with interruptible():
        del referent
        assert reference() is None
        time.sleep(60)


@pytest.mark.parametrize(
    ("number", "error", "status"),
    [(signal.SIGINT, KeyboardInterrupt, INTERRUPTED), (signal.SIGTERM, Terminated, TERMINATED)],
)
def test_an_interrupt_that_python_ignores_comes_again(number, error, status, capsys):
    """What is raised in the callback of a weak reference is ignored, as in those of imports."""
    with pytest.raises(error) as interrupt:
        _interrupted_in_a_callback(number)
    assert status_of(interrupt.value) == status
    assert capsys.readouterr().err == ""


def test_other_errors_that_python_ignores_are_shown_as_ever(capfd):
    referent = Referent()
    reference = weakref.ref(referent, lambda gone: 1 / 0)
    with interruptible():
        del referent
    assert reference() is None
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_afterwards_everything_is_as_before():
    with interruptible():
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        # Whoever runs the tests in the background ignores Ctrl-C, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


IMPORTING = """
import sys, signal
class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "tyro":
            signal.raise_signal(signal.%s)
sys.meta_path.insert(0, Interrupting())
from depthmup.cli import main
sys.exit(main(["regimes"]))
"""


@pytest.mark.parametrize(("number", "status"), [("SIGINT", INTERRUPTED), ("SIGTERM", TERMINATED)])
def test_an_interrupt_while_modules_are_loaded_is_no_traceback(number, status):
    done = run(IMPORTING % number)
    assert done.returncode == status
    assert "Traceback" not in done.stderr


LOADING = """
import sys, signal
class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "numpy._core.multiarray":
            signal.raise_signal(signal.%s)
sys.meta_path.insert(0, Interrupting())
from depthmup.cli.interrupts import interruptible
loaded = False
with interruptible():
    try:
        import torch
        loaded = True
        __import__("time").sleep(60)
    except BaseException as error:
        if loaded:
            print(torch.from_numpy(__import__("numpy").ones(2)).sum().item())
        print(type(error).__name__)
"""


@pytest.mark.parametrize(
    ("number", "name"), [("SIGINT", "KeyboardInterrupt"), ("SIGTERM", "Terminated")]
)
def test_an_interrupt_waits_for_modules_that_would_be_left_half_loaded(number, name):
    done = run(LOADING % number)
    assert done.stdout.split() == ["2.0", name]


def test_a_process_of_its_own_ends_without_a_look_for_garbage(monkeypatch, capsys):
    """A third of a second where PyTorch is loaded; a caller's objects are left alone."""
    at_the_end = []
    monkeypatch.setattr(main_module.atexit, "register", at_the_end.append)
    main(["rules", "--json"])
    assert at_the_end == []
    monkeypatch.setattr(sys, "argv", ["depthmup", "rules", "--json"])
    main()
    assert at_the_end == [gc.freeze]
