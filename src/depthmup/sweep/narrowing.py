"""Where gains are what is searched: who needs further seeds, and whose gain is decided.

A gain is looked at when every size of both variants has its optimum, and then after each number of
seeds that a search looks at. What is clear, or cannot be any more, takes no further run.
"""

from collections.abc import Mapping

from depthmup.records.gain import GainVerdict
from depthmup.statistics import Round, Search
from depthmup.statistics.gain import baselines, gains_of
from depthmup.sweep.design import Size
from depthmup.sweep.study import runs_of
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
    found = gains_of(runs, pairs, target=target)
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
