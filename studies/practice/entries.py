"""Ordinary practice, an entry each, with what theory made us expect before any was run.

Expected are changes of drifts against those of the whole plan, in octaves per doubling, under Adam
and under SGD. 0 is no change; an entry that was expected to break says by how much.
"""

from dataclasses import dataclass, replace

from studies.practice.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One change of the whole plan's recipe.

    Attributes:
        name: in words.
        part: model, loss, schedule, data, optimizer or rates.
        recipe: what is trained.
        width, depth: expected changes of the drift under Adam.
        sgd: the same two under SGD; as under Adam where there is none.
        why: the expectation's reason.
        only: the optimizers that it is a practice of; all where empty.
        cures: the entry whose break it mends.
    """

    name: str
    part: str
    recipe: Recipe
    width: float = 0.0
    depth: float = 0.0
    sgd: tuple[float, float] | None = None
    why: str
    only: tuple[str, ...] = ()
    cures: str = ""

    def expected(self, optimizer: str) -> tuple[float, float]:
        """Along width and depth."""
        given = self.sgd if optimizer == "sgd" else None
        return given or (self.width, self.depth)

    def under(self, optimizer: str, task: str) -> Recipe:
        """The recipe for another task; AdamW decays where the entry says nothing of decay."""
        said = self.recipe.decay or self.recipe.coupled or self.recipe.independent
        decay = 1.0 if optimizer == "adamw" and not said else self.recipe.decay
        return replace(self.recipe, task=task, decay=decay)


ADAM, SGD = ("adam", "adamw", "muon"), ("sgd",)

ENTRIES = (
    Entry(name="the whole plan", part="none", recipe=Recipe(), why="what all others change"),
    # The model.
    Entry(
        name="RMSNorm",
        part="model",
        recipe=Recipe(norm="rms"),
        why="the same scales",
    ),
    Entry(
        name="BatchNorm",
        part="model",
        recipe=Recipe(norm="batch"),
        why="normalizes each channel; scales stay of order one",
    ),
    Entry(
        name="no norm",
        part="model",
        recipe=Recipe(norm="none"),
        depth=-0.1,
        why="the stream's scale follows the rate; deeper ones leave the linear regime sooner",
    ),
    Entry(
        name="post-norm, one rate for its norms",
        part="model",
        recipe=Recipe(post=True, post_rate=1.0),
        why="with branches of 1/sqrt(L) the renormalized stream loses order one over all depth",
    ),
    Entry(
        name="post-norm",
        part="model",
        recipe=Recipe(post=True),
        why="gains and biases of all blocks act on one stream: their changes add up, and the plan "
        "gives them 1/depth since this break was found",
        cures="post-norm, one rate for its norms",
    ),
    Entry(name="GELU", part="model", recipe=Recipe(activation="gelu"), why="order one as ReLU"),
    Entry(name="tanh", part="model", recipe=Recipe(activation="tanh"), why="order one as ReLU"),
    Entry(name="SiLU", part="model", recipe=Recipe(activation="silu"), why="order one as ReLU"),
    Entry(
        name="dropout 0.1",
        part="model",
        recipe=Recipe(dropout=0.1),
        depth=0.05,
        why="noise of branches averages as 1/sqrt(L)",
    ),
    Entry(
        name="dropout 0.4",
        part="model",
        recipe=Recipe(dropout=0.4),
        width=0.1,
        depth=0.1,
        why="its noise falls with width and depth, which allows larger rates",
    ),
    Entry(
        name="drop-path 0.2",
        part="model",
        recipe=Recipe(drop_path=0.2),
        depth=0.05,
        why="as dropout, by branch",
    ),
    Entry(
        name="branches start at zero",
        part="model",
        recipe=Recipe(zero_branches=True),
        why="updates alone have the planned size",
    ),
    Entry(
        name="LayerScale 0.1",
        part="model",
        recipe=Recipe(layer_scale=0.1),
        why="a constant in front of each branch; its vector's rate is planned",
    ),
    Entry(name="no biases", part="model", recipe=Recipe(bias=False), why="biases do little"),
    Entry(
        name="starts twice as large",
        part="model",
        recipe=Recipe(start=2.0),
        why="a constant, the same at all sizes",
    ),
    Entry(
        name="starts half as large",
        part="model",
        recipe=Recipe(start=0.5),
        why="a constant, the same at all sizes",
    ),
    # The loss.
    Entry(
        name="label smoothing 0.1",
        part="loss",
        recipe=Recipe(smoothing=0.1),
        why="logits stay of order one",
    ),
    Entry(
        name="z-loss 0.01",
        part="loss",
        recipe=Recipe(z_loss=0.01),
        why="acts on logits, which are of order one",
    ),
    Entry(
        name="square loss",
        part="loss",
        recipe=Recipe(squared=True),
        why="its gradient has the same scales",
    ),
    # The schedule.
    Entry(
        name="constant rate",
        part="schedule",
        recipe=Recipe(schedule="constant"),
        width=-0.05,
        depth=-0.05,
        why="noise at the end is not annealed, and larger networks have less left to gain",
    ),
    Entry(name="cosine", part="schedule", recipe=Recipe(schedule="cosine"), why="nearly linear"),
    Entry(
        name="inverse root",
        part="schedule",
        recipe=Recipe(schedule="root"),
        why="the same at all sizes",
    ),
    Entry(
        name="constant, then cooldown",
        part="schedule",
        recipe=Recipe(schedule="cooldown"),
        why="the same at all sizes",
    ),
    Entry(
        name="no warm-up",
        part="schedule",
        recipe=Recipe(warmup=0.0),
        why="first steps are planned, too",
    ),
    Entry(
        name="warm-up of a third",
        part="schedule",
        recipe=Recipe(warmup=0.33),
        why="the same at all sizes",
    ),
    Entry(
        name="no rate ends below 1e-3",
        part="schedule",
        recipe=Recipe(schedule="cosine", least_rate=1e-3),
        width=-0.1,
        depth=-0.05,
        sgd=(0.0, 0.0),
        why="wide matrices have rates of 1e-3 and less: the floor stops their annealing",
    ),
    Entry(
        name="no rate ends below a tenth of its own",
        part="schedule",
        recipe=Recipe(schedule="cosine", least_share=0.1),
        why="a share follows the plan's factors",
        cures="no rate ends below 1e-3",
    ),
    # Data and duration.
    Entry(name="a quarter of the batch", part="data", recipe=Recipe(batch=0.25), why="more noise"),
    Entry(name="twice the batch", part="data", recipe=Recipe(batch=2.0), why="less noise"),
    Entry(
        name="a third of the steps",
        part="data",
        recipe=Recipe(steps=1 / 3),
        width=-0.05,
        why="short training is limited by the first steps, where wide networks are ahead",
    ),
    Entry(name="twice the steps", part="data", recipe=Recipe(steps=2.0), why="more of the same"),
    # The optimizer.
    Entry(
        name="betas 0.9, 0.999",
        part="optimizer",
        recipe=Recipe(betas=(0.9, 0.999)),
        why="averages over steps do not know sizes",
        only=ADAM,
    ),
    Entry(
        name="no momentum",
        part="optimizer",
        recipe=Recipe(betas=(0.0, 0.99), momentum=0.0),
        why="averages over steps do not know sizes",
    ),
    Entry(
        name="Nesterov's momentum",
        part="optimizer",
        recipe=Recipe(nesterov=True),
        why="averages over steps do not know sizes",
        only=SGD,
    ),
    Entry(
        name="AMSGrad",
        part="optimizer",
        recipe=Recipe(amsgrad=True),
        why="averages over steps do not know sizes",
        only=("adam", "adamw"),
    ),
    Entry(
        name="epsilon 1e-3, one for all",
        part="optimizer",
        recipe=Recipe(eps=1e-3, planned_eps=False),
        width=0.2,
        depth=0.1,
        why="gradients fall below it with width, and updates with them",
        only=ADAM,
    ),
    Entry(
        name="epsilon 1e-3, the plan's",
        part="optimizer",
        recipe=Recipe(eps=1e-3),
        why="it falls as gradients do",
        only=ADAM,
        cures="epsilon 1e-3, one for all",
    ),
    Entry(
        name="decay 1, one for all",
        part="optimizer",
        recipe=Recipe(decay=1.0, planned_decay=False),
        width=0.0,
        depth=0.0,
        why="rate times decay falls with size: less decay, which short training hardly sees",
    ),
    Entry(
        name="decay 1, the plan's",
        part="optimizer",
        recipe=Recipe(decay=1.0),
        why="rate times decay stays",
    ),
    Entry(
        name="decay 1 of matrices alone",
        part="optimizer",
        recipe=Recipe(decay=1.0, decayed="matrices"),
        why="vectors matter little",
    ),
    Entry(
        name="decay in the gradient, 1e-3",
        part="optimizer",
        recipe=Recipe(coupled=1e-3),
        width=0.1,
        why="under Adam it outgrows gradients that fall with width",
        sgd=(0.0, 0.0),
    ),
    Entry(
        name="decay in the gradient, 1e-3, the plan's",
        part="optimizer",
        recipe=Recipe(coupled=1e-3, planned_coupled=True),
        why="it falls as gradients do",
        only=("adam",),
        cures="decay in the gradient, 1e-3",
    ),
    Entry(
        name="decay of 0.3% a step, whatever the rate",
        part="optimizer",
        recipe=Recipe(independent=0.003),
        why="the same share of every matrix",
    ),
    Entry(
        name="gradient noise",
        part="optimizer",
        recipe=Recipe(noise=1.0),
        why="relative to each gradient",
    ),
    Entry(
        name="centred gradients",
        part="optimizer",
        recipe=Recipe(centered=True),
        why="takes one direction of many",
    ),
    Entry(
        name="clipping by norm 1",
        part="optimizer",
        recipe=Recipe(clip_norm=1.0),
        sgd=(0.1, 0.1),
        why="Adam forgets scales; for SGD the norm depends on where multipliers stand",
    ),
    Entry(
        name="clipping by norm 0.1",
        part="optimizer",
        recipe=Recipe(clip_norm=0.1),
        sgd=(0.25, 0.25),
        why="Adam forgets scales; for SGD steps follow the norm, which grows with size",
    ),
    Entry(
        name="clipping by norm 0.1, the plan's units",
        part="optimizer",
        recipe=Recipe(planned_clip=0.1),
        why="the norm in which multipliers are counted stays of order one",
        cures="clipping by norm 0.1",
    ),
    Entry(
        name="clipping of entries at 0.001",
        part="optimizer",
        recipe=Recipe(clip_value=0.001),
        sgd=(-0.3, -0.2),
        why="for SGD entries fall with size: small networks are clipped, large ones are not",
    ),
    Entry(
        name="clipping of entries at 0.001 of the plan's size",
        part="optimizer",
        recipe=Recipe(clip_value=0.001, planned_entries=True),
        why="the threshold falls as gradients do",
        cures="clipping of entries at 0.001",
    ),
    Entry(
        name="clipping by the weight's norm, 1%, in the plan's sizes",
        part="optimizer",
        recipe=Recipe(clip_update=0.01, planned_entries=True),
        why="the threshold falls as gradients do against weights",
        cures="clipping by the weight's norm, 1%",
    ),
    Entry(
        name="clipping by the weight's norm, 1%",
        part="optimizer",
        recipe=Recipe(clip_update=0.01),
        sgd=(0.2, 0.2),
        why="under SGD it replaces the plan's scales by those of weights",
    ),
    Entry(
        name="SAM, radius 0.1",
        part="optimizer",
        recipe=Recipe(sam=0.1),
        width=0.05,
        depth=0.05,
        why="a fixed radius is a smaller change of a larger network",
    ),
    Entry(
        name="SAM, 2% of every weight",
        part="optimizer",
        recipe=Recipe(planned_sam=0.02),
        depth=-0.1,
        why="a share of each matrix's norm adds up over blocks",
    ),
    Entry(
        name="SAM, 2% of every weight, less by size",
        part="optimizer",
        recipe=Recipe(planned_sam=0.02, sam_by_size=True),
        why="one direction of a hidden matrix moves the stream by its norm, and L of them add up",
        cures="SAM, 2% of every weight",
    ),
    Entry(
        name="averaged weights, 0.95",
        part="optimizer",
        recipe=Recipe(average=0.95),
        why="averages over steps do not know sizes",
    ),
    Entry(
        name="Lookahead, 6 steps",
        part="optimizer",
        recipe=Recipe(lookahead=6),
        why="averages over steps do not know sizes",
    ),
    # Rates by place.
    Entry(
        name="one rate for all",
        part="rates",
        recipe=Recipe(planned_rates=False),
        width=-0.7,
        depth=-0.4,
        sgd=(-0.5, 0.0),
        why="matrices need 1/width and 1/sqrt(depth) under Adam",
    ),
    Entry(
        name="no rate below half of the base's",
        part="rates",
        recipe=Recipe(floor=0.5),
        width=-0.5,
        depth=-0.3,
        sgd=(0.0, 0.0),
        why="from twice the width on, all matrices have one rate",
    ),
    Entry(
        name="rates fall by 0.8 a block",
        part="rates",
        recipe=Recipe(layer_decay=0.8),
        depth=0.4,
        why="the deeper the network, the fewer of its blocks train",
    ),
    Entry(
        name="rates fall by 0.95 a block",
        part="rates",
        recipe=Recipe(layer_decay=0.95),
        depth=0.15,
        why="the deeper the network, the fewer of its blocks train",
    ),
    Entry(
        name="rates fall by 0.41 over all blocks",
        part="rates",
        recipe=Recipe(relative_decay=0.41),
        why="by relative depth every size has the same profile",
        cures="rates fall by 0.8 a block",
    ),
    Entry(
        name="a tenth of the rate for the first layer",
        part="rates",
        recipe=Recipe(input_rate=0.1),
        why="a constant, the same at all sizes",
    ),
    Entry(
        name="frozen first layer",
        part="rates",
        recipe=Recipe(frozen="input"),
        why="its features are random and fixed at all sizes",
    ),
    Entry(
        name="frozen readout",
        part="rates",
        recipe=Recipe(frozen="readout"),
        width=0.3,
        why="the readout starts at 1/width: features have less and less to act through",
    ),
)
