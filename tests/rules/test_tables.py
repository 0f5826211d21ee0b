"""The published tables, row by row, as oracles."""

from math import sqrt

import pytest
from pytest import approx

from depthmup.rules import (
    CATALOGUE,
    COMPLETE_DP,
    Family,
    Kind,
    Ratios,
    Role,
    completep,
    family,
    fold,
    scheme,
)

M, R = 4.0, 2.0
SQUARE = Ratios(fan_in=M, fan_out=M, depth=R)
OUT_ONLY = Ratios(fan_out=M, depth=R)
IN_ONLY = Ratios(fan_in=M, depth=R)

INPUT, HIDDEN, READOUT, VECTOR = (Role(kind=kind) for kind in Kind)
HIDDEN_IN_BRANCH = Role(kind=Kind.HIDDEN, in_branch=True)
VECTOR_IN_BRANCH = Role(kind=Kind.VECTOR, in_branch=True)
TIED = Role(kind=Kind.READOUT, tied=True)
AT = {Kind.INPUT: OUT_ONLY, Kind.HIDDEN: SQUARE, Kind.READOUT: IN_ONLY, Kind.VECTOR: OUT_ONLY}


def factors(name, optimizer, role, at=None):
    laws = scheme(name).laws(role, family(optimizer))
    at = at or AT[role.kind]
    return {
        quantity: getattr(laws, quantity).at(at)
        for quantity in ("init", "forward", "lr", "epsilon", "decay")
    }


class TestWidth:
    """The muP table; at depth ratio 1 every scheme built on it agrees."""

    TABLE = {
        # role: init, forward, raw lr, entrywise lr, epsilon
        INPUT: (1, 1, M, 1, 1 / M),
        HIDDEN: (M**-0.5, 1, 1, 1 / M, 1 / M),
        READOUT: (1 / M, 1, 1 / M, 1 / M, 1),
        TIED: (1, 1 / M, M, 1, 1 / M),
        VECTOR: (1, 1, M, 1, 1 / M),
    }

    @pytest.mark.parametrize("name", ["depth-mup", "ode", "block-multiplier", "complete-dp"])
    @pytest.mark.parametrize("role", TABLE, ids=str)
    def test_mup(self, name, role):
        init, forward, raw, entrywise, epsilon = self.TABLE[role]
        sgd, adam = factors(name, "sgd", role), factors(name, "adam", role)
        assert (sgd["init"], sgd["forward"], sgd["lr"]) == approx((init, forward, raw))
        assert (adam["init"], adam["forward"], adam["lr"]) == approx((init, forward, entrywise))
        assert adam["epsilon"] == approx(epsilon)

    def test_rectangular_hidden_matrices(self):
        at = Ratios(fan_in=2, fan_out=8)
        assert factors("depth-mup", "sgd", HIDDEN, at)["lr"] == 8 / 2
        assert factors("depth-mup", "adam", HIDDEN, at)["lr"] == 1 / 2
        assert factors("depth-mup", "adam", HIDDEN, at)["epsilon"] == 1 / 8
        assert factors("depth-mup", "adam", HIDDEN, at)["init"] == approx(2**-0.5)

    def test_spectral(self):
        assert factors("ode", "muon", HIDDEN)["lr"] == 1
        assert factors("ode", "muon-rms", HIDDEN)["lr"] == approx(M**-0.5)
        for role in (INPUT, READOUT, VECTOR):  # these go to the entrywise optimizer beside it
            assert factors("ode", "muon", role) == factors("ode", "adam", role)

    def test_attention_logits(self):
        grown_head = Ratios(fan_in=M)
        assert scheme("depth-mup").width.attention_logits.at(grown_head) == approx(M**-0.5)
        assert scheme("depth-mup").width.attention_logits.at(Ratios()) == 1

    def test_standard_parametrization_scales_no_learning_rate(self):
        for role in (INPUT, HIDDEN, READOUT, VECTOR, HIDDEN_IN_BRANCH):
            for optimizer in ("sgd", "adam", "muon"):
                assert factors("sp", optimizer, role)["lr"] == 1
        assert factors("sp", "adam", READOUT)["init"] == approx(M**-0.5)


