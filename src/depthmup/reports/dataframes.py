"""A study as tidy pandas frames, for further plots and tests."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from depthmup.records import Study
from depthmup.records.packages import need
from depthmup.reports.study_rows import optimum_rows, point_rows, transfer_rows

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, slots=True)
class Frames:
    """Three tidy tables; ``window`` counts the windows of training from 0, in time order.

    ``points``: loss per window, scheme, depth and learning rate. ``optima``: the best learning
    rate per window, scheme and depth; where something else is tuned, its values and its best one.
    ``transfers``: drift, excess loss (column ``regret``)
    and verdict per window and scheme. What could not be measured is NaN.
    """

    points: "pd.DataFrame"
    optima: "pd.DataFrame"
    transfers: "pd.DataFrame"


def to_pandas(study: Study) -> Frames:
    """The study's numbers as pandas frames, one row per observation.

    Args:
        study: to be tabulated.

    Returns:
        Three frames.

    Example:
        >>> from depthmup.reports import example_study
        >>> to_pandas(example_study()).transfers[["scheme", "verdict"]].to_dict("records")
        [{'scheme': 'depth-mup', 'verdict': 'transfers'}, {'scheme': 'sp', 'verdict': 'drifts'}]
    """
    need("A table", "pandas")
    import pandas as pd

    return Frames(
        points=pd.DataFrame(point_rows(study)),
        optima=pd.DataFrame(optimum_rows(study)),
        transfers=pd.DataFrame(transfer_rows(study)),
    )
