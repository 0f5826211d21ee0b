"""The schemes that have been published, each as its own source states it."""

import difflib
import re
from dataclasses import replace
from fractions import Fraction

from depthmup.rules.experts import ExpertRule, expert_rule
from depthmup.rules.family import Family
from depthmup.rules.power import ONE, Exponent, Power, exponent
from depthmup.rules.role import Kind
from depthmup.rules.scheme import Departure, RunLaws, Scheme, asked_of
from depthmup.rules.width import MAXIMAL_UPDATE, STANDARD, Readout, WidthLaw, WidthRule

_MATRICES_OUTSIDE = frozenset({Kind.INPUT, Kind.READOUT})


def general(alpha: Exponent, gamma: Exponent) -> Scheme:
    """The scheme with branch multiplier r^-alpha and in-branch updates of size r^-gamma.

    Args:
        alpha: exponent of the branch multiplier.
        gamma: exponent of an update inside a branch.

    Returns:
        The scheme.

    Example:
        >>> general("1/2", 0).name
        '1/2,0'

    *Source:* TP6 (arXiv 2310.02244) Definition 6.1.
    """
    a, g = exponent(alpha, name="alpha"), exponent(gamma, name="gamma")
    return Scheme(
        name=f"{a},{g}",
        title=f"({a}, {g})",
        alpha=a,
        gamma=g,
        source="TP6 (arXiv 2310.02244) Definition 6.1",
    )


SP = Scheme(
    name="sp",
    title="SP",
    alpha=Fraction(0),
    gamma=Fraction(0),
    source="TP6 Table 1, 'Standard'; width: TP5 (arXiv 2203.03466) Table 3, 'SP'",
    width=STANDARD,
)

MUP = Scheme(
    name="mup",
    title="muP",
    alpha=Fraction(0),
    gamma=Fraction(0),
    source="TP5 (arXiv 2203.03466) Table 8; microsoft/mup 1.0.0",
    readout=Readout.MULTIPLIER,
)

DEPTH_MUP = Scheme(
    name="depth-mup",
    title="Depth-muP",
    alpha=Fraction(1, 2),
    gamma=Fraction(1, 2),
    source="TP6 (arXiv 2310.02244) Tables 1 and 2",
)

ODE = Scheme(
    name="ode",
    title="ODE",
    alpha=Fraction(1),
    gamma=Fraction(0),
    source="TP6 (arXiv 2310.02244) Section 7; arXiv 2603.00541 for blocks of two matrices or more",
)

BLOCK_MULTIPLIER = Scheme(
    name="block-multiplier",
    title="(1/2, 0)",
    alpha=Fraction(1, 2),
    gamma=Fraction(0),
    source="TP6 (arXiv 2310.02244) Figure 10, 'block multiplier only'",
)


def completep(alpha: Exponent = 1) -> Scheme:
    """CompleteP, alpha in [1/2, 1]: branch r^-alpha, in-branch learning rates r^(alpha - 1).

    Differs from the principle: the logits' multiplier leaves the readout's initialization,
    learning rate and epsilon unscaled; the embedding's epsilon is not scaled; inside branches
    every epsilon is m^-1 r^-alpha; only hidden matrices scale their decay, by m alone. The rows of
    epsilon and decay are AdamW's, so what other families train follows the principle.

    Args:
        alpha: the exponent, as a number or a text such as "3/4".

    Returns:
        The scheme.

    Raises:
        ValueError: an alpha out of its range.

    Example:
        >>> completep("3/4").title, completep().title
        ('CompleteP (3/4)', 'CompleteP')

    *Source:* arXiv 2505.01618 Table 1, AdamW.
    """
    adamw = frozenset({Family.ENTRYWISE})
    a = exponent(alpha, name="alpha")
    if not Fraction(1, 2) <= a <= 1:
        raise ValueError(
            f"Expected an alpha of CompleteP in [1/2, 1]; got {a}. For another pair of exponents "
            f"give both, such as '{a},{1 - a}'."
        )
    return Scheme(
        name="completep" if a == 1 else f"completep-{a}",
        title="CompleteP" if a == 1 else f"CompleteP ({a})",
        alpha=a,
        gamma=1 - a,
        source="CompleteP (arXiv 2505.01618) Table 1, AdamW",
        readout=Readout.MULTIPLIER,
        departures=(
            Departure(quantity="epsilon", law=ONE, in_branch=False, families=adamw),
            Departure(
                quantity="decay",
                law=Power(fan_in=Fraction(1)),
                kinds=frozenset({Kind.HIDDEN}),
                families=adamw,
            ),
            Departure(
                quantity="decay", law=ONE, kinds=_MATRICES_OUTSIDE | {Kind.VECTOR}, families=adamw
            ),
        ),
    )


