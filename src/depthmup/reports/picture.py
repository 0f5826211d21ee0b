"""A drawn chart: its Vega-Lite specification, which notebooks show and files hold."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from depthmup.reports.theme import SCREEN, VEGA_LITE, Style, theme

SCHEMA = f"https://vega.github.io/schema/vega-lite/v{VEGA_LITE}.json"


@dataclass(frozen=True, kw_only=True, eq=False)
class Picture:
    """A chart that a notebook shows, and that ``save_chart`` writes.

    Attributes:
        spec: of Vega-Lite, with its rows: ``altair.Chart.from_dict(picture.to_dict())`` goes on
            from there.

    Example:
        >>> from depthmup.reports import drift, example_study
        >>> drift(example_study()).svg[:4]
        '<svg'
    """

    spec: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The specification."""
        return dict(self.spec)

    def to_json(self) -> str:
        """The specification as text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @cached_property
    def svg(self) -> str:
        """The picture as text that any browser draws."""
        import vl_convert

        drawn: str = vl_convert.vegalite_to_svg(self.to_dict(), vl_version=VEGA_LITE)
        return drawn

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        # Without scripts: any notebook shows it and keeps it.
        return {"image/svg+xml": self.svg, "text/plain": repr(self)}

    def __repr__(self) -> str:
        what = self.spec.get("description") or "a chart"
        return f"<Picture: {what}; depthmup.reports.save_chart(picture, path) writes it>"


def configured(spec: Mapping[str, Any], style: Style = SCREEN) -> Picture:
    """A specification with the theme, as wide as its place where the style says so.

    Args:
        spec: of Vega-Lite.
        style: of the page, the paper or the slide that it is for.

    Returns:
        The picture.

    Example:
        >>> configured({"mark": "point", "data": {"values": []}}).spec["config"]["background"]
        'white'
    """
    themed = {"config": theme(style), **spec}
    kind = "fit-x" if style.width == "container" else "fit"
    # Vega-Lite fits one panel, and no others.
    single = "concat" not in spec and "hconcat" not in spec and "facet" not in spec
    if style.width == "container" or (style.fit and single):
        themed["autosize"] = {"contains": "padding", "type": kind}
    return Picture(spec={**themed, "$schema": SCHEMA})
