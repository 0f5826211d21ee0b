"""Parts of every page: templates, safe JSON, the chart library, lists of settings."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version as installed_version
from typing import Any

from depthmup.records.codec import strict
from depthmup.records.packages import need
from depthmup.reports.kept import kept_text
from depthmup.reports.theme import PAPER_COLOURS, VEGA_LITE


def render(template: str, *, package: str = "depthmup.reports", **values: Any) -> str:
    """A template filled in; all text is escaped.

    Args:
        template: name of the file in the folder ``templates`` of the package.
        package: that has it; it may include templates of ``depthmup.reports``.
        values: for the names in the template, all of which must be given.

    Returns:
        The text.

    Example:
        >>> "--ink" in render("style.css.j2")
        True
    """
    return str(_templates(package).get_template(template).render(**values).lstrip())


@cache
def _templates(package: str) -> Any:
    """The templates of a package, each of which is compiled once."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    packages = dict.fromkeys([package, "depthmup.reports"])
    templates = Environment(
        loader=ChoiceLoader([PackageLoader(each) for each in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals["colours"] = PAPER_COLOURS
    templates.filters["kept"] = _kept
    templates.filters["coded"] = _coded
    return templates


_KEPT = re.compile(r"\d[\d.]*e-\d+|(?<![\w-])(--)?[A-Za-z]\w*(-\w+)+(?![\w-])|(?<!\S)--\w+")


def _kept(text: str) -> Any:
    """The text without line breaks inside 2.8e-3, Depth-muP and --log2-lrs."""
    from markupsafe import Markup, escape

    def kept(match: re.Match[str]) -> str:
        return f'<span class="kept">{match[0]}</span>' if len(match[0]) <= 16 else match[0]

    return Markup(_KEPT.sub(kept, str(escape(text))))


def _coded(text: str) -> Any:
    """The text with `commands` as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def page_spec(chart: Any) -> dict[str, Any]:
    """A chart for a page: as wide as its place, under the page's own heading, which wraps.

    Args:
        chart: a ``Picture``, or one of Altair's.

    Returns:
        Its Vega-Lite specification.

    Example:
        >>> from depthmup.reports import drift, example_study
        >>> page_spec(drift(example_study()))["autosize"]["type"]
        'fit-x'
    """
    spec: dict[str, Any] = chart.to_dict()
    spec.pop("title", None)
    spec["autosize"] = {"contains": "padding", "type": "fit-x"}
    return spec


def facts(mapping: Mapping[str, object]) -> list[tuple[str, str]]:
    """Settings as pairs of a label and a text, nested ones flattened.

    Args:
        mapping: settings by their names.

    Returns:
        Labels with their texts.

    Example:
        >>> facts({"batch_size": 64, "optimizer": {"name": "adam"}, "depths": [8, 16]})
        [('batch size', '64'), ('optimizer: name', 'adam'), ('depths', '8, 16')]
    """
    pairs: list[tuple[str, str]] = []
    for key, value in mapping.items():
        if value in ("", (), []):
            continue
        label = str(key).replace("_", " ")
        if isinstance(value, Mapping):
            pairs += [(f"{label}: {inner}", text) for inner, text in facts(value)]
        else:
            pairs.append((label, _text(value)))
    return pairs


def script_json(value: object) -> Any:
    """JSON that is safe inside a script element, whatever strings it holds.

    Args:
        value: of what JSON can hold, or dataclasses of that.

    Returns:
        Markup, which is not escaped again.

    Example:
        >>> print(script_json({"name": "</script>"}))
        {"name": "\\u003c/script\\u003e"}
    """
    from markupsafe import Markup

    text = json.dumps(strict(value), ensure_ascii=False, allow_nan=False)
    # '<' could end the element or open a comment; the two separators end a line in old parsers.
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def prepare() -> None:
    """Import what every page needs, which takes seconds, ahead of time."""
    import jinja2  # noqa: F401

    library()


@cache
def library() -> Any:
    """Vega, Vega-Lite and Vega-Embed as one script.

    Returns:
        Markup, which is not escaped again.

    Raises:
        ModuleNotFoundError: the packages that draw charts are not installed.

    Example:
        >>> "vegaEmbed" in library()
        True
    """
    need("A page", "vl_convert")
    from markupsafe import Markup

    def bundled() -> str:
        import vl_convert

        code: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", VEGA_LITE)
        return code

    # Bundling takes 1.6 s, longer than a small page.
    code = kept_text(f"vega-{VEGA_LITE}-{installed_version('vl-convert-python')}", bundled)
    # A script element ends at the first "</script", even inside a string of the library.
    return Markup(code.replace("</script", "<\\/script"))


def _text(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case Sequence() if not isinstance(value, str):
            return ", ".join(_text(item) for item in value)
        case _:
            return str(value)
