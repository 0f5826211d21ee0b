"""The zoo: every model on which every invariant of planning is tried.

Factors are those of width x 4 and depth x 3, Depth-muP with AdamW, derived for each model without
the library: what stands beside a parameter follows from what it is, by the tables of the rules
alone. A hidden matrix starts at 1/2 and learns at 1/4, a readout at 1/4 and 1/4, an input or a
vector at 1 and 1; inside a branch that is one of three times as many, rates are divided by sqrt(3),
and the last matrix (or gain) of the branch carries 1/sqrt(3) once more, in start and rate. From a
growing to a fixed size a matrix starts as a readout does.
"""

from collections.abc import Iterator
from dataclasses import replace

from tests.planning import planning_zoo as zoo
from tests.zoo.architectures import architectures
from tests.zoo.attention import WEIGHTINGS, Attention, Language, LinearAttention
from tests.zoo.case import Case

R = 3**-0.5
# The initial scale and the learning rate.
INPUT, HIDDEN, READOUT, VECTOR = (1, 1), (1 / 2, 1 / 4), (1 / 4, 1 / 4), (1, 1)
INPUT_IN, HIDDEN_IN, LAST = (1, R), (1 / 2, R / 4), (R / 2, R * R / 4)
NARROW, NARROW_IN, NARROW_LAST = (1 / 4, 1 / 4), (1 / 4, R / 4), (R / 4, R * R / 4)
VECTOR_IN, LAST_VECTOR, ON_STREAM = (1, R), (R, R * R), (1, R * R)
# Queries of heads that grow carry 1/4 / (1/2): what is added to the root that the model divides by.
QUERY_IN = (1 / 4, R / 8)

