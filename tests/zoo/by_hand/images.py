"""Images: diffusion transformers, convolutional networks, pyramids and U-nets."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.zoo.by_hand.parts import (
    IMG,
    LABELS,
    LAT,
    MLP,
    TIMES,
    Attn,
    Block,
    RMSNorm,
    architecture,
)


def temb(t, n=32):
    f = torch.exp(-math.log(1e4) * torch.arange(n // 2) / (n // 2))
    a = t[:, None] * f
    return torch.cat([a.cos(), a.sin()], -1)


class DiTBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attn = Attn(width)
        self.mlp = MLP(width)
        self.ada = nn.Linear(width, 6 * width)
        nn.init.zeros_(self.ada.weight)
        nn.init.zeros_(self.ada.bias)

    def forward(self, x, c):
        a, b, g, depth, e, h = self.ada(F.silu(c))[:, None].chunk(6, -1)

        def n(x):
            return F.layer_norm(x, x.shape[-1:])

        x = x + g * self.attn(n(x) * (1 + a) + b)
        return x + h * self.mlp(n(x) * (1 + depth) + e)


class DiT(nn.Module):
    def __init__(self, width, depth, shared=False):
        super().__init__()
        self.inp = nn.Linear(16, width)
        self.pos = nn.Parameter(torch.randn(1, 16, width) * 0.02)
        self.t = nn.Sequential(nn.Linear(32, width), nn.SiLU(), nn.Linear(width, width))
        self.lab = nn.Embedding(10, width)
        self.blocks = nn.ModuleList(DiTBlock(width) for _ in range(depth))
        self.fada = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, 16)

    def forward(self, x, t, y):
        b = x.shape[0]
        x = x.unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5).reshape(b, 16, 16)
        x = self.inp(x) + self.pos
        c = self.t(temb(t)) + self.lab(y)
        for k in self.blocks:
            x = k(x, c)
        a, bb = self.fada(F.silu(c))[:, None].chunk(2, -1)
        return self.out(F.layer_norm(x, x.shape[-1:]) * (1 + a) + bb)


@architecture((LAT, TIMES, LABELS))
def dit(width, depth):
    return DiT(width, depth)


class DiTS(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.inp = nn.Linear(16, width)
        self.t = nn.Sequential(nn.Linear(32, width), nn.SiLU(), nn.Linear(width, width))
        self.ada = nn.Linear(width, 6 * width)
        self.tab = nn.ParameterList(
            nn.Parameter(torch.randn(6, width) / width**0.5) for _ in range(depth)
        )
        self.attn = nn.ModuleList(Attn(width) for _ in range(depth))
        self.mlp = nn.ModuleList(MLP(width) for _ in range(depth))
        self.out = nn.Linear(width, 16)

    def forward(self, x, t):
        b = x.shape[0]
        x = x.unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5).reshape(b, 16, 16)
        x = self.inp(x)
        c = self.ada(F.silu(self.t(temb(t)))).view(b, 6, -1)

        def n(x):
            return F.layer_norm(x, x.shape[-1:])

        for A, M, tab in zip(self.attn, self.mlp, self.tab, strict=False):
            a, bb, g, dd, e, h = (tab[None] + c).chunk(6, 1)
            x = x + g * A(n(x) * (1 + a) + bb)
            x = x + h * M(n(x) * (1 + dd) + e)
        return self.out(n(x))


@architecture((LAT, TIMES))
def dit_adaln_single(width, depth):
    return DiTS(width, depth)


class UViT(nn.Module):
    def __init__(self, width, depth, add=False):
        super().__init__()
        self.inp = nn.Linear(16, width)
        self.down = nn.ModuleList(Block(width, Attn(width)) for _ in range(depth))
        self.mid = Block(width, Attn(width))
        self.up = nn.ModuleList(Block(width, Attn(width)) for _ in range(depth))
        self.skip = nn.ModuleList(
            nn.Linear(2 * width if not add else width, width) for _ in range(depth)
        )
        self.out = nn.Linear(width, 16)
        self.n = RMSNorm(width)
        self.add = add

    def forward(self, x):
        b = x.shape[0]
        x = x.unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5).reshape(b, 16, 16)
        x = self.inp(x)
        st = []
        for k in self.down:
            x = k(x)
            st.append(x)
        x = self.mid(x)
        for k, length in zip(self.up, self.skip, strict=False):
            x = x + length(st.pop()) if self.add else length(torch.cat([x, st.pop()], -1))
            x = k(x)
        return self.out(self.n(x))


@architecture(LAT)
def uvit_add(width, depth):
    return UViT(width, depth, True)


@architecture(LAT)
def uvit_cat(width, depth):
    return UViT(width, depth)


class CNX(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.dw = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.n = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.dn = nn.Linear(4 * width, width)
        self.g = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x):
        y = self.dw(x).permute(0, 2, 3, 1)
        y = self.g * self.dn(F.gelu(self.up(self.n(y))))
        return x + y.permute(0, 3, 1, 2)


class CNXNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.b = nn.Sequential(*(CNX(width) for _ in range(depth)))
        self.n = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.n(self.b(self.stem(x)).mean((2, 3))))


@architecture(IMG)
def convnext_small(width, depth):
    return CNXNet(width, depth)


class RB(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.b1 = nn.BatchNorm2d(width)
        self.c2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.b2 = nn.BatchNorm2d(width)

    def forward(self, x):
        return F.relu(x + self.b2(self.c2(F.relu(self.b1(self.c1(x))))))


class Stages(nn.Module):
    def __init__(self, width, ds):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.stages = nn.ModuleList(
            nn.ModuleList(RB(width * 2**i) for _ in range(depth)) for i, depth in enumerate(ds)
        )
        self.down = nn.ModuleList(
            nn.Conv2d(width * 2**i, width * 2 ** (i + 1), 2, 2) for i in range(len(ds) - 1)
        )
        self.head = nn.Linear(width * 2 ** (len(ds) - 1), 10)

    def forward(self, x):
        x = self.stem(x)
        for i, st in enumerate(self.stages):
            for b in st:
                x = b(x)
            if i < len(self.down):
                x = self.down[i](x)
        return self.head(x.mean((2, 3)))


@architecture(IMG)
def stages_one_deepened(width, depth):
    return Stages(width, (2, depth, 2))


class FPN(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.body = Stages(width, (depth, depth, depth))
        self.lat = nn.ModuleList(nn.Conv2d(width * 2**i, width, 1) for i in range(3))
        self.o = nn.Conv2d(width, 5, 3, padding=1)

    def forward(self, x):
        x = self.body.stem(x)
        f = []
        for i, st in enumerate(self.body.stages):
            for b in st:
                x = b(x)
            f.append(x)
            if i < 2:
                x = self.body.down[i](x)
        y = self.lat[2](f[2])
        for i in (1, 0):
            y = F.interpolate(y, scale_factor=2) + self.lat[i](f[i])
        return self.o(y), self.body.head(x.mean((2, 3)))


@architecture(IMG)
def fpn(width, depth):
    return FPN(width, depth)


@architecture(IMG)
def unet_add_skips(width, depth):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.i = nn.Conv2d(3, width, 3, 1, 1)
            self.a = nn.ModuleList(RB(width) for _ in range(depth))
            self.dn = nn.Conv2d(width, 2 * width, 2, 2)
            self.m = nn.ModuleList(RB(2 * width) for _ in range(depth))
            self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
            self.c = nn.ModuleList(RB(width) for _ in range(depth))
            self.o = nn.Conv2d(width, 3, 1)

        def forward(self, x):
            x = self.i(x)
            for b in self.a:
                x = b(x)
            k = x
            x = self.dn(x)
            for b in self.m:
                x = b(x)
            x = self.up(x) + k
            for b in self.c:
                x = b(x)
            return self.o(x)

    return M()


class SE(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c = nn.Conv2d(width, width, 3, padding=1)
        self.n = nn.GroupNorm(4, width)
        self.f1 = nn.Linear(width, width // 4)
        self.f2 = nn.Linear(width // 4, width)
        self.c2 = nn.Conv2d(width, width, 1)

    def forward(self, x):
        y = self.c2(F.relu(self.n(self.c(x))))
        g = self.f2(F.relu(self.f1(y.mean((2, 3))))).sigmoid()
        return x + y * g[..., None, None]


class SENet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.i = nn.Conv2d(3, width, 3, padding=1)
        self.b = nn.ModuleList(SE(width) for _ in range(depth))
        self.o = nn.Linear(width, 10)

    def forward(self, x):
        x = self.i(x)
        for b in self.b:
            x = b(x)
        return self.o(x.mean((2, 3)))


@architecture(IMG)
def se_resnet(width, depth):
    return SENet(width, depth)


@architecture(IMG)
def autoencoder_transposed(width, depth):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.i = nn.Conv2d(3, width, 4, 2, 1)
            self.depth = nn.Conv2d(width, 2 * width, 4, 2, 1)
            self.b = nn.ModuleList(RB(2 * width) for _ in range(depth))
            self.u = nn.ConvTranspose2d(2 * width, width, 4, 2, 1)
            self.o = nn.ConvTranspose2d(width, 3, 4, 2, 1)

        def forward(self, x):
            x = F.relu(self.depth(F.relu(self.i(x))))
            for b in self.b:
                x = b(x)
            return self.o(F.relu(self.u(x)))

    return M()
