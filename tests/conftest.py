"""One thread per process: two torch thread pools on the same cores slow each other down.

Set before anything imports torch, so that a bare ``pytest`` behaves as ``make test`` does.
"""

import os
from collections import Counter
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")

import browsers
import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

# Types and shapes in signatures of these packages are checked at every call, while testing.
install_import_hook(["depthmup.limits", "depthmup.statistics"], "typechecker.checked")

# A deadline would make every property depend on how busy the machine is.
settings.register_profile("depthmup", deadline=None)
settings.load_profile("depthmup")

EVERY = 3
"""Of the variants of a long test, a slice runs the first and every third from there; none of those
marked ``long(slice=False)``, whose subject shorter tests have too."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long",
        choices=("all", "slice", "rest"),
        default="all",
        help="variants of tests marked long: all, one in three, or those that the slice leaves out",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("--long")
    if part == "all":
        return
    variants: Counter[str] = Counter()
    chosen, others = [], []
    for item in items:
        name = item.nodeid.partition("[")[0]
        mark = item.get_closest_marker("long")
        third = mark is not None and mark.kwargs.get("slice", True) and variants[name] % EVERY == 0
        in_slice = mark is None or third
        variants[name] += mark is not None
        (chosen if in_slice is (part == "slice") else others).append(item)
    items[:] = chosen
    config.hook.pytest_deselected(items=others)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browsers.Browser]:
    if browsers.CHROMIUM is None:
        pytest.skip("No Chromium on the path: the page is not tested in a browser.")
    started = browsers.Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()
