"""Thirty-nine architectures, chosen before any result, of packages and fields no other list has.

Ten of packages: torch-rechub (0.9.0: HSTU and a cross network), nbeats-pytorch (1.8.0), perceiver-
pytorch (0.11.0), conformer (0.3.2), performer-pytorch (1.1.4), stable-baselines3 (2.9.2), isab-
pytorch (0.3.0), bidirectional-cross-attention (0.1.0) and FrEIA (0.2). Twenty-nine are written as
their fields write them (``blind_models``): recommenders, graphs, points, audio, time series,
reinforcement learning, operators, diffusion, retrieval, speech, tables, proteins, state spaces,
memories, vision; and in spellings that nobody expects.
"""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from tests.zoo import blind_models as by_hand
from tests.zoo.architectures import HEAD
from tests.zoo.case import Case
from tests.zoo.fresh import _drawn, _of

_G = torch.Generator().manual_seed(0)
_Inputs = tuple[Tensor, ...]


def _ids(n: int, *shape: int) -> Tensor:
    return torch.randint(1, n, shape, generator=_G)


class _Rows(nn.Module):
    """A model of a dictionary of columns."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, ids: Tensor) -> Tensor:
        return self.inner({f"c{i}": column for i, column in enumerate(ids.T)})  # type: ignore[no-any-return]


def _hstu(w: int, d: int) -> nn.Module:
    return _of(
        "torch_rechub.models.generative.hstu.HSTUModel", vocab_size=32, d_model=w, n_layers=d,
        n_heads=w // HEAD, dqk=HEAD, dv=HEAD, max_seq_len=16, dropout=0.0,
    )  # fmt: skip


def _cross(w: int, d: int) -> nn.Module:
    feature = _of("torch_rechub.basic.features.SparseFeature")
    features = [feature(f"c{i}", vocab_size=32, embed_dim=w) for i in range(3)]
    return _Rows(
        _of(
            "torch_rechub.models.ranking.dcn_v2.DCNv2", features=features, n_cross_layers=d,
            mlp_params={"dims": [w, w], "dropout": 0.0}, low_rank=w // 4,
        )
    )  # fmt: skip


def _nbeats(w: int, d: int) -> nn.Module:
    return _of(
        "nbeats_pytorch.model.NBeatsNet", stack_types=("generic", "generic"), forecast_length=4,
        backcast_length=12, thetas_dim=(8, 8), nb_blocks_per_stack=d, hidden_layer_units=w,
    )  # fmt: skip


def _perceiver(w: int, d: int) -> nn.Module:
    return _of(
        "perceiver_pytorch.Perceiver", num_freq_bands=4, max_freq=10.0, depth=d, num_latents=8,
        latent_dim=w, latent_heads=w // HEAD, latent_dim_head=HEAD, cross_heads=w // HEAD,
        cross_dim_head=HEAD, num_classes=10, input_channels=3,
    )  # fmt: skip


class _Framed(nn.Module):
    """A first layer, what a package exports, and a last one; of several outputs the first."""

    def __init__(self, first: nn.Module, inside: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.first, self.inside, self.last = first, inside, last

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.inside(self.first(x)))  # type: ignore[no-any-return]


def _conformer(w: int, d: int) -> nn.Module:
    inside = _of(
        "conformer.Conformer", dim=w, depth=d, heads=w // HEAD, dim_head=HEAD, conv_kernel_size=7
    )
    return _Framed(nn.Linear(6, w), inside, nn.Linear(w, 4))


def _performer(w: int, d: int) -> nn.Module:
    return _of(
        "performer_pytorch.PerformerLM", num_tokens=32, max_seq_len=16, dim=w, depth=d,
        heads=w // HEAD, dim_head=HEAD, nb_features=16, generalized_attention=True,
    )  # fmt: skip


class _Policy(nn.Module):
    """The actor and the critic of stable-baselines3, as far as they are networks."""

    def __init__(self, w: int, d: int) -> None:
        super().__init__()
        space = _of("gymnasium.spaces.Box")
        self.policy = _of(
            "stable_baselines3.common.policies.ActorCriticPolicy",
            observation_space=space(-1.0, 1.0, (6,)), action_space=space(-1.0, 1.0, (2,)),
            lr_schedule=lambda _: 1e-3, net_arch={"pi": [w] * 2, "vf": [w] * 2},
        )  # fmt: skip
        del self.policy.optimizer

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        value, log_prob, _ = self.policy.evaluate_actions(x, x[:, :2])
        return value, log_prob


class _Sets(nn.Module):
    """Induced set attention, one after another, each behind a norm on a residual stream."""

    def __init__(self, w: int, d: int) -> None:
        super().__init__()
        self.inp, self.out = nn.Linear(3, w), nn.Linear(w, 4)
        self.norms = nn.ModuleList(nn.LayerNorm(w) for _ in range(d))
        self.isabs = nn.ModuleList(
            _of("isab_pytorch.ISAB", dim=w, heads=w // HEAD, num_latents=4) for _ in range(d)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.inp(x)
        for norm, isab in zip(self.norms, self.isabs, strict=True):
            x = x + isab(norm(x))[0]
        return self.out(x.mean(1))  # type: ignore[no-any-return]


class _Bidirectional(nn.Module):
    def __init__(self, w: int, d: int) -> None:
        super().__init__()
        self.video, self.audio = nn.Linear(6, w), nn.Linear(5, w)
        self.inside = _of(
            "bidirectional_cross_attention.BidirectionalCrossAttentionTransformer", dim=w, depth=d,
            context_dim=w, heads=w // HEAD, dim_head=HEAD, final_norms=True,
        )  # fmt: skip
        self.of_video, self.of_audio = nn.Linear(w, 4), nn.Linear(w, 3)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x, y = self.inside(self.video(x), self.audio(y))
        return self.of_video(x), self.of_audio(y)


class _Invertible(nn.Module):
    """Coupling blocks on six numbers, whose subnetworks are as wide as is asked."""

    def __init__(self, w: int, d: int) -> None:
        super().__init__()

        def subnet(inputs: int, outputs: int) -> nn.Module:
            return nn.Sequential(
                nn.Linear(inputs, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, outputs)
            )

        self.flow = _of("FrEIA.framework.SequenceINN")(6)
        for i in range(d):
            torch.manual_seed(i)
            self.flow.append(_of("FrEIA.modules.AllInOneBlock"), subnet_constructor=subnet)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.flow(x)  # type: ignore[no-any-return]


_PACKAGES: Mapping[str, tuple[Callable[[int, int], nn.Module], _Inputs]] = {
    "torch-rechub HSTU": (_hstu, (_ids(32, 4, 16),)),
    "torch-rechub DCNv2": (_cross, (_ids(32, 8, 3),)),
    "nbeats-pytorch": (_nbeats, (_drawn(8, 12),)),
    "perceiver-pytorch": (_perceiver, (_drawn(3, 8, 8, 3),)),
    "conformer": (_conformer, (_drawn(3, 16, 6),)),
    "performer-pytorch": (_performer, (_ids(32, 4, 16),)),
    "stable-baselines3": (_Policy, (_drawn(16, 6),)),
    "isab-pytorch": (_Sets, (_drawn(4, 12, 3),)),
    "bidirectional-cross-attention": (_Bidirectional, (_drawn(3, 8, 6), _drawn(3, 7, 5))),
    "FrEIA": (_Invertible, (_drawn(16, 6),)),
}
_GRAPH = (_drawn(3, 7, 5), (torch.rand(3, 7, 7, generator=_G) > 0.4).float() + torch.eye(7))
_HISTORY = (_drawn(3, 6, 1), _drawn(3, 6, 6), _drawn(3, 6, 2), torch.arange(6).expand(3, 6))
_PIXELS, _CELLS = _drawn(4, 3, 16, 16), _drawn(16, 8)
_BY_HAND: Mapping[str, tuple[Callable[[int, int], nn.Module], _Inputs]] = {
    "two towers": (by_hand.TwoTowers, (_ids(64, 16), _ids(64, 16))),
    "factorization machine": (by_hand.FactorizationMachine, (_ids(64, 16, 4),)),
    "dense graph": (by_hand.DenseGraph, _GRAPH),
    "GATv2": (by_hand.GATv2, (_drawn(3, 7, 5),)),
    "point cloud": (by_hand.PointCloud, (_drawn(6, 3, 12),)),
    "WaveNet": (by_hand.WaveNet, (_drawn(3, 1, 24),)),
    "vocoder": (by_hand.Vocoder, (_drawn(3, 4, 24),)),
    "temporal fusion": (by_hand.Fusion, (_drawn(4, 8, 5),)),
    "decision transformer": (by_hand.DecisionTransformer, _HISTORY),
    "DeepONet": (by_hand.DeepONet, (_drawn(8, 10), _drawn(12, 2))),
    "Fourier operator": (by_hand.Fourier, (_drawn(4, 16, 2),)),
    "PirateNet": (by_hand.Pirate, (_drawn(32, 2),)),
    "score by addcmul": (by_hand.Score, (_drawn(16, 6), torch.rand(16, generator=_G))),
    "normalized lerp": (by_hand.Interpolated, (_ids(32, 8, 6),)),
    "late interaction": (by_hand.LateInteraction, (_ids(32, 4, 5), _ids(32, 4, 9))),
    "speech": (by_hand.Speech, (_drawn(3, 32, 16),)),
    "SAINT": (by_hand.Saint, (_drawn(8, 6),)),
    "evoformer": (by_hand.Evoformer, (_ids(20, 3, 7),)),
    "LRU": (by_hand.LRU, (_drawn(6, 10, 4),)),
    "external attention": (by_hand.ExternalAttention, (_drawn(3, 12, 6),)),
    "RepVGG": (by_hand.RepVGG, (_PIXELS,)),
    "ECA": (by_hand.ECANet, (_PIXELS,)),
    "equilibrium": (by_hand.Equilibrium, (_CELLS,)),
    "addmm": (by_hand.Fused, (_CELLS,)),
    "low rank": (by_hand.LowRank, (_CELLS,)),
    "stacked sum": (by_hand.Stacked, (_CELLS,)),
    "einsum heads": (by_hand.Einsums, (_ids(32, 4, 8),)),
    "DeltaNet": (by_hand.DeltaNet, (_ids(32, 4, 8),)),
    "vector quantized": (by_hand.Quantized, (_PIXELS,)),
}


def blind() -> Iterator[Case]:
    """All of them; those of packages first."""
    for name, (make, inputs) in _PACKAGES.items():
        yield Case(package="packages", name=name, make=make, inputs=inputs)
    for name, (make, inputs) in _BY_HAND.items():
        yield Case(package="by hand", name=name, make=make, inputs=inputs)
