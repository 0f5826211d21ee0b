"""A scheme: the full set of laws, from a width rule and the depth exponents (alpha, gamma)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType

from depthmup.rules.experts import ExpertRule, sized_as_router
from depthmup.rules.factors import BRANCH, FACTORS, LOGITS, RUN, checked, laws_without
from depthmup.rules.family import Family, Response
from depthmup.rules.power import ONE, Power, Ratios
from depthmup.rules.role import Kind, Part, Role
from depthmup.rules.width import MAXIMAL_UPDATE, STANDARD, Readout, WidthLaw, WidthRule

_WITHOUT, _ONLY = "-without-", "-only-"
"""In the name of a scheme, before the factors that it leaves out, or the only ones that it has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Laws:
    """How every quantity of one parameter depends on size.

    Each law is a factor on the value that is right at the base model. ``forward`` multiplies
    what the parameter contributes to the forward pass; a branch's own multiplier belongs to the
    branch, not to its parameters, and is ``Scheme.branch``.

    Attributes:
        init: of the standard deviation at the start.
        lr: of the learning rate.
        epsilon: of Adam's epsilon.
        decay: of the weight decay.
    """

    init: Power
    forward: Power
    lr: Power
    epsilon: Power
    decay: Power


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLaws:
    """How settings of the whole run depend on its batch size and duration.

    ``one_minus_beta`` multiplies 1 - beta of both averages of Adam, and ``log_beta2`` the logarithm
    of beta2: the steps over which the squares are averaged, by its inverse.

    Attributes:
        lr, epsilon, decay: factors for every parameter.
    """

    lr: Power = ONE
    epsilon: Power = ONE
    decay: Power = ONE
    one_minus_beta: Power = ONE
    log_beta2: Power = ONE

    @property
    def of_parameters(self) -> Fraction:
        """The exponent with which weight decay follows the number of parameters N, where laws of
        the run take N to be width^2 depth.
        """
        return self.decay.depth

    @property
    def of_run(self) -> "RunLaws":
        """The laws less what follows N."""
        return replace(self, decay=Power(batch=self.decay.batch, duration=self.decay.duration))

    def betas(self, betas: tuple[float, float], ratios: Ratios) -> tuple[float, float]:
        """Decay rates of averages from those of the base.

        An average over less than its last step is that step: where 1 - beta would exceed one, as it
        may for batches many times the base's, beta is zero.

        Example:
            >>> laws = RunLaws(one_minus_beta=Power(batch=Fraction(1)))
            >>> laws.betas((0.9, 0.999), Ratios(batch=0.5))
            (0.95, 0.9995)
            >>> laws.betas((0.9, 0.999), Ratios(batch=16))
            (0.0, 0.984)
        """
        first, second = moved_betas(
            betas, self.one_minus_beta.at(ratios), self.log_beta2.at(ratios)
        )
        return first, second


def moved_betas(
    betas: Iterable[float], one_minus_beta: float, log_beta2: float
) -> tuple[float, ...]:
    """Decay rates of averages by the factors of 1 - beta and of log beta2; the second is beta2."""
    if one_minus_beta == log_beta2 == 1.0:
        return tuple(betas)
    # Rounded, so that 1 - 4 (1 - 0.9) is 0.6 and not 0.6000000000000001.
    moved = [max(0.0, round(1 - (1 - beta) * one_minus_beta, 15)) for beta in betas]
    moved[1:2] = [round(beta**log_beta2, 15) for beta in moved[1:2]]
    return tuple(moved)


