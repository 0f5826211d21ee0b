"""One thread per process: two torch thread pools on the same cores slow each other down.

Set before anything imports torch, so that a bare ``pytest`` behaves as ``make test`` does.
"""

import compileall
import gc
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
# What a page or a table prints does not depend on the terminal that the tests run in.
os.environ.pop("COLUMNS", None)

import browsers
import numpy as np
import pytest
from hypothesis import settings
from jaxtyping import install_import_hook
from typechecker import leave_alone_what_has_no_shapes, modules_with_shapes

# Shapes in signatures are checked at every call, while testing.
leave_alone_what_has_no_shapes()
install_import_hook(modules_with_shapes(), "typechecker.checked")

# A deadline would make every property depend on how busy the machine is.
settings.register_profile("depthmup", deadline=None)
settings.load_profile("depthmup")

# Shells start jobs in the background deaf to Ctrl-C, and what these start is deaf too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

EVERY = 7
"""Of the variants of a long test, a slice runs the first and every seventh from there; none of
those marked ``long(slice=False)``, whose subject shorter tests have too. Tests of a file that are
marked ``long(of="coverage")``, say, are variants of one: simulations of the same intervals, or
networks beside the same limit. Parameters have two, three
or four values more often than seven, so that the slice is not always of one of them; and the tests
of a file that share their models all run those of the same models."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long",
        choices=("all", "slice", "rest"),
        default="all",
        help=f"variants of tests marked long: all, one in {EVERY}, or what that leaves out",
    )
    parser.addoption("--shuffle", type=int, help="run in a random order, by this seed")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What collecting makes stays to the end: nobody looks for garbage in it, then or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (seed := config.getoption("--shuffle")) is not None:
        _shuffle(items, random.Random(seed))
    part = config.getoption("--long")
    if part == "all":
        return
    variants: Counter[str] = Counter()
    chosen, others = [], []
    for item in items:
        mark = item.get_closest_marker("long")
        of = mark.kwargs.get("of") if mark is not None else None
        name = f"{item.path}: {of}" if of else item.nodeid.partition("[")[0]
        turn = mark is not None and mark.kwargs.get("slice", True) and variants[name] % EVERY == 0
        in_slice = mark is None or turn
        variants[name] += mark is not None
        (chosen if in_slice is (part == "slice") else others).append(item)
    items[:] = chosen
    config.hook.pytest_deselected(items=others)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse versions with which tests that share a cluster or a browser do not stay together.

    Where Python is told to write no bytecode, each process that a test starts would compile the
    library: half a second of two and a half. It is compiled once instead, by the first process.
    """
    if config.getoption("dist", "no") == "loadgroup" and pytest.version_tuple >= (9, 2):
        raise pytest.UsageError(
            f"Expected pytest before 9.2, with which pytest-xdist keeps groups of tests together; "
            f"got {pytest.__version__}. Install the versions of constraints.txt."
        )
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(__file__).parents[1] / "src", quiet=2)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test and its fixtures draw the same, whichever tests and how many ran before."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - that of people's code
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)


def _shuffle(items: list[pytest.Item], rng: random.Random) -> None:
    """Files in random order, and the tests of each, but for those on a Ray cluster.

    Tests of a cluster begin with the whole of it and end with a node that is gone, as they say.
    """
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(str(item.path), []).append(item)
    order = list(files.values())
    rng.shuffle(order)
    for tests in order:
        if not any(mark.args == ("ray",) for mark in tests[0].iter_markers("xdist_group")):
            rng.shuffle(tests)
    items[:] = [item for tests in order for item in tests]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browsers.Browser]:
    if browsers.CHROMIUM is None:
        pytest.skip("No Chromium on the path: the page is not tested in a browser.")
    started = browsers.Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()
