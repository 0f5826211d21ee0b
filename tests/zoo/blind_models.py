"""Twenty-nine architectures in the spellings of many hands: each field writes its own way."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm


class Tower(nn.Module):
    """Recommender: one side of two, residual layers on an embedding."""

    def __init__(self, n, w, d):
        super().__init__()
        self.table = nn.Embedding(n, w)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(w), nn.Linear(w, 2 * w), nn.ReLU(), nn.Linear(2 * w, w))
            for _ in range(d)
        )
        self.head = nn.Linear(w, w)

    def forward(self, i):
        x = self.table(i)
        for f in self.layers:
            x = f(x) + x
        return self.head(x)


class TwoTowers(nn.Module):
    def __init__(self, w, d):
        super().__init__()
        self.user, self.item = Tower(64, w, d), Tower(64, w, d)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, u, i):
        u, i = self.user(u), self.item(i)
        return (u * i).sum(-1) / math.sqrt(u.shape[-1]) + self.bias


class FactorizationMachine(nn.Module):
    """DeepFM: second-order products of all fields by the square of their sum, beside layers."""

    def __init__(self, w, d, fields=4):
        super().__init__()
        self.v, self.b = nn.Embedding(64, w), nn.Embedding(64, 1)
        self.first = nn.Linear(fields * w, w)
        self.deep = nn.ModuleList(nn.Linear(w, w) for _ in range(d))
        self.out = nn.Linear(w, 1)

    def forward(self, ids):
        v = self.v(ids)
        pairs = 0.5 * (v.sum(1).square() - v.square().sum(1)).sum(-1, keepdim=True)
        h = self.first(v.flatten(1))
        for layer in self.deep:
            h = h + F.gelu(layer(F.layer_norm(h, h.shape[-1:])))
        return self.b(ids).sum(1) + pairs + self.out(h)


class DenseGraph(nn.Module):
    """Graph convolution over a dense adjacency, every weight in a list and in one einsum."""

    def __init__(self, w, d):
        super().__init__()
        self.enter = nn.Parameter(torch.randn(5, w) / 5**0.5)
        self.ws = nn.ParameterList(torch.randn(2, w, w) / w**0.5 for _ in range(d))
        self.gs = nn.ParameterList(torch.ones(w) for _ in range(d))
        self.exit = nn.Parameter(torch.randn(w, 3) / w**0.5)

    def forward(self, x, a):
        a = torch.stack([torch.eye(a.shape[-1]).expand_as(a), a / a.sum(-1, keepdim=True)], 1)
        h = x @ self.enter
        for w, g in zip(self.ws, self.gs, strict=True):
            y = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-5) * g
            h = h + F.silu(torch.einsum("brnm,bmi,rio->bno", a, y, w))
        return h.mean(1) @ self.exit


class GATv2Layer(nn.Module):
    def __init__(self, w, size=8):
        super().__init__()
        self.h, self.s = w // size, size
        self.norm = nn.LayerNorm(w)
        self.left, self.right = nn.Linear(w, w), nn.Linear(w, w)
        self.att = nn.Parameter(torch.empty(1, 1, 1, self.h, size))
        nn.init.xavier_uniform_(self.att)
        self.out = nn.Linear(w, w)

    def forward(self, x):
        b, n, _ = x.shape
        y = self.norm(x)
        left = self.left(y).view(b, n, 1, self.h, self.s)
        right = self.right(y).view(b, 1, n, self.h, self.s)
        scores = (F.leaky_relu(left + right, 0.2) * self.att).sum(-1).softmax(2)
        return x + self.out((scores[..., None] * right).sum(2).flatten(2))


class GATv2(nn.Module):
    def __init__(self, w, d):
        super().__init__()
        self.inp = nn.Linear(5, w)
        self.layers = nn.Sequential(*[GATv2Layer(w) for _ in range(d)])
        self.out = nn.Linear(w, 3)

    def forward(self, x):
        return self.out(self.layers(self.inp(x)))


class PointLayer(nn.Module):
    """Each point sees itself and the maximum over all points, which is concatenated."""

    def __init__(self, w):
        super().__init__()
        self.bn = nn.BatchNorm1d(w)
        self.conv1, self.conv2 = nn.Conv1d(2 * w, w, 1), nn.Conv1d(w, w, 1)

    def forward(self, x):
        y = self.bn(x)
        top = y.max(dim=2, keepdim=True).values.expand_as(y)
        return x + self.conv2(F.relu(self.conv1(torch.cat([y, top], dim=1))))


class PointCloud(nn.Module):
    def __init__(self, w, d):
        super().__init__()
        self.stem = nn.Conv1d(3, w, 1)
        for i in range(d):
            setattr(self, f"layer{i}", PointLayer(w))
        self.d = d
        self.head = nn.Linear(w, 10)

    def forward(self, x):
        x = self.stem(x)
        for i in range(self.d):
            x = getattr(self, f"layer{i}")(x)
        return self.head(x.amax(-1))


class WaveNet(nn.Module):
    """Audio: gated dilated convolutions, a residual and a skip path whose sum is read."""

    def __init__(self, w, d):
        super().__init__()
        self.start = nn.Conv1d(1, w, 1)
        self.gates = nn.ModuleList(nn.Conv1d(w, 2 * w, 2, dilation=2 ** (i % 4)) for i in range(d))
        self.res = nn.ModuleList(nn.Conv1d(w, w, 1) for _ in range(d))
        self.skip = nn.ModuleList(nn.Conv1d(w, w, 1) for _ in range(d))
        self.end1, self.end2 = nn.Conv1d(w, w, 1), nn.Conv1d(w, 8, 1)

    def forward(self, x):
        x, total = self.start(x), 0
        for i, (g, r, s) in enumerate(zip(self.gates, self.res, self.skip, strict=True)):
            a, b = g(F.pad(x, (2 ** (i % 4), 0))).chunk(2, 1)
            h = torch.tanh(a) * torch.sigmoid(b)
            total = total + s(h)
            x = x + r(h)
        return self.end2(F.relu(self.end1(F.relu(total))))


class Vocoder(nn.Module):
    """Audio: residual stacks with torch's weight norm, as in HiFi-GAN, without upsampling."""

    def __init__(self, w, d):
        super().__init__()
        self.pre = weight_norm(nn.Conv1d(4, w, 7, padding=3))
        self.convs = nn.ModuleList(weight_norm(nn.Conv1d(w, w, 3, padding=1)) for _ in range(d))
        self.post = nn.Conv1d(w, 1, 7, padding=3)

    def forward(self, x):
        x = self.pre(x)
        for c in self.convs:
            x = c(F.leaky_relu(x, 0.1)) + x
        return torch.tanh(self.post(F.leaky_relu(x)))


