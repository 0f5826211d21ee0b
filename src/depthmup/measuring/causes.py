"""Likely causes of a wrong exponent: what people get wrong, and where it shows."""

from depthmup.rules import Family, Kind, Observable, Role, Scheme

ANY = "any"
"""Every axis, where the cause is the same."""

_INITIALIZATION = (
    "a matrix of the branch is initialized too large in wide models: its standard deviation must "
    "follow 1/sqrt(fan-in)",
    "a matrix of the branch is initialized too small in wide models: its standard deviation must "
    "follow 1/sqrt(fan-in), once",
)
_STREAM_IN_DEPTH = (
    "the stream grows with depth at initialization: the branch multiplier is too large",
    "something outside branches shrinks with depth",
)
_READOUT = (
    "the readout starts at the standard 1/sqrt(fan-in): it must start at 1/fan-in, or be "
    "multiplied by 1/fan-in",
    "the readout is scaled down twice, by its initialization and by a multiplier",
)
_TRAINING_IN_DEPTH = (
    "updates inside branches are too large in deep models: branch multiplier times learning rate "
    "must shrink as depth^-1 (alpha + gamma = {sum:g})",
    "training moves deep models less: a learning rate or a multiplier is scaled down by depth "
    "twice",
)
_TRAINING_IN_WIDTH = (
    "some learning rate is too large in wide models; see which update effect grows",
    "training moves wide models less: some learning rate is scaled down by width twice, or a tied "
    "embedding is multiplied by 1/width twice",
)
_DECAY = (
    "weight decay is multiplied by more than 1/(learning rate's factor): lr * decay grows with "
    "{axis}",
    "weight decay is not divided by the learning rate's factor: lr * decay falls with {axis}",
)

_ALONG_ANOTHER_AXIS = (
    "{of} has an initialization or a learning rate that grows with {axis}, or a sum over more of "
    "them should be a mean",
    "{of} has an initialization or a learning rate that shrinks with {axis}, or its gradients sink "
    "below epsilon",
)

CAUSES: dict[tuple[Observable, str], tuple[str, str]] = {
    (Observable.BRANCH, "depth"): (
        "the branch multiplier is weaker than depth^-{alpha}",
        "the last matrix keeps an initialization of its own that shrinks with depth, such as "
        "GPT-2's 1/sqrt(2L): depth is counted twice",
    ),
    (Observable.BRANCH, "width"): _INITIALIZATION,
    (Observable.PREACTIVATION, "width"): _INITIALIZATION,
    (Observable.STREAM, "width"): _INITIALIZATION,
    (Observable.ATTENTION_LOGITS, "width"): (
        "the attention scale is 1/sqrt(head) while the head grows: it must be 1/head",
        "the attention scale shrinks with width although the head does not grow, or twice",
    ),
    (Observable.READOUT, "width"): _READOUT,
    (Observable.LOGITS, "width"): _READOUT,
    (Observable.LOGITS, "depth"): _STREAM_IN_DEPTH,
    (Observable.STREAM, "depth"): _STREAM_IN_DEPTH,
    (Observable.PREACTIVATION, "depth"): _STREAM_IN_DEPTH,
    (Observable.STREAM_CHANGE, "depth"): _TRAINING_IN_DEPTH,
    (Observable.LOGITS_CHANGE, "depth"): _TRAINING_IN_DEPTH,
    (Observable.STREAM_CHANGE, "width"): _TRAINING_IN_WIDTH,
    (Observable.LOGITS_CHANGE, "width"): _TRAINING_IN_WIDTH,
    (Observable.DECAY, ANY): _DECAY,
    (Observable.READOUT_UPDATE, "width"): (
        "the readout's learning rate (or its multiplier) is not scaled by 1/fan-in",
        "the readout is scaled by 1/width twice: by its learning rate and by its multiplier, as "
        "happens with tied embeddings",
    ),
}
"""What makes an observable grow faster, and slower, than predicted, by observable and axis."""


def likely_cause(
    observable: Observable,
    axis: str,
    deviation: float,
    *,
    scheme: Scheme,
    family: Family,
    role: Role | None = None,
) -> str:
    """The mistake that most often makes this observable grow so much faster or slower.

    Args:
        observable: whose exponent is wrong.
        axis: width, depth, or a further one.
        deviation: the measured exponent minus the predicted one.
        scheme: that was expected.
        family: of the optimizer.
        role: of the parameter that the observable is about.

    Returns:
        A sentence; empty where nothing is known.

    Example:
        >>> from depthmup.rules import DEPTH_MUP
        >>> likely_cause(Observable.BRANCH, "depth", -0.5, scheme=DEPTH_MUP, family=Family.RAW)
        "the last matrix keeps an initialization of its own that shrinks with depth, such as \
GPT-2's 1/sqrt(2L): depth is counted twice"
    """
    if axis not in ("width", "depth"):
        grows, sinks = _ALONG_ANOTHER_AXIS
        of = f"the {role}" if role is not None else "some part"
        return (grows if deviation > 0 else sinks).format(of=of, axis=axis)
    if (observable, axis) == (Observable.BRANCH, "depth") and deviation > scheme.alpha - 0.25:
        return "the branch multiplier is missing"
    causes = CAUSES.get((observable, axis)) or CAUSES.get((observable, ANY))
    if causes is None:
        return _of_update(axis, deviation, scheme=scheme, family=family, role=role)
    faster, slower = causes
    return (faster if deviation > 0 else slower).format(
        axis=axis, alpha=scheme.alpha, sum=float(scheme.alpha) + float(scheme.gamma)
    )


def _of_update(
    axis: str, deviation: float, *, scheme: Scheme, family: Family, role: Role | None
) -> str:
    """Why the effect of a parameter's update grows faster or slower than predicted."""
    part = (
        f"the learning rate of this parameter ({role})"
        if role is not None
        else "this learning rate"
    )
    if axis == "width" and deviation > 0:
        rule = "1/fan-in" if role is not None and role.kind is Kind.HIDDEN else "its law"
        return f"{part} does not follow {rule}: it is too large in wide models"
    if axis == "depth" and deviation > 0:
        return (
            f"{part} does not shrink as depth^-{scheme.gamma}"
            if scheme.gamma
            else f"{part} grows with depth, or its gradient does"
        )
    if family.serving(role.kind if role else Kind.HIDDEN) is Family.ENTRYWISE:
        return (
            f"epsilon is large beside the gradients of large models and is not scaled with {axis}, "
            f"or {part} is scaled down twice"
        )
    return f"{part} is scaled down with {axis} twice"
