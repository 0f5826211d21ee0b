"""The built site: links, search, themes in a real browser. `make docs` builds it, and runs this."""

import importlib
import inspect
import os
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.xdist_group("browser")

SITE = Path(os.environ.get("DEPTHMUP_SITE", Path(__file__).parents[2] / "site"))


@pytest.fixture(scope="module")
def site():
    if not (SITE / "index.html").exists():
        pytest.skip("The site is not built: `make docs` builds it, and runs these tests.")
    return SITE


class Links(HTMLParser):
    """What a page refers to, and the anchors that it has."""

    def __init__(self, page):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.targets.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


def dead(site):
    pages = {page: Links(page) for page in site.rglob("*.html")}
    for page, links in pages.items():
        for target in links.targets:
            url = urlsplit(target)
            if url.scheme or url.netloc:
                continue
            file = (page.parent / unquote(url.path)).resolve() if url.path else page
            if not file.exists():
                yield f"{page.relative_to(site)} -> {target}"
            elif (
                url.fragment
                and file in pages
                and unquote(url.fragment) not in (pages[file].anchors)
            ):
                yield f"{page.relative_to(site)} -> {target} (no such anchor)"


def test_no_link_of_the_site_is_dead(site):
    assert list(dead(site.resolve())) == []


def test_nothing_is_loaded_from_elsewhere(site):
    for page in site.rglob("*.html"):
        for target in Links(page).targets:
            path = urlsplit(target).path
            if urlsplit(target).netloc:
                assert not path.endswith((".js", ".css", ".woff2", ".png")), f"{page}: {target}"


def test_every_public_name_stands_in_the_reference_with_its_source(site):
    for page in (site / "reference").glob("depthmup*.html"):
        text = page.read_text(encoding="utf-8")
        names = re.findall(
            r'<dt class="sig sig-object py" id="(depthmup[^"]+)">(.*?)</dt>', text, re.S
        )
        package, values = page.stem.replace("-", "."), defined(page.stem)
        own = {f"{at}.{name}" for name in values for at in (package, "depthmup")}
        top = [(name, head) for name, head in names if name in own]
        assert top
        assert [name for name, head in top if "viewcode-link" not in head] == []


def defined(stem):
    """The functions and classes of a package: aliases of types and constants have no source."""
    package = importlib.import_module(stem.replace("-", "."))
    values = {name: getattr(package, name) for name in package.__all__}
    return {
        name
        for name, value in values.items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__.startswith("depthmup")
    }


def opened(browser, path, width, theme, query=""):
    tab = browser.open(path, width=width)
    feature = [{"name": "prefers-color-scheme", "value": theme}]
    tab.call("Emulation.setEmulatedMedia", features=feature)
    if query:
        tab.call("Page.navigate", url=path.as_uri() + query)
        time.sleep(0.5)
    return tab


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
class TestInABrowser:
    def test_a_search_leads_to_the_page_that_answers(self, browser, site, width, theme):
        tab = opened(browser, site / "search.html", width, theme, "?q=rescale")
        deadline = time.monotonic() + 300
        results = []  # which come one by one
        while time.monotonic() < deadline and not any("trainers.html" in r for r in results):
            time.sleep(0.1)
            results = tab.run(
                "[...document.querySelectorAll('#search-results li a')].map(a => a.href)"
            )
        assert any("trainers.html" in result for result in results), results
        assert tab.run("document.documentElement.scrollWidth") == width

    def test_pages_fit_and_follow_the_theme(self, browser, site, width, theme):
        names = ["index.html", "how-to/hf-trainer.html", "explanation/comparison.html"]
        for name in [*names, "tutorials/limits.html", "reference/command-line.html"]:
            tab = opened(browser, site / name, width, theme)
            assert tab.run("document.documentElement.scrollWidth") == width, name
            elsewhere = [r for r in tab.requests if not r.startswith(("file:", "data:"))]
            assert elsewhere == []
            paper = tab.run("getComputedStyle(document.body).backgroundColor")
            lightness = sum(map(int, paper.strip("rgba()").split(",")[:3])) / 765
            assert (lightness < 0.4) == (theme == "dark"), (name, paper)

    def test_the_menu_opens_on_a_phone_and_stands_beside_the_text_on_a_screen(
        self, browser, site, width, theme
    ):
        tab = opened(browser, site / "index.html", width, theme)
        right = "document.querySelector('.sidebar-drawer').getBoundingClientRect().right"
        if width == 390:
            assert tab.run(right) <= 0
            tab.run("document.querySelector('label[for=__navigation]').click()")
            deadline = time.monotonic() + 300
            while tab.run(right) <= 0 and time.monotonic() < deadline:  # it slides in
                time.sleep(0.1)
        assert tab.run(right) > 0