class TestDepth:
    """Depth factors of every parameter inside a branch."""

    TABLE = {
        # scheme: branch, entrywise and spectral lr, raw lr, epsilon, as exponents of r
        "depth-mup": (-1 / 2, -1 / 2, 0, -1 / 2),
        "ode": (-1, 0, 1, -1),
        "completep": (-1, 0, 1, -1),
        "block-multiplier": (-1 / 2, 0, 1 / 2, -1 / 2),
        "sp": (0, 0, 0, 0),
        "mup": (0, 0, 0, 0),
        "3/4,1/4": (-3 / 4, -1 / 4, 1 / 2, -3 / 4),
        "2/3,-1/5": (-2 / 3, 1 / 5, 2 / 3 + 1 / 5, -2 / 3),
    }

    @pytest.mark.parametrize("name", TABLE)
    def test_inside_a_branch(self, name):
        branch, entrywise, raw, epsilon = self.TABLE[name]
        at = Ratios(depth=R)
        assert scheme(name).branch.at(at) == approx(R**branch)
        for role in (HIDDEN_IN_BRANCH, VECTOR_IN_BRANCH):
            assert factors(name, "adam", role, at)["lr"] == approx(R**entrywise)
            assert factors(name, "sgd", role, at)["lr"] == approx(R**raw)
            assert factors(name, "adam", role, at)["epsilon"] == approx(R**epsilon)
            assert factors(name, "adam", role, at)["init"] == 1
        assert factors(name, "muon", HIDDEN_IN_BRANCH, at)["lr"] == approx(R**entrywise)

    @pytest.mark.parametrize("name", TABLE)
    @pytest.mark.parametrize("role", [INPUT, HIDDEN, READOUT, TIED, VECTOR], ids=str)
    def test_outside_branches_nothing_depends_on_depth(self, name, role):
        for optimizer in ("sgd", "adam", "muon"):
            assert set(factors(name, optimizer, role, Ratios(depth=R)).values()) == {1.0}


class TestDecay:
    def test_decoupled_decay_keeps_lr_times_decay(self):
        hidden = factors("depth-mup", "adamw", HIDDEN_IN_BRANCH)
        assert hidden["decay"] == approx(M * R**0.5)
        assert hidden["decay"] * hidden["lr"] == approx(1)

    def test_vectors_keep_the_users_decay(self):
        assert factors("depth-mup", "adamw", VECTOR_IN_BRANCH)["decay"] == 1


class TestPublished:
    def test_tp6_table_2(self):
        """Init variance 1, n^-1, n^-2 and c = 0, 1, 1 for input, hidden, output."""
        assert [factors("depth-mup", "adam", r)["init"] ** 2 for r in (INPUT, HIDDEN, READOUT)] == (
            approx([1, 1 / M, 1 / M**2])
        )
        assert [factors("depth-mup", "adam", r)["lr"] for r in (INPUT, HIDDEN, READOUT)] == (
            approx([1, 1 / M, 1 / M])
        )

    def test_tp6_table_1(self):
        """a/sqrt(L) for both; the learning rate is constant for SGD, 1/sqrt(L) for Adam."""
        at = Ratios(depth=9)
        assert scheme("depth-mup").branch.at(at) == approx(1 / 3)
        assert factors("depth-mup", "sgd", HIDDEN_IN_BRANCH, at)["lr"] == 1
        assert factors("depth-mup", "adam", HIDDEN_IN_BRANCH, at)["lr"] == approx(1 / 3)

    def test_tp5_table_8(self):
        tied_sgd, tied_adam = factors("mup", "sgd", READOUT), factors("mup", "adam", READOUT)
        assert (tied_sgd["init"], tied_sgd["forward"], tied_sgd["lr"]) == (1, 1 / M, M)
        assert (tied_adam["init"], tied_adam["forward"], tied_adam["lr"]) == (1, 1 / M, 1)

    def test_microsoft_mup_as_coded(self):
        """Base 16 -> 64, lr 1, decay 0.1."""
        hidden = factors("mup", "adamw", HIDDEN)
        assert (hidden["lr"], 0.1 * hidden["decay"]) == approx((0.25, 0.4))
        for role in (INPUT, READOUT, VECTOR):
            others = factors("mup", "adamw", role)
            assert (others["lr"], 0.1 * others["decay"]) == approx((1, 0.1))
            vectors = factors("mup", "sgd", role)
            assert (vectors["lr"], 0.1 * vectors["decay"]) == approx((4, 0.025))
        assert (factors("mup", "sgd", HIDDEN)["lr"], factors("mup", "sgd", HIDDEN)["decay"]) == (
            approx((1, 1))
        )

    def test_completep_example(self):
        """m=4, r=2, lr 1e-3, decay 0.1 at alpha = 1 and 1/2."""
        one = factors("completep", "adamw", HIDDEN_IN_BRANCH)
        assert (1e-3 * one["lr"], 0.1 * one["decay"], one["epsilon"]) == approx(
            (2.5e-4, 0.4, 1 / 8)
        )
        assert scheme("completep").branch.at(SQUARE) == 0.5

        half = completep("1/2")
        hidden = half.laws(HIDDEN_IN_BRANCH, Family.ENTRYWISE)
        vector = half.laws(VECTOR_IN_BRANCH, Family.ENTRYWISE)
        assert 1e-3 * hidden.lr.at(SQUARE) == approx(1.768e-4, rel=1e-3)
        assert 1e-3 * vector.lr.at(OUT_ONLY) == approx(7.07e-4, rel=1e-3)
        assert half.branch.at(SQUARE) == approx(0.7071, rel=1e-4)
        assert hidden.epsilon.at(SQUARE) == approx(0.1768, rel=1e-3)
        assert hidden.decay.at(SQUARE) == M

    def test_completep_outside_branches(self):
        """Logits 1/m with the readout unscaled; epsilon unscaled outside residual blocks."""
        readout, embedding = (factors("completep", "adamw", r) for r in (READOUT, INPUT))
        assert readout == {"init": 1, "forward": 1 / M, "lr": 1, "epsilon": 1, "decay": 1}
        assert embedding == {"init": 1, "forward": 1, "lr": 1, "epsilon": 1, "decay": 1}

    def test_complete_dp(self):
        embedding, readout = (factors("complete-dp", "adamw", r) for r in (INPUT, READOUT))
        assert embedding["epsilon"] == 1 / M
        assert readout == {"init": 1 / M, "forward": 1, "lr": 1 / M, "epsilon": 1, "decay": M}

    def test_complete_dp_batch_and_duration(self):
        at = Ratios(batch=8, duration=2)
        run = factors("complete-dp", "adamw", HIDDEN_IN_BRANCH, at)
        assert (run["lr"], run["decay"], run["epsilon"]) == approx((2, 2, 1 / 2))
        assert scheme("complete-dp").run.one_minus_beta.at(at) == approx(4)

    def test_spectral_width_depth_condition(self):
        """Blocks of two matrices and more: AdamW eta/m, 1/(m r), m; Muon eta; Kimi eta/sqrt(m)."""
        adamw = factors("ode", "adamw", HIDDEN_IN_BRANCH)
        assert (adamw["lr"], adamw["epsilon"], adamw["decay"]) == approx((1 / M, 1 / (M * R), M))
        assert factors("ode", "muon", HIDDEN_IN_BRANCH)["lr"] == 1
        assert factors("ode", "muon-rms", HIDDEN_IN_BRANCH)["lr"] == approx(1 / sqrt(M))

    def test_umup_in_the_residual_stack(self):
        """alpha = 1/2 and learning rate depth^-1/2 on everything in the stack."""
        at = Ratios(depth=R)
        assert scheme("depth-mup").branch.at(at) == approx(R**-0.5)
        for role in (HIDDEN_IN_BRANCH, VECTOR_IN_BRANCH):
            assert factors("depth-mup", "adam", role, at)["lr"] == approx(R**-0.5)


