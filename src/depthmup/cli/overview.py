"""What ``depthmup`` says of itself: its commands in groups, with examples."""

from collections.abc import Mapping

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Your model": {
        "plan": "what a scheme prescribes for every parameter, and why",
        "check": "do activations and updates scale as the scheme predicts?",
        "transfer": "does the best learning rate stay as the model grows? (trains)",
        "predict": "which way will SGD's best learning rate move? (trains nothing)",
    },
    "Runs that exist": {
        "fit": "the same verdict from a table of your finished runs",
        "next": "which runs to train next, for your own trainer or queue",
        "report": "rebuild the page of a measurement, export its figures",
        "merge": "join the shards of a sweep",
    },
    "Theory": {
        "limit": "training at infinite width, without a network",
        "regimes": "where a pair of exponents lies, or the map of all",
        "rules": "what each published rule says for a base and a target",
        "reproduce": "figures and claims of Tensor Programs VI, with verdicts",
    },
    "This installation": {
        "doctor": "versions, hardware, and which engine trains here",
        "completion": "print a completion script for bash, zsh or tcsh",
    },
}

EXAMPLES = (
    "depthmup transfer --preset tiny --out runs/first",
    "depthmup plan --model mine.py:make --base 64x4 --target 1024x32",
    "depthmup fit runs.csv --axes depth=n_layers --lr lr --loss final_loss",
)


def overview() -> str:
    """The commands in groups, each in one line of at most 80 columns: ``depthmup --help``.

    Example:
        >>> max(map(len, overview().splitlines())) <= 80
        True
    """
    lines = [
        "usage: depthmup COMMAND [OPTIONS]",
        "",
        "Measure and make hyperparameters transfer across width and depth.",
    ]
    for title, commands in GROUPS.items():
        lines += ["", title]
        lines += [f"  {name:<12}{says}" for name, says in commands.items()]
    lines += ["", "Examples", *(f"  {example}" for example in EXAMPLES)]
    lines += [
        "",
        "depthmup COMMAND --help shows its options and examples; depthmup --version the",
        "version. Lists may be written 8 16 32 or 8,16,32.",
    ]
    return "\n".join(lines)
