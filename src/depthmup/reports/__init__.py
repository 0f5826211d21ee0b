"""From a finished study to pages, charts, tables and files. No torch; Altair only when drawing."""

from depthmup.records.codec import strict
from depthmup.reports.by_size import loss_against_size, optimum_against_size
from depthmup.reports.certificate import Section, certificate_section, certificate_text
from depthmup.reports.charts import CHARTS, drift, loss_against_rate, rate_panel
from depthmup.reports.dataframes import Frames, to_pandas
from depthmup.reports.evidence import (
    evidence_headline,
    evidence_markdown,
    evidence_page,
    evidence_summary,
    evidence_text,
    export_pictures,
)
from depthmup.reports.export import FORMATS, export
from depthmup.reports.figure import Figure, certificate_figure, check_figure, study_figure
from depthmup.reports.figure import Kind as FigureKind
from depthmup.reports.figure import Name as FigureName
from depthmup.reports.files import save_chart, write_text
from depthmup.reports.html import page_spec
from depthmup.reports.limit_chart import limit_chart, limit_page
from depthmup.reports.optimum_chart import Movement, optimum_chart, prediction_chart
from depthmup.reports.optimum_pages import optimum_page, prediction_page
from depthmup.reports.page import page, study_legends, study_specs
from depthmup.reports.recorded import (
    example_certificate,
    example_check,
    example_evidence,
    example_prediction,
    example_study,
)
from depthmup.reports.regime_map import MapPoint, regime_map, regime_maps, regimes_page
from depthmup.reports.result import notebook, write_result
from depthmup.reports.sentences import number
from depthmup.reports.simple_page import PageSection, simple_page
from depthmup.reports.style import configured
from depthmup.reports.summary_json import summary
from depthmup.reports.tables import plain_table, table

__all__ = [
    "CHARTS",
    "FORMATS",
    "Figure",
    "FigureKind",
    "FigureName",
    "Frames",
    "MapPoint",
    "Movement",
    "PageSection",
    "Section",
    "certificate_figure",
    "certificate_section",
    "certificate_text",
    "check_figure",
    "configured",
    "drift",
    "evidence_headline",
    "evidence_markdown",
    "evidence_page",
    "evidence_summary",
    "evidence_text",
    "example_certificate",
    "example_check",
    "example_evidence",
    "example_prediction",
    "example_study",
    "export",
    "export_pictures",
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
    "regime_map",
    "regime_maps",
    "regimes_page",
    "save_chart",
    "simple_page",
    "strict",
    "study_figure",
    "study_legends",
    "study_specs",
    "summary",
    "table",
    "to_pandas",
    "write_result",
    "write_text",
]
