"""From a finished study to pages, charts, tables and files. No torch."""

from depthmup._drafts import Files, together, write_bytes, write_text
from depthmup.records.codec import strict
from depthmup.reports.certificate import (
    certificate_figure,
    certificate_section,
    certificate_text,
)
from depthmup.reports.check_page import check_figure
from depthmup.reports.comparison import comparison_page
from depthmup.reports.figure import Figure
from depthmup.reports.figure import Kind as FigureKind
from depthmup.reports.files import CHART_FORMATS, save_chart
from depthmup.reports.html import facts, library, page_spec, render, script_json
from depthmup.reports.limit_chart import limit_chart, limit_page
from depthmup.reports.page import Card, Page, Plot, Section, Table
from depthmup.reports.picture import Picture, configured
from depthmup.reports.prediction import (
    Movement,
    optimum_chart,
    optimum_page,
    prediction_chart,
    prediction_page,
)
from depthmup.reports.recorded import (
    example_certificate,
    example_check,
    example_prediction,
    example_study,
)
from depthmup.reports.result import FORMATS, export, notebook, write_result
from depthmup.reports.score_page import score_page
from depthmup.reports.sentences import duration, interval, number
from depthmup.reports.study_charts import (
    CHARTS,
    drift,
    loss_against_rate,
    loss_against_size,
    optimum_against_size,
    rate_panel,
    study_figure,
)
from depthmup.reports.study_charts import Name as FigureName
from depthmup.reports.study_page import page, study_legends, study_specs
from depthmup.reports.summary_json import SCHEMA, summary
from depthmup.reports.tables import plain_table, table
from depthmup.reports.theme import INK, Style, tone

__all__ = [
    "CHARTS",
    "CHART_FORMATS",
    "FORMATS",
    "INK",
    "SCHEMA",
    "Card",
    "Figure",
    "FigureKind",
    "FigureName",
    "Files",
    "Movement",
    "Page",
    "Picture",
    "Plot",
    "Section",
    "Style",
    "Table",
    "certificate_figure",
    "certificate_section",
    "certificate_text",
    "check_figure",
    "comparison_page",
    "configured",
    "drift",
    "duration",
    "example_certificate",
    "example_check",
    "example_prediction",
    "example_study",
    "export",
    "facts",
    "interval",
    "library",
    "limit_chart",
    "limit_page",
    "loss_against_rate",
    "loss_against_size",
    "notebook",
    "number",
    "optimum_against_size",
    "optimum_chart",
    "optimum_page",
    "page",
    "page_spec",
    "plain_table",
    "prediction_chart",
    "prediction_page",
    "rate_panel",
    "render",
    "save_chart",
    "score_page",
    "script_json",
    "strict",
    "study_figure",
    "study_legends",
    "study_specs",
    "summary",
    "table",
    "together",
    "tone",
    "write_bytes",
    "write_result",
    "write_text",
]