_ROOT_BATCH_PER_DURATION = Power(batch=Fraction(1, 2), duration=Fraction(-1, 2))

COMPLETE_DP = Scheme(
    name="complete-dp",
    title="Complete(d)P",
    alpha=Fraction(1),
    gamma=Fraction(0),
    source="Complete(d)P (arXiv 2512.22382)",
    run=RunLaws(
        lr=_ROOT_BATCH_PER_DURATION,
        decay=_ROOT_BATCH_PER_DURATION,
        epsilon=_ROOT_BATCH_PER_DURATION**-1,
        one_minus_beta=_ROOT_BATCH_PER_DURATION**2,
    ),
)

_INVERSE_ROOT_DEPTH = Power(depth=Fraction(-1, 2))


def _on_every_group(kinds: frozenset[Kind], family: Family) -> tuple[Departure, ...]:
    """r^-1/2 on the learning rate outside of branches as well; lr * decay stays what it is."""
    lr = Departure(
        quantity="lr",
        law=_INVERSE_ROOT_DEPTH,
        kinds=kinds,
        in_branch=False,
        families=frozenset({family}),
    )
    decay = replace(lr, quantity="decay", law=_INVERSE_ROOT_DEPTH**-1, kinds=kinds - {Kind.VECTOR})
    return lr, decay


HYPERP = Scheme(
    name="hyperp",
    title="HyperP",
    alpha=Fraction(1, 2),
    gamma=Fraction(1, 2),
    source="HyperP (arXiv 2603.28743) Table 1 and Section 3; code microsoft/ArchScale",
    readout=Readout.MULTIPLIER,
    departures=(
        *_on_every_group(frozenset({Kind.HIDDEN}), Family.SPHERE),
        *_on_every_group(_MATRICES_OUTSIDE | {Kind.VECTOR}, Family.ENTRYWISE),
    ),
    run=RunLaws(lr=Power(batch=Fraction(1, 2), duration=Fraction(-8, 25))),
)
"""HyperP: Depth-muP for weights on spheres of a fixed norm (``muonh``, ``adamh``).

No group has a width factor: on the sphere a step is a part of the weight's own norm, and the
logits' 1/width is a multiplier. Branches are multiplied by r^-1/2, and every learning rate, also of
what lies outside of branches, by r^-1/2. There is no weight decay on the sphere (parameter groups
refuse it), where it would only shrink the radius. The learning rate follows b^1/2 T^-0.32 with
batch size and duration.

*Source:* arXiv 2603.28743 Table 1, Theorems 1 to 3 and equation 8. The paper gives T^-0.32 for
hidden matrices and none for the rest; its code has one learning rate for all, as here.
"""

_ON_SPHERES = Power(fan_in=Fraction(-1, 2))
_BETWEEN_ALIGNMENTS = Power(fan_in=Fraction(-3, 4))

NUGPT = Scheme(
    name="nugpt",
    title="nuGPT",
    alpha=Fraction(0),
    gamma=Fraction(0),
    source="nuGPT (arXiv 2604.27077) Table 1, as third parties' code quotes it",
    width=WidthRule(
        input=WidthLaw(
            init=Power(fan_out=Fraction(-1, 2)),
            update=Power(fan_out=Fraction(-1, 2)),
            gradient=MAXIMAL_UPDATE.input.gradient,
        ),
        hidden=replace(MAXIMAL_UPDATE.hidden, update=_BETWEEN_ALIGNMENTS),
        vector=MAXIMAL_UPDATE.vector,
        readout=WidthLaw(init=_ON_SPHERES, update=_BETWEEN_ALIGNMENTS),
        readout_with_multiplier=WidthLaw(init=_ON_SPHERES, update=_BETWEEN_ALIGNMENTS),
        attention_logits=ONE,
    ),
    departures=(Departure(quantity="epsilon", law=ONE, families=frozenset({Family.ENTRYWISE})),),
    run=RunLaws(lr=Power(batch=Fraction(1, 3), duration=Fraction(-1, 3))),
)
"""Normalized transformers (nGPT): rows of weights and states of norm one, Adam without decay.

Updates are between those of full alignment, m^-1, and of none, m^-1/2; the learning rate falls as
steps^-1/3. No rate and no epsilon depends on depth. The model's own code keeps what nGPT's has:
normalization, a residual interpolation that starts at 0.05 divided by the depth ratio, and scales
of logits that start in proportion to the root of the width; ``initialize`` is not called.

*Source:* arXiv 2604.27077v2 Table 1, from third parties' code: m^-1/2 for embeddings, m^-3/4 for
hidden matrices and the readout, 1 for scales, each times steps^-1/3. The readout's further 1/2 is a
value of the base.
"""

