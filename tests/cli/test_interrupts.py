"""Ctrl-C and SIGTERM reach a command wherever it is."""

import signal
import time
import weakref

import pytest

from depthmup.cli.interrupts import INTERRUPTED, TERMINATED, Terminated, interruptible, status_of


class Referent: ...


def _interrupted_in_a_callback(number):
    referent = Referent()
    reference = weakref.ref(referent, lambda gone: signal.raise_signal(number))
    with interruptible():
        del referent
        assert reference() is None
        time.sleep(10)


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
