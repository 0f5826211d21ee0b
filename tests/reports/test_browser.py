"""The page in a real browser: it loads from a file, draws, follows the slider, fits a phone."""

from dataclasses import replace

import pytest

from depthmup.reports import page

pytestmark = pytest.mark.xdist_group("browser")

DRAWN = """
[...document.querySelectorAll('.chart')].map(c => c.querySelectorAll('svg path').length)
"""
PICTURES = "[...document.querySelectorAll('.chart')].map(c => c.querySelector('svg').innerHTML)"
MOVE = """
(async () => {
  slider.value = %d;
  slider.dispatchEvent(new Event('input'));
  await show();
})()
"""


@pytest.fixture(scope="module")
def written(study, tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / "report.html"
    path.write_text(page(study), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1280, 390])
def test_it_loads_offline_without_a_complaint(browser, written, width):
    tab = browser.open(written, width=width)
    tab.run(MOVE % 1)
    assert tab.requests == [written.as_uri()]
    assert tab.complaints == []


@pytest.mark.parametrize("width", [1280, 390])
def test_every_chart_renders_and_nothing_scrolls_sideways(browser, written, width):
    tab = browser.open(written, width=width)
    drawn = tab.run(DRAWN)
    assert len(drawn) == 2 * 4 + 3  # panels of rates and of training; optimum, loss, drift
    assert min(drawn) > 8
    assert tab.run("document.documentElement.scrollWidth") == width
    wide = tab.run(
        "[...document.querySelectorAll('.chart svg')]"
        ".filter(s => s.getBoundingClientRect().right > innerWidth).length"
    )
    assert wide == 0


def test_the_slider_drives_every_chart(browser, written):
    tab = browser.open(written, width=1280)
    last = tab.run(PICTURES)
    assert tab.run("document.getElementById('steps').textContent") == "steps 240–300"
    tab.run(MOVE % 0)
    first = tab.run(PICTURES)
    assert tab.run("document.getElementById('steps').textContent") == "steps 0–60"
    assert all(a != b for a, b in zip(first, last, strict=True))
    assert tab.run("document.querySelector('.now').textContent") == "undecided"
    tab.run(MOVE % 4)
    assert tab.run(PICTURES) == last


POINT = """
[...document.querySelectorAll('#rates-0 .mark-symbol path')]
  .find((place) => place.__data__ && 'diverged' in place.__data__.datum)
"""


def test_a_legend_hides_and_shows_a_series(browser, written):
    tab = browser.open(written, width=1280)
    marks = "document.querySelectorAll('#rates-0 path').length"
    before = tab.run(marks)
    press = "(async () => { %s.click(); await views['rates-0'].runAsync(); return %s; })()"
    entry = "document.querySelector('.legend [role=button]')"
    assert tab.run(press % (entry, marks)) < before - 5
    assert tab.run(press % (entry, marks)) == before


@pytest.fixture
def searched(study, tmp_path):
    """A search judges the last window alone; earlier ones have curves without verdicts."""
    earlier = tuple(replace(window, transfers=()) for window in study.windows[:-1])
    path = tmp_path / "search.html"
    path.write_text(page(replace(study, windows=study.windows[-1:], training=earlier)), "utf-8")
    return path


@pytest.mark.parametrize("of", ["written", "searched"])
def test_a_point_opens_its_learning_curve(browser, of, request):
    tab = browser.open(request.getfixturevalue(of), width=1280)
    assert "Click a point" in tab.run("document.body.innerText")
    tab.run(f"""(async () => {{
      const place = ({POINT}).getBoundingClientRect();
      window.scrollTo(0, place.top - 300);
      const now = ({POINT}).getBoundingClientRect();
      const at = {{ bubbles: true, clientX: now.left + now.width / 2,
                    clientY: now.top + now.height / 2 }};
      ({POINT}).dispatchEvent(new MouseEvent("click", at));
      while (!document.querySelector("#curve svg")) await new Promise((r) => setTimeout(r, 20));
    }})()""")
    shown = tab.run("document.getElementById('curve').innerText")
    assert "depth 8" in shown
    assert all(steps in shown for steps in ("0–60", "240–300"))
    assert tab.complaints == []


