"""Values that no probe can compute with are refused by name, not by an error from inside."""

import pytest

from depthmup.limits import Step, mse
from reproduction.probes.agreement import agreement_with_width
from reproduction.probes.diversity import diversity_at_infinite_depth

RUNS = [[[[1.0]]]] * 3
HUGE = 10**400
STEPS = [Step([[1.0]], mse([[0.5]]))]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: agreement_with_width(STEPS, widths=[0], depth=2), "widths of at least 1"),
        (
            lambda: agreement_with_width(STEPS, widths=[8], depth=2, runs=HUGE),
            "at most 100,000 runs",
        ),
        (lambda: diversity_at_infinite_depth((0, 4, 8), RUNS, [0.1]), "depths of at least 1"),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
