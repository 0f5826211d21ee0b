"""Where variants are compared: who needs further seeds, and what is decided.

A gain, or what a rule does, is looked at when every size of both variants has its optimum, and then
after each number of seeds that a search looks at. What is clear, or cannot be any more, takes no
further run.
"""

import math
from collections.abc import Mapping, Sequence

from depthmup.posterior.intervals import student
from depthmup.records.ablation import AlongAxis, Need
from depthmup.records.gain import GainVerdict
from depthmup.statistics import Ask, Round, Search
from depthmup.statistics.ablation import MARGIN
from depthmup.statistics.gain import baselines, gains_of
from depthmup.sweep.design import Size
from depthmup.sweep.study import ablated, runs_of
from depthmup.sweep.sweep import Records, Sweep


def narrowing(
    sweep: Sweep,
    records: Records,
    waiting: Mapping[str, Search],
    *,
    over: str,
    target: Size | None = None,
) -> tuple[dict[str, Round], dict[str, str]]:
    """The next round of every variant whose gain is open, and why others are at their end."""
    design = sweep.design
    pairs = baselines([variant.name for variant in design.variants], over)
    steps = slice(design.steps - design.window, design.steps)
    sweep = sweep.with_shared_runs()
    runs = [runs_of(sweep, records, variant, steps) for variant in design.variants]
    looks = max((len(s.looks) for s in waiting.values() if s.look < s.looks[-1]), default=1)
    found = gains_of(runs, pairs, target=target, looks=looks)
    said = {gain.of: gain.verdict for gain in found}
    open_ = {of for of in pairs if said.get(of) is GainVerdict.UNDECIDED}
    asked = open_ | {pairs[of] for of in open_}
    rounds: dict[str, Round] = {}
    ended: dict[str, str] = {}
    for name, search in waiting.items():
        if name not in asked:
            verdict = said.get(name)
            gain = "has no size in common" if verdict is None else f"is decided: {verdict.value}"
            ended[name] = f"the gain {gain}" if name in pairs else "every gain over it is decided"
            continue
        step = search.more_seeds(search.sharp)
        if step.asks:
            rounds[name] = step
        else:
            ended[name] = step.why
    return rounds, ended


def narrowing_rules(
    sweep: Sweep,
    records: Records,
    waiting: Mapping[str, Search],
    whole: Search,
    *,
    tolerance: float,
) -> tuple[dict[str, Round], dict[str, str]]:
    """The next round of every rule that is open, the whole scheme's runs beside it.

    Only where a rule is open along an axis does its largest size get further seeds.
    """
    design = sweep.design
    steps = slice(design.steps - design.window, design.steps)
    found = {one.of: one for one in ablated(sweep, records, steps, tolerance)}
    rounds: dict[str, Round] = {}
    ended: dict[str, str] = {}
    beside: dict[Ask, None] = {}
    base = design.all_sizes.index(dict(design.base))
    trained = base in whole.sharp
    handed_on = whole.posterior.minimum[whole.sharp.index(base)] if trained else math.nan
    for name, search in waiting.items():
        rule = found[name]
        if rule.verdict is not Need.UNDECIDED:
            ended[name] = f"the rule is decided: {rule.verdict.value}"
            continue
        asks: list[Ask] = []
        for along in rule.along:
            i = design.all_sizes.index({a: int(n) for a, n in along.size.items()})
            if along.verdict is Need.UNDECIDED and i in search.sharp and i in whole.sharp:
                rates = _rates(search, i, along, handed_on, tolerance)
                new = _more_seeds(search, i, rates, along)
                asks += new
                beside |= dict.fromkeys(whole.missing(i, rates, _most(new)) if new else ())
        if asks:
            rounds[name] = Round(asks=tuple(asks), why="seeds for what is open of the rule")
        else:
            ended[name] = "the rule is undecided, and no run that could be asked for decides it"
    if beside:
        rounds[design.variants[0].name] = Round(asks=tuple(beside), why="beside its rules")
    return rounds, ended


def _most(asks: Sequence[Ask]) -> int:
    return 1 + max(ask.seed for ask in asks)


def _rates(
    search: Search, i: int, along: AlongAxis, handed_on: float, tolerance: float
) -> list[float]:
    """Where further seeds tell: about the value that the base hands on if the loss alone is open,
    else in the whole bracket.
    """
    bracket = search.brackets[i]
    below, above = (
        bracket.rates[bracket.rates <= handed_on],
        bracket.rates[bracket.rates > handed_on],
    )
    if along.change.inside(-tolerance, tolerance) and len(below) and len(above):
        return [float(below[-1]), float(above[0])]
    return [float(k) for k in bracket.window]


def _more_seeds(search: Search, i: int, rates: Sequence[float], along: AlongAxis) -> list[Ask]:
    """The next number of seeds at some rates; none where even the most would leave it open."""
    have = min(search.brackets[i].seeds_at(k) for k in rates)
    most = search.looks[-1]
    lost, half = along.as_trained, (along.as_trained.high - along.as_trained.low) / 2
    if 1 < have < most and lost.known and math.isfinite(half):
        at_best = half * math.sqrt(have / most) * float(student(2 * most) / student(2 * have))
        if at_best > 1.5 * MARGIN and abs(lost.value) - at_best < MARGIN:
            return []
    later = [look for look in search.looks if look > have]
    return list(search.missing(i, rates, later[0])) if later else []
