"""A recipe: all that an ordinary training does beside its plan, as data."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a network is built and trained; what is not said is as in the whole plan.

    Attributes:
        norm: of blocks: "layer", "rms", "batch" or "none"; ``post``: on the stream, after the sum.
        post_rate: power of relative depth that the rates of the stream's norms have beside the
            plan's.
        activation: of blocks, by its name in ``torch.nn.functional``.
        dropout: share of a branch's inputs; ``drop_path``: of whole branches, by example,
            growing to this in the last.
        zero_branches: branches start at zero.
        layer_scale: what learned vectors on branches start as; 0 for none.
        bias: whether linear maps have one.
        smoothing: of labels; ``z_loss``: weight of the squared log of softmax's sum;
            ``squared``: the mean square distance to one-hot labels.
        task: "digits", "renoised" (their wrong labels are drawn anew), "text" or "teacher".
        schedule: "linear", "cosine", "constant" or "root"; ``warmup``: share of training.
        steps, batch: as multiples of the whole plan's.
        betas, eps, momentum, nesterov: of the optimizer.
        decay: decoupled, times the rate; ``coupled``: added to the gradient; ``independent`` of
            the rate and its factors: shrinks weights by itself in every step; ``planned_coupled``:
            by the plan's sizes of gradients over those of weights.
        decayed: which parameters ``decay`` concerns: "all" or "matrices".
        planned_rates: whether the rates' factors are the plan's; else one rate for all.
        floor: least rate of a group, in units of the base's rate; ``least_rate``: that no
            schedule goes below, as a number for all groups.
        least_share: of its own largest rate, that no schedule takes a group below.
        planned_eps, planned_decay: whether these factors are the plan's; else one number for all.
        layer_decay: factor on the rate from a block to the one before it.
        relative_decay: the same over the whole depth, whatever the number of blocks.
        input_rate: factor on the rate of the first layer.
        frozen: what is not trained: "input" or "readout".
        clip_norm: of the whole gradient; ``planned_clip``: of it in units of the plan, in which the
            norm of every size is the base's; ``clip_value``: of every entry;
            ``clip_update``: of a matrix's gradient, as a share of the matrix's norm;
            ``planned_entries``: both thresholds follow the plan's size of each gradient.
        sam: radius of sharpness-aware minimization; ``planned_sam``: as a share of each parameter's
            norm; ``sam_by_size``: less by the root of width and depth, as one direction moves what
            a matrix gives out by its norm, not by a share of the norm's root mean square.
        average: decay of averaged weights, whose loss is reported; ``lookahead``: steps between
            returns half the way.
        noise: of gradients, as a share of their own root mean square.
        centered: gradients of matrices less their mean over inputs.
        amsgrad: the largest mean square so far in Adam's quotient.
        start: factor on all starts of hidden matrices.
    """

    norm: str = "layer"
    post: bool = False
    post_rate: float = 0.0
    activation: str = "relu"
    dropout: float = 0.0
    drop_path: float = 0.0
    zero_branches: bool = False
    layer_scale: float = 0.0
    bias: bool = True
    smoothing: float = 0.0
    z_loss: float = 0.0
    squared: bool = False
    task: str = "digits"
    schedule: str = "linear"
    warmup: float = 0.1
    steps: float = 1.0
    batch: float = 1.0
    betas: tuple[float, float] = (0.9, 0.99)
    eps: float = 1e-10
    momentum: float = 0.9
    nesterov: bool = False
    decay: float = 0.0
    coupled: float = 0.0
    planned_coupled: bool = False
    independent: float = 0.0
    decayed: str = "all"
    planned_rates: bool = True
    floor: float = 0.0
    least_rate: float = 0.0
    least_share: float = 0.0
    planned_eps: bool = True
    planned_decay: bool = True
    layer_decay: float = 1.0
    relative_decay: float = 1.0
    input_rate: float = 1.0
    frozen: str = ""
    clip_norm: float = 0.0
    planned_clip: float = 0.0
    clip_value: float = 0.0
    clip_update: float = 0.0
    planned_entries: bool = False
    sam: float = 0.0
    planned_sam: float = 0.0
    sam_by_size: bool = False
    average: float = 0.0
    lookahead: int = 0
    noise: float = 0.0
    centered: bool = False
    amsgrad: bool = False
    start: float = 1.0

    @property
    def changes(self) -> str:
        """What it says that the whole plan does not."""
        usual = Recipe()
        said = ((each.name, getattr(self, each.name)) for each in fields(self))
        return ", ".join(
            f"{name}={value!r}" for name, value in said if value != getattr(usual, name)
        )