class TestFold:
    """The abc-symmetry table."""

    A = 0.3

    @pytest.mark.parametrize(
        ("optimizer", "lr", "epsilon", "decay"),
        [
            ("sgd", A**2, 1 / A, A**-2),
            ("adamw", A, 1 / A, 1 / A),
            ("muon", A, 1 / A, 1 / A),
        ],
    )
    def test_factors(self, optimizer, lr, epsilon, decay):
        folded = fold(self.A, family(optimizer))
        assert folded.init == self.A
        assert (folded.lr, folded.epsilon, folded.decay) == approx((lr, epsilon, decay))

    @pytest.mark.parametrize("optimizer", ["sgd", "adam"])
    def test_folding_the_readout_multiplier_gives_the_absorbed_form(self, optimizer):
        """Two rows of the muP table are the same rule: theory, not a convention."""
        absorbed = factors("depth-mup", optimizer, READOUT)
        multiplier = factors("mup", optimizer, READOUT)
        folded = fold(multiplier["forward"], family(optimizer))
        for quantity in ("init", "lr", "epsilon", "decay"):
            assert multiplier[quantity] * getattr(folded, quantity) == approx(absorbed[quantity])

    @pytest.mark.parametrize("wrong", [0.0, -0.5, float("nan"), float("inf")])
    def test_refuses_what_cannot_be_folded(self, wrong):
        with pytest.raises(ValueError, match="positive and finite"):
            fold(wrong, Family.RAW)


class TestNames:
    def test_every_scheme_is_found_by_its_name(self):
        assert [scheme(s.name) for s in CATALOGUE] == list(CATALOGUE)

    def test_every_scheme_names_its_source(self):
        assert all("arXiv" in s.source or "Table" in s.source for s in CATALOGUE)

    @pytest.mark.parametrize("wrong", ["depth_mup!", "", "1,2,3", "nope"])
    def test_unknown_scheme(self, wrong):
        with pytest.raises(ValueError, match=r"Expected a scheme \(sp, mup, depth-mup"):
            scheme(wrong)

    def test_exponents_that_are_no_numbers(self):
        with pytest.raises(ValueError, match="Expected alpha to be a rational number"):
            scheme("x,1/2")

    def test_unknown_optimizer(self):
        with pytest.raises(ValueError, match="name its family"):
            family("adamish")

    def test_roles_that_cannot_be(self):
        with pytest.raises(ValueError, match="must be in a branch"):
            Role(kind=Kind.HIDDEN, last=True)
        with pytest.raises(ValueError, match="Only a readout can be tied"):
            Role(kind=Kind.HIDDEN, tied=True)


