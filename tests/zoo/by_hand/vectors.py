"""Vectors, graphs, fields and tables."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.zoo.by_hand.parts import (
    MLP,
    NODES,
    PAIRS,
    POINTS,
    RANDOM,
    SOURCES,
    TARGETS,
    VOCABULARY,
    XS,
    Attn,
    Block,
    Res,
    RMSNorm,
    architecture,
)


class GNNLayer(nn.Module):
    def __init__(self, width, how):
        super().__init__()
        self.msg = nn.Linear(2 * width, width)
        self.upd = nn.Linear(2 * width, width)
        self.n = nn.LayerNorm(width)
        self.how = how
        if how == "gat":
            self.a = nn.Parameter(torch.randn(2 * width) * (2 * width) ** -0.5)

    def forward(self, x, src, dst):
        h = self.n(x)
        m = F.relu(self.msg(torch.cat([h[src], h[dst]], -1)))
        if self.how == "gat":
            e = F.leaky_relu((torch.cat([h[src], h[dst]], -1) * self.a).sum(-1)).exp()
            z = e.new_zeros(len(x)).index_add(0, dst, e)
            m = m * (e / z[dst])[:, None]
        agg = torch.zeros_like(x).index_add(0, dst, m)
        if self.how == "mean":
            agg = (
                agg
                / torch.zeros(len(x)).index_add(0, dst, torch.ones(len(dst))).clamp(min=1)[:, None]
            )
        return x + self.upd(torch.cat([h, agg], -1))


class GNN(nn.Module):
    def __init__(self, width, depth, how):
        super().__init__()
        self.inp = nn.Linear(5, width)
        self.layers = nn.ModuleList(GNNLayer(width, how) for _ in range(depth))
        self.out = nn.Linear(width, 3)

    def forward(self, x, src, dst):
        x = self.inp(x)
        for length in self.layers:
            x = length(x, src, dst)
        return self.out(x.mean(0, keepdim=True))


@architecture((NODES, SOURCES, TARGETS))
def gnn_mean(width, depth):
    return GNN(width, depth, "mean")


@architecture((NODES, SOURCES, TARGETS))
def gat(width, depth):
    return GNN(width, depth, "gat")


class EGNN(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.e = nn.Sequential(
            nn.Linear(2 * width + 1, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )
        self.c = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))
        self.n = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, h, p, src, dst):
        r = p[src] - p[dst]
        d2 = r.square().sum(-1, keepdim=True)
        m = self.e(torch.cat([h[src], h[dst], d2], -1))
        p = p + torch.zeros_like(p).index_add(0, dst, r * self.c(m))
        return h + self.n(torch.cat([h, torch.zeros_like(h).index_add(0, dst, m)], -1)), p


class EG(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.inp = nn.Linear(5, width)
        self.layers = nn.ModuleList(EGNN(width) for _ in range(depth))
        self.out = nn.Linear(width, 1)

    def forward(self, x, p, src, dst):
        h = self.inp(x)
        for length in self.layers:
            h, p = length(h, p, src, dst)
        return self.out(h).sum(0, keepdim=True), p


@architecture((NODES, torch.randn(6, 3, generator=RANDOM), SOURCES, TARGETS))
def egnn(width, depth):
    return EG(width, depth)


class Siren(nn.Module):
    def __init__(self, width, depth, res=False):
        super().__init__()
        self.f = nn.Linear(2, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.o = nn.Linear(width, 3)
        self.res = res
        with torch.no_grad():
            self.f.weight.uniform_(-0.5, 0.5)
            for length in self.layers:
                length.weight.uniform_(-((6 / width) ** 0.5) / 30, (6 / width) ** 0.5 / 30)
            self.o.weight.uniform_(-((6 / width) ** 0.5) / 30, (6 / width) ** 0.5 / 30)

    def forward(self, x):
        x = torch.sin(30 * self.f(x))
        for length in self.layers:
            x = x + torch.sin(30 * length(x)) if self.res else torch.sin(30 * length(x))
        return self.o(x)


@architecture(POINTS)
def siren_wide(width, depth):
    return Siren(width, 2)


class NeRF(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.bx = nn.Linear(width, width)
        self.by = nn.Linear(12, width)
        self.sig = nn.Linear(width, 1)
        self.f = nn.Linear(width, width)
        self.rx = nn.Linear(width, width // 2)
        self.rd = nn.Linear(8, width // 2)
        self.rgb = nn.Linear(width // 2, 3)

    def forward(self, x, dd):
        h = self.a(x)
        h = F.relu(self.bx(h) + self.by(x))
        sg = F.softplus(self.sig(h))
        h = F.relu(self.rx(self.f(h)) + self.rd(dd))
        return self.rgb(h).sigmoid(), sg


@architecture((torch.randn(4, 12, generator=RANDOM), XS))
def nerf(width, depth):
    return NeRF(width, depth)


class VAE(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.e = nn.Linear(8, width)
        self.eb = nn.ModuleList(MLP(width) for _ in range(depth))
        self.mu = nn.Linear(width, 4)
        self.lv = nn.Linear(width, 4)
        self.dd = nn.Linear(4, width)
        self.db = nn.ModuleList(MLP(width) for _ in range(depth))
        self.o = nn.Linear(width, 8)

    def forward(self, x):
        x = self.e(x)
        for b in self.eb:
            x = x + b(x)
        m, length = self.mu(x), self.lv(x)
        z = m + (0.5 * length).exp() * torch.randn_like(m)
        x = self.dd(z)
        for b in self.db:
            x = x + b(x)
        return self.o(x), m, length


@architecture(XS)
def vae(width, depth):
    return VAE(width, depth)


class DCN(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.i = nn.Linear(8, width)
        self.c = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.o = nn.Linear(width, 1)

    def forward(self, x):
        x = x0 = self.i(x)
        for c in self.c:
            x = x0 * c(x) + x
        return self.o(x)


@architecture(XS)
def dcn_cross(width, depth):
    return DCN(width, depth)


class ODE(nn.Module):
    def __init__(self, width, depth, own):
        super().__init__()
        self.i = nn.Linear(8, width)
        self.f = MLP(width, torch.tanh)
        self.depth = depth
        self.o = nn.Linear(width, 3)
        self.own = own

    def forward(self, x):
        x = self.i(x)
        for _ in range(self.depth):
            x = x + self.f(x) / (self.depth if self.own else 1)
        return self.o(x)


@architecture(XS)
def neural_ode_own_step(width, depth):
    return ODE(width, depth, True)


class KAN(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.c = nn.Parameter(torch.randn(o, i, 5) * (5 * i) ** -0.5)
        self.register_buffer("g", torch.linspace(-2, 2, 5))

    def forward(self, x):
        return torch.einsum("bif,oif->bo", torch.exp(-((x[..., None] - self.g) ** 2)), self.c)


class KANNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.i = nn.Linear(8, width)
        self.k = nn.ModuleList(KAN(width, width) for _ in range(depth))
        self.o = KAN(width, 3)

    def forward(self, x):
        x = self.i(x)
        for k in self.k:
            x = x + k(x)
        return self.o(x)


@architecture(XS)
def kan_residual(width, depth):
    return KANNet(width, depth)


class Tower2(nn.Module):
    def __init__(self, width, depth, how):
        super().__init__()
        self.u = nn.Embedding(VOCABULARY, width)
        self.i = nn.Embedding(VOCABULARY, width)
        self.ub = nn.ModuleList(MLP(width) for _ in range(depth))
        self.ib = nn.ModuleList(MLP(width) for _ in range(depth))
        self.bu = nn.Embedding(VOCABULARY, 1)
        self.how = how
        self.t = nn.Parameter(torch.tensor(math.log(10.0)))

    def forward(self, u, i):
        a, b = self.u(u), self.i(i)
        for m in self.ub:
            a = a + m(a)
        for m in self.ib:
            b = b + m(b)
        if self.how == "cos":
            return self.t.exp() * F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T
        return (a * b).sum(-1) + self.bu(u)[..., 0]


@architecture(PAIRS)
def two_towers_cos(width, depth):
    return Tower2(width, depth, "cos")


@architecture(XS)
def dueling_dqn(width, depth):
    class D(nn.Module):
        def __init__(self):
            super().__init__()
            self.i = nn.Linear(8, width)
            self.b = nn.ModuleList(MLP(width) for _ in range(depth))
            self.v = nn.Linear(width, 1)
            self.a = nn.Linear(width, 4)

        def forward(self, x):
            x = self.i(x)
            for b in self.b:
                x = x + b(x)
            a = self.a(x)
            return self.v(x) + a - a.mean(-1, keepdim=True)

    return D()


class FT(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.width = nn.Parameter(torch.randn(8, width) * width**-0.5)
        self.b = nn.Parameter(torch.zeros(8, width))
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.blocks = nn.ModuleList(Block(width, Attn(width)) for _ in range(depth))
        self.n = RMSNorm(width)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        t = x[..., None] * self.width + self.b
        t = torch.cat([self.cls.expand(len(x), -1, -1), t], 1)
        for b in self.blocks:
            t = b(t)
        return self.head(self.n(t[:, 0]))


@architecture(XS)
def ft_transformer(width, depth):
    return FT(width, depth)


class Flow(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.n = nn.ModuleList(
            nn.Sequential(
                nn.Linear(4, width),
                nn.SiLU(),
                nn.Linear(width, width),
                nn.SiLU(),
                nn.Linear(width, 8),
            )
            for _ in range(4)
        )

    def forward(self, x):
        ld = 0
        for n in self.n:
            a, b = x.chunk(2, -1)
            t, length = n(a).chunk(2, -1)
            length = torch.tanh(length)
            b = b * length.exp() + t
            ld = ld + length.sum(-1)
            x = torch.cat([b, a], -1)
        return x, ld


@architecture(XS)
def coupling_flow_wide(width, depth):
    return Flow(width, depth)


class Hyper(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.i = nn.Linear(8, width)
        self.h = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, width * width))
        self.o = nn.Linear(width, 3)
        self.width = width

    def forward(self, x, z):
        W = self.h(z).view(-1, self.width, self.width)
        x = self.i(x)
        x = F.relu(torch.bmm(W, x[..., None])[..., 0])
        return self.o(x)


@architecture((XS, torch.randn(4, 4, generator=RANDOM)))
def hypernetwork(width, depth):
    return Hyper(width, depth)


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.g = nn.Linear(width, width)


@architecture(XS)
def output_gate_gtrxl(width, depth):
    return Res(width, depth, lambda x, f, e: x + e.g(x).sigmoid() * f(x), Gate)


@architecture(XS)
def highway(width, depth):
    return Res(width, depth, lambda x, f, e: (t := e.g(x).sigmoid()) * f(x) + (1 - t) * x, Gate)


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.n = nn.LayerNorm(width)
        self.n2 = nn.LayerNorm(width)


@architecture(XS)
def peri_ln(width, depth):
    return Res(width, depth, lambda x, f, e: x + e.n2(f(e.n(x))), Norm)


@architecture(XS)
def bottleneck_fixed(width, depth):
    class F_(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.a = nn.Linear(width, 16)
            self.b = nn.Linear(16, width)

        def forward(self, x):
            return self.b(F.relu(self.a(x)))

    return Res(width, depth, lambda x, f, e: x + f(x), branch=F_)


@architecture(XS)
def hidden_fixed_stream(width, depth):  # stream fixed at 16, branch hidden width
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.i = nn.Linear(8, 16)
            self.a = nn.ModuleList(nn.Linear(16, width) for _ in range(depth))
            self.b = nn.ModuleList(nn.Linear(width, 16) for _ in range(depth))
            self.o = nn.Linear(16, 3)

        def forward(self, x):
            x = self.i(x)
            for a, b in zip(self.a, self.b, strict=False):
                x = x + b(F.relu(a(x)))
            return self.o(x)

    return M()


@architecture((XS, torch.randn(4, 6, generator=RANDOM)))
def rl_actor_critic_fixed_torso(width, depth):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.i = nn.Linear(8, width)
            self.b = nn.ModuleList(MLP(width) for _ in range(depth))
            self.c = nn.ModuleList(MLP(width) for _ in range(2))
            self.pi = nn.Linear(width, 4)
            self.v = nn.Linear(width, 1)
            self.g = nn.Linear(6, width)

        def forward(self, x, y):
            x = self.i(x)
            for b in self.b:
                x = x + b(x)
            p = self.pi(x)
            z = F.relu(self.g(y)) + x
            for b in self.c:
                z = z + b(z)
            return p, self.v(z)

    return M()


@architecture(XS)
def multi_branch_sum(width, depth):
    class F_(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.p = nn.ModuleList(MLP(width) for _ in range(3))

        def forward(self, x):
            return sum(p(x) for p in self.p)

    return Res(width, depth, lambda x, f, e: x + f(x), branch=F_)


@architecture(XS)
def stream_counted_twice(width, depth):
    return Res(width, depth, lambda x, f, _: x + (x + f(x)))


class Scaled(nn.Module):
    """Gains and shifts of a stream and of what a branch adds to it."""

    def __init__(self, width):
        super().__init__()
        self.keep, self.gain = (nn.Parameter(torch.ones(width)) for _ in range(2))
        self.moved, self.shift = (nn.Parameter(torch.zeros(width)) for _ in range(2))

    def forward(self, x, y):
        return (y + self.shift) * self.gain + (x + self.moved) * self.keep


@architecture(XS)
def stream_scaled_and_shifted(width, depth):
    return Res(width, depth, lambda x, f, e: e(x, f(x)), extra=Scaled)
