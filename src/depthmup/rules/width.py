"""Width rules: how each kind of parameter depends on the width ratios.

Three scales determine a rule, and every optimizer family follows from them:

- ``init``: standard deviation at initialization;
- ``update``: size of one entry of an update (n**-c in TP6, Definition 6.1);
- ``gradient``: size of one entry of the gradient, which Adam's epsilon must follow and which
  an optimizer of degree k (``Response``) sees to the power k:

      learning rate = update / (gradient**k * what else the optimizer's steps follow).
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from depthmup.rules.power import ONE, Power
from depthmup.rules.role import Kind


class Readout(StrEnum):
    """How the readout's 1/width is expressed."""

    ABSORBED = "absorbed"  # into its initialization and learning rate
    MULTIPLIER = "multiplier"  # as a factor on the logits; the only form that permits tying


@dataclass(frozen=True, kw_only=True, slots=True)
class WidthLaw:
    """The width dependence of one kind of parameter.

    Attributes:
        init: of the standard deviation at the start.
        forward: of the multiplier.
        update: of the size of an entry's update.
        gradient: of the size of an entry's gradient.
    """

    init: Power = ONE
    forward: Power = ONE
    update: Power = ONE
    gradient: Power = ONE


@dataclass(frozen=True, kw_only=True)
class WidthRule:
    """A width law for every kind of parameter.

    ``attention_logits`` multiplies the model's own logit scale; its ``fan_in`` is the ratio of
    head sizes (more heads of the same size leave it at 1). ``narrowing`` is the law of a hidden
    matrix whose fan-out stays what it is (``Role.narrows``); None: that of any hidden one.

    Attributes:
        input, hidden, vector, readout: laws of these kinds of parameters.
        readout_with_multiplier: that of a readout whose multiplier is explicit.
    """

    input: WidthLaw
    hidden: WidthLaw
    vector: WidthLaw
    readout: WidthLaw
    readout_with_multiplier: WidthLaw
    attention_logits: Power
    narrowing: WidthLaw | None = None

    def law(self, kind: Kind, readout: Readout) -> WidthLaw:
        """The law of one kind of parameter, the readout's by its form."""
        if kind is Kind.READOUT and readout is Readout.MULTIPLIER:
            return self.readout_with_multiplier
        law: WidthLaw = getattr(self, kind.value)
        return law


_INVERSE_ROOT_FAN_IN = Power(fan_in=Fraction(-1, 2))
_INVERSE_FAN_IN = Power(fan_in=Fraction(-1))
_INVERSE_FAN_OUT = Power(fan_out=Fraction(-1))

MAXIMAL_UPDATE = WidthRule(
    input=WidthLaw(gradient=_INVERSE_FAN_OUT),
    # An update is aligned with its input: entries of 1/fan-in add up to an effect of order one,
    # where independent initial entries may be the root of that.
    hidden=WidthLaw(init=_INVERSE_ROOT_FAN_IN, update=_INVERSE_FAN_IN, gradient=_INVERSE_FAN_OUT),
    vector=WidthLaw(gradient=_INVERSE_FAN_OUT),
    readout=WidthLaw(init=_INVERSE_FAN_IN, update=_INVERSE_FAN_IN),
    readout_with_multiplier=WidthLaw(forward=_INVERSE_FAN_IN, gradient=_INVERSE_FAN_IN),
    # 1/sqrt(d_head) becomes sqrt(d_head_base)/d_head: one more power of -1/2.
    attention_logits=_INVERSE_ROOT_FAN_IN,
    # What is below learns along the few directions that it reads: W_0 sums changes of order one
    # that are aligned with it, as its own update does.
    narrowing=WidthLaw(init=_INVERSE_FAN_IN, update=_INVERSE_FAN_IN),
)
"""Maximal update parametrization.

*Source:* TP5 (arXiv 2203.03466) Tables 3 (absorbed readout) and 8 (readout multiplier); TP6
(arXiv 2310.02244) Table 2. Narrowing: the output row of the same tables; Yang, Simon and
Bernstein (arXiv 2310.17813) Condition 1: a spectral norm of sqrt(fan-out / fan-in).
"""

STANDARD = WidthRule(
    input=WidthLaw(),
    hidden=WidthLaw(init=_INVERSE_ROOT_FAN_IN),
    vector=WidthLaw(),
    readout=WidthLaw(init=_INVERSE_ROOT_FAN_IN),
    readout_with_multiplier=WidthLaw(),
    attention_logits=ONE,
)
"""Standard parametrization: fan-in initialization and one learning rate for everything.

As nothing is known to scale, no factor is applied to learning rates or epsilon: the gradient
column is constant by convention, not by analysis. *Source:* TP5 Table 3, "SP".
"""
