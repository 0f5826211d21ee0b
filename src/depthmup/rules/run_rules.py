"""The published rules of the run, each as its own source states it."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

from depthmup.rules.power import Power
from depthmup.rules.run_rule import Batch, RunRule, Standing, Stated, canonical
from depthmup.rules.scheme import RunLaws, Scheme


def _stated(**exponents: str | tuple[str, str, str]) -> Mapping[str, Stated]:
    """Exponents by axis; of three texts the last two are the source's interval."""
    stated = {}
    for axis, texts in exponents.items():
        value, *interval = map(Fraction, (texts,) if isinstance(texts, str) else texts)
        low, high = interval or (None, None)
        stated[axis] = Stated(value=value, low=low, high=high)
    return MappingProxyType(stated)


_BATCH = Power(batch=Fraction(1))
_ROOT_BATCH_PER_TOKEN = Power(batch=Fraction(1, 2), duration=Fraction(-1, 2))
_TOKENS_PER_PARAMETER = Power(duration=Fraction(1), fan_in=Fraction(-2), depth=Fraction(-1)) ** (
    Fraction(527, 1000)
)

UNREAD = "not read here"
"""The reach of a rule that is known here from notes on its source alone."""

RUN_RULES: tuple[RunRule, ...] = (
    RunRule(
        name="one rate for all widths",
        exponents=_stated(width="0"),
        setting="muP and its descendants, by their base's rate",
        reach="any width, as the limit is approached",
        source="TP5 (arXiv 2203.03466) Table 3",
        standing=Standing.TABLE,
    ),
    RunRule(
        name="one over the width",
        exponents=_stated(width="-1"),
        setting="Adam, one global rate, hidden matrices of a standard parametrization",
        reach="widths at which hidden matrices decide",
        source="TP5 (arXiv 2203.03466) Table 3: Adam's hidden row",
        standing=Standing.TABLE,
    ),
    RunRule(
        name="decay as the width",
        exponents=_stated(),
        beside=RunLaws(decay=Power(fan_in=Fraction(1))),
        setting="AdamW, the rate of hidden matrices as one over the width: rate times decay stays",
        reach="widths at which hidden matrices decide",
        source="arXiv 2405.13698 abstract",
        standing=Standing.ABSTRACT,
    ),
    RunRule(
        name="one rate for all depths",
        exponents=_stated(depth="0"),
        setting="Depth-muP and CompleteP, by their base's rate",
        reach="any depth, as the limit is approached",
        source="TP6 (arXiv 2310.02244) Tables 1 and 2; CompleteP (arXiv 2505.01618) Table 1",
        standing=Standing.TABLE,
    ),
    RunRule(
        name="one over the root of the depth",
        exponents=_stated(depth="-1/2"),
        setting="Adam's rate inside branches that are multiplied by L^-1/2",
        reach="blocks of one layer",
        source="TP6 (arXiv 2310.02244) Table 1",
        standing=Standing.TABLE,
    ),
    RunRule(
        name="Step Law",
        exponents=_stated(
            parameters=("-0.712", "-0.774", "-0.655"), tokens=("0.307", "0.271", "0.345")
        ),
        setting="AdamW, one rate for all parameters, final rate held; intervals of their bootstrap",
        reach="to 1e9 parameters and 1e11 tokens; too high below 59e6 (arXiv 2609.27581)",
        source="arXiv 2503.04715",
        standing=Standing.NOTES,
        batch=Batch.BEST,
        best_batch=_stated(tokens=("0.571", "0.534", "0.606")),
    ),
    RunRule(
        name="DeepSeek",
        exponents=_stated(compute="-0.125"),
        setting="AdamW, multi-step schedule, batch by compute^0.3271",
        reach=UNREAD,
        source="arXiv 2401.02954",
        standing=Standing.NOTES,
        batch=Batch.BEST,
        best_batch=_stated(compute="0.3271"),
    ),
    RunRule(
        name="Microsoft horizons",
        exponents=_stated(parameters="-0.23", tokens="-0.32"),
        setting="AdamW; muP alone does not remove the drift with tokens",
        reach=UNREAD,
        source="arXiv 2409.19913",
        standing=Standing.NOTES,
    ),
    RunRule(
        name="Complete(d)P",
        key="sde",
        beside=RunLaws(
            decay=_ROOT_BATCH_PER_TOKEN,
            epsilon=_ROOT_BATCH_PER_TOKEN**-1,
            one_minus_beta=_ROOT_BATCH_PER_TOKEN**2,
        ),
        exponents=_stated(batch="1/2", tokens="-1/2"),
        setting="AdamW; decay, epsilon and betas follow by the same table",
        reach="batch 1/8 to 4 times the base's; the range of tokens was not read",
        source="arXiv 2512.22382 Table 1",
        standing=Standing.TABLE,
        batch=Batch.OWN,
    ),
    RunRule(
        name="square root of the batch",
        key="sqrt-batch",
        beside=RunLaws(epsilon=Power(batch=Fraction(-1, 2)), one_minus_beta=_BATCH),
        exponents=_stated(batch="1/2"),
        setting="Adam: betas and epsilon follow (1 - beta ~ batch, epsilon ~ batch^-1/2)",
        reach="batches at which gradient noise decides",
        source="arXiv 2205.10287 abstract; its Definition 5.2 from notes",
        standing=Standing.ABSTRACT,
        batch=Batch.OWN,
    ),
    RunRule(
        name="proportional to the batch",
        key="linear-batch",
        exponents=_stated(batch="1"),
        setting="SGD, below the critical batch",
        reach="batches to 8192 on ImageNet",
        source="arXiv 1706.02677",
        standing=Standing.ABSTRACT,
        batch=Batch.OWN,
    ),
    RunRule(
        name="one rate for all batches",
        key="power-lines",
        # tau = B / (lr decay D) = 1.084 (D / N)^-0.527, N growing as width^2 depth.
        beside=RunLaws(decay=_BATCH * Power(duration=Fraction(-1)) * _TOKENS_PER_PARAMETER),
        exponents=_stated(batch="0"),
        setting="AdamW under muP: decay follows the batch, not the rate",
        reach="111M to 3.3B parameters; batches 63 to 2016 at 610M",
        source="Power Lines, arXiv 2505.13738 abstract; its exponent of -0.527 from notes",
        standing=Standing.ABSTRACT,
        batch=Batch.OWN,
    ),
    RunRule(
        name="HyperP",
        key="hyperp",
        exponents=_stated(batch="1/2", tokens="-0.32"),
        setting="MuonH on the sphere, no decay; a batch exponent of 0.558 was measured",
        reach="208M parameters, 10.4e9 to 166e9 tokens",
        source="arXiv 2603.28743 eq. 8; microsoft/ArchScale",
        standing=Standing.CODE,
        batch=Batch.OWN,
    ),
    RunRule(
        name="Marin MuonH",
        exponents=_stated(width="-0.15", batch="1/2", tokens="-0.395"),
        setting="MuonH, mixtures of experts; the batch's exponent is set, not fitted",
        reach="widths 512 to 1280, 4 to 240 tokens per active parameter",
        source="marin-community/marin #5951, as used in #6074",
        standing=Standing.TEXT,
        batch=Batch.OWN,
    ),
    RunRule(
        name="Marin AdamH",
        exponents=_stated(width="-0.3678", batch="1/2", tokens="-0.2813"),
        setting="AdamH, an earlier fit of Marin's; the batch's exponent is set, not fitted",
        reach=UNREAD,
        source="marin-community/marin",
        standing=Standing.NOTES,
        batch=Batch.OWN,
    ),
    RunRule(
        name="Scion",
        key="scion",
        exponents=_stated(batch="0.62", tokens="-0.56"),
        setting="Scion's norm-bounded updates",
        reach="to 1.3B parameters and 138e9 tokens",
        source="arXiv 2510.03871",
        standing=Standing.TEXT,
        batch=Batch.OWN,
    ),
    RunRule(
        name="Scion, batch at its optimum",
        exponents=_stated(tokens=("-0.28", "-0.35", "-0.21")),
        setting="Scion, batch by tokens^0.45",
        reach="to 1.3B parameters and 138e9 tokens",
        source="arXiv 2510.03871",
        standing=Standing.TEXT,
        batch=Batch.BEST,
        best_batch=_stated(tokens="0.45"),
    ),
    RunRule(
        name="LMO theory",
        key="lmo",
        exponents=_stated(steps="-1/2"),
        setting="norm-bounded updates, held batch",
        reach="a convergence bound",
        source="arXiv 2603.15958",
        standing=Standing.NOTES,
        batch=Batch.FIXED,
    ),
    RunRule(
        name="muA, B at zero",
        exponents=_stated(rank="-1/2"),
        setting="LoRA with Adam, one rate for A and B, alpha = rank (a multiplier of 1); with "
        "a multiplier of rank^-g the exponent is -(1 - g)/2",
        reach="networks much wider than the rank; its abstract says inversely with rank",
        source="arXiv 2602.06204",
        standing=Standing.NOTES,
    ),
    RunRule(
        name="muA, A at zero",
        exponents=_stated(rank="0"),
        setting="LoRA with Adam, B random by its fan-in, alpha = rank (a multiplier of 1)",
        reach="networks much wider than the rank; the rate is also that of full fine-tuning",
        source="arXiv 2602.06204",
        standing=Standing.NOTES,
    ),
    RunRule(
        name="LoRA-alpha",
        exponents=_stated(rank="0"),
        setting="LoRA with Adam, B at zero, alpha by the root of the rank, 256 times as large",
        reach=UNREAD,
        source="arXiv 2606.12883 abstract; its coefficient from notes",
        standing=Standing.ABSTRACT,
    ),
    RunRule(
        name="adapters of 35 models",
        exponents=_stated(rank=("0.21", "0.15", "0.27")),
        setting="LoRA with Adam, B at zero, alpha held at 32; the 25 models with an exponent "
        "together; a new model's lies in 0.07 to 0.36",
        reach="ranks 1 to 128, 1B to 550B parameters, 780 steps of batch 128",
        source="thinking-machines-lab/tinker-cookbook, recipes/chat_sl/results/sft_sweep.md",
        standing=Standing.TABULATED,
    ),
    RunRule(
        name="looped blocks",
        exponents=_stated(loops="0"),
        setting="blocks used N times, of L unique ones, branches multiplied by 1/(N L^1/2)",
        reach="as loops grow; the rate depends on the number of unique blocks",
        source="arXiv 2606.18524 abstract",
        standing=Standing.ABSTRACT,
    ),
    RunRule(
        name="Muon by heads",
        exponents=_stated(heads="-1/2"),
        setting="Muon's rate of queries, keys and values, each head orthogonalized by itself, with "
        "sqrt(max(1, rows/columns)), heads of one size; 0 where whole matrices are",
        reach="as heads grow in number",
        source="Yang, Simon and Bernstein (arXiv 2310.17813) Condition 1, by heads",
        standing=Standing.DERIVED,
    ),
    RunRule(
        name="GQA-muP",
        exponents=_stated(repetition=("0.29", "1/4", "1/2")),
        setting="Adam's rate of keys and values alone: (1 + r^1/2)/2 with r query heads to a key "
        "head, decay by its inverse; the exponent is that from r = 1 to 4",
        reach="as r grows; it keeps the spectral norm of an update over that of the weight",
        source="arXiv 2605.15290, its code",
        standing=Standing.CODE,
    ),
    RunRule(
        name="entries of keys",
        exponents=_stated(repetition="0"),
        setting="Adam's rate of keys and values: an entry of theirs moves by the rate times the "
        "width, however many heads read it",
        reach="as r grows; it keeps the update of an entry",
        source="Tensor Programs V (arXiv 2203.03466), by entries",
        standing=Standing.DERIVED,
    ),
    RunRule(
        name="tokens of a batch",
        exponents=_stated(sequence="1/2"),
        setting="Adam, sequences in a batch held, tokens as good as independent; 0 where the "
        "tokens in a batch are held",
        reach="below the critical batch size; less where tokens of a sequence resemble each other",
        source="the square-root rule of batches (arXiv 2205.10287), of tokens",
        standing=Standing.DERIVED,
    ),
    RunRule(
        name="tune dense once",
        exponents=_stated(experts="0", active="0"),
        setting="Complete-muE: AdamW, active width, normalized router; shifts of second order stay",
        reach="language and diffusion models; ranges were not read",
        source="arXiv 2605.23893 abstract",
        standing=Standing.ABSTRACT,
    ),
    RunRule(
        name="constant half-life of beta2 in tokens",
        key="beta2-half-life",
        exponents=_stated(),
        beside=RunLaws(log_beta2=_BATCH),
        setting="Adam: beta2^b; the rate follows the batch less than by its square root",
        reach="30M parameters and more, batches 1 to 4096",
        source="arXiv 2507.07101 abstract",
        standing=Standing.ABSTRACT,
        batch=Batch.OWN,
    ),
    RunRule(
        name="constant time of decay in epochs",
        key="decay-time",
        exponents=_stated(),
        beside=RunLaws(decay=_BATCH * Power(duration=Fraction(-1))),
        setting="AdamW: 1 / (lr decay) is a constant part of the run, where data are not repeated",
        reach="ResNet-18, vision transformers and NanoGPT",
        source="arXiv 2405.13698 abstract",
        standing=Standing.ABSTRACT,
        batch=Batch.OWN,
    ),
)
"""In the order of what they speak of: width, depth, size and tokens, batch.

*Source:* each rule's own. Exponents are as their sources print them.
"""


