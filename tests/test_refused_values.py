"""Values that no function can compute with are refused by name, not by an error from inside."""

import pytest

import depthmup
from depthmup.diagnostics import local_slopes, log_slopes
from depthmup.limits import kernel
from depthmup.models import ResidualMLP
from depthmup.statistics import Search, next_round
from reproduction.intervals import share

DESIGN = depthmup.Design(base={"batch": 32, "tokens": 6400}, batch=(32, 64))
SIZES = ({"depth": 4}, {"depth": 8})
SEARCH = Search(sizes=SIZES, costs=(1.0, 2.0), base=SIZES[0], axes=("depth",), start=-6.0)
HUGE = 10**400


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DESIGN.arm("depth"), "one of the base's axes, batch, tokens; got 'depth'"),
        (lambda: DESIGN.steps_at({"batch": 0, "tokens": 64}), "at least 1 along every axis"),
        (lambda: local_slopes([0, 2, 4], [1, 2, 8]), "positive sizes"),
        (lambda: local_slopes([2, 2, 4], [1, 2, 8]), "differ from one to the next"),
        (lambda: log_slopes([[4.0], [8.0]], [1.0, 2.0, 3.0], [0, 0]), "one size and one seed"),
        (lambda: share(0, 0), "one trial or more; got 0 of 0"),
        (lambda: share(3, 2), "got 3 of 2"),
        (lambda: next_round(SEARCH, [{}]), "each of the 2 sizes; got 1"),
        (lambda: kernel([[1.0]], depth=HUGE, branch=0.5), "depths to be at most"),
        (lambda: ResidualMLP(inputs=8, width=16, depth=HUGE, outputs=3), "depth to be at most"),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