_FIXED: dict[str, Scheme] = {
    s.name: s
    for s in (
        SP, MUP, DEPTH_MUP, ODE, BLOCK_MULTIPLIER, completep(), COMPLETE_DP, HYPERP, NUGPT,
    )
}  # fmt: skip
_ALIASES = {"1/2,1/2": "depth-mup", "1/2,0": "block-multiplier"}


def with_experts(name: "str | Scheme", experts: "str | ExpertRule") -> Scheme:
    """A scheme of width and depth, with a rule for the routers and experts of mixtures.

    Args:
        name: of the scheme, or the scheme.
        experts: name of the rule (``EXPERT_RULES``), or the rule.

    Returns:
        The scheme whose name is the two with a + between.

    Raises:
        ValueError: no such scheme or rule, or a scheme without a theory of width.

    Example:
        >>> with_experts("completep", "moe") == scheme("completep+moe")
        True
    """
    dense, rule = scheme(name), expert_rule(experts)
    if not dense.follows_width:
        raise ValueError(
            f"Expected a scheme with a theory of width to go with the experts' rule {rule.name}; "
            f"got {dense.title}. Take 'mup+{rule.name}' or 'completep+{rule.name}'."
        )
    start = dense.name.partition("+")[0]
    title = dense.title if dense.experts is None else dense.title.rpartition(" + ")[0]
    source = dense.source.partition("; experts: ")[0]
    return replace(
        dense,
        name=f"{start}+{rule.name}",
        title=f"{title} + {rule.title}",
        source=f"{source}; experts: {rule.source}",
        experts=rule,
    )


def _compact(name: str) -> str:
    """A name without case, hyphens, underscores, spaces and brackets; mu for its letter."""
    plain = name.strip().lower().replace("\N{GREEK SMALL LETTER MU}", "mu")
    return re.sub(r"[-_\s()]", "", plain.replace("\N{MICRO SIGN}", "mu"))


_SPELLINGS: dict[str, str] = {
    **{_compact(name): name for name in _FIXED},
    **{_compact(s.title): s.name for s in _FIXED.values() if "," not in s.title},
    "standard": "sp",
    "standardparametrization": "sp",
    "standardparameterization": "sp",
    "maximalupdate": "mup",
}

CATALOGUE: tuple[Scheme, ...] = tuple(_FIXED.values())


def scheme(name: "str | Scheme") -> Scheme:
    """The scheme of this name.

    Case, hyphens, underscores, spaces and brackets do not matter: ``"depth_mup"``, ``"muP"`` with
    either letter mu, ``"Complete(d)P"``. ``"alpha,gamma"`` names any pair of exponents,
    ``"completep-alpha"`` CompleteP at another alpha. ``"completep+moe"`` is CompleteP with the rule
    ``moe`` for the experts of mixtures (``EXPERT_RULES``), and any other scheme can have it, too.
    ``"depth-mup-without-readout.lr"`` leaves out one of its rules (``Scheme.without``), and
    ``"depth-mup-only-readout.lr"`` all others.

    Args:
        name: of the catalogue, in any of its spellings; "alpha,gamma"; or a scheme.

    Returns:
        The scheme.

    Raises:
        ValueError: not in the catalogue and not a pair of exponents.

    Example:
        >>> scheme("depth-mup").alpha, scheme("3/4,1/4").gamma
        (Fraction(1, 2), Fraction(1, 4))
        >>> scheme(completep("3/4").name) == completep("3/4")
        True
    """
    if isinstance(name, Scheme):
        return name
    whole, alone, factors = asked_of(str(name).strip().lower())
    if factors:
        return scheme(whole).only(*factors) if alone else scheme(whole).without(*factors)
    dense, plus, experts = str(name).partition("+")
    if plus:
        return with_experts(dense, experts)
    key = str(name).strip().lower()
    key = _ALIASES.get(key, _SPELLINGS.get(_compact(key), key))
    if key in _FIXED:
        return _FIXED[key]
    if key.count(",") == 1:
        alpha, gamma = (part.strip(" ()") for part in key.split(","))
        pair = general(alpha, gamma)
        # "0.5,0.5" is another spelling of "1/2,1/2", which has a name.
        return _FIXED[_ALIASES[pair.name]] if pair.name in _ALIASES else pair
    if key.startswith("completep-"):
        return completep(key.removeprefix("completep-"))
    near = difflib.get_close_matches(_compact(key), _SPELLINGS, n=3)
    # Two schemes may begin alike: completep and complete-dp.
    names = dict.fromkeys(_SPELLINGS[spelling] for spelling in near)
    meant = f" Did you mean {' or '.join(names)}?" if names else ""
    raise ValueError(
        f"Expected a scheme ({', '.join(_FIXED)}) or a pair of exponents such as 3/4,1/4; "
        f"got {name!r}.{meant}"
    )