def rules_of(axis: str) -> tuple[RunRule, ...]:
    """The rules that speak of an axis, by its name here or a common other one.

    Args:
        axis: by its name here or a common other one.

    Returns:
        The rules, of which there may be none.

    Example:
        >>> [rule.name for rule in rules_of("depth")]
        ['one rate for all depths', 'one over the root of the depth']
    """
    named = canonical(axis)
    return tuple(
        rule
        for rule in RUN_RULES
        if rule.speaks_of(named) or (named == "steps" and rule.speaks_of("tokens"))
    )


NO_RULE = RunRule(
    name="nothing follows the run",
    key="none",
    exponents=_stated(),
    setting="learning rate, decay, epsilon and betas stay as they are at the base",
    reach="",
    source="",
    standing=Standing.TEXT,
)
"""What is done without a rule: batch and duration change, and nothing else."""


def run_rule(name: str | RunRule) -> RunRule:
    """The rule by which training asks for it; ``"none"`` leaves everything as it is.

    Args:
        name: of the rule.

    Returns:
        The rule.

    Raises:
        ValueError: there is no such rule to train by.

    Example:
        >>> run_rule("sde").name, run_rule("none") is NO_RULE
        ('Complete(d)P', True)
    """
    if isinstance(name, RunRule):
        return name
    known = {rule.key: rule for rule in (NO_RULE, *RUN_RULES) if rule.key}
    wanted = str(name).strip().lower()
    if wanted not in known:
        raise ValueError(f"Expected a run rule, one of {', '.join(known)}; got {name!r}.")
    return known[wanted]


