"""Every scheme under every optimizer family, for every role; and optimizers by their names."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from pytest import approx

from depthmup.rules import (
    CATALOGUE,
    DEPTH_MUP,
    HYPERP,
    ODE,
    ONE,
    OPTIMIZERS,
    Family,
    Kind,
    Power,
    Ratios,
    Role,
    completep,
    effect,
    family,
    fold,
    general,
    named,
    scheme,
)

HALF = Fraction(1, 2)
SCHEMES = (*CATALOGUE, completep("1/2"), completep("3/4"), general("2/3", "1/3"))
ROLES = [
    Role(kind=kind, in_branch=inside, last=last, tied=tied, shared=shared)
    for kind, inside, last, tied, shared in product(Kind, *[(False, True)] * 4)
    if not (last and not inside)
    and not (shared and not inside)
    and not (tied and kind is not Kind.READOUT)
]


def each_role(scheme, family):
    """Every role under a scheme and a family, and what to say of it where it fails."""
    for role in ROLES:
        yield role, f"{scheme.name}, {family}, {role}"


def of_every_pair(test):
    """A test of every scheme under every family; one test is of all roles."""
    named = pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
    return named(pytest.mark.parametrize("family", Family)(test))


def gradient(scheme, role):
    """The size of one entry of a gradient, written down from the principle and not from the code.

    1/n, but for the readout, whose gradient is a product of order-one numbers unless a multiplier
    of 1/n stands before it; r^-alpha inside a branch, summed over branches if they share it.
    """
    if not scheme.follows_width:  # by convention, as nothing is known
        width = ONE
    elif role.kind is Kind.READOUT:
        multiplied = role.tied or scheme.readout.value == "multiplier"
        multiplied &= scheme.name != "nugpt"  # a readout of rows of norm one
        width = Power(fan_in=-1) if multiplied else ONE
    else:
        width = Power(fan_out=-1)
    if not role.in_branch:
        return width
    summed = 1 if role.shared and (scheme.alpha or scheme.gamma) else 0
    return width * Power(depth=summed - scheme.alpha)


@pytest.mark.long(of="powers")
@of_every_pair
def test_lr_times_decay_has_the_power_it_must(scheme, family):
    """Constant, for every family; but vectors keep the person's decay where steps are normalized,
    and CompleteP's own row, which is AdamW's alone."""
    for role, case in each_role(scheme, family):
        served = family.serving(role.kind)
        laws = scheme.laws(role, family)
        product = laws.lr * laws.decay / (scheme.run.lr * scheme.run.decay)
        lr = laws.lr / scheme.run.lr
        if scheme.name.startswith("completep") and served is Family.ENTRYWISE:
            if role.kind is Kind.HIDDEN:  # decay m: in-branch rates r^(alpha - 1) are left in
                expected = Power(depth=scheme.alpha - 1) if role.in_branch else ONE
            else:  # no decay factor
                expected = lr
        elif role.kind is Kind.VECTOR and served is not Family.RAW:
            expected = lr
        else:
            expected = ONE
        assert product == expected, case


@pytest.mark.long(of="powers")
@of_every_pair
def test_epsilon_over_what_it_is_added_to_has_the_power_it_must(scheme, family):
    """Constant, but where a table leaves AdamW's alone: CompleteP's outside of branches, nuGPT's.

    Entrywise and relative steps add it to entries of the gradient; orthogonalized ones to its
    norm, sqrt(in * out) times an entry for aligned gradients; Shampoo to the square of that norm,
    or of an entry in blocks; AdaMuon to entries of an orthogonalized matrix.
    """
    for role, case in each_role(scheme, family):
        served = family.serving(role.kind)
        laws, one = scheme.laws(role, family), gradient(scheme, role)
        norm = one * Power(fan_in=HALF, fan_out=HALF)
        added_to = {
            Family.RAW: one,
            Family.ENTRYWISE: one,
            Family.RELATIVE: one,
            Family.NORM_BALL: one,
            Family.MATRIX_ENTRYWISE: one,
            Family.SPECTRAL_INVERSE: norm**2,
            Family.SHAMPOO: norm**2,
            Family.SHAMPOO_BLOCKS: one**2,
            Family.ADAMUON: Power(fan_in=-HALF, fan_out=-HALF),
        }.get(served, norm)
        ratio = laws.epsilon / scheme.run.epsilon / added_to
        table = scheme.name.startswith("completep") and served is Family.ENTRYWISE
        if (table and not role.in_branch) or (
            scheme.name == "nugpt" and served is Family.ENTRYWISE
        ):
            assert laws.epsilon == ONE, case
        else:
            assert ratio == ONE, case


@pytest.mark.long(of="powers")
@of_every_pair
def test_an_update_moves_its_output_as_the_scheme_says(scheme, family):
    """Whatever the optimizer: r^-gamma in branches, and nothing of width.

    HyperP's own r^-1/2 stands outside of branches as well, on the sphere and beside it. nuGPT's
    updates are no maximal ones: m^-1/2 where one entry is read, m^-3/4 times m aligned ones.
    """
    if not scheme.follows_width:
        pytest.skip("a scheme without a theory of width")
    for role, case in each_role(scheme, family):
        served = family.serving(role.kind)
        hyperp = scheme is HYPERP and served in (
            {Family.SPHERE} if role.kind is Kind.HIDDEN else {Family.ENTRYWISE}
        )
        expected = Power(depth=-scheme.gamma) if role.in_branch or hyperp else ONE
        if scheme.name == "nugpt":
            own = {Kind.INPUT: Power(fan_out=-HALF), Kind.VECTOR: ONE}
            expected = own.get(role.kind, Power(fan_in=HALF / 2))
        assert effect(scheme, family, role) == expected, case


def matrices(rows, columns, generator, *, isotropic):
    """A weight at fan-in initialization, and a gradient whose entries have the size 1/rows."""
    w = torch.randn(rows, columns, generator=generator) / columns**0.5
    if isotropic:
        return w, torch.randn(rows, columns, generator=generator) / rows
    left, right = (torch.randn(n, 1, generator=generator) for n in (rows, columns))
    return w, left @ right.T / rows


def power_of(g, exponent):
    """U S^exponent V^T, over the singular values that are not rounding."""
    u, s, v = torch.linalg.svd(g.double(), full_matrices=False)
    rank = int((s > 1e-6 * s[0]).sum())
    return (u[:, :rank] * s[:rank] ** exponent @ v[:rank]).float()


UPDATES = {
    Family.RAW: lambda w, g: g,
    Family.ENTRYWISE: lambda w, g: g.sign(),
    Family.MATRIX_ENTRYWISE: lambda w, g: g.sign(),
    Family.RELATIVE: lambda w, g: w.norm() * g / g.norm(),
    Family.NORM_BALL: lambda w, g: (g.shape[0] / g.shape[1]) ** 0.5 * power_of(g, 0),
    Family.SPECTRAL: lambda w, g: max(1, g.shape[0] / g.shape[1]) ** 0.5 * power_of(g, 0),
    Family.SPECTRAL_RMS: lambda w, g: 0.2 * max(g.shape) ** 0.5 * power_of(g, 0),
    Family.SPECTRAL_RATIO: lambda w, g: (g.shape[0] / g.shape[1]) ** 0.5 * power_of(g, 0),
    Family.SPECTRAL_UNIT: lambda w, g: power_of(g, 0),
    Family.SPECTRAL_INVERSE: lambda w, g: power_of(g, -1),
    Family.SHAMPOO: lambda w, g: power_of(g, 0),
    Family.SHAMPOO_BLOCKS: lambda w, g: g.sign(),
    Family.ADAMUON: lambda w, g: power_of(g, 0).sign(),
    Family.SPHERE: lambda w, g: w.norm() * power_of(g, 0) / power_of(g, 0).norm(),
}


@pytest.mark.long
@pytest.mark.parametrize("narrows", [False, True])
@pytest.mark.parametrize("family", Family)
def test_measured_updates_of_hidden_matrices_have_the_norm_that_mup_wants(family, narrows):
    """lr * |update| / sqrt(out/in) at five sizes: a slope of 0, for updates as they are written.

    Aligned gradients of rank one, but for the sphere, whose theorem is for isotropic ones.
    """
    if narrows and family in (Family.SPECTRAL, Family.SPECTRAL_RMS):
        pytest.skip("planning completes these from the shapes")
    sizes, norms = (32, 64, 128, 256, 512), []
    laws = ODE.laws(Role(kind=Kind.HIDDEN, narrows=narrows), family)
    generator = torch.Generator().manual_seed(0)
    for n in sizes:
        rows = 16 if narrows else n
        ratios = Ratios(fan_in=n / 32, fan_out=1 if narrows else n / 32)
        w, g = matrices(rows, n, generator, isotropic=family is Family.SPHERE)
        w *= laws.init.at(ratios) * (n / 32) ** 0.5
        step = laws.lr.at(ratios) * UPDATES[family](w, g)
        norms.append(float(torch.linalg.matrix_norm(step, 2)) * (n / rows) ** 0.5)
    slope = np.polyfit(np.log(sizes), np.log(norms), 1)[0]
    # Norms of random vectors of 32 entries scatter by 1/sqrt(2 * 32) = 0.125; the least-squares
    # slope over five octaves has an error of 0.125 / (ln 2 * sqrt(10)) = 0.06 at the very most.
    assert slope == approx(0, abs=0.12)


@pytest.mark.parametrize("family", Family)
def test_folding_leaves_the_trajectory_of_every_family_unchanged(family):
    """V = A W after a step of V is A times W after a step of W."""
    multiplier, lr = 0.3, 0.05
    generator = torch.Generator().manual_seed(0)
    w, g = matrices(6, 9, generator, isotropic=True)
    folded = fold(multiplier, family)
    after = w - lr * UPDATES[family](w, g)
    v = folded.init * w
    v = v - folded.lr * lr * UPDATES[family](v, g / multiplier)
    torch.testing.assert_close(v, multiplier * after, rtol=1e-4, atol=1e-5)


class TestMatrixOptimizers:
    """Qiu et al., arXiv 2512.05620, Tables 1 and 2, at alpha = 1, as ratios to the base."""

    RECTANGLE = Ratios(fan_in=4, fan_out=9, depth=2)
    TABLE = {
        # optimizer: eta, epsilon, at d_in 4, d_out 9, L 2 times the base's
        "shampoo": ((9 / 4) ** 0.5, 4 / 9 / 4),  # 4 / (L^2 9)
        "shampoo-blocks": (1 / 4, (1 / (2 * 9)) ** 2),  # with 4 * 9 blocks
        "shampoo2": (1 / 2, 4 / 9 / 4),
        "spectral-unit": ((9 / 4) ** 0.5, 1 / 2 * (4 / 9) ** 0.5),  # Muon without a factor
        "soap": ((9 * 4) ** 0.5 / 4, (9 * 4) ** 0.5 / (2 * 9)),  # b_in = d_in, b_out = d_out
        "soap-blocks": (1 / 4, 1 / (2 * 9)),
        "adamuon": (1 / 4, (4 * 9) ** -0.5),
        "adam#shampoo": (1 / 4, None),
        "sgd": (9 / 4 * 2, None),
    }

    @pytest.mark.parametrize("optimizer", TABLE)
    def test_learning_rate_and_epsilon(self, optimizer):
        laws = ODE.laws(Role(kind=Kind.HIDDEN, in_branch=True), family(optimizer))
        eta, epsilon = self.TABLE[optimizer]
        assert laws.lr.at(self.RECTANGLE) == approx(eta)
        if epsilon is not None:
            assert laws.epsilon.at(self.RECTANGLE) == approx(epsilon)

    def test_shampoo_in_blocks_of_a_fixed_size(self):
        """(out/in)^(1-e) L^(1-2e) blocks^-e at e = 1/2: 1/in, whatever the depth."""
        r = self.RECTANGLE
        blocks = r.fan_in * r.fan_out
        laws = ODE.laws(Role(kind=Kind.HIDDEN, in_branch=True), family("shampoo-blocks"))
        assert laws.lr.at(r) == approx((r.fan_out / r.fan_in) ** 0.5 * blocks**-0.5)


class TestRelativeSteps:
    def test_size_is_not_counted_twice(self):
        """The weight already is m^-1/2 as large, so m^-1/2 is what is left of 1/m."""
        laws = DEPTH_MUP.laws(Role(kind=Kind.HIDDEN, in_branch=True), family("lamb"))
        assert laws.lr == Power(fan_in=-HALF, depth=-HALF)
        assert DEPTH_MUP.laws(Role(kind=Kind.READOUT), family("lamb")).lr == ONE
        assert DEPTH_MUP.laws(Role(kind=Kind.INPUT), family("lars")).lr == ONE

    def test_a_readout_with_its_own_norm_takes_the_multiplier_back(self):
        """Scion's readout already divides by its fan-in, which a multiplier would count twice."""
        scion = family("scion")
        assert ODE.laws(Role(kind=Kind.READOUT), scion).lr == ONE
        assert completep().laws(Role(kind=Kind.READOUT), scion).lr == Power(fan_in=1)


