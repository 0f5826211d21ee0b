"""Likely causes of a wrong exponent: what people get wrong, and where it shows."""

from depthmup.rules import Family, Kind, Observable, Role, Scheme


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

    Example:
        >>> from depthmup.rules import DEPTH_MUP
        >>> likely_cause(Observable.BRANCH, "depth", -0.5, scheme=DEPTH_MUP, family=Family.RAW)
        "the last matrix keeps an initialization of its own that shrinks with depth, such as \
GPT-2's 1/sqrt(2L): depth is counted twice"
    """
    more = deviation > 0
    alpha, gamma = float(scheme.alpha), float(scheme.gamma)
    if axis not in ("width", "depth"):
        of = f"the {role}" if role is not None else "some part"
        return (
            f"{of} has an initialization or a learning rate that grows with {axis}, or a sum over "
            "more of them should be a mean"
            if more
            else f"{of} has an initialization or a learning rate that shrinks with {axis}, or its "
            "gradients sink below epsilon"
        )
    match observable, axis:
        case Observable.BRANCH, "depth" if not more:
            return (
                "the last matrix keeps an initialization of its own that shrinks with depth, such "
                "as GPT-2's 1/sqrt(2L): depth is counted twice"
            )
        case Observable.BRANCH, "depth":
            return (
                "the branch multiplier is missing"
                if deviation > alpha - 0.25
                else f"the branch multiplier is weaker than depth^-{scheme.alpha}"
            )
        case ((Observable.BRANCH | Observable.PREACTIVATION | Observable.STREAM), "width"):
            return (
                "a matrix of the branch is initialized too large in wide models: its standard "
                "deviation must follow 1/sqrt(fan-in)"
                if more
                else "a matrix of the branch is initialized too small in wide models: its standard "
                "deviation must follow 1/sqrt(fan-in), once"
            )
        case Observable.ATTENTION_LOGITS, "width":
            return (
                "the attention scale is 1/sqrt(head) while the head grows: it must be 1/head"
                if more
                else "the attention scale shrinks with width although the head does not grow, or "
                "twice"
            )
        case ((Observable.READOUT | Observable.LOGITS), "width"):
            return (
                "the readout starts at the standard 1/sqrt(fan-in): it must start at 1/fan-in, or "
                "be multiplied by 1/fan-in"
                if more
                else "the readout is scaled down twice, by its initialization and by a multiplier"
            )
        case ((Observable.LOGITS | Observable.STREAM | Observable.PREACTIVATION), "depth"):
            return (
                "the stream grows with depth at initialization: the branch multiplier is too large"
                if more
                else "something outside branches shrinks with depth"
            )
        case ((Observable.STREAM_CHANGE | Observable.LOGITS_CHANGE), "depth"):
            return (
                "updates inside branches are too large in deep models: branch multiplier times "
                f"learning rate must shrink as depth^-1 (alpha + gamma = {alpha + gamma:g})"
                if more
                else "training moves deep models less: a learning rate or a multiplier is scaled "
                "down by depth twice"
            )
        case ((Observable.STREAM_CHANGE | Observable.LOGITS_CHANGE), "width"):
            return (
                "some learning rate is too large in wide models; see which update effect grows"
                if more
                else "training moves wide models less: some learning rate is scaled down by width "
                "twice, or a tied embedding is multiplied by 1/width twice"
            )
        case Observable.DECAY, _:
            return (
                "weight decay is multiplied by more than 1/(learning rate's factor): lr * decay "
                f"grows with {axis}"
                if more
                else f"weight decay is not divided by the learning rate's factor: lr * decay falls "
                f"with {axis}"
            )
        case Observable.READOUT_UPDATE, "width":
            return (
                "the readout's learning rate (or its multiplier) is not scaled by 1/fan-in"
                if more
                else "the readout is scaled by 1/width twice: by its learning rate and by its "
                "multiplier, as happens with tied embeddings"
            )
    part = f"the learning rate of this {role}" if role is not None else "this learning rate"
    if axis == "width" and more:
        rule = "1/fan-in" if role is not None and role.kind is Kind.HIDDEN else "its law"
        return f"{part} does not follow {rule}: it is too large in wide models"
    if axis == "depth" and more:
        return (
            f"{part} does not shrink as depth^-{scheme.gamma}"
            if gamma
            else f"{part} grows with depth, or its gradient does"
        )
    if family.serving(role.kind if role else Kind.HIDDEN) is Family.ENTRYWISE:
        return (
            f"epsilon is large beside the gradients of large models and is not scaled with {axis}, "
            f"or {part} is scaled down twice"
        )
    return f"{part} is scaled down with {axis} twice"
