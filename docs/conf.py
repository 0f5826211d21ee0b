"""The documentation site: ``make docs`` builds it, without a warning and without the network."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))

from depthmup import __version__  # noqa: E402

project, author, version, release = "depthmup", "The depthmup authors", __version__, __version__
copyright = "the depthmup authors"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx.ext.mathjax",
]
if find_spec("sphinx-mathjax-offline"):
    extensions.append("sphinx-mathjax-offline")  # MathJax is served with the site, not by a CDN

html_theme = "furo"
html_title = f"depthmup {version}"
html_static_path = ["_static"]
html_css_files, html_js_files = ["site.css"], ["site.js"]
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
smartquotes_action = "qe"  # the dashes of --options stay
html_show_sphinx = False
exclude_patterns = ["_build"]
templates_path: list[str] = []

myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
# Tutorials that are notebooks are executed by the build; the code of other pages by tests/docs.
nb_execution_mode = "cache"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"  # progress, and what libraries say of the place where the page is made

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_mock_imports: list[str] = []
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
python_use_unqualified_type_names = True
add_module_names = False
# Docstrings are written to be read in an editor: indented formulas and short lists are plain text.
suppress_warnings = ["docutils", "ref.term", "myst.header", "autosummary.import_cycle"]

_OUTSIDE = {
    "EVIDENCE": "studies/evidence-table.md",
    "SECURITY": "reference/security.md",
    "CHANGELOG": "reference/changelog.md",
    "README": "index.md",
}


def _links(app, name, source):
    """Links to files beside the docs lead to their pages on the site."""
    up = "../" * name.count("/")
    text = re.sub(
        rf"\]\((?:\.\./)+({'|'.join(_OUTSIDE)})\.md([^)]*)\)",
        lambda link: f"]({up}{_OUTSIDE[link[1]]}{link[2]})",
        source[0],
    )
    text = re.sub(r"\]\((?:\.\./)+examples[^)]*\)", f"]({up}reference/examples.md)", text)
    outside = r"(?:tests|src|benchmarks|studies|reproduction)"
    text = re.sub(rf"\[([^\]]*)\]\((?:\.\./)+{outside}[^)]*\)", r"`\1`", text)
    source[0] = re.sub(r"\[([^\]]*)\]\((?:\.\./)*docs/([^)]*)\)", rf"[\1]({up}\2)", text)


def _mend_sources(app, exception):
    """Links of the source pages that viewcode writes wrongly.

    It remembers one package for each source file, so that where names of a file are documented in
    two packages the links back from half of them have no anchor; and it lists ``builtins``.
    """
    folder = Path(app.outdir) / "_modules"
    for page in [] if exception else folder.rglob("*.html"):
        text = page.read_text(encoding="utf-8")

        def mended(link, page=page):
            target = (page.parent / link[1]).resolve()
            there = target.exists() and f'id="{link[2]}"' in target.read_text(encoding="utf-8")
            return link[0] if there else f'href="{link[1]}"'

        new = re.sub(r'href="([^"#:]*reference/[^"#]+)#([^"]+)"', mended, text)
        new = new.replace('<li><a href="builtins.html">builtins</a></li>', "")
        if new != text:
            page.write_text(new, encoding="utf-8")


def setup(app):
    """Write the generated pages of the reference, and follow links."""
    from generate import command_line, packages, rules, schemas

    command_line(HERE / "reference" / "command-line.md")
    rules(HERE / "reference" / "rules.md")
    packages(HERE / "reference")
    schemas(HERE / "reference" / "json.md")
    app.connect("source-read", _links)
    app.connect("build-finished", _mend_sources)
    # MyST names the page of an include without its folder.
    app.connect("include-read", lambda app, path, _, source: _links(app, app.env.docname, source))
    return {"parallel_read_safe": True}