class GatedResidual(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.fc1, self.fc2, self.gate = nn.Linear(w, w), nn.Linear(w, w), nn.Linear(w, 2 * w)
        self.norm = nn.LayerNorm(w)

    def forward(self, x):
        return self.norm(x + F.glu(self.gate(self.fc2(F.elu(self.fc1(x))))))


class Fusion(nn.Module):
    """Time series: variables weighted by a softmax, then post-norm gated residual networks."""

    def __init__(self, w, d, variables=5):
        super().__init__()
        self.each = nn.ModuleList(nn.Linear(1, w) for _ in range(variables))
        self.select = nn.Linear(variables * w, variables)
        self.lstm = nn.LSTM(w, w, batch_first=True)
        self.grns = nn.Sequential(*[GatedResidual(w) for _ in range(d)])
        self.quantiles = nn.Linear(w, 3)

    def forward(self, x):
        parts = torch.stack([f(x[..., i : i + 1]) for i, f in enumerate(self.each)], -2)
        share = F.softmax(self.select(parts.flatten(-2)), -1)
        h, _ = self.lstm((share.unsqueeze(-1) * parts).sum(-2))
        return self.quantiles(self.grns(h))


class _SelfAttention(nn.Module):
    def __init__(self, w, causal=False, size=8):
        super().__init__()
        self.h, self.causal = w // size, causal
        self.qkv, self.o = nn.Linear(w, 3 * w), nn.Linear(w, w)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.o(y.transpose(1, 2).reshape(b, t, w))


class _Layer(nn.Module):
    def __init__(self, w, causal=False):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(w), nn.LayerNorm(w)
        self.attn = _SelfAttention(w, causal)
        self.ff = nn.Sequential(nn.Linear(w, 4 * w), nn.GELU(), nn.Linear(4 * w, w))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.ff(self.ln2(x))


class DecisionTransformer(nn.Module):
    """Reinforcement learning: returns, states and actions interleaved, a head for each."""

    def __init__(self, w, d):
        super().__init__()
        self.time = nn.Embedding(16, w)
        self.ret, self.state, self.action = nn.Linear(1, w), nn.Linear(6, w), nn.Linear(2, w)
        self.ln = nn.LayerNorm(w)
        self.blocks = nn.ModuleList(_Layer(w, causal=True) for _ in range(d))
        self.act = nn.Sequential(nn.Linear(w, 2), nn.Tanh())
        self.next, self.value = nn.Linear(w, 6), nn.Linear(w, 1)

    def forward(self, r, s, a, t):
        e = self.time(t)
        x = torch.stack([self.ret(r) + e, self.state(s) + e, self.action(a) + e], 2)
        b, n = t.shape
        x = self.ln(x.reshape(b, 3 * n, -1))
        for block in self.blocks:
            x = block(x)
        x = x.reshape(b, n, 3, -1)
        return self.act(x[:, :, 1]), self.next(x[:, :, 2]), self.value(x[:, :, 2])


class _Sin(nn.Module):
    def __init__(self, n, w, d):
        super().__init__()
        self.enter = nn.Linear(n, w)
        self.layers = nn.ModuleList(nn.Linear(w, w) for _ in range(d))
        self.leave = nn.Linear(w, w)

    def forward(self, x):
        x = self.enter(x)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.leave(x)


class DeepONet(nn.Module):
    """Operators: a function by its values, a place, and the product of what two networks give."""

    def __init__(self, w, d):
        super().__init__()
        self.branch, self.trunk = _Sin(10, w, d), _Sin(2, w, d)
        self.b0 = nn.Parameter(torch.tensor(0.0))

    def forward(self, u, y):
        return torch.einsum("bp,np->bn", self.branch(u), self.trunk(y)) + self.b0


class Fourier(nn.Module):
    """Operators: weights for each mode are complex, beside a pointwise convolution."""

    def __init__(self, w, d, modes=4):
        super().__init__()
        self.modes = modes
        self.lift, self.project = nn.Linear(2, w), nn.Linear(w, 1)
        self.spectral = nn.ParameterList(
            torch.rand(w, w, modes, dtype=torch.cfloat) / w for _ in range(d)
        )
        self.point = nn.ModuleList(nn.Conv1d(w, w, 1) for _ in range(d))

    def forward(self, x):
        x = self.lift(x).transpose(1, 2)
        for r, c in zip(self.spectral, self.point, strict=True):
            f = torch.fft.rfft(x)
            g = torch.zeros_like(f)
            g[:, :, : self.modes] = torch.einsum("bim,iom->bom", f[:, :, : self.modes], r)
            x = x + F.gelu(torch.fft.irfft(g, n=x.shape[-1]) + c(x))
        return self.project(x.transpose(1, 2))


class Pirate(nn.Module):
    """Physics: PirateNet, gates of the input and a learned share of each block."""

    def __init__(self, w, d):
        super().__init__()
        self.embed = nn.Linear(2, w)
        self.u, self.v = nn.Linear(w, w), nn.Linear(w, w)
        self.blocks = nn.ModuleList(
            nn.ModuleList([nn.Linear(w, w), nn.Linear(w, w), nn.Linear(w, w)]) for _ in range(d)
        )
        self.alphas = nn.ParameterList(torch.tensor(0.1) for _ in range(d))
        self.out = nn.Linear(w, 1)

    def forward(self, x):
        x = torch.sin(self.embed(x))
        u, v = torch.tanh(self.u(x)), torch.tanh(self.v(x))
        for (f, g, h), a in zip(self.blocks, self.alphas, strict=True):
            y = torch.tanh(f(x))
            z = y * u + (1 - y) * v
            y = torch.tanh(g(z))
            z = y * u + (1 - y) * v
            x = a * torch.tanh(h(z)) + (1 - a) * x
        return self.out(x)


class Score(nn.Module):
    """Diffusion on a table: scale and shift from the time by addcmul, residual by add's alpha."""

    def __init__(self, w, d):
        super().__init__()
        self.freqs = nn.Buffer(torch.exp(torch.linspace(0, 3, 8)))
        self.time = nn.Sequential(nn.Linear(16, w), nn.SiLU(), nn.Linear(w, w))
        self.inp, self.out = nn.Linear(6, w), nn.Linear(w, 6)
        self.mods = nn.ModuleList(nn.Linear(w, 2 * w) for _ in range(d))
        self.up = nn.ModuleList(nn.Linear(w, 2 * w) for _ in range(d))
        self.down = nn.ModuleList(nn.Linear(2 * w, w) for _ in range(d))

    def forward(self, x, t):
        t = t[:, None] * self.freqs
        c = self.time(torch.cat([t.sin(), t.cos()], -1))
        x = self.inp(x)
        for mod, up, down in zip(self.mods, self.up, self.down, strict=True):
            scale, shift = mod(F.silu(c)).chunk(2, -1)
            y = torch.addcmul(shift, F.layer_norm(x, x.shape[-1:]), 1 + scale)
            x = torch.add(x, down(F.silu(up(y))), alpha=0.5)
        return self.out(x)


class Interpolated(nn.Module):
    """A stream of constant length: between itself and the block's output, then normalized."""

    def __init__(self, w, d):
        super().__init__()
        self.embed = nn.Embedding(32, w)
        self.up = nn.ModuleList(nn.Linear(w, 4 * w, bias=False) for _ in range(d))
        self.down = nn.ModuleList(nn.Linear(4 * w, w, bias=False) for _ in range(d))
        self.head = nn.Linear(w, 32)

    def forward(self, ids):
        x = F.rms_norm(self.embed(ids), (self.embed.embedding_dim,))
        for up, down in zip(self.up, self.down, strict=True):
            y = F.rms_norm(down(F.relu(up(x)).square()), x.shape[-1:])
            x = F.rms_norm(torch.lerp(x, y, 0.3), x.shape[-1:])
        return self.head(x.mean(1))


class LateInteraction(nn.Module):
    """Retrieval: one encoder for queries and documents, the best token of each, summed."""

    def __init__(self, w, d):
        super().__init__()
        self.tok, self.pos = nn.Embedding(32, w), nn.Embedding(12, w)
        self.encoder = nn.ModuleList(_Layer(w) for _ in range(d))
        self.norm, self.project = nn.LayerNorm(w), nn.Linear(w, 16, bias=False)

    def encode(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for layer in self.encoder:
            x = layer(x)
        return F.normalize(self.project(self.norm(x)), dim=-1)

    def forward(self, q, doc):
        scores = torch.einsum("qid,pjd->qpij", self.encode(q), self.encode(doc))
        return scores.max(-1).values.sum(-1)


class Speech(nn.Module):
    """Speech: strided 2-d convolutions, channels and bands flattened, post-norm layers."""

    def __init__(self, w, d):
        super().__init__()
        self.sub = nn.Sequential(
            nn.Conv2d(1, w, 3, 2, 1), nn.ReLU(), nn.Conv2d(w, w, 3, 2, 1), nn.ReLU()
        )
        self.lin = nn.Linear(4 * w, w)
        self.ffs = nn.ModuleList(
            nn.Sequential(nn.Linear(w, 4 * w), nn.SiLU(), nn.Linear(4 * w, w)) for _ in range(d)
        )
        self.attns = nn.ModuleList(_SelfAttention(w) for _ in range(d))
        self.norms = nn.ModuleList(nn.LayerNorm(w) for _ in range(2 * d))
        self.ctc = nn.Linear(w, 12)

    def forward(self, mel):
        x = self.sub(mel[:, None])
        x = self.lin(x.permute(0, 2, 1, 3).flatten(2))
        for i, (ff, attn) in enumerate(zip(self.ffs, self.attns, strict=True)):
            x = self.norms[2 * i](x + attn(x))
            x = self.norms[2 * i + 1](x + 0.5 * ff(x))
        return self.ctc(x).log_softmax(-1)


class Saint(nn.Module):
    """Tables: a direction for each column, attention over columns and then over rows."""

    def __init__(self, w, d, columns=6):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, w))
        self.bias = nn.Parameter(torch.randn(columns, w))
        self.cls = nn.Parameter(torch.randn(w))
        self.cols = nn.ModuleList(_Layer(w) for _ in range(d))
        self.rows = nn.ModuleList(_Layer(w) for _ in range(d))
        self.head = nn.Sequential(nn.LayerNorm(w), nn.ReLU(), nn.Linear(w, 3))

    def forward(self, x):
        x = x[..., None] * self.weight + self.bias
        x = torch.cat([self.cls.expand(len(x), 1, -1), x], 1)
        for c, r in zip(self.cols, self.rows, strict=True):
            x = c(x)
            x = r(x.transpose(0, 1)).transpose(0, 1)
        return self.head(x[:, 0])


