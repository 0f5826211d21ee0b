"""Layers with a state: linear attention, state spaces, gates, long convolutions."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.zoo.by_hand.parts import (
    IDS,
    LM,
    VOCABULARY,
    Attn,
    RMSNorm,
    architecture,
    heads,
    unheads,
)


class DeltaNet(nn.Module):
    def __init__(self, width, size=8):
        super().__init__()
        self.h = width // size
        self.size = size
        self.q, self.k, self.v, self.g, self.o = (
            nn.Linear(width, width, bias=False) for _ in range(5)
        )
        self.b = nn.Linear(width, self.h, bias=False)
        self.a = nn.Linear(width, self.h, bias=False)
        self.A_log = nn.Parameter(torch.zeros(self.h))
        self.dt = nn.Parameter(torch.ones(self.h))
        self.norm = RMSNorm(size)
        self.conv = nn.Conv1d(width, width, 4, groups=width, padding=3, bias=False)

    def forward(self, x):
        length = x.shape[1]
        q, k, v = (
            heads(f(x), self.size)
            for f in (
                self.q,
                self.k,
                lambda x: F.silu(
                    self.conv(self.v(x).transpose(1, 2))[..., :length].transpose(1, 2)
                ),
            )
        )
        q = F.normalize(F.silu(q), dim=-1)
        k = F.normalize(F.silu(k), dim=-1)
        beta = self.b(x).sigmoid().transpose(1, 2)
        g = (-self.A_log.exp() * F.softplus(self.a(x) + self.dt)).exp().transpose(1, 2)
        S = q.new_zeros(x.shape[0], self.h, self.size, self.size)
        out = []
        for t in range(length):
            S = S * g[:, :, t, None, None]
            pred = (S * k[:, :, t, :, None]).sum(-2)
            dv = (v[:, :, t] - pred) * beta[:, :, t, None]
            S = S + k[:, :, t, :, None] * dv[:, :, None, :]
            out.append((S * q[:, :, t, :, None]).sum(-2))
        o = self.norm(torch.stack(out, 2))
        return self.o(unheads(o) * F.silu(self.g(x)))


@architecture(IDS)
def deltanet(width, depth):
    return LM(width, depth, DeltaNet)


class RetNet(nn.Module):
    def __init__(self, width, size):
        super().__init__()
        self.size = size
        self.h = width // size
        self.q, self.k, self.v, self.g, self.o = (
            nn.Linear(width, width, bias=False) for _ in range(5)
        )
        self.gn = nn.GroupNorm(self.h, width)

    def forward(self, x):
        length = x.shape[1]
        q, k, v = (heads(f(x), self.size) for f in (self.q, self.k, self.v))
        k = k * self.size**-0.5
        g = 1 - 2.0 ** (-5 - torch.arange(self.h))
        i = torch.arange(length)
        D = torch.where(i[:, None] >= i, g[:, None, None] ** (i[:, None] - i).clamp(min=0), 0.0)
        a = (q @ k.transpose(-1, -2)) * D
        y = unheads(a @ v)
        return self.o(F.silu(self.g(x)) * self.gn(y.flatten(0, 1)).view_as(y))


@architecture(IDS)
def retnet_heads_grow(width, depth):
    return LM(width, depth, lambda width: RetNet(width, width // 2))


class SSM(nn.Module):
    def __init__(self, width, size=8, n=4):
        super().__init__()
        e = 2 * width
        self.h = e // size
        self.size = size
        self.n = n
        self.inp = nn.Linear(width, 2 * e + 2 * n + self.h, bias=False)
        self.conv = nn.Conv1d(e + 2 * n, e + 2 * n, 4, groups=e + 2 * n, padding=3)
        self.A = nn.Parameter(torch.log(torch.arange(1, self.h + 1).float()))
        self.D = nn.Parameter(torch.ones(self.h))
        self.dt = nn.Parameter(torch.zeros(self.h))
        self.norm = RMSNorm(e)
        self.out = nn.Linear(e, width, bias=False)
        self.e = e

    def forward(self, x):
        b, length, _ = x.shape
        z, xbc, dt = self.inp(x).split([self.e, self.e + 2 * self.n, self.h], -1)
        xbc = F.silu(self.conv(xbc.transpose(1, 2))[..., :length].transpose(1, 2))
        u, B, C = xbc.split([self.e, self.n, self.n], -1)
        u = u.view(b, length, self.h, self.size)
        dt = F.softplus(dt + self.dt)
        a = torch.exp(-dt * self.A.exp())
        S = x.new_zeros(b, self.h, self.size, self.n)
        ys = []
        for t in range(length):
            S = (
                S * a[:, t, :, None, None]
                + (dt[:, t, :, None] * u[:, t])[..., None] * B[:, t, None, None, :]
            )
            ys.append((S * C[:, t, None, None, :]).sum(-1) + self.D[:, None] * u[:, t])
        y = torch.stack(ys, 1).reshape(b, length, -1)
        return self.out(self.norm(y * F.silu(z)))


@architecture(IDS)
def mamba2(width, depth):
    return LM(width, depth, SSM)


class TMix(nn.Module):
    def __init__(self, width, size=8):
        super().__init__()
        self.mu = nn.Parameter(torch.rand(3, width))
        self.r, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.w0 = nn.Parameter(torch.linspace(-6, -1, width))
        self.w1 = nn.Linear(width, 4, bias=False)
        self.w2 = nn.Linear(4, width, bias=False)
        self.u = nn.Parameter(torch.rand(width))
        self.gn = nn.GroupNorm(width // size, width)
        self.size = size

    def forward(self, x):
        b, length, width = x.shape
        p = F.pad(x, (0, 0, 1, -1))
        r, k, v = (
            f(x + (p - x) * m) for f, m in zip((self.r, self.k, self.v), self.mu, strict=False)
        )
        dec = torch.exp(-torch.exp(self.w0 + self.w2(torch.tanh(self.w1(x)))))

        def H(t):
            return t.view(b, length, -1, self.size)

        r, k, v, dec = map(H, (r, k, v, dec))
        u = self.u.view(-1, self.size)
        S = x.new_zeros(b, width // self.size, self.size, self.size)
        out = []
        for t in range(length):
            kv = k[:, t, :, :, None] * v[:, t, :, None, :]
            out.append((r[:, t, :, None, :] @ (S + u[..., None] * kv))[..., 0, :])
            S = S * dec[:, t, :, :, None] + kv
        y = torch.stack(out, 1).reshape(b * length, width)
        return self.o(self.gn(y).view(b, length, width))


@architecture(IDS)
def rwkv6(width, depth):
    return LM(width, depth, TMix)


class RGLRU(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.i = nn.Linear(width, width)
        self.a = nn.Linear(width, width)
        self.lam = nn.Parameter(torch.rand(width))
        self.o = nn.Linear(width, width)
        self.g = nn.Linear(width, width)

    def forward(self, x):
        i = self.i(x).sigmoid()
        la = -8 * F.softplus(self.lam) * self.a(x).sigmoid()
        a = la.exp()
        u = i * x * torch.sqrt(1 - a * a + 1e-6)
        h = torch.zeros_like(x[:, 0])
        out = []
        for t in range(x.shape[1]):
            h = a[:, t] * h + u[:, t]
            out.append(h)
        return self.o(torch.stack(out, 1) * F.gelu(self.g(x)))


@architecture(IDS)
def rg_lru(width, depth):
    return LM(width, depth, RGLRU)


class GRUHand(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.emb = nn.Embedding(VOCABULARY, width)
        self.x = nn.Linear(width, 3 * width)
        self.h = nn.Linear(width, 3 * width, bias=False)
        self.o = nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        x = self.emb(ids)
        h = x.new_zeros(x.shape[0], x.shape[-1])
        out = []
        for t in range(x.shape[1]):
            xr, xz, xn = self.x(x[:, t]).chunk(3, -1)
            hr, hz, hn = self.h(h).chunk(3, -1)
            r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
            n = torch.tanh(xn + r * hn)
            h = (1 - z) * n + z * h
            out.append(h)
        return self.o(torch.stack(out, 1))


@architecture(IDS)
def gru_by_hand(width, depth):
    return GRUHand(width, depth)


class Hyena(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inp = nn.Linear(width, 3 * width)
        self.f = nn.Sequential(nn.Linear(5, 16), nn.SiLU(), nn.Linear(16, width))
        self.out = nn.Linear(width, width)
        self.D = nn.Parameter(torch.randn(width))

    def forward(self, x):
        _b, length, _width = x.shape
        q, k, v = self.inp(x).chunk(3, -1)
        t = torch.linspace(0, 1, length, dtype=x.dtype)[:, None]
        pe = torch.cat([t] + [torch.sin(2 * math.pi * t * i) for i in range(1, 5)], -1)
        h = self.f(pe) * torch.exp(-t)
        u = k * v
        U = torch.fft.rfft(u.transpose(1, 2), n=2 * length)
        H = torch.fft.rfft(h.T, n=2 * length)
        y = torch.fft.irfft(U * H, n=2 * length)[..., :length].transpose(1, 2) + u * self.D
        return self.out(q * y)


@architecture(IDS)
def hyena(width, depth):
    return LM(width, depth, Hyena)


class Hymba(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a = Attn(width)
        self.i = nn.Linear(width, 2 * width)
        self.c = nn.Conv1d(width, width, 3, groups=width, padding=2)
        self.o = nn.Linear(width, width)
        self.n1 = RMSNorm(width)
        self.n2 = RMSNorm(width)

    def forward(self, x):
        u, z = self.i(x).chunk(2, -1)
        y = self.o(F.silu(self.c(u.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)) * F.silu(z))
        return 0.5 * (self.n1(self.a(x)) + self.n2(y))


@architecture(IDS)
def hymba(width, depth):
    return LM(width, depth, Hymba)
