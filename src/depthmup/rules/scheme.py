"""A scheme: the full set of laws, from a width rule and the depth exponents (alpha, gamma)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from depthmup.rules.experts import ExpertRule, sized_as_router
from depthmup.rules.family import Family, Response
from depthmup.rules.power import ONE, Power, Ratios
from depthmup.rules.role import Kind, Part, Role
from depthmup.rules.width import MAXIMAL_UPDATE, Readout, WidthLaw, WidthRule


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

    Parameters outside branches take no depth factor. A parameter shared by all branches sums their
    gradients, which then scale as r^(1 - alpha). ``departures`` then replace single laws, and
    the laws of the run (batch size, duration) multiply every parameter's. Routers and experts take
    the scales of ``experts`` in place of the width rule's; without one they are dense layers.

    Attributes:
        name, title, source: short, in words, and the paper.
        alpha: of branch multipliers, L^-alpha.
        gamma: of updates inside branches, L^-gamma.
        width: the laws of width.
        readout: whether the readout's multiplier is a parameter's or explicit.
        run: how hyperparameters follow batch size and duration.

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

    def __hash__(self) -> int:
        # Laws are looked up by scheme hundreds of times; all fields have a hundred fractions.
        return hash((self.name, self.alpha, self.gamma))

    def __repr__(self) -> str:
        return f"<Scheme {self.name}: alpha = {self.alpha}, gamma = {self.gamma}; {self.source}>"

    @property
    def branch(self) -> Power:
        """The multiplier of every residual branch."""
        return Power(depth=-self.alpha)

    @property
    def follows_depth(self) -> bool:
        """Whether anything depends on depth; (0, 0) leaves depth alone altogether."""
        return bool(self.alpha or self.gamma)

    @property
    def follows_width(self) -> bool:
        """Whether the scheme has a theory of width; SP leaves a model's own constants alone."""
        return self.width.hidden.update != ONE

    def scales(self, role: Role) -> WidthLaw:
        """The scales of one parameter: a router's or an expert's own, or those of its kind."""
        law = None if self.experts is None else self.experts.law(role)
        law = law or (self.width.narrowing if role.narrows else None)
        form = Readout.MULTIPLIER if role.tied else self.readout
        return law or self.width.law(role.kind, form)

    def gradient(self, role: Role) -> Power:
        """The size of one entry of a parameter's gradient."""
        gradient = self.scales(role).gradient
        if not role.in_branch:
            return gradient
        summed = role.shared and self.follows_depth
        return gradient * Power(depth=int(summed) - self.alpha)

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
    update = width.update * Power(depth=-scheme.gamma) if role.in_branch else width.update
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
    for quantity in ("lr", "epsilon", "decay"):
        values[quantity] = values[quantity] * getattr(scheme.run, quantity)
    return Laws(**values)