class TestNames:
    @pytest.mark.parametrize(
        ("name", "plain"),
        {
            "adamw_torch": "adamw",
            "adamw_torch_fused": "adamw",
            "adamw_torch_npu_fused": "adamw",
            "adamw_bnb_8bit": "adamw",
            "paged_adamw_32bit": "adamw",
            "adamw_torch_4bit": "adamw",
            "lion_8bit": "lion",
            "paged_lion_32bit": "lion",
            "rmsprop_bnb_32bit": "rmsprop",
            "schedule_free_adamw": "schedule-free-adamw",
            "AdEMAMix_8bit": "ademamix",
            "Stable_AdamW": "stable-adamw",
            "adagrad": "adagrad",
        }.items(),
    )
    def test_of_trainers(self, name, plain):
        assert named(name) == (plain, OPTIMIZERS[plain])

    @pytest.mark.parametrize(
        ("cls", "plain"),
        [
            (torch.optim.AdamW, "adamw"),
            (torch.optim.SGD, "sgd"),
            (torch.optim.Muon, "muon"),
            (torch.optim.RAdam, "radam"),
            (type("AdamW8bit", (), {}), "adamw"),
            (type("PagedAdamW32bit", (), {}), "adamw"),
            (type("FusedAdam", (), {}), "adamw"),
            (type("Lion", (), {}), "lion"),
        ],
    )
    def test_of_classes(self, cls, plain):
        assert named(cls) == (plain, OPTIMIZERS[plain])

    def test_torchs_adafactor_steps_in_proportion_to_the_weight(self):
        assert family(torch.optim.Adafactor) is Family.RELATIVE

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            ("adafactor", "two kinds of steps"),
            ("prodigy", "estimates one learning rate"),
            ("DAdaptAdam", "estimates one learning rate"),
            ("galore_adamw_layerwise", "low rank"),
            ("adadelta", "no scaling rule"),
            (torch.optim.LBFGS, "all parameters together"),
            (torch.optim.Adadelta, "no scaling rule"),
            (type("ForeachMuon", (), {}), r"family_of\(lambda"),
            (type("Muon", (), {}), r"family_of\(lambda"),
        ],
    )
    def test_what_has_no_rule_is_refused_with_a_reason(self, wrong, says):
        with pytest.raises(ValueError, match=says):
            family(wrong)

    def test_every_name_and_family_stands_for_itself(self):
        assert all(named(name) == (name, of) for name, of in OPTIMIZERS.items())
        assert all(named(str(f)) == (str(f), f) for f in Family)

    def test_the_scheme_of_a_plan_is_found_with_its_optimizers_name(self):
        assert scheme("completep").laws(Role(kind=Kind.HIDDEN), family("muon")).decay == ONE
