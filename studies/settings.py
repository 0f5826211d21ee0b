"""Which columns of a table are settings: error rates of the rules' thresholds on simulated sweeps.

    python -m studies.settings

A column of numbers is an outcome if rates explain DESIGNED of its variance within sizes and it
orders runs as their losses do, with a rank correlation of OUTCOME. A hyperparameter of a random
search is noise if neither sizes nor rates explain DESIGNED of it and it is not the loss again
(SAME). Each row has the share of 400 sweeps that is read wrongly; the threshold in use is in bold.
"""

import numpy as np

from depthmup.tables import settings

SWEEPS = 400
GRID = (0.5, 0.6, 0.7, 0.8, 0.9)
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4)
AGAIN = (0.85, 0.9, 0.95, 0.98, 0.99)


def valley(rng, rate, size, flat):
    """Log losses of runs: a valley of the log rates, with seeds of 1%."""
    return 0.7 + flat * (rate + 7 + 0.3 * size) ** 2 + 0.01 * rng.standard_normal(len(rate))


def grid(rng, rates=9, seeds=3):
    """Sizes, log2 rates and log losses of a grid of three sizes."""
    size, rate = (x.ravel() for x in np.meshgrid(np.arange(3), np.arange(rates) - 7 - rates // 2))
    size, rate = np.tile(size, seeds), np.tile(rate, seeds).astype(float)
    return size, rate, valley(rng, rate, size, rng.choice([0.003, 0.01, 0.03]))


def outcome(rng):
    """What a run's owner logs beside its loss, to two digits: a training loss, an accuracy."""
    size, rate, log = grid(rng)
    noise = rng.choice([0.003, 0.01]) * rng.standard_normal(len(log))
    return size, rate, log, np.round(np.exp(log + noise) * rng.choice([1.0, -0.2]), 2)


def setting(rng):
    """Five values of a hyperparameter, each at all rates: its own effect is up to ten seeds'."""
    size, rate, log = grid(rng, seeds=5)
    value = np.repeat(np.arange(5.0), len(log) // 5)
    return size, rate, log + rng.choice([0.0, 0.03, 0.1]) * (value - 2), value


def paired(rng):
    """A setting that was chosen with the rate, as a decay of 0.1 / rate with its own five steps."""
    size, rate, log = grid(rng, seeds=5)
    value = np.repeat(np.arange(5.0), len(log) // 5) - rate
    return size, rate, log, value


def one_sided(rng):
    """The same where every rate is below the best one, so that losses follow the rates."""
    size, rate, _, value = paired(rng)
    return size, rate, valley(rng, rate - 5, size, rng.choice([0.003, 0.01])), value


def drawn(rng, runs):
    """A random search: a hyperparameter that has half of the scatter, and the loss of training."""
    size, rate = rng.integers(0, 3, runs), rng.uniform(-12, -2, runs)
    free = rng.random(runs)
    effect = 0.1 * (free - 0.5)
    log = valley(rng, rate, size, rng.choice([0.003, 0.01])) + effect
    again = np.exp(log + 0.01 * rng.standard_normal(runs))
    return size, rate, log, free, again


def rates_and_order(size, rate, log, value):
    """The share that rates explain of a column, and its rank correlation with the loss."""
    column = settings._ranks(value, size)
    plan = settings._powers(settings._ranks(rate, size))
    return settings._explained(plan, column, size), settings._order(value, np.exp(log), size)


def shown(name, wrong, thresholds, used):
    cells = (f"{w:.1%}" for w in wrong)
    marked = (f"**{c}**" if t == used else c for t, c in zip(thresholds, cells, strict=True))
    return f"| {name} | {' | '.join(marked)} |"


def table():
    """Markdown, a row for each kind of column."""
    rng = np.random.default_rng(0)
    lines = [f"| wrong at OUTCOME | {' | '.join(map(str, GRID))} |", "| --- |" + " --- |" * 5]
    for name, make, is_set in (
        ("an outcome, refused", outcome, False),
        ("a setting on a grid, missed", setting, True),
        ("a setting paired with rates, missed", paired, True),
        ("one paired with rates below the best, missed", one_sided, True),
    ):
        found = np.array([rates_and_order(*make(rng)) for _ in range(SWEEPS)]).T
        calls = [(found[0] < settings.DESIGNED) | (found[1] < at) for at in GRID]
        wrong = [np.mean(call != is_set) for call in calls]
        lines.append(shown(name, wrong, GRID, settings.OUTCOME))
    lines += [
        "",
        f"| wrong at DESIGNED | {' | '.join(map(str, SHARES))} |",
        "| --- |" + " --- |" * 5,
    ]
    again = []
    for runs in (30, 100, 300):
        shares, orders = [], []
        for _ in range(SWEEPS):
            size, rate, log, free, same = drawn(rng, runs)
            shares.append(rates_and_order(size, rate, log, free)[0])
            share, order = rates_and_order(size, rate, log, same)
            told = order if share <= settings.DESIGNED else 1.0  # rates explain it already
            orders.append([rates_and_order(size, rate, log, free)[1], told])
        wrong = [np.mean(np.array(shares) > at) for at in SHARES]
        lines.append(
            shown(f"a drawn one among {runs} runs, missed", wrong, SHARES, settings.DESIGNED)
        )
        again.append((runs, np.array(orders).T))
    shares = [rates_and_order(*paired(rng))[0] for _ in range(SWEEPS)]
    wrong = [np.mean(np.array(shares) < at) for at in SHARES]
    lines.append(shown("one paired with rates, called noise", wrong, SHARES, settings.DESIGNED))
    lines += ["", f"| wrong at SAME | {' | '.join(map(str, AGAIN))} |", "| --- |" + " --- |" * 5]
    for runs, (free, same) in again:
        wrong = [np.mean(free > at) for at in AGAIN]
        lines.append(shown(f"a drawn one among {runs} runs, missed", wrong, AGAIN, settings.SAME))
        wrong = [np.mean(same <= at) for at in AGAIN]
        name = f"training losses of {runs} runs, called noise"
        lines.append(shown(name, wrong, AGAIN, settings.SAME))
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