EXPECTED = {
    "mla": {
        "blocks.*.mix.dq.weight": HIDDEN_IN, "blocks.*.mix.ukv.weight": HIDDEN_IN,
        "blocks.*.mix.o.weight": LAST, "head.weight": READOUT, "emb.weight": INPUT,
    },
    "retnet heads grow": {"blocks.*.mix.q.weight": QUERY_IN, "blocks.*.mix.gn.weight": VECTOR_IN},
    "alibi heads grow": {"blocks.*.mix.qkv.weight": HIDDEN_IN, "blocks.*.mix.o.weight": LAST},
    "qk norm head": {
        "blocks.*.mix.q.weight": HIDDEN_IN, "blocks.*.mix.qn.weight": (1 / 2, R / 2),
        "blocks.*.mix.kn.weight": VECTOR_IN,
    },
    "softcap tied": {"emb.weight": (1, 1), "norm.weight": (1 / 4, 1 / 4)},
    "value residual": {"attn.*.v.weight": HIDDEN_IN, "attn.*.lam": VECTOR_IN},
    "value embeddings": {"ve.*.weight": INPUT_IN, "attn.*.o.weight": LAST},
    "per layer embeddings": {
        "ple.weight": INPUT_IN, "blocks.*.gate.weight": NARROW_IN,
        "blocks.*.proj.weight": INPUT_IN, "blocks.*.pn.weight": LAST_VECTOR,
    },
    # One more block behind the projection is no deeper than in the base.
    "multi token": {
        "blocks.*.mix.o.weight": LAST, "mp.weight": HIDDEN, "mblock.mix.o.weight": HIDDEN,
        "mblock.n1.weight": VECTOR,
    },
    "medusa": {"med.*.weight": HIDDEN, "heads.*.weight": READOUT, "blocks.*.mlp.down.weight": LAST},
    "lora trained": {
        "blocks.*.mix.up.A": NARROW_IN, "blocks.*.mix.up.B": INPUT_IN,
        "blocks.*.mix.down.B": (R, R * R),
    },
    "moe shared sigmoid": {
        "blocks.*.mix.router.weight": NARROW_IN, "blocks.*.mix.down": LAST,
        "blocks.*.mix.shared.down.weight": LAST, "blocks.*.mix.sg.weight": NARROW_IN,
    },
    "attention pool": {"q": NARROW, "v.weight": HIDDEN, "o.weight": READOUT},
    "biaffine": {"U": (1 / 8, 1 / 16), "h.weight": HIDDEN, "bh.weight": READOUT},
    "vision language projector": {
        "v.*.mix.o.weight": HIDDEN, "v.*.n1.weight": VECTOR, "pr.*.weight": HIDDEN,
        "b.*.mix.o.weight": LAST, "p.weight": INPUT,
    },
    "encoder fixed decoder deep": {"enc.*.mix.o.weight": HIDDEN, "x.*.k.weight": HIDDEN_IN},
    "prefix kv each layer": {"blocks.*.mix.pk": VECTOR_IN},
    "deltanet": {
        "blocks.*.mix.b.weight": HIDDEN_IN, "blocks.*.mix.conv.weight": INPUT_IN,
        "blocks.*.mix.A_log": VECTOR_IN, "blocks.*.mix.norm.weight": VECTOR_IN,
    },
    "mamba2": {"blocks.*.mix.D": VECTOR_IN, "blocks.*.mix.out.weight": LAST},
    "rwkv6": {"blocks.*.mix.w1.weight": NARROW_IN, "blocks.*.mix.w2.weight": INPUT_IN},
    "hymba": {"blocks.*.mix.n1.weight": LAST_VECTOR, "blocks.*.mix.o.weight": HIDDEN_IN},
    "hyena": {"blocks.*.mix.f.0.weight": INPUT_IN, "blocks.*.mix.f.2.weight": INPUT_IN},
    "dit": {
        "blocks.*.ada.weight": HIDDEN_IN, "pos": VECTOR, "lab.weight": INPUT_IN,
        "out.weight": READOUT,
    },
    "convnext small": {"b.*.g": LAST_VECTOR, "b.*.dw.weight": INPUT_IN, "b.*.dn.weight": HIDDEN_IN},
    "stages one deepened": {
        "stages.0.*.c1.weight": HIDDEN, "stages.1.*.c1.weight": HIDDEN_IN,
        "stages.1.*.b2.weight": LAST_VECTOR, "stages.2.*.b2.weight": VECTOR,
    },
    "fpn": {"lat.*.weight": HIDDEN, "body.stages.*.*.b2.weight": LAST_VECTOR, "o.weight": READOUT},
    "unet add skips": {
        "up.weight": HIDDEN, "dn.weight": HIDDEN, "m.*.b2.weight": LAST_VECTOR,
        "a.*.c1.weight": HIDDEN_IN, "c.*.b2.weight": LAST_VECTOR,
    },
    "gat": {"layers.*.a": NARROW_IN, "layers.*.upd.weight": LAST, "inp.weight": INPUT},
    "nerf": {"bx.weight": HIDDEN, "by.weight": INPUT, "sig.weight": READOUT, "rd.weight": INPUT},
    "vae": {"mu.weight": NARROW, "dd.weight": INPUT, "db.*.down.weight": LAST},
    "dcn cross": {"c.*.weight": LAST},
    # 1/L of its own for the 1/sqrt(L) that is due.
    "neural ode own step": {"f.down.weight": (1 / 2 / R, 1 / 4), "f.up.weight": HIDDEN_IN},
    "kan residual": {"k.*.c": LAST, "o.c": READOUT},
    "ft transformer": {"width": VECTOR, "cls": VECTOR},
    "bottleneck fixed": {"b.*.a.weight": NARROW_IN, "b.*.b.weight": (R, R * R)},
    "inducing points": {
        "blocks.*.points": VECTOR_IN, "blocks.*.gather.[qkvo].weight": HIDDEN_IN,
        "blocks.*.gather.[mn].weight": VECTOR_IN, "blocks.*.spread.o.weight": LAST,
    },
    # A norm alone reads the neck, so that it cannot start near zero.
    "windows and everything": {
        "?.mix.rel": INPUT_IN, "?.mix.qkv.weight": HIDDEN_IN, "?.mix.o.weight": LAST,
        "7.neck.weight": HIDDEN,
    },
    # Each loop runs as often as in the base: blocks alone are depth.
    "two loops": {
        "????.blocks.*.mix.[qkv].weight": HIDDEN_IN, "????.blocks.*.mix.o.weight": LAST,
        "????.blocks.*.mlp.down.weight": LAST, "????.norm.weight": VECTOR,
    },
    "stream scaled and shifted": {
        "b.*.down.weight": HIDDEN_IN, "e.*.gain": LAST_VECTOR, "e.*.shift": VECTOR_IN,
        "e.*.keep": ON_STREAM, "e.*.moved": ON_STREAM,
    },
    "stream counted twice": {"b.*.up.weight": HIDDEN_IN, "b.*.down.weight": LAST},
    "hidden fixed stream": {"a.*.weight": INPUT_IN, "b.*.weight": NARROW_LAST, "o.weight": (1, 1)},
}  # fmt: skip
REFUSED = {
    "uvit cat": "outside of every residual branch",
    "hyper connections": "no residual addition was found",
    "mixture of depths": "outside of every residual branch",
    "egnn": "grow differently",
    "highway": "no residual addition was found",
}

WITH_GROWING_HEADS = {"blocks.*.q.weight": (1 / 4, 1 / 8), "blocks.*.k.weight": HIDDEN}
OF_COSINES = {"blocks.*.q.weight": HIDDEN, "blocks.*.k.weight": HIDDEN}
ATTENTION = (
    *(({"weighting": weighting}, WITH_GROWING_HEADS) for weighting in WEIGHTINGS),
    ({"weighting": "softmax", "cosine": "fixed"}, OF_COSINES),
    ({"weighting": "softmax", "cosine": "learned"}, OF_COSINES),
)
"""Logits follow the size of heads whatever reads them; cosines are of order one at every size."""