class PairLayer(nn.Module):
    """Protein: sequences bias their attention by pairs, pairs get outer products and triangles."""

    def __init__(self, w, size=8):
        super().__init__()
        p = w // 2
        self.h = w // size
        self.n1, self.n2, self.n3 = nn.LayerNorm(w), nn.LayerNorm(w), nn.LayerNorm(p)
        self.n4, self.n5 = nn.LayerNorm(p), nn.LayerNorm(p)
        self.q, self.k, self.v = (nn.Linear(w, w, bias=False) for _ in range(3))
        self.g, self.o = nn.Linear(w, w), nn.Linear(w, w)
        self.bias = nn.Linear(p, self.h, bias=False)
        self.t = nn.Sequential(nn.Linear(w, 4 * w), nn.ReLU(), nn.Linear(4 * w, w))
        self.a, self.b, self.ab = nn.Linear(w, 8), nn.Linear(w, 8), nn.Linear(64, p)
        self.ta, self.tb, self.tg = nn.Linear(p, p), nn.Linear(p, p), nn.Linear(p, p)
        self.project = nn.Linear(p, p)

    def forward(self, s, z):
        b, n, w = s.shape
        y = self.n1(s)
        q, k, v = (f(y).view(b, n, self.h, -1) for f in (self.q, self.k, self.v))
        logits = torch.einsum("bihc,bjhc->bhij", q, k) / math.sqrt(q.shape[-1])
        att = (logits + self.bias(self.n3(z)).permute(0, 3, 1, 2)).softmax(-1)
        o = torch.einsum("bhij,bjhc->bihc", att, v).reshape(b, n, w)
        s = s + self.o(torch.sigmoid(self.g(y)) * o)
        s = s + self.t(self.n2(s))
        outer = torch.einsum("bic,bjd->bijcd", self.a(s), self.b(s)).flatten(-2)
        z = z + self.ab(outer)
        y = self.n4(z)
        tri = torch.einsum("bikc,bjkc->bijc", self.ta(y), self.tb(y)) / n
        return s, z + torch.sigmoid(self.tg(y)) * self.project(self.n5(tri))


