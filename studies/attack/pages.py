"""Pages in a real browser, with a payload in every name: none is executed, nothing is asked for.

Every text of a record, and every name of its settings, is replaced by one that tries to be more
than text: elements, handlers, ends of scripts and styles, expressions of templates and of Vega.
"""

import importlib.util
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import cycle
from pathlib import Path
from types import ModuleType
from typing import Any

import browsers

from depthmup import fit
from depthmup.records import Check, Estimate, Exponent, Outcome, Size
from depthmup.reports import Card, Page, Section, Table, page
from depthmup.reports.check_page import check_page
from depthmup.tables import example

HIT = "window.hit=(window.hit||0)+1"
ELSEWHERE = "http://127.0.0.1:9/x"
PAYLOADS = (
    f"<script>{HIT}</script>",
    f"</script><script>{HIT}</script>",
    f"</title></style></textarea><script>{HIT}</script>",
    f'"><img src=x onerror="{HIT}">',
    f"' onmouseover='{HIT}' autofocus onfocus='{HIT}' x='",
    f"<svg/onload={HIT}>",
    f"<iframe src={ELSEWHERE}></iframe><object data={ELSEWHERE}></object>",
    f"<a href=javascript:{HIT}>x</a>",
    f"<style>@import url({ELSEWHERE})</style><link rel=stylesheet href={ELSEWHERE}>",
    f"url({ELSEWHERE})",
    f"{{{{constructor.constructor('{HIT}')()}}}}{{% if 1 %}}",
    f"${{{HIT}}}`{HIT}`",
    f"';{HIT};//",
    f'\\";{HIT};//',
    f"\u2028{HIT}\u2029//",
    f"<!--<script>{HIT}",
    f"]]>--><script>{HIT}</script>",
    f"datum['a'];{HIT}",
    f"']; {HIT}; ['",
    f"javascript:{HIT}",
)
LOOKED = """
(() => {
  // What a person does: points at everything that might answer.
  for (const part of document.querySelectorAll("*")) {
    part.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
  }
  const own = document.querySelectorAll("main script, iframe, object, main img").length;
  return [window.hit || 0, own];
})()
"""


def attack(count: int, folder: Path, seed: int) -> Counter[str]:
    outcomes = Counter[str]()
    fixtures = _module("reports/conftest.py")
    if browsers.CHROMIUM is None:
        outcomes["no browser on this machine, nothing opened"] = count
        return outcomes
    browser = browsers.Browser(folder / "profile")
    try:
        for number, (kind, text) in zip(range(count), _pages(fixtures, seed), strict=False):
            path = folder / f"{number}.html"
            path.write_text(text, encoding="utf-8")
            outcomes[f"{kind}: {_opened(browser, path)}"] += 1
    finally:
        browser.close()
    return outcomes


def _opened(browser: Any, path: Path) -> str:
    tab = browser.open(path, width=1280)
    hits, elements = tab.run(LOOKED)
    tab.run("new Promise(done => setTimeout(done, 50))")
    asked = [url for url in tab.requests if url != path.as_uri() and not url.startswith("data:")]
    problems = {
        "EXECUTED": hits or tab.run("window.hit || 0"),
        "ELEMENTS OF ITS OWN": elements,
        f"ASKED FOR {asked[:2]}": asked,
        f"COMPLAINED {tab.complaints[:1]}": tab.complaints,
    }
    browser.call(
        "Target.closeTarget", targetId=tab.call("Target.getTargetInfo")["targetInfo"]["targetId"]
    )
    wrong = [name for name, happened in problems.items() if happened]
    if wrong:
        print(f"{path}: {wrong}"[:1500], file=sys.stderr, flush=True)
    return ", ".join(name.split("[")[0].strip() for name in wrong) or "every payload shown as text"


def _pages(fixtures: ModuleType, seed: int) -> Iterator[tuple[str, str]]:
    """Pages of every kind, each with the next payload."""
    table = fit(
        example(),
        axes={"depth": "n_layers"},
        lr="lr",
        loss="final_loss",
        seed="seed",
        by="scheme",
        target={"depth": 512},
    )
    study, odd = fixtures.study_like_the_real_one(), fixtures.study_of_odd_cases()
    certificate = _module("reports/test_certificate.py").issued()
    kinds: dict[str, Callable[[Callable[[Any], Any]], str]] = {
        "transfer": lambda spoil: page(spoil(study), certificates=[spoil(certificate)]),
        "transfer, odd cases": lambda spoil: page(spoil(odd)),
        "fit": lambda spoil: page(*spoil(table.studies), certificates=spoil(table.certificates)),
        "check": lambda spoil: check_page(spoil(_check())),
        "simple": lambda spoil: spoil(_simple()).html(),
    }
    payloads = PAYLOADS[seed % len(PAYLOADS) :] + PAYLOADS[: seed % len(PAYLOADS)]
    for payload in cycle(payloads):
        for kind, made in kinds.items():
            yield kind, made(lambda value, payload=payload: spoilt(value, payload))


def spoilt(value: Any, payload: str) -> Any:
    """A record with a payload in front of every text, so that different names stay different."""
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return payload + value
    if is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        return type(value)(
            **{k: v if k in FIXED else spoilt(v, payload) for k, v in changed.items()}
        )
    if isinstance(value, Mapping):
        return {
            key if key in KNOWN else spoilt(key, payload): spoilt(inner, payload)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(spoilt(inner, payload) for inner in value)
    return value


FIXED = {"axis", "axes", "expected", "key", "layout"}
"""Fields whose values are numbers, or names that this package looks up."""
KNOWN = {"width", "depth"}


def _check() -> Check:
    exponents, sizes = [], []
    for number, off in enumerate((4.0, 0.3)):
        at = {"observable": "stream", "module": f"blocks.{number}"}
        slope = Estimate(value=off, low=off - 0.1, high=off + 0.1)
        exponents.append(
            Exponent(**at, axis="depth", expected="0", outcome=Outcome.FAIL, estimate=slope)
        )
        sizes += [
            Size(
                **at,
                width=8,
                depth=depth,
                value=float(depth**off),
                spread=0.1,
                seeds=(float(depth**off),),
            )
            for depth in (2, 4)
        ]
    return Check(
        title="mine", scheme="Depth-muP", optimizer="adamw", applied=True, widths=(8,),
        depths=(2, 4), seeds=2, steps=1, lr=0.1, margin=0.25, confidence=0.95,
        outcome=Outcome.FAIL, exponents=tuple(exponents), sizes=tuple(sizes),
    )  # fmt: skip


def _simple() -> Page:
    table = Table(rows=[{"name": "a", "n": "1"}, {"name": "b", "n": "2"}], numbers=("n",))
    card = Card(title="a", verdict="fail", aside="b", text=["c"], notes=["d"])
    return Page(
        title="Plan",
        headline="from 16x2",
        sections=[
            Section(title="Verdicts", cards=[card]),
            Section(title="Parameters", lead="all", table=table, items=[("a", "b", "c")]),
            Section(title="Folded", details=[Section(title="inside", code="x = 1", text=["y"])]),
        ],
        lead=["What it says."],
        facts={"Set-up": {"base": "16x2"}},
        notes=["a note"],
        command=["depthmup", "plan"],
        files=["plan.json"],
    )


def _module(name: str) -> ModuleType:
    """A module of the tests, which are no package."""
    path = Path(__file__).parents[2] / "tests" / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