class TestSharedByAllBranches:
    """One weight in all L branches: its gradient is the sum of L gradients of size L^-alpha."""

    SHARED = Role(kind=Kind.HIDDEN, in_branch=True, shared=True)

    @pytest.mark.parametrize(("name", "alpha", "gamma"), [("depth-mup", 0.5, 0.5), ("ode", 1, 0)])
    def test_gradient_is_r_times_that_of_one_branch(self, name, alpha, gamma):
        at = Ratios(depth=R)
        assert factors(name, "adam", self.SHARED, at)["epsilon"] == approx(R ** (1 - alpha))
        assert factors(name, "adam", self.SHARED, at)["lr"] == approx(R**-gamma)
        assert factors(name, "sgd", self.SHARED, at)["lr"] == approx(R ** (alpha - gamma - 1))

    @pytest.mark.parametrize("name", ["sp", "mup"])
    def test_schemes_without_a_depth_rule_leave_it_alone(self, name):
        for optimizer in ("sgd", "adam"):
            assert set(factors(name, optimizer, self.SHARED, Ratios(depth=R)).values()) == {1.0}

    def test_only_parameters_of_branches_are_shared_by_them(self):
        with pytest.raises(ValueError, match="must be in a branch"):
            Role(kind=Kind.HIDDEN, shared=True)


class TestHyperP:
    """arXiv 2603.28743 Table 1: 1/sqrt(d) on every group, no factor of width."""

    @pytest.mark.parametrize("optimizer", ["muonh", "adamh"])
    def test_learning_rates(self, optimizer):
        at = Ratios(fan_in=4, fan_out=4, depth=9)
        for kind in Kind:
            for inside in (False, True):
                role = Role(kind=kind, in_branch=inside)
                assert factors("hyperp", optimizer, role, at)["lr"] == approx(1 / 3), role

    def test_initial_scale_and_branches(self):
        at = Ratios(fan_in=4, fan_out=4, depth=9)
        hidden = Role(kind=Kind.HIDDEN, in_branch=True)
        assert factors("hyperp", "muonh", hidden, at)["init"] == approx(1 / 2)
        assert scheme("hyperp").branch.at(at) == approx(1 / 3)

    def test_batch_and_duration(self):
        """Their code: eta0 sqrt(B/B0) (T/t0)^-0.32."""
        at = Ratios(batch=4, duration=10)
        role = Role(kind=Kind.HIDDEN, in_branch=True)
        assert factors("hyperp", "muonh", role, at)["lr"] == approx(2 * 10**-0.32)


class TestSpellings:
    @pytest.mark.parametrize(
        ("spelling", "name"),
        [
            ("depth_mup", "depth-mup"),
            ("Depth muP", "depth-mup"),
            ("Depth-\N{GREEK SMALL LETTER MU}P", "depth-mup"),
            ("complete-p", "completep"),
            ("muP", "mup"),
            ("\N{GREEK SMALL LETTER MU}P", "mup"),
            ("\N{MICRO SIGN}P", "mup"),
            ("Complete(d)P", "complete-dp"),
            ("completed-p", "complete-dp"),
            ("standard", "sp"),
            ("block_multiplier", "block-multiplier"),
        ],
    )
    def test_what_people_type_names_the_scheme(self, spelling, name):
        assert scheme(spelling).name == name

    def test_a_typo_gets_a_suggestion(self):
        with pytest.raises(ValueError, match=r"Did you mean completep or complete-dp\?"):
            scheme("completpe")
        with pytest.raises(ValueError, match=r"got 'zebra'\.$"):
            scheme("zebra")


@pytest.mark.parametrize("alpha", ["1/4", "5/4"])
def test_alphas_that_completep_does_not_have(alpha):
    with pytest.raises(ValueError, match=r"in \[1/2, 1\]; got"):
        scheme(f"completep-{alpha}")


def test_averages_move_with_the_run():
    laws = COMPLETE_DP.run
    assert laws.betas((0.9, 0.999), Ratios(batch=4)) == (0.6, 0.996)
    # 1 - beta of 1e-13 is not 0, and an average over less than a step is that step.
    assert laws.betas((0.9, 0.999), Ratios(duration=1e10))[1] < 1
    assert laws.betas((0.9, 0.999), Ratios(batch=64))[0] == 0
