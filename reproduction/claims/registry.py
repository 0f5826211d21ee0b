"""All claims, in the paper's order, and how a name finds one."""

import difflib
import re
from collections.abc import Sequence
from importlib import import_module

from reproduction.claims.claim import Claim

_MODULES = (
    "beyond",
    "block_depth",
    "errata",
    "feature_diversity",
    "first_step",
    "gradient_diversity",
    "infinite_depth",
    "infinite_width",
    "learning_rates",
    "linearization",
    "multiplier",
    "nonlinearity",
    "regimes",
    "transformers",
    "valley",
    "windows",
)

_ORDER = ("sec", "fig", "claim", "lemma", "prop", "thm", "erratum", "beyond")


def _rank(claim: Claim) -> tuple[object, ...]:
    kind = re.match(r"[a-z]+", claim.name)
    numbers = [float(n) for n in re.findall(r"\d+", claim.name)]
    word = kind.group() if kind else ""
    # Results of appendices carry a letter (thmC.3) and follow the numbered ones of their kind.
    appendix = any(sign.isupper() for sign in claim.name)
    return (_ORDER.index(word) if word in _ORDER else len(_ORDER), appendix, *numbers)


CLAIMS: tuple[Claim, ...] = tuple(
    sorted(
        (c for name in _MODULES for c in import_module(f"reproduction.claims.{name}").CLAIMS),
        key=_rank,
    )
)


def named(names: Sequence[str]) -> tuple[Claim, ...]:
    """The claims of these names, in the paper's order; ``all`` names every one.

    Example:
        >>> [claim.name for claim in named(["fig11", "fig10"])]
        ['fig10', 'fig11']
    """
    known = {claim.name: claim for claim in CLAIMS}
    wrong = [name for name in names if name != "all" and name not in known]
    if wrong or not names:
        near = difflib.get_close_matches(wrong[0], known, n=2) if wrong else []
        meant = f"Did you mean {' or '.join(near)}? " if near else ""
        raise ValueError(
            "Expected figures or claims of the paper, such as fig10 or claim7.1, or all; got "
            f"{', '.join(wrong) or 'none'}. {meant}`depthmup reproduce --list` lists them."
        )
    return tuple(claim for claim in CLAIMS if "all" in names or claim.name in names)