class Evoformer(nn.Module):
    def __init__(self, w, d):
        super().__init__()
        self.s, self.left = nn.Embedding(20, w), nn.Embedding(20, w // 2)
        self.right = nn.Embedding(20, w // 2)
        self.blocks = nn.ModuleList(PairLayer(w) for _ in range(d))
        self.angles, self.distances = nn.Linear(w, 4), nn.Linear(w // 2, 6)

    def forward(self, ids):
        s, z = self.s(ids), self.left(ids)[:, :, None] + self.right(ids)[:, None]
        for block in self.blocks:
            s, z = block(s, z)
        return self.angles(s), self.distances(z + z.transpose(1, 2))


class LRULayer(nn.Module):
    """State spaces: a diagonal complex recurrence by its logarithms, as wide as the stream."""

    def __init__(self, w):
        super().__init__()
        u = torch.rand(w)
        self.nu = nn.Parameter(torch.log(-0.5 * torch.log(u * (0.99**2 - 0.5**2) + 0.5**2)))
        self.theta = nn.Parameter(torch.log(3.14 * torch.rand(w)))
        mod = torch.exp(-torch.exp(self.nu.detach()))
        self.gamma = nn.Parameter(torch.log(torch.sqrt(1 - mod**2)))
        self.b_re = nn.Parameter(torch.randn(w, w) / math.sqrt(2 * w))
        self.b_im = nn.Parameter(torch.randn(w, w) / math.sqrt(2 * w))
        self.c_re = nn.Parameter(torch.randn(w, w) / math.sqrt(w))
        self.c_im = nn.Parameter(torch.randn(w, w) / math.sqrt(w))
        self.d = nn.Parameter(torch.randn(w))
        self.norm, self.mix = nn.LayerNorm(w), nn.Linear(w, 2 * w)

    def forward(self, x):
        u = self.norm(x)
        lam = torch.exp(torch.complex(-torch.exp(self.nu), torch.exp(self.theta)))
        bu = torch.complex(u @ self.b_re.T, u @ self.b_im.T) * torch.exp(self.gamma)
        h, hs = torch.zeros_like(bu[:, 0]), []
        for t in range(x.shape[1]):
            h = lam * h + bu[:, t]
            hs.append(h)
        h = torch.stack(hs, 1)
        y = h.real @ self.c_re.T - h.imag @ self.c_im.T + self.d * u
        return x + F.glu(self.mix(F.gelu(y)))


class LRU(nn.Module):
    def __init__(self, w, d):
        super().__init__()
        self.enc, self.dec = nn.Linear(4, w), nn.Linear(w, 5)
        self.layers = nn.Sequential(*(LRULayer(w) for _ in range(d)))

    def forward(self, x):
        return self.dec(self.layers(self.enc(x)).mean(1))


class ExternalLayer(nn.Module):
    """Memory: learned slots, shares over tokens and then over slots."""

    def __init__(self, w, slots=16):
        super().__init__()
        self.norm = nn.LayerNorm(w)
        self.q, self.o = nn.Linear(w, w), nn.Linear(w, w)
        self.mk, self.mv = nn.Linear(w, slots, bias=False), nn.Linear(slots, w, bias=False)

    def forward(self, x):
        a = self.mk(self.q(self.norm(x))).softmax(dim=1)
        a = a / (1e-9 + a.sum(dim=2, keepdim=True))
        return x + self.o(self.mv(a))


class ExternalAttention(nn.Module):
    def __init__(self, w, d):
        super().__init__()
        self.inp, self.out = nn.Linear(6, w), nn.Linear(w, 4)
        self.layers = nn.Sequential(*(ExternalLayer(w) for _ in range(d)))

    def forward(self, x):
        return self.out(self.layers(self.inp(x)))


class RepBlock(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.c3, self.b3 = nn.Conv2d(w, w, 3, padding=1, bias=False), nn.BatchNorm2d(w)
        self.c1, self.b1 = nn.Conv2d(w, w, 1, bias=False), nn.BatchNorm2d(w)
        self.b0 = nn.BatchNorm2d(w)

    def forward(self, x):
        return F.relu(self.b3(self.c3(x)) + self.b1(self.c1(x)) + self.b0(x))


class RepVGG(nn.Module):
    """Vision: no plain identity, its batch norm is one of three summands under a ReLU."""

    def __init__(self, w, d):
        super().__init__()
        self.stem = nn.Conv2d(3, w, 3, 2, 1)
        self.stages = nn.Sequential(*(RepBlock(w) for _ in range(d)))
        self.fc = nn.Linear(w, 10)

    def forward(self, x):
        return self.fc(self.stages(self.stem(x)).mean((2, 3)))


class ECABlock(nn.Module):
    """Vision: inverted bottleneck whose channels are weighted by a convolution along channels."""

    def __init__(self, w):
        super().__init__()
        self.gn = nn.GroupNorm(4, w)
        self.expand, self.shrink = nn.Conv2d(w, 4 * w, 1), nn.Conv2d(4 * w, w, 1)
        self.depthwise = nn.Conv2d(4 * w, 4 * w, 3, padding=1, groups=4 * w)
        self.eca = nn.Conv1d(1, 1, 3, padding=1, bias=False)

    def forward(self, x):
        y = F.gelu(self.depthwise(F.gelu(self.expand(self.gn(x)))))
        y = y * torch.sigmoid(self.eca(y.mean((2, 3))[:, None])).squeeze(1)[:, :, None, None]
        return x + self.shrink(y)


class ECANet(nn.Module):
    def __init__(self, w, d):
        super().__init__()
        self.stem = nn.Conv2d(3, w, 4, 4)
        self.body = nn.Sequential(*(ECABlock(w) for _ in range(d)))
        self.head = nn.Linear(w, 10)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).flatten(2).mean(-1))


class Equilibrium(nn.Module):
    """One cell that is applied again and again, the input injected each time."""

    def __init__(self, w, d):
        super().__init__()
        self.d = d
        self.inp, self.w1, self.w2 = nn.Linear(8, w), nn.Linear(w, 2 * w), nn.Linear(2 * w, w)
        self.norm, self.step = nn.LayerNorm(w), nn.Embedding(16, w)
        self.head = nn.Linear(w, 4)

    def forward(self, x):
        x = self.inp(x)
        z = torch.zeros_like(x)
        for i in range(self.d):
            z = z + self.w2(F.relu(self.w1(self.norm(z) + x + self.step.weight[i])))
        return self.head(self.norm(z))


class Fused(nn.Module):
    """Functional: parameters in a dictionary, the residual sum inside of addmm."""

    def __init__(self, w, d):
        super().__init__()
        p = {"in": torch.randn(8, w) / 8**0.5, "out": torch.randn(w, 4) / w**0.5}
        for i in range(d):
            p[f"u{i}"] = torch.randn(w, 2 * w) / w**0.5
            p[f"v{i}"] = torch.randn(2 * w, w) / (2 * w) ** 0.5
        self.p, self.d = nn.ParameterDict(p), d

    def forward(self, x):
        p = self.p
        x = torch.mm(x, p["in"])
        for i in range(self.d):
            h = F.normalize(x, dim=-1) * x.shape[-1] ** 0.5
            x = torch.addmm(x, torch.relu(h @ p[f"u{i}"]), p[f"v{i}"])
        return x.matmul(p["out"])


class LowRank(nn.Module):
    """Every matrix is a product of two factors of a quarter of its rank, multiplied first."""

    def __init__(self, w, d):
        super().__init__()
        r = w // 4
        self.inp, self.out = nn.Linear(8, w), nn.Linear(w, 4)
        self.a = nn.ParameterList(torch.randn(w, r) / r**0.5 for _ in range(d))
        self.b = nn.ParameterList(torch.randn(r, w) / w**0.5 for _ in range(d))
        self.norms = nn.ModuleList(nn.LayerNorm(w) for _ in range(d))

    def forward(self, x):
        x = self.inp(x)
        for a, b, n in zip(self.a, self.b, self.norms, strict=True):
            x = x + F.linear(F.gelu(n(x)), a @ b)
        return self.out(x)


class Stacked(nn.Module):
    """Two branches side by side, and the stream itself, stacked and summed."""

    def __init__(self, w, d):
        super().__init__()
        self.inp, self.out = nn.Linear(8, w), nn.Linear(w, 4)
        self.f = nn.ModuleList(nn.Sequential(nn.LayerNorm(w), nn.Linear(w, w)) for _ in range(d))
        self.g = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(w), nn.Linear(w, 3 * w), nn.SiLU(), nn.Linear(3 * w, w))
            for _ in range(d)
        )

    def forward(self, x):
        x = self.inp(x)
        for f, g in zip(self.f, self.g, strict=True):
            x = torch.stack([x, torch.tanh(f(x)), g(x)], dim=0).sum(dim=0)
        return self.out(x)