# Blocks between an input and an output layer, by what carries the multiplier of their branch.
BLOCKS = {
    zoo.MLPBlock: {"*.down.weight": LAST, "*.up.weight": HIDDEN_IN, "*.norm.weight": VECTOR_IN},
    zoo.GatedBlock: {"*.gain": LAST_VECTOR, "*.mlp.down.weight": HIDDEN_IN},
    zoo.SandwichBlock: {"*.norm.weight": LAST_VECTOR, "*.mlp.down.weight": HIDDEN_IN},
    zoo.ParallelBlock: {"*.one.weight": LAST, "*.two.down.weight": LAST},
    zoo.UnfoldableBlock: {"*.linear.weight": HIDDEN_IN, "*.norm.weight": VECTOR_IN},
    zoo.InPlaceBlock: {"*.linear.weight": LAST, "*.norm.weight": VECTOR_IN},
    zoo.PostNormBlock: {"*.up.weight": HIDDEN_IN, "*.down.weight": LAST},
}
RESIDUAL_MLP = {
    "inp.weight": INPUT, "blocks.*.norm.weight": VECTOR_IN, "norm.weight": VECTOR,
    "blocks.*.up.weight": HIDDEN_IN, "blocks.*.down.weight": LAST, "out.weight": READOUT,
}  # fmt: skip
MODELS = (
    Case(
        name="gpt-2, learned positions", make=zoo.Transformer, inputs=(zoo.tokens(),),
        expect={
            "tokens.weight": INPUT, "positions": VECTOR, "head.weight": READOUT,
            "blocks.*.attention.qkv.weight": HIDDEN_IN, "blocks.*.attention.proj.weight": LAST,
            "blocks.*.mlp.2.weight": LAST, "blocks.*.norm?.weight": VECTOR_IN,
        },
    ),
    Case(
        name="gpt-2, tied", make=lambda w, d: zoo.Transformer(w, d, tied=True),
        inputs=(zoo.tokens(),), expect={"tokens.weight": (1, 1), "norm.weight": (1 / 4, 1 / 4)},
    ),
    *(
        Case(name=name, inputs=(zoo.vectors(),), make=make, expect=RESIDUAL_MLP)
        for name, make in {
            "mirrored skips": zoo.MirroredSkips,
            "mirrored skips after a gain": lambda w, d: zoo.MirroredSkips(w, d, "after a gain"),
            "mirrored skips after a number": lambda w, d: zoo.MirroredSkips(w, d, "after a number"),
            "injected loops": zoo.InjectedLoops,
        }.items()
    ),
    Case(
        name="one table of value embeddings", inputs=(zoo.tokens(),), make=zoo.ValueEmbeddings,
        expect={
            "tokens.weight": INPUT, "blocks.*.norm.weight": VECTOR_IN, "head.weight": READOUT,
            "blocks.*.up.weight": HIDDEN_IN, "blocks.*.down.weight": LAST,
        },
    ),
    Case(
        name="unrolled cell", inputs=(zoo.vectors(),), make=zoo.Unrolled,
        expect={"first.weight": INPUT_IN, "cell.weight": HIDDEN_IN, "out.weight": READOUT},
    ),
    Case(
        name="cosine classifier", inputs=(zoo.vectors(),), make=zoo.CosineClassifier,
        expect={"out.weight": VECTOR, "temperature": VECTOR, "blocks.*.down.weight": LAST},
    ),
    # A sum over 4 x 4 times as many pairs.
    Case(
        name="bilinear readout", inputs=(zoo.vectors(),), make=zoo.BilinearReadout,
        expect={"out.weight": (1 / 16, 1 / 16), "out.bias": VECTOR, "norm.weight": VECTOR},
    ),
    Case(
        name="resnet of stages", make=zoo.ResNet, inputs=(zoo.images(),),
        expect={
            "stem.0.weight": INPUT, "layer?.*.conv?.weight": HIDDEN_IN, "fc.weight": READOUT,
            "layer?.*.bn2.weight": LAST_VECTOR,
        },
    ),
)  # fmt: skip


def _cases() -> Iterator[Case]:
    for case in architectures(("plain torch", "by hand")):
        refuses = REFUSED.get(case.name, "")
        yield replace(case, expect=EXPECTED.get(case.name, {}), refuses=refuses)
    for options, expect in ATTENTION:
        yield Case(
            name=", ".join(("attention", *options.values())), inputs=(zoo.tokens(),),
            make=lambda w, d, o=options: Language(w, lambda width: Attention(width, **o)),
            expect=expect, silent=True,
        )  # fmt: skip
    yield Case(
        name="linear attention", inputs=(zoo.tokens(),), silent=True, expect=OF_COSINES,
        make=lambda w, d: Language(w, LinearAttention),
    )  # fmt: skip
    for block, inside in BLOCKS.items():
        expect = {f"blocks.{pattern}": factors for pattern, factors in inside.items()}
        expect |= {"inp.weight": INPUT, "out.weight": READOUT}
        yield Case(
            name=block.__name__, make=zoo.tower(block), inputs=(zoo.vectors(),), expect=expect
        )
    yield from MODELS


CASES = tuple(_cases())
PLANNED = tuple(case for case in CASES if not case.refuses)