@dataclass(frozen=True, kw_only=True, slots=True)
class Departure:
    """One place where a published scheme differs from what the principle gives.

    Applies to parameters of these ``kinds``, with this ``in_branch`` (None: anywhere), under
    these ``families`` (empty: all), and replaces the law named ``quantity``.

    Attributes:
        law: what the scheme publishes.
    """

    quantity: str
    law: Power
    kinds: frozenset[Kind] = frozenset(Kind)
    in_branch: bool | None = None
    families: frozenset[Family] = frozenset()

    def concerns(self, role: Role, family: Family) -> bool:
        """Whether the law is another one for a parameter of this role under this family."""
        return (
            role.kind in self.kinds
            and self.in_branch in (None, role.in_branch)
            and (not self.families or family in self.families)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheme:
    """How initialization, forward multipliers and learning rates follow width and depth.

    With r the depth ratio, a branch is multiplied by r^-alpha and an update inside a branch has
    size r^-gamma. The gradient inside a branch then scales as r^-alpha, so that

        lr(family) = width update * r^-gamma / (gradient^k * weight^j * size),
        gradient   = width gradient * r^-alpha,    weight = width init,
        epsilon    = gradient^e * epsilon(family),
        decay      = 1 / lr     (lr * decay stays what it was; vectors keep their decay)

    with the family's degrees k in the gradient and j in the weight, and the size of an update that
    is its own doing (``Response``). Vectors keep the decay that the person gave, but where their
    updates follow the gradient: there the decay is a gradient too, and must shrink as it does.

    Parameters outside branches take no depth factor, but for those of which each layer has one that
    acts on the stream itself: their updates add up without a multiplier, and have size
    r^-(alpha + gamma). A parameter shared by all branches sums their gradients, which then scale as
    r^(1 - alpha); one that acts on the stream in all layers, as r. ``departures`` then replace
    single laws, and the laws of the run (batch size, duration) multiply every parameter's. Routers
    and experts take the scales of ``experts`` in place of the width rule's; without one they are
    dense layers.

    Attributes:
        name, title, source: short, in words, and the paper.
        alpha: of branch multipliers, L^-alpha.
        gamma: of updates inside branches, L^-gamma.
        width: the laws of width.
        readout: whether the readout's multiplier is a parameter's or explicit.
        run: how hyperparameters follow batch size and duration.
        left_out: factors that it does without (``without``).
        added: whether its factors stand beside standard practice (``only``).

    Example:
        >>> from depthmup.rules import Kind, Ratios, Role, family, scheme
        >>> laws = scheme("depth-mup").laws(Role(kind=Kind.HIDDEN, in_branch=True), family("adam"))
        >>> str(laws.lr), laws.lr.at(Ratios(fan_in=4, fan_out=4, depth=16))
        ('m_in^-1 r^-1/2', 0.0625)

    *Source:* TP6 (arXiv 2310.02244) Definition 6.1 and Tables 1 and 2. Weight decay: keep
    lr * decay, as TP5 Appendix B.3 implies for decoupled decay.
    """

    name: str
    title: str
    alpha: Fraction
    gamma: Fraction
    source: str
    width: WidthRule = MAXIMAL_UPDATE
    readout: Readout = Readout.ABSORBED
    departures: tuple[Departure, ...] = ()
    run: RunLaws = RunLaws()
    experts: ExpertRule | None = None
    left_out: frozenset[str] = frozenset()
    added: bool = False

    def __hash__(self) -> int:
        # Laws are looked up by scheme hundreds of times; all fields have a hundred fractions.
        return hash((self.name, self.alpha, self.gamma))

    def __repr__(self) -> str:
        return f"<Scheme {self.name}: alpha = {self.alpha}, gamma = {self.gamma}; {self.source}>"

    @property
    def branch(self) -> Power:
        """The multiplier of every residual branch."""
        return ONE if f"{BRANCH}.multiplier" in self.left_out else Power(depth=-self.alpha)

    @property
    def attention_logits(self) -> Power:
        """The factor on a model's own scale of attention logits."""
        left_out = f"{LOGITS}.multiplier" in self.left_out
        return ONE if left_out else self.width.attention_logits

    @property
    def factors(self) -> tuple[str, ...]:
        """The single rules that it is made of, of any parameter under any optimizer.

        Example:
            >>> from depthmup.rules import scheme
            >>> [name for name in scheme("mup").factors if name.startswith("hidden")]
            ['hidden.lr', 'hidden.epsilon', 'hidden.decay']
        """
        whole = replace(self, left_out=frozenset())
        present = (name for name in FACTORS if name not in self.left_out)
        return tuple(name for name in present if _changes(whole, name, tuple(Family)))

    def without(self, *factors: str) -> "Scheme":
        """The scheme less some of its single rules, as data: for plans, sweeps and ``scheme``.

        What is left out has what standard practice gives it: its own start, a factor of 1. The laws
        of all else stay: leaving out a multiplier changes no learning rate. A decay that keeps
        lr * decay goes on keeping it.

        Args:
            factors: their names (``depthmup.rules.FACTORS``), such as ``"readout.lr"``.

        Returns:
            The scheme, called ``NAME-without-FACTOR+FACTOR``.

        Raises:
            ValueError: a rule that it does not have.

        Example:
            >>> from depthmup.rules import Kind, Role, family, scheme
            >>> ablated = scheme("depth-mup").without("hidden.lr")
            >>> ablated.name, ablated == scheme("depth-mup-without-hidden.lr")
            ('depth-mup-without-hidden.lr', True)
            >>> str(ablated.laws(Role(kind=Kind.HIDDEN, in_branch=True), family("adam")).lr)
            'r^-1/2'

        *Source:* arXiv 2404.05728 and 2505.22491 leave out rules of muP one at a time.
        """
        chosen = checked(factors, self.factors, self.title)
        return self._less({*self.left_out, *chosen}) if chosen else self

    def only(self, *factors: str) -> "Scheme":
        """Standard practice and some single rules of the scheme.

        Args:
            factors: their names, as of ``without``.

        Returns:
            The scheme, called ``NAME-only-FACTOR+FACTOR``.

        Raises:
            ValueError: a rule that it does not have, or none.

        Example:
            >>> from depthmup.rules import scheme
            >>> scheme("mup").only("hidden.lr").factors
            ('hidden.lr',)
        """
        chosen = checked(factors, self.factors, self.title)
        if not chosen:
            raise ValueError(f"Expected a rule of {self.title}; got none. For none, take 'sp'.")
        return self._less({*self.left_out, *self.factors} - {*chosen}, only=chosen)

    def _less(self, left_out: Iterable[str], only: tuple[str, ...] = ()) -> "Scheme":
        word, chosen = (_ONLY, only) if only else (_WITHOUT, [f for f in FACTORS if f in left_out])
        return replace(
            self,
            name=f"{self.whole}{word}{'+'.join(chosen)}",
            title=f"{self.title.partition(_spoken(_WITHOUT))[0]}{_spoken(word)}{', '.join(chosen)}",
            left_out=frozenset(left_out),
            added=bool(only),
        )

    @property
    def whole(self) -> str:
        """The name of the scheme of which something is left out; its own where nothing is."""
        return whole_name(self.name)

    @property
    def follows_depth(self) -> bool:
        """Whether anything depends on depth; (0, 0) leaves depth alone altogether."""
        return bool(self.alpha or self.gamma)

    @property
    def follows_width(self) -> bool:
        """Whether the scheme has a theory of width."""
        return self.width.hidden.update != ONE

    @property
    def replaces_own(self) -> bool:
        """Whether a model's own constants that grow with size are undone; SP leaves them alone."""
        return self.follows_width and not self.added

    def run_laws(self, laws: RunLaws) -> RunLaws:
        """Laws of the run, its own or another rule's, less what is left out of them."""
        if not any(name.startswith(f"{RUN}.") for name in self.left_out):
            return laws
        averages = f"{RUN}.averages" in self.left_out
        return RunLaws(
            **{
                each.name: ONE
                if f"{RUN}.{each.name}" in self.left_out
                or (averages and each.name in ("one_minus_beta", "log_beta2"))
                else getattr(laws, each.name)
                for each in fields(RunLaws)
            }
        )

    def scales(self, role: Role) -> WidthLaw:
        """The scales of one parameter: a router's or an expert's own, or those of its kind."""
        law = None if self.experts is None else self.experts.law(role)
        law = law or (self.width.narrowing if role.narrows else None)
        form = Readout.MULTIPLIER if role.tied else self.readout
        return law or self.width.law(role.kind, form)

    def gradient(self, role: Role) -> Power:
        """The size of one entry of a parameter's gradient."""
        depth = Fraction(role.shared and self.follows_depth)
        if role.in_branch:
            depth -= self.alpha
        return self.scales(role).gradient * Power(depth=depth)

    def update_in_depth(self, role: Role) -> Power:
        """How the size of a parameter's update follows depth."""
        if role.on_stream:
            return Power(depth=-(self.alpha + self.gamma))
        return Power(depth=-self.gamma) if role.in_branch else ONE

    def sized(self, size: Power, role: Role) -> Power:
        """A power of a matrix's area under this scheme; a router's rows are its experts."""
        router = role.part is Part.ROUTER and self.experts is not None
        return sized_as_router(size) if router else size

    def update_size(self, role: Role, response: Response) -> Power:
        """The size of an aligned update's entries that is the optimizer's own doing."""
        size = response.size(role.kind)
        return self.sized(size * response.narrowing if role.narrows else size, role)

    def laws(self, role: Role, family: Family) -> Laws:
        """The laws of one parameter under one optimizer family."""
        return _laws(self, role, family)


@lru_cache(maxsize=4096)
def _laws(scheme: Scheme, role: Role, family: Family) -> Laws:
    """See ``Scheme.laws``; models ask for few different ones, many times."""
    family = family.serving(role.kind)
    response = family.response
    width, gradient = scheme.scales(role), scheme.gradient(role)
    update = width.update * scheme.update_in_depth(role)
    size = scheme.update_size(role, response)
    # Without a theory of width, nothing is known that a learning rate would have to undo.
    own = width.init**response.weight * size if scheme.follows_width else ONE
    lr = update / (gradient**response.gradient * own)
    keeps_decay = role.kind is Kind.VECTOR and not response.gradient
    values = {
        "init": width.init,
        "forward": width.forward,
        "lr": lr,
        "epsilon": gradient**response.epsilon_degree * scheme.sized(response.epsilon, role),
        "decay": ONE if keeps_decay else ONE / lr,
    }
    for departure in scheme.departures:
        if departure.concerns(role, family):
            values[departure.quantity] = departure.law
    if scheme.left_out:
        # The start of a tied readout is its embedding's.
        form = Readout.MULTIPLIER if role.tied else Readout.ABSORBED
        start = STANDARD.law(role.kind, form).init
        values = laws_without(values, role.kind, scheme.left_out, start)
    for quantity in ("lr", "epsilon", "decay"):
        values[quantity] = values[quantity] * getattr(scheme.run_laws(scheme.run), quantity)
    return Laws(**values)


def _spoken(word: str) -> str:
    return word.replace("-", " ")


def whole_name(name: str) -> str:
    """The scheme's name in that of one with factors left out."""
    return name.partition(_WITHOUT)[0].partition(_ONLY)[0]


def asked_of(name: str) -> tuple[str, bool, tuple[str, ...]]:
    """A name's scheme, whether only its factors are kept, and the factors; none in most names.

    Example:
        >>> asked_of("mup-without-hidden.lr+readout.lr")
        ('mup', False, ('hidden.lr', 'readout.lr'))
    """
    for word in (_WITHOUT, _ONLY):
        whole, found, factors = name.partition(word)
        if found:
            return whole, word == _ONLY, tuple(factors.split("+"))
    return name, False, ()


def single_changes(names: Mapping[str, str]) -> tuple[str, bool, dict[str, str]]:
    """Among variants and their schemes' names, the whole one, whether rules were added to it, and
    the rule of every variant that differs from it by one; empty where there is none.

    Example:
        >>> single_changes({"a": "mup", "b": "mup-without-hidden.lr", "c": "ode"})
        ('a', False, {'b': 'hidden.lr'})
    """
    asked = {name: asked_of(scheme) for name, scheme in names.items()}
    for name, whole in names.items():
        for added in (False, True):
            changes = {
                other: rules[0]
                for other, (of, only, rules) in asked.items()
                if len(rules) == 1 and only is added and (whole == of or (added and whole == "sp"))
            }
            if changes and name not in changes and set(changes.values()) <= FACTORS.keys():
                return name, added, changes
    return "", False, {}


@lru_cache(maxsize=1024)
def _changes(
    scheme: Scheme, factor: str, families: tuple[Family, ...]
) -> tuple[tuple[Power, Power], ...]:
    """The laws, with a factor and without, that are others without it."""
    less = replace(scheme, name=factor, left_out=frozenset({factor}))
    group, _, _ = factor.partition(".")
    kinds = [Kind(group)] if group in {*Kind} else list(Kind)
    with_it, without = (
        _powers(one, one.run_laws(scheme.run), kinds, families) for one in (scheme, less)
    )
    return tuple(pair for pair in zip(with_it, without, strict=True) if pair[0] != pair[1])


def _powers(
    scheme: Scheme, run: RunLaws, kinds: Iterable[Kind], families: Iterable[Family]
) -> list[Power]:
    """Every law of a scheme, of parameters of these kinds under these optimizers."""
    laws: list[Laws | RunLaws] = [run]
    laws += [
        scheme.laws(Role(kind=kind, in_branch=in_branch), family)
        for kind in kinds
        for in_branch in (False, True)
        for family in families
    ]
    each = [getattr(law, field.name) for law in laws for field in fields(law)]
    return [scheme.branch, scheme.attention_logits, *each]


_AXES = MappingProxyType(
    {
        "width": Ratios(fan_in=2.0, fan_out=2.0),
        "depth": Ratios(depth=2.0),
        "batch": Ratios(batch=2.0),
        "tokens": Ratios(duration=2.0),
        "steps": Ratios(duration=2.0),
    }
)


def factors_along(
    scheme: Scheme, factor: str, family: Family, axes: Iterable[str]
) -> tuple[str, ...]:
    """The axes along which a factor is another than 1, by the laws; those that no law knows, too.

    Example:
        >>> from depthmup.rules import Family, scheme
        >>> factors_along(scheme("depth-mup"), "branch.lr", Family.ENTRYWISE, ["width", "depth"])
        ('depth',)
    """
    changes = _changes(scheme, factor, (family,))

    def acts(axis: str) -> bool:
        at = _AXES.get(axis)
        return at is None or any(one.at(at) != other.at(at) for one, other in changes)

    return tuple(axis for axis in axes if acts(axis))
