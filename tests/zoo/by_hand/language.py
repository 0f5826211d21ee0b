"""Language models: attention, embeddings, heads and sharing as people write them."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.zoo.by_hand.parts import (
    IDS,
    IMG,
    LENGTH,
    LM,
    MLP,
    VOCABULARY,
    Attn,
    Block,
    RMSNorm,
    architecture,
    causal,
    heads,
    unheads,
)


class MLA(nn.Module):
    def __init__(self, width, size=8, dr=4):
        super().__init__()
        h = width // size
        self.h, self.size, self.dr = h, size, dr
        c = width // 2
        self.dq = nn.Linear(width, c, bias=False)
        self.qn = RMSNorm(c)
        self.uq = nn.Linear(c, h * (size + dr), bias=False)
        self.dkv = nn.Linear(width, c + dr, bias=False)
        self.kn = RMSNorm(c)
        self.ukv = nn.Linear(c, h * 2 * size, bias=False)
        self.o = nn.Linear(h * size, width, bias=False)

    def forward(self, x):
        b, length, _width = x.shape
        q = (
            self.uq(self.qn(self.dq(x)))
            .view(b, length, self.h, self.size + self.dr)
            .transpose(1, 2)
        )
        c, kr = self.dkv(x).split([x.shape[-1] // 2, self.dr], -1)
        kv = self.ukv(self.kn(c)).view(b, length, self.h, 2 * self.size).transpose(1, 2)
        k, v = kv.chunk(2, -1)
        kr = kr[:, None].expand(b, self.h, length, self.dr)
        k = torch.cat([k, kr], -1)
        a = (q @ k.transpose(-1, -2)) / math.sqrt(self.size + self.dr)
        a = a.masked_fill(~causal(length), float("-inf")).softmax(-1)
        return self.o((a @ v).transpose(1, 2).reshape(b, length, -1))


@architecture(IDS)
def mla(width, depth):
    return LM(width, depth, MLA)


@architecture(IDS)
def mla_heads_grow(width, depth):
    return LM(width, depth, lambda width: MLA(width, size=width // 2, dr=4))


class Sink(nn.Module):
    def __init__(self, width, size):
        super().__init__()
        self.size = size
        self.qkv = nn.Linear(width, 3 * width)
        self.o = nn.Linear(width, width)
        self.sink = nn.Parameter(torch.zeros(width // size))

    def forward(self, x):
        length = x.shape[1]
        q, k, v = (heads(t, self.size) for t in self.qkv(x).chunk(3, -1))
        a = q @ k.transpose(-1, -2) * self.size**-0.5
        i = torch.arange(length)
        m = (i[:, None] >= i) & (i[:, None] - i < 4)
        a = a.masked_fill(~m, float("-inf"))
        a = torch.cat(
            [a, self.sink.view(1, -1, 1, 1).expand(a.shape[0], -1, length, 1)], -1
        ).softmax(-1)[..., :-1]
        return self.o(unheads(a @ v))


@architecture(IDS)
def sink(width, depth):
    return LM(width, depth, lambda width: Sink(width, 8))


class Alibi(nn.Module):
    def __init__(self, width, size):
        super().__init__()
        self.size = size
        self.qkv = nn.Linear(width, 3 * width)
        self.o = nn.Linear(width, width)
        h = width // size
        self.register_buffer("m", 2.0 ** (-8 * torch.arange(1, h + 1) / h))

    def forward(self, x):
        length = x.shape[1]
        q, k, v = (heads(t, self.size) for t in self.qkv(x).chunk(3, -1))
        i = torch.arange(length)
        a = (
            q @ k.transpose(-1, -2) / self.size**0.5
            - self.m[:, None, None] * (i[:, None] - i).abs()
        )
        return self.o(unheads(a.masked_fill(~causal(length), float("-inf")).softmax(-1) @ v))


@architecture(IDS)
def alibi_heads_grow(width, depth):
    return LM(width, depth, lambda width: Alibi(width, width // 2))


class QKN(nn.Module):
    def __init__(self, width, size, full):
        super().__init__()
        self.size = size
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.full = full
        self.qn, self.kn = (RMSNorm(width if full else size) for _ in range(2))

    def forward(self, x):
        q, k = self.q(x), self.k(x)
        q, k = (
            (heads(self.qn(q), self.size), heads(self.kn(k), self.size))
            if self.full
            else (self.qn(heads(q, self.size)), self.kn(heads(k, self.size)))
        )
        return self.o(
            unheads(
                F.scaled_dot_product_attention(q, k, heads(self.v(x), self.size), is_causal=True)
            )
        )


@architecture(IDS)
def qk_norm_full(width, depth):
    return LM(width, depth, lambda width: QKN(width, width // 2, True))


@architecture(IDS)
def qk_norm_head(width, depth):
    return LM(width, depth, lambda width: QKN(width, width // 2, False))


class Softcap(nn.Module):
    def __init__(self, width, size):
        super().__init__()
        self.size = size
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x):
        length = x.shape[1]
        q, k, v = (heads(f(x), self.size) for f in (self.q, self.k, self.v))
        a = q * self.size**-0.5 @ k.transpose(-1, -2)
        a = 50 * torch.tanh(a / 50)
        return self.o(unheads(a.masked_fill(~causal(length), float("-inf")).softmax(-1) @ v))


class CapLM(LM):
    def forward(self, ids):
        x = self.emb(ids) * self.emb.weight.shape[1] ** 0.5
        for b in self.blocks:
            x = b(x)
        y = self.head(self.norm(x))
        return 30 * torch.tanh(y / 30)


@architecture(IDS)
def softcap_tied(width, depth):
    return CapLM(width, depth, lambda width: Softcap(width, width // 2), tied=True)


class VRAttn(nn.Module):
    def __init__(self, width, first):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        if not first:
            self.lam = nn.Parameter(torch.tensor(0.5))
        self.first = first

    def forward(self, x, v0):
        v = self.v(x)
        if v0 is None:
            v0 = v
        else:
            v = self.lam * v + (1 - self.lam) * v0
        q, k, v = (heads(t) for t in (self.q(x), self.k(x), v))
        return self.o(unheads(F.scaled_dot_product_attention(q, k, v, is_causal=True))), v0


class VRLM(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.emb = nn.Embedding(VOCABULARY, width)
        self.attn = nn.ModuleList(VRAttn(width, i == 0) for i in range(depth))
        self.mlp = nn.ModuleList(MLP(width) for _ in range(depth))
        self.n1 = nn.ModuleList(RMSNorm(width) for _ in range(depth))
        self.n2 = nn.ModuleList(RMSNorm(width) for _ in range(depth))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        x = self.emb(ids)
        v0 = None
        for a, m, n1, n2 in zip(self.attn, self.mlp, self.n1, self.n2, strict=False):
            y, v0 = a(n1(x), v0)
            x = x + y
            x = x + m(n2(x))
        return self.head(self.norm(x))


@architecture(IDS)
def value_residual(width, depth):
    return VRLM(width, depth)


class VEAttn(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.lam = nn.Parameter(torch.tensor([0.5, 0.5]))

    def forward(self, x, ve):
        v = self.lam[0] * self.v(x) + self.lam[1] * ve
        q, k = (F.rms_norm(heads(t), (8,)) for t in (self.q(x), self.k(x)))
        return self.o(
            unheads(F.scaled_dot_product_attention(q, k, heads(v), is_causal=True, scale=0.12))
        )


class VELM(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.emb = nn.Embedding(VOCABULARY, width)
        self.ve = nn.ModuleList(nn.Embedding(VOCABULARY, width) for _ in range(depth))
        self.attn = nn.ModuleList(VEAttn(width) for _ in range(depth))
        self.mlp = nn.ModuleList(MLP(width, lambda x: F.relu(x).square()) for _ in range(depth))
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids):
        def n(x):
            return F.rms_norm(x, (x.shape[-1],))

        x = n(self.emb(ids))
        for a, m, ve in zip(self.attn, self.mlp, self.ve, strict=False):
            x = x + a(n(x), ve(ids))
            x = x + m(n(x))
        return 30 * torch.tanh(self.head(n(x)) / 30)


@architecture(IDS)
def value_embeddings(width, depth):
    return VELM(width, depth)


class PLE(nn.Module):
    def __init__(self, width, p=8):
        super().__init__()
        self.n1 = RMSNorm(width)
        self.mix = Attn(width)
        self.n2 = RMSNorm(width)
        self.mlp = MLP(width)
        self.gate = nn.Linear(width, p, bias=False)
        self.proj = nn.Linear(p, width, bias=False)
        self.pn = RMSNorm(width)

    def forward(self, x, e):
        x = x + self.mix(self.n1(x))
        x = x + self.mlp(self.n2(x))
        return x + self.pn(self.proj(F.gelu(self.gate(x)) * e))


class PLELM(nn.Module):
    def __init__(self, width, depth, p=8):
        super().__init__()
        self.emb = nn.Embedding(VOCABULARY, width)
        self.ple = nn.Embedding(VOCABULARY, depth * p)
        self.blocks = nn.ModuleList(PLE(width, p) for _ in range(depth))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.p = p

    def forward(self, ids):
        x = self.emb(ids)
        e = self.ple(ids).view(*ids.shape, len(self.blocks), self.p)
        for i, b in enumerate(self.blocks):
            x = b(x, e[:, :, i])
        return self.head(self.norm(x))


@architecture(IDS)
def per_layer_embeddings(width, depth):
    return PLELM(width, depth)


class MTP(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.emb = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, Attn(width)) for _ in range(depth))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.mp = nn.Linear(2 * width, width, bias=False)
        self.mn1 = RMSNorm(width)
        self.mn2 = RMSNorm(width)
        self.mblock = Block(width, Attn(width))
        self.mnorm = RMSNorm(width)

    def forward(self, ids):
        x = self.emb(ids)
        for b in self.blocks:
            x = b(x)
        y = self.head(self.norm(x))
        h = self.mp(torch.cat([self.mn1(x[:, :-1]), self.mn2(self.emb(ids[:, 1:]))], -1))
        return y, self.head(self.mnorm(self.mblock(h)))


@architecture(IDS)
def multi_token(width, depth):
    return MTP(width, depth)


class Medusa(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.emb = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, Attn(width)) for _ in range(depth))
        self.norm = RMSNorm(width)
        self.med = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.heads = nn.ModuleList(nn.Linear(width, VOCABULARY, bias=False) for _ in range(3))

    def forward(self, ids):
        x = self.emb(ids)
        for b in self.blocks:
            x = b(x)
        x = self.norm(x)
        return torch.stack(
            [h(x + F.silu(m(x))) for h, m in zip(self.heads, self.med, strict=False)]
        )


@architecture(IDS)
def medusa(width, depth):
    return Medusa(width, depth)


class LoRA(nn.Module):
    def __init__(self, i, o, r=4, alpha=8, freeze=True):
        super().__init__()
        self.base = nn.Linear(i, o, bias=False)
        self.A = nn.Parameter(torch.randn(r, i) / i**0.5)
        self.B = nn.Parameter(torch.zeros(o, r))
        self.sc = alpha / r
        self.base.weight.requires_grad_(not freeze)

    def forward(self, x):
        return self.base(x) + (x @ self.A.T @ self.B.T) * self.sc


class LoraMLP(nn.Module):
    def __init__(self, width, freeze):
        super().__init__()
        self.up = LoRA(width, 4 * width, freeze=freeze)
        self.down = LoRA(4 * width, width, freeze=freeze)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


@architecture(IDS)
def lora_trained(width, depth):
    return LM(width, depth, lambda width: LoraMLP(width, False))


class MoE(nn.Module):
    def __init__(self, width, e=4, k=2):
        super().__init__()
        self.router = nn.Linear(width, e, bias=False)
        self.up = nn.Parameter(torch.randn(e, width, 2 * width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(e, 2 * width, width) * (2 * width) ** -0.5)
        self.shared = MLP(width)
        self.sg = nn.Linear(width, 1)
        self.k = k
        self.e = e
        self.register_buffer("bias", torch.zeros(e))

    def forward(self, x):
        g = self.router(x).sigmoid()
        top = (g + self.bias).topk(self.k, -1).indices
        wt = g.gather(-1, top)
        wt = wt / wt.sum(-1, keepdim=True)
        full = torch.zeros_like(g).scatter(-1, top, wt)
        h = F.silu(torch.einsum("blw,ewh->bleh", x, self.up))
        y = torch.einsum("bleh,ehw->blew", h, self.down)
        return (y * full[..., None]).sum(-2) + self.sg(x).sigmoid() * self.shared(x)


@architecture(IDS)
def moe_shared_sigmoid(width, depth):
    return LM(width, depth, MoE)


class Albert(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.emb = nn.Embedding(VOCABULARY, 8)
        self.up = nn.Linear(8, width)
        self.block = Block(width, Attn(width))
        self.depth = depth
        self.n = RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        x = self.up(self.emb(ids))
        for _ in range(self.depth):
            x = self.block(x)
        return self.head(self.n(x))


@architecture(IDS)
def albert_tied_layers(width, depth):
    return Albert(width, depth)


class Exit(nn.Module):
    def __init__(self, width, depth, shared):
        super().__init__()
        self.emb = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, Attn(width)) for _ in range(depth))
        self.n = RMSNorm(width)
        self.heads = nn.ModuleList(
            nn.Linear(width, VOCABULARY) for _ in range(1 if shared else depth)
        )

    def forward(self, ids):
        x = self.emb(ids)
        out = []
        for i, b in enumerate(self.blocks):
            x = b(x)
            out.append(self.heads[min(i, len(self.heads) - 1)](self.n(x)))
        return torch.stack(out)


@architecture(IDS)
def early_exit_shared(width, depth):
    return Exit(width, depth, True)


class Diff(nn.Module):
    def __init__(self, width, size=8):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.layers = nn.ParameterList(nn.Parameter(torch.randn(size // 2) * 0.1) for _ in range(4))
        self.n = RMSNorm(size)
        self.size = size

    def forward(self, x):
        q, k, v = (heads(length(x), self.size) for length in (self.q, self.k, self.v))
        q1, q2 = q.chunk(2, -1)
        k1, k2 = k.chunk(2, -1)
        sc = (self.size // 2) ** -0.5
        m = causal(x.shape[1])
        a = [
            (a @ b.transpose(-1, -2) * sc).masked_fill(~m, float("-inf")).softmax(-1)
            for a, b in ((q1, k1), (q2, k2))
        ]
        lam = (
            (self.layers[0] * self.layers[1]).sum().exp()
            - (self.layers[2] * self.layers[3]).sum().exp()
            + 0.8
        )
        return self.o(unheads(self.n((a[0] - lam * a[1]) @ v) * 0.2))


@architecture(IDS)
def diff_attention_heads_grow(width, depth):
    return LM(width, depth, lambda width: Diff(width, width // 2))


class ZeroCentered(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)


class GAttn(nn.Module):
    def __init__(self, width, size):
        super().__init__()
        self.q = nn.Linear(width, 2 * width, bias=False)
        self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.qn, self.kn = ZeroCentered(size), ZeroCentered(size)
        self.size = size

    def forward(self, x):
        q, g = self.q(x).chunk(2, -1)
        q, k = self.qn(heads(q, self.size)), self.kn(heads(self.k(x), self.size))
        return self.o(
            unheads(
                F.scaled_dot_product_attention(q, k, heads(self.v(x), self.size), is_causal=True)
            )
            * g.sigmoid()
        )


@architecture(IDS)
def gated_attention_zero_centered_heads_grow(width, depth):
    return LM(width, depth, lambda width: GAttn(width, width // 2))


class YOCO(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.emb = nn.Embedding(VOCABULARY, width)
        self.a = nn.ModuleList(Block(width, Attn(width)) for _ in range(depth))
        self.n = RMSNorm(width)
        self.k = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, width, bias=False)
        self.q = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
        self.o = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
        self.nq = nn.ModuleList(RMSNorm(width) for _ in range(depth))
        self.m = nn.ModuleList(MLP(width) for _ in range(depth))
        self.fn = RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        x = self.emb(ids)
        for b in self.a:
            x = b(x)
        h = self.n(x)
        k, v = heads(self.k(h)), heads(self.v(h))
        for q, o, n, m in zip(self.q, self.o, self.nq, self.m, strict=False):
            x = x + o(unheads(F.scaled_dot_product_attention(heads(q(n(x))), k, v, is_causal=True)))
            x = x + m(x)
        return self.head(self.fn(x))


@architecture(IDS)
def yoco(width, depth):
    return YOCO(width, depth)


class Canon(nn.Module):
    def __init__(self, width, mixer=None):
        super().__init__()
        self.c = nn.Conv1d(width, width, 4, groups=width, padding=3)
        self.n = RMSNorm(width)
        self.a = Attn(width)
        self.m = MLP(width)
        self.n2 = RMSNorm(width)

    def forward(self, x):
        h = self.n(x)
        h = h + self.c(h.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
        x = x + self.a(h)
        return x + self.m(self.n2(x))


@architecture(IDS)
def canon(width, depth):
    return LM(width, depth, lambda width: None, block=lambda width, _: Canon(width))


class Pool(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.emb = nn.Embedding(VOCABULARY, width)
        self.b = nn.ModuleList(Block(width, Attn(width)) for _ in range(depth))
        self.q = nn.Parameter(torch.randn(width) * width**-0.5)
        self.v = nn.Linear(width, width)
        self.o = nn.Linear(width, 5)

    def forward(self, ids):
        x = self.emb(ids)
        for b in self.b:
            x = b(x)
        a = (x @ self.q).softmax(-1)
        return self.o((a[..., None] * self.v(x)).sum(1))


@architecture(IDS)
def attention_pool(width, depth):
    return Pool(width, depth)


class Biaff(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.emb = nn.Embedding(VOCABULARY, width)
        self.b = nn.ModuleList(Block(width, Attn(width)) for _ in range(depth))
        self.h = nn.Linear(width, width)
        self.dd = nn.Linear(width, width)
        self.U = nn.Parameter(torch.zeros(width, width))
        self.bh = nn.Linear(width, 1)

    def forward(self, ids):
        x = self.emb(ids)
        for b in self.b:
            x = b(x)
        h, t = F.relu(self.h(x)), F.relu(self.dd(x))
        return h @ self.U @ t.transpose(1, 2) + self.bh(h).transpose(1, 2)


@architecture(IDS)
def biaffine(width, depth):
    return Biaff(width, depth)


@architecture(IDS)
def memory_layer_keys_grow(width, depth):
    class P(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.q = nn.Linear(width, width)
            self.k = nn.Parameter(torch.randn(8, width) * width**-0.5)
            self.v = nn.Parameter(torch.randn(8, width))

        def forward(self, x):
            return F.relu(self.q(x) @ self.k.T) @ self.v

    return LM(width, depth, P)


@architecture(IDS)
def prefix_kv_each_layer(width, depth):
    class A(Attn):
        def __init__(self, width):
            super().__init__(width)
            self.pk = nn.Parameter(torch.randn(2, width))
            self.pv = nn.Parameter(torch.randn(2, width))

        def forward(self, x):
            q, k, v = self.q(x), self.k(x), self.v(x)
            b = len(x)
            k = torch.cat([self.pk.expand(b, -1, -1), k], 1)
            v = torch.cat([self.pv.expand(b, -1, -1), v], 1)
            return self.o(unheads(F.scaled_dot_product_attention(heads(q), heads(k), heads(v))))

    return LM(width, depth, A)


@architecture(IDS)
def bert_mlm_head_tied(width, depth):
    class M(LM):
        def __init__(self):
            super().__init__(width, depth, Attn, tied=True)
            self.t = nn.Linear(width, width)
            self.tn = nn.LayerNorm(width)
            self.bias = nn.Parameter(torch.zeros(VOCABULARY))
            self.pos = nn.Embedding(LENGTH, width)

        def forward(self, ids):
            x = self.emb(ids) + self.pos.weight[: ids.shape[1]]
            for b in self.blocks:
                x = b(x)
            return self.head(self.tn(F.gelu(self.t(x)))) + self.bias

    return M()


@architecture(IDS)
def titans_memory_tokens(width, depth):
    class M(LM):
        def __init__(self):
            super().__init__(width, depth, Attn)
            self.mem = nn.Parameter(torch.randn(3, width) * 0.02)

        def forward(self, ids):
            x = torch.cat([self.mem.expand(len(ids), -1, -1), self.emb(ids)], 1)
            for b in self.blocks:
                x = b(x)
            return self.head(self.norm(x[:, 3:]))

    return M()


class Cross(nn.Module):
    def __init__(self, width, dk=8):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.nq = RMSNorm(width)
        self.nk = RMSNorm(width)
        self.dk = dk

    def forward(self, q, kv):
        q = self.nq(q)
        kv = self.nk(kv)
        return self.o(
            unheads(
                F.scaled_dot_product_attention(
                    heads(self.q(q), self.dk),
                    heads(self.k(kv), self.dk),
                    heads(self.v(kv), self.dk),
                )
            )
        )


@architecture((IDS, IMG))
def vision_language_projector(width, depth):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Conv2d(3, width, 4, 4)
            self.v = nn.ModuleList(Block(width, Attn(width)) for _ in range(2))
            self.vn = RMSNorm(width)
            self.pr = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
            self.e = nn.Embedding(VOCABULARY, width)
            self.b = nn.ModuleList(Block(width, Attn(width)) for _ in range(depth))
            self.n = RMSNorm(width)
            self.o = nn.Linear(width, VOCABULARY)

        def forward(self, ids, im):
            v = self.p(im).flatten(2).transpose(1, 2)
            for k in self.v:
                v = k(v)
            x = torch.cat([self.pr(self.vn(v)), self.e(ids)], 1)
            for k in self.b:
                x = k(x)
            return self.o(self.n(x))

    return M()


@architecture((IDS, IDS))
def encoder_fixed_decoder_deep(width, depth):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(VOCABULARY, width)
            self.enc = nn.ModuleList(Block(width, Attn(width)) for _ in range(2))
            self.dec = nn.ModuleList(Block(width, Attn(width)) for _ in range(depth))
            self.x = nn.ModuleList(Cross(width) for _ in range(depth))
            self.n = RMSNorm(width)
            self.o = nn.Linear(width, VOCABULARY)

        def forward(self, a, b):
            m = self.e(a)
            for k in self.enc:
                m = k(m)
            m = self.n(m)
            y = self.e(b)
            for k, x in zip(self.dec, self.x, strict=False):
                y = k(y)
                y = y + x(y, m)
            return self.o(y)

    return M()


class HC(nn.Module):
    def __init__(self, width, mixer, n=2):
        super().__init__()
        self.n1 = RMSNorm(width)
        self.mix = mixer
        self.pre = nn.Parameter(torch.ones(n) / n)
        self.post = nn.Parameter(torch.ones(n))
        self.res = nn.Parameter(torch.eye(n))

    def forward(self, h):  # [n,b,length,width]
        x = torch.einsum("n,nblw->blw", self.pre, h)
        y = self.mix(self.n1(x))
        return torch.einsum("mn,nblw->mblw", self.res, h) + self.post[:, None, None, None] * y


class HCLM(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.emb = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(
            HC(width, (Attn if i % 2 == 0 else MLP)(width)) for i in range(2 * depth)
        )
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        h = self.emb(ids)[None].expand(2, -1, -1, -1)
        for b in self.blocks:
            h = b(h)
        return self.head(self.norm(h.sum(0)))


@architecture(IDS)
def hyper_connections(width, depth):
    return HCLM(width, depth)


class MoD(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.emb = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, Attn(width)) for _ in range(depth))
        self.r = nn.ModuleList(nn.Linear(width, 1) for _ in range(depth))
        self.n = RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        x = self.emb(ids)
        for b, r in zip(self.blocks, self.r, strict=False):
            wt = r(x).squeeze(-1)
            top = wt.topk(4, dim=1)
            idx = top.indices.sort(1).values
            ix = idx[..., None].expand(-1, -1, x.shape[-1])
            sel = x.gather(1, ix)
            y = b(sel) - sel
            g = wt.gather(1, idx).sigmoid()[..., None]
            x = x.scatter_add(1, ix, g * y)
        return self.head(self.n(x))


@architecture(IDS)
def mixture_of_depths(width, depth):
    return MoD(width, depth)


@architecture(IDS)
def gqa_groups_grow(width, depth):
    class A(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.q = nn.Linear(width, width)
            self.k = nn.Linear(width, 16)
            self.v = nn.Linear(width, 16)
            self.o = nn.Linear(width, width)

        def forward(self, x):
            q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
            r = q.shape[1] // 2
            k, v = k.repeat_interleave(r, 1), v.repeat_interleave(r, 1)
            return self.o(unheads(F.scaled_dot_product_attention(q, k, v, is_causal=True)))

    return LM(width, depth, A)


class Crossed(nn.Module):
    """A stream that attends to another tensor."""

    def __init__(self, width):
        super().__init__()
        self.n, self.m = RMSNorm(width), RMSNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x, y):
        y = self.m(y)
        q, k, v = heads(self.q(self.n(x))), heads(self.k(y)), heads(self.v(y))
        return x + self.o(unheads(F.scaled_dot_product_attention(q, k, v)))


class Induced(nn.Module):
    """Learned points collect what the tokens attend to: their stream lies in one branch."""

    def __init__(self, width, _):
        super().__init__()
        self.points = nn.Parameter(torch.randn(4, width))
        self.gather, self.spread = Crossed(width), Crossed(width)

    def forward(self, x):
        return self.spread(x, self.gather(self.points.expand(len(x), -1, -1), x))


@architecture(IDS)
def inducing_points(width, depth):
    return LM(width, depth, lambda width: None, block=Induced)


class Windowed(nn.Module):
    """Attention within windows, or to everything, with a table of as many positions."""

    def __init__(self, width, window):
        super().__init__()
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.rel, self.window = nn.Parameter(torch.randn(2 * window - 1, 8)), window

    def forward(self, x):
        windows = x.reshape(-1, self.window, x.shape[-1])
        q, k, v = map(heads, self.qkv(windows).chunk(3, -1))
        places = torch.arange(self.window)
        rel = self.rel[places[:, None] - places + self.window - 1]
        logits = (q @ k.transpose(-1, -2) + torch.einsum("bhqc,qkc->bhqk", q, rel)) / 8**0.5
        return self.o(unheads(logits.softmax(-1) @ v)).view_as(x)


class Neck(nn.Module):
    """Few coordinates, normalized by hand."""

    def __init__(self, width):
        super().__init__()
        self.neck, self.head = nn.Linear(width, 8, bias=False), nn.Linear(8, VOCABULARY)

    def forward(self, x):
        x = self.neck(x)
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        return self.head((x - mean) / torch.sqrt(variance + 1e-6))


@architecture(IDS)
def windows_and_everything(width, depth):
    blocks = (Block(width, Windowed(width, LENGTH if i == 1 else 2)) for i in range(depth))
    return nn.Sequential(nn.Embedding(VOCABULARY, width), *blocks, Neck(width))


class Stack(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width, Attn(width)) for _ in range(depth)))
        self.norm = RMSNorm(width)

    def forward(self, x):
        return self.norm(self.blocks(x))


class TwoLoops(nn.Module):
    """Two stacks of unique blocks, of which a loop runs one and a loop around it the other."""

    def __init__(self, width, depth):
        super().__init__()
        self.emb, self.head = nn.Embedding(VOCABULARY, width), nn.Linear(width, VOCABULARY)
        self.fast, self.slow = Stack(width, depth), Stack(width, depth)

    def forward(self, ids):
        slow = self.emb(ids)
        fast = torch.zeros_like(slow)
        for _ in range(2):
            for _ in range(3):
                fast = self.fast(fast + slow)
            slow = self.slow(slow + fast)
        return self.head(slow)


@architecture(IDS)
def two_loops(width, depth):
    return TwoLoops(width, depth)