class HeadLayer(nn.Module):
    """A transformer layer in einsums, post-norm, heads as dimensions of the weights."""

    def __init__(self, w, size=8):
        super().__init__()
        h = w // size
        std = w**-0.5
        self.wq = nn.Parameter(torch.randn(h, w, size) * std)
        self.wk = nn.Parameter(torch.randn(h, w, size) * std)
        self.wv = nn.Parameter(torch.randn(h, w, size) * std)
        self.wo = nn.Parameter(torch.randn(h, size, w) * std)
        self.w1 = nn.Parameter(torch.randn(w, 4 * w) * std)
        self.w2 = nn.Parameter(torch.randn(4 * w, w) * std / 2)
        self.ln1, self.ln2 = nn.LayerNorm(w), nn.LayerNorm(w)

    def forward(self, x):
        q = torch.einsum("bld,hde->bhle", x, self.wq)
        k = torch.einsum("bld,hde->bhle", x, self.wk)
        v = torch.einsum("bld,hde->bhle", x, self.wv)
        a = torch.einsum("bhle,bhme->bhlm", q, k) * q.shape[-1] ** -0.5
        o = torch.einsum("bhlm,bhme,hed->bld", a.softmax(-1), v, self.wo)
        x = self.ln1(x + o)
        return self.ln2(x + torch.einsum("blf,fd->bld", torch.relu(x @ self.w1), self.w2))


