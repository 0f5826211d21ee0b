"""Outputs, losses and covariances of a trained network that was never built."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Literal

from jaxtyping import Float

from depthmup.limits.problem import Problem
from depthmup.limits.step import Array


@dataclass(frozen=True, kw_only=True)
class SolveStatus:
    """How a solve ended; ``ok`` unless the numbers should not be trusted.

    ``exploded``: values overflowed, first at ``step``. ``unresolved``: the error estimate did not
    reach the tolerance. ``message`` says why and what to do.

    Attributes:
        kind: ok, exploded or unresolved.
    """

    kind: Literal["ok", "exploded", "unresolved"] = "ok"
    step: int | None = None
    message: str = ""

    @property
    def ok(self) -> bool:
        return self.kind == "ok"

    def __str__(self) -> str:
        return self.kind if self.ok else f"{self.kind}: {self.message}"


@dataclass(frozen=True, kw_only=True, eq=False)
class History:
    """Every covariance of training, per depth: N training vectors in time order.

    ``x`` <x|x>, ``d`` <d|d>, ``xd`` <x|d>; ``p`` the response of x to d through lower layers,
    ``q`` the response of d to x through upper layers (strictly earlier columns act on later rows);
    each (depths, N, N) at the solution's ``positions``. ``m`` and ``n`` are what one layer adds to
    the two responses: ``x^l = x^{l-1} + c F + M d^l`` at finite depth, shape (L, N, N); their
    densities in p at infinite depth, shape (depths, N, N). ``fresh_x``, ``fresh_d`` (depths, N, N):
    covariances of the noise that initial weights add to x and to d, per unit of p. ``inputs``
    (N, d_in) and ``chi`` (N, d_out), the loss's gradients, in the same order of vectors.
    """

    x: Float[Array, "depths vectors vectors"]
    d: Float[Array, "depths vectors vectors"]
    xd: Float[Array, "depths vectors vectors"]
    p: Float[Array, "depths vectors vectors"]
    q: Float[Array, "depths vectors vectors"]
    m: Float[Array, "layers vectors vectors"]
    n: Float[Array, "layers vectors vectors"]
    fresh_x: Float[Array, "depths vectors vectors"]
    fresh_d: Float[Array, "depths vectors vectors"]
    inputs: Float[Array, "vectors d_in"]
    chi: Float[Array, "vectors d_out"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Solution:
    """Training as seen from infinite width.

    Per step t, before its update: ``outputs[t]`` (batch, d_out), ``losses[t]``, and ``rms[t]``
    (depths, batch), the root mean square entry of x at each of ``positions`` (0 is the input,
    1 the last layer; l/L at finite depth). ``kernel`` (N, N) is <x_s|x_t> at the last layer over
    all training vectors, ``held_out[t]`` (rows, d_out) the outputs of the held-out inputs before
    update t, with one more entry for the end of training. Where training exploded, entries are nan.

    ``error_estimate`` is an estimate of the largest absolute error of ``outputs``. ``history`` is
    kept on request only: it has (T B)^2 entries per depth. ``problem`` is what was solved, for a
    network with ``activation``.

    Attributes:
        status: whether the numbers can be trusted.
    """

    outputs: tuple[Float[Array, "_ d_out"], ...]
    losses: Float[Array, " steps"]
    rms: tuple[Float[Array, "depths _"], ...]
    positions: Float[Array, " depths"]
    kernel: Float[Array, "known known"]
    held_out: Float[Array, "steps+1 rows d_out"] | None
    status: SolveStatus
    error_estimate: float
    problem: Problem
    activation: str = "identity"
    history: History | None = None

    def __repr__(self) -> str:
        steps, depths = len(self.losses), len(self.positions)
        first, last = self.losses[:1], self.losses[-1:]
        between = f"loss {first[0]:.4g} to {last[0]:.4g}, " if steps else ""
        return (
            f"<Solution: {steps} steps, {depths} depths, {between}{self.status.kind}, "
            f"error {self.error_estimate:.1e}>"
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{t}</td><td>{loss:.5g}</td><td>{float(rms[-1].mean()):.5g}</td></tr>"
            for t, (loss, rms) in enumerate(zip(self.losses, self.rms, strict=True))
        )
        head = "<tr><th>step</th><th>loss</th><th>RMS of x at the output</th></tr>"
        return f"<table>{head}{rows}</table><p>{escape(str(self.status))}</p>"
