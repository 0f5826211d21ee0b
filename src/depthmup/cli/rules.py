"""``depthmup rules``: what each published rule says for a base and a target."""

import math
import shutil
import textwrap
from dataclasses import dataclass
from typing import Any

from depthmup.cli.output import print_json, show
from depthmup.records.sizes import parse_size
from depthmup.records.text import aligned
from depthmup.rules import Said, contradictions, growth, listing, said, scheme
from depthmup.rules.run_rule import Batch

Names = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Show the learning rate that each published rule prescribes at a target, and how they differ.

    Rules differ because they answer different questions: is the batch fixed, does it grow with the
    tokens, or is it at its optimum? Each is shown with its setting and range. `depthmup transfer`
    measures which of them holds for your model. Without sizes this lists every name that depthmup
    accepts: schemes, rules for experts, optimizers and rules of the run.

        depthmup rules
        depthmup rules --base batch=64 tokens=1e9 --target batch=512 tokens=2e10 --lr 3e-3
    """

    base: Names = ()
    """Size with a known learning rate, such as width=256 depth=8 batch=64 tokens=1e9: two of
    batch, steps and tokens. Here sizes may be written as 1e9."""

    target: Names = ()
    """Size to be trained, such as batch=512 tokens=2e10; other axes are the base's."""

    scheme: str = ""
    """The scheme already applied to width and depth, such as completep: rules of other schemes are
    left out."""

    lr: float | None = None
    """Learning rate at the base: rules then also show theirs at the target."""

    json: bool = False


def run(options: Options) -> int:
    base = parse_size(options.base, option="--base")
    target = parse_size(options.target, option="--target")
    if not base and not target and not options.scheme and options.lr is None:
        return _list(options.json)
    if not base or not target:
        raise ValueError(
            "Expected --base and --target, such as --base batch=64 tokens=1e9. Without any option "
            "`depthmup rules` lists all schemes and rules."
        )
    of = growth(base, target)
    chosen = scheme(options.scheme) if options.scheme else None
    if options.lr is not None and not 0 < options.lr < math.inf:
        raise ValueError(f"Expected --lr to be positive; got {options.lr}.")
    rules = said(of, scheme=chosen)
    if options.json:
        print_json(
            {
                "growth": of,
                "rules": [_plain(one, options.lr) for one in rules],
                "contradictions": [str(one) for one in contradictions(rules, of)],
            }
        )
        return 0
    show("Times the base: " + ", ".join(f"{axis} {n:.4g}" for axis, n in of.items()) + ".")
    if chosen is not None:
        show(f"Width and depth are scaled by {chosen.title}.")
    if not rules:
        show("No published rule speaks of what grows here.")
        return 0
    show("\n".join(["", *_table(rules, options.lr), "", _span(rules)]))
    if apart := contradictions(rules, of):
        show(f"They contradict each other: {'; '.join(map(str, apart))}.")
        show("Measure it: depthmup transfer --along AXIS=..., or depthmup fit on runs you have.")
    for one in rules:
        show(f"\n{one.rule.name}: {one.rule.setting}.")
        # A rule that leaves the rate alone has no exponent of the batch, either.
        said_of_batch = one.rule.exponents and one.rule.batch is not Batch.UNSAID
        batch = f"Batch {one.rule.batch.value}. " if said_of_batch else ""
        source = f"{one.rule.source}, {one.rule.standing.value}"
        show(
            f"  {batch}Range: {one.rule.reach}. Source: {source}"
            + (f". To train by it: --run {one.rule.key}." if one.rule.key else ".")
        )
    return 0


def _list(as_json: bool) -> int:
    """All schemes, rules and optimizers."""
    if as_json:
        print_json(listing())
        return 0
    columns = min(shutil.get_terminal_size().columns, 100)
    for title, rows in listing().items():
        show(f"\n{title}")
        for row in rows:
            (_, name), *cells = row.items()
            text = f"{name}: {'; '.join(f'{what} {cell}' for what, cell in cells)}."
            lines = textwrap.wrap(
                text, columns, initial_indent="  ", subsequent_indent="      ",
                break_on_hyphens=False,
            )  # fmt: skip
            show("\n".join(lines))
    return 0


def _table(rules: tuple[Said, ...], lr: float | None) -> list[str]:
    rows = [_row(one, lr) for one in rules]
    texts = [list(rows[0]), *(list(row.values()) for row in rows)]
    lines = aligned(texts, left=(0, len(rows[0]) - 1))
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


def _row(one: Said, lr: float | None) -> dict[str, str]:
    speaks = bool(one.rule.exponents)
    averages = one.beta2_power == 1
    return {
        "rule": one.rule.name,
        "lr x": f"{one.lr:.3g}" if speaks else "–",
        **({"lr": f"{lr * one.lr:.3g}" if speaks else "–"} if lr else {}),
        "decay x": f"{one.decay:.3g}",
        "epsilon x": f"{one.epsilon:.3g}",
        "1 - beta x": f"{one.one_minus_beta:.3g}" if averages else f"beta2^{one.beta2_power:.3g}",
        "not about": ", ".join(one.silent) if speaks else "the learning rate",
    }


def _span(rules: tuple[Said, ...]) -> str:
    """How far the rules differ that speak of the learning rate, and those of all that grows."""
    speaking = [one for one in rules if one.rule.exponents]
    complete = [one for one in speaking if not one.silent]
    sentences = []
    if len(speaking) > 1:
        sentences.append(
            f"The {len(speaking)} rules that speak of the learning rate span {_between(speaking)}."
        )
    if len(complete) < 2:
        sentences.append("Fewer than two of them speak of all that grows here.")
    elif len(complete) < len(speaking):
        sentences.append(
            f"The {len(complete)} that speak of all that grows here span {_between(complete)}."
        )
    return "\n".join(sentences)


def _between(rules: list[Said]) -> str:
    """The factor from the least to the largest, and which these are; rules come in order."""
    least, most = rules[0], rules[-1]
    return (
        f"a factor of {most.lr / least.lr:.3g}: from {least.lr:.3g} times the base's "
        f"learning rate ({least.rule.name}) to {most.lr:.3g} times ({most.rule.name})"
    )


def _plain(one: Said, lr: float | None) -> dict[str, Any]:
    return {
        "rule": one.rule.name,
        "run": one.rule.key,
        "lr_factor": one.lr,
        **({"lr": lr * one.lr} if lr else {}),
        "decay_factor": one.decay,
        "epsilon_factor": one.epsilon,
        "one_minus_beta_factor": one.one_minus_beta,
        "beta2_power": one.beta2_power,
        "silent": list(one.silent),
        "setting": one.rule.setting,
        "range": one.rule.reach,
        "source": one.rule.source,
        "standing": one.rule.standing.value,
    }