def with_run(of: Scheme, rule: str | RunRule) -> Scheme:
    """A scheme whose laws of the run are another rule's, for plans.

    Laws here are those of single parameters, of which none knows how many there are: a decay that
    follows their number does so beside them (``RunLaws.of_parameters``).

    Args:
        of: the scheme, which keeps its laws of width and depth.
        rule: by its name, or itself.

    Returns:
        The scheme with these laws.

    Raises:
        ValueError: no such rule, or one that follows size other than by the number of parameters.

    Example:
        >>> from depthmup.rules import Ratios, scheme
        >>> both = with_run(scheme("completep"), "sde")
        >>> both.title, both.run.lr.at(Ratios(batch=4))
        ('CompleteP, run by sde', 2.0)
    """
    chosen = run_rule(rule)
    laws = chosen.laws
    powers = (laws.lr, laws.epsilon, laws.one_minus_beta, laws.log_beta2)
    # What the decay owes to size must be N = width^2 depth to one power, which plans apply by
    # counting.
    of_size = laws.decay / laws.of_run.decay
    counted = Power(fan_in=Fraction(2), depth=Fraction(1)) ** laws.of_parameters
    if of_size != counted or any(power.fan_in or power.depth for power in powers):
        raise ValueError(
            f"Expected a run rule whose factors follow from batch, duration and the number of "
            f"parameters alone; {chosen.key!r} follows width or depth, too."
        )
    return replace(of, run=laws.of_run, title=f"{of.title}, run by {chosen.key}")