def test_the_slider_is_reached_and_moved_by_keys(browser, written):
    tab = browser.open(written, width=1280)
    tab.run("slider.focus()")
    for kind in ("keyDown", "keyUp"):
        tab.call("Input.dispatchKeyEvent", type=kind, key="ArrowLeft", code="ArrowLeft",
                 windowsVirtualKeyCode=37)  # fmt: skip
    assert tab.run("slider.value") == "3"
    assert tab.run("slider.getAttribute('aria-valuetext')") == "steps 180–240"


def test_hostile_names_are_shown_and_never_run(browser, odd_study, tmp_path, hostile):
    path = tmp_path / "report.html"
    path.write_text(page(odd_study), encoding="utf-8")
    tab = browser.open(path, width=390)
    assert tab.requests == [path.as_uri()]
    assert tab.complaints == []
    assert tab.run("document.title") == "Undecided: " + " ".join(hostile.split(" "))
    assert tab.run("document.querySelectorAll('img').length") == 0
    assert min(tab.run(DRAWN)) > 0
    assert tab.run("document.documentElement.scrollWidth") == 390
    assert tab.run("getComputedStyle(document.querySelector('.control')).display") == "none"


def test_a_page_that_reaches_out_would_be_seen(browser, written):
    """The checks above can fail: a page with a remote picture and an error has both recorded."""
    text = written.read_text(encoding="utf-8").replace("default-src 'none'", "img-src *")
    bad = written.with_name("bad.html")
    reach = "<img src='http://127.0.0.1:9/x.png'><script>console.error('oh')</script></body>"
    bad.write_text(text.replace("img-src data: blob:", "").replace("</body>", reach), "utf-8")
    tab = browser.open(bad, width=1280)
    assert "http://127.0.0.1:9/x.png" in tab.requests
    assert any("oh" in said for said in tab.complaints)


CONTRAST = """
(() => {
  const rgb = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number)
    .map((v) => text.startsWith("color(") ? 255 * v : v);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const paper = light(rgb(getComputedStyle(document.body).backgroundColor));
  const ratio = (a) => (Math.max(a, paper) + 0.05) / (Math.min(a, paper) + 0.05);
  const words = [...document.querySelectorAll("main h1, main p, .now, td, dt, dd")]
    .filter((place) => place.textContent.trim() && !place.closest(".badge"))
    .map((place) => ratio(light(rgb(getComputedStyle(place).color))));
  const marks = [...document.querySelectorAll(".chart svg text")]
    .filter((place) => place.textContent.trim())
    .map((place) => ratio(light(rgb(getComputedStyle(place).fill))));
  return [paper, Math.min(...words), Math.min(...marks)];
})()
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_theme_follows_the_system_and_stays_legible(browser, written, theme):
    """Words have the contrast of WCAG AA, 4.5; labels of lines in charts that of graphics, 3."""
    tab = browser.open(written, width=1280)
    feature = [{"name": "prefers-color-scheme", "value": theme}]
    tab.call("Emulation.setEmulatedMedia", features=feature)
    tab.call("Page.reload")
    for _ in range(100):
        if tab.run(
            "document.readyState === 'complete' && document.querySelector('.chart svg')?1:0"
        ):
            break
    tab.run("window.drawn")
    paper, words, marks = tab.run(CONTRAST)
    assert (paper < 0.1) == (theme == "dark")
    assert words >= 4.5
    assert marks >= 3.0


def test_every_control_has_a_name(browser, written):
    tab = browser.open(written, width=390)
    nameless = tab.run(
        "[...document.querySelectorAll('button, input, select, summary')]"
        ".filter((c) => !(c.getAttribute('aria-label') || c.getAttribute('title')"
        " || c.labels?.length || c.textContent.trim())).map((c) => c.outerHTML.slice(0, 90))"
    )
    assert nameless == []


def test_a_certificate_stands_before_the_verdicts(study):
    from depthmup.records.certificate import Certificate, Lack, Refusal

    refused = Certificate(
        target={"depth": 4096},
        base={"depth": 8},
        optima=(),
        log2_lrs=(),
        seeds=1,
        refusals=(Refusal(lack=next(iter(Lack)), reason="Too far.", advice="Measure more."),),
    )
    shown = page(study, certificates=[refused])
    verdict = f"</span> {study.headline.transfers[0].verdict.value}</span>"
    assert 0 < shown.index(">refused</span>") < shown.index(verdict)