class Einsums(nn.Module):
    def __init__(self, w, d):
        super().__init__()
        self.embed = nn.Embedding(32, w)
        self.layers = nn.ModuleList(HeadLayer(w) for _ in range(d))

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return torch.einsum("bld,vd->blv", x, self.embed.weight)


class DeltaLayer(nn.Module):
    """Fast weights: a matrix of each head is written by the delta rule, token after token."""

    def __init__(self, w, size=8):
        super().__init__()
        self.h = w // size
        self.norm = nn.RMSNorm(w)
        self.q, self.k, self.v = (nn.Linear(w, w, bias=False) for _ in range(3))
        self.beta, self.o = nn.Linear(w, self.h), nn.Linear(w, w, bias=False)
        self.onorm = nn.RMSNorm(size)

    def forward(self, x):
        b, t, _ = x.shape
        y = self.norm(x)
        q, k, v = (f(y).view(b, t, self.h, -1) for f in (self.q, self.k, self.v))
        q, k = F.normalize(F.silu(q), dim=-1), F.normalize(F.silu(k), dim=-1)
        beta = self.beta(y).sigmoid()
        s, outs = torch.zeros(b, self.h, q.shape[-1], q.shape[-1]), []
        for i in range(t):
            error = v[:, i] - torch.einsum("bhkv,bhk->bhv", s, k[:, i])
            s = s + torch.einsum("bhk,bhv->bhkv", k[:, i], beta[:, i, :, None] * error)
            outs.append(torch.einsum("bhkv,bhk->bhv", s, q[:, i]))
        return x + self.o(self.onorm(torch.stack(outs, 1)).flatten(2))


