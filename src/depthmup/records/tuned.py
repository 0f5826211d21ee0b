"""What is tuned: the hyperparameter whose best value a measurement follows from size to size."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

_LEARNING_RATE = "lr"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuned:
    """A hyperparameter whose best value is looked for at every size.

    Values are those at the base; a scheme moves them with size by its law of the quantity, as it
    moves a learning rate. Transfer means the same for all: the best value at the base stays the
    best one.

    Attributes:
        key: its name in designs, options, columns and JSON.
        name, plural: in sentences.
        word: in a table's header, where the name is too long.
        symbol: in formulas.
        law: the quantity of a scheme's or rule's laws that moves it with size: ``lr``, ``decay``,
            ``branch``, ``init``, ``epsilon``, ``one_minus_beta`` or ``batch``; empty where it is
            not known.
        start: the value at the base from which the best one is looked for.
        most: the largest value that it can have.

    Example:
        >>> tuned("weight_decay").octaves, tuned("weight_decay").column
        ('octaves of weight decay', 'log2_weight_decay')
    """

    key: str
    name: str
    plural: str
    word: str
    symbol: str
    law: str = ""
    start: float = 2.0**-8
    most: float = math.inf

    def __post_init__(self) -> None:
        # The key is part of columns, and of what charts parse as the path of a field.
        words = (self.name, self.plural, self.word, self.symbol)
        if not self.key.replace("_", "a").isalnum() or not all(words):
            raise ValueError(
                "Expected what is tuned to have a key of letters, digits and underscores, and "
                f"words for it; got {self.key!r}, {self.name!r}."
            )

    @property
    def column(self) -> str:
        """The column of its log2 in tables."""
        return f"log2_{self.key}"

    @property
    def octaves(self) -> str:
        """The unit of differences of its log2."""
        return f"octaves of {self.name}"

    @property
    def the(self) -> str:
        """With its article, where it is a word that has one."""
        return f"the {self.name}" if self.name[0].isalpha() else self.name

    @property
    def one(self) -> str:
        """Any single value, with its article."""
        if not self.name[0].isalpha():
            return f"a value of {self.name}"
        return f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name}"

    @property
    def bound(self) -> str:
        """Values beyond those measured, at which training may end."""
        return f"larger {self.plural}" if self.name[0].isalpha() else f"other {self.plural}"

    @property
    def is_learning_rate(self) -> bool:
        return self.key == _LEARNING_RATE

    @property
    def is_whole(self) -> bool:
        """Whether it counts examples or steps."""
        return self.key in COUNTS


LEARNING_RATE = Tuned(
    key=_LEARNING_RATE,
    name="learning rate",
    plural="learning rates",
    word="rate",
    symbol="η",
    law="lr",
)

COUNTS: Mapping[str, Tuned] = {
    "batch": Tuned(
        key="batch", name="batch", plural="batch sizes", word="batch", symbol="b", law="batch"
    ),
    "steps": Tuned(
        key="steps",
        name="number of steps",
        plural="numbers of steps",
        word="steps",
        symbol="T",
        start=200.0,
    ),
}
"""What runs have whole numbers of: axes of sizes, unless they are tuned at every size."""

TUNED: tuple[Tuned, ...] = (
    LEARNING_RATE,
    Tuned(
        key="weight_decay",
        name="weight decay",
        plural="weight decays",
        word="decay",
        symbol="λ",
        law="decay",
        start=2.0**-3,
    ),
    Tuned(
        key="multiplier",
        name="branch multiplier",
        plural="branch multipliers",
        word="multiplier",
        symbol="a",
        law="branch",
        start=1.0,
    ),
    Tuned(
        key="init_scale",
        name="initial scale",
        plural="initial scales",
        word="scale",
        symbol="σ",
        law="init",
        start=1.0,
    ),
    Tuned(
        key="one_minus_beta2",
        name="1 − β₂",
        plural="values of 1 − β₂",
        word="1 − β₂",
        symbol="1 − β₂",
        law="one_minus_beta",
        start=2.0**-8,
        most=1.0,
    ),
    Tuned(
        key="cooldown",
        name="cooldown",
        plural="cooldowns",
        word="cooldown",
        symbol="c",
        start=2.0**-2,
        most=1.0,
    ),
)
"""What ``Design(tune=...)`` knows. The branch multiplier is the paper's a (Tensor Programs VI,
arXiv 2310.02244, Figure 13); the initial scale multiplies the weights inside residual branches. The
cooldown is the part of the run over which the learning rate falls at its end: a script's own, held
as a fraction (arXiv 2405.18392 varies it)."""

_OTHER_NAMES = {
    "learning_rate": "lr",
    "decay": "weight_decay",
    "wd": "weight_decay",
    "branch_multiplier": "multiplier",
    "initial_scale": "init_scale",
    "init": "init_scale",
    "1_beta2": "one_minus_beta2",
    "1_−_β₂": "one_minus_beta2",
}


_LAWS = {
    **dict.fromkeys(("eps", "epsilon", "adam_eps"), "epsilon"),
    **dict.fromkeys(("batch", "batch_size"), "batch"),
    "one_minus_beta1": "one_minus_beta",
}
"""Of values that tables have beside those."""


def tuned(given: str | Tuned) -> Tuned:
    """The hyperparameter that a name stands for.

    Args:
        given: a name, or the hyperparameter itself.

    Returns:
        The hyperparameter.

    Raises:
        ValueError: it is not one of those that can be tuned here.

    Example:
        >>> tuned("weight decay").key, tuned("1-beta2").key
        ('weight_decay', 'one_minus_beta2')
    """
    if isinstance(given, Tuned):
        return given
    key = str(given).strip().lower().replace("-", "_").replace(" ", "_")
    key = _OTHER_NAMES.get(key, key)
    for one in TUNED:
        if one.key == key:
            return one
    raise ValueError(
        f"Expected tune to be one of {', '.join(one.key for one in TUNED)}; got {given!r}."
    )


def worded(words: str) -> Tuned:
    """What a person's own table is about, in their words; one that is known here as it is.

    Args:
        words: for what is tuned.

    Returns:
        The hyperparameter.

    Example:
        >>> worded("weight decay").key, worded("clip norm").column
        ('weight_decay', 'log2_clip_norm')
    """
    try:
        return tuned(words)
    except ValueError:
        key = "".join(letter if letter.isalnum() else "_" for letter in words.lower())
        return Tuned(
            key=key.strip("_") or "value",
            name=words,
            plural=f"values of the {words}",
            word="value",
            symbol=words,
            law=_LAWS.get(key.strip("_"), ""),
        )