class DeltaNet(nn.Module):
    def __init__(self, w, d):
        super().__init__()
        self.emb = nn.Embedding(32, w)
        self.layers = nn.Sequential(*(DeltaLayer(w) for _ in range(d)))
        self.norm, self.head = nn.RMSNorm(w), nn.Linear(w, 32, bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.layers(self.emb(ids))))


class Quantized(nn.Module):
    """Vision: an autoencoder through the nearest of a few codes, gradients straight through."""

    def __init__(self, w, d):
        super().__init__()
        self.down = nn.Conv2d(3, w, 4, 2, 1)
        self.enc = nn.ModuleList(self._res(w) for _ in range(d))
        self.pre, self.codes, self.post = (
            nn.Conv2d(w, 8, 1),
            nn.Embedding(16, 8),
            nn.Conv2d(8, w, 1),
        )
        self.dec = nn.ModuleList(self._res(w) for _ in range(d))
        self.up = nn.ConvTranspose2d(w, 3, 4, 2, 1)

    @staticmethod
    def _res(w):
        return nn.Sequential(
            nn.GroupNorm(4, w), nn.SiLU(), nn.Conv2d(w, w, 3, padding=1), nn.SiLU(),
            nn.Conv2d(w, w, 1),
        )  # fmt: skip

    def forward(self, x):
        h = self.down(x)
        for f in self.enc:
            h = h + f(h)
        z = self.pre(h).permute(0, 2, 3, 1)
        flat = z.reshape(-1, 8)
        q = self.codes(torch.cdist(flat, self.codes.weight).argmin(1)).view_as(z)
        commit = (z.detach() - q).square().mean() + 0.25 * (z - q.detach()).square().mean()
        h = self.post((z + (q - z).detach()).permute(0, 3, 1, 2))
        for f in self.dec:
            h = h + f(h)
        return self.up(h), commit
