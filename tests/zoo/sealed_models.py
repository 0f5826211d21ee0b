"""Twenty architectures of fields that no other list has, each as its field writes it."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class _Squeezed(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.conv2, self.bn2 = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.fc1, self.fc2 = nn.Linear(c, 8), nn.Linear(8, 2 * c)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        w, b = self.fc2(F.relu(self.fc1(y.mean((2, 3))))).chunk(2, 1)
        return F.relu(x + torch.sigmoid(w)[..., None, None] * y + b[..., None, None])


class BoardGame(nn.Module):
    """Board games: squeezed residual blocks, one head for moves and one for the value."""

    def __init__(self, w, d, planes=6, board=6):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(planes, w, 3, padding=1, bias=False), nn.BatchNorm2d(w), nn.ReLU()
        )
        self.tower = nn.Sequential(*(_Squeezed(w) for _ in range(d)))
        self.policy = nn.Sequential(nn.Conv2d(w, w, 1), nn.ReLU(), nn.Conv2d(w, 4, 1))
        self.value_conv = nn.Conv2d(w, 2, 1)
        self.value1, self.value2 = nn.Linear(2 * board**2, w), nn.Linear(w, 1)

    def forward(self, x):
        x = self.tower(self.stem(x))
        v = F.relu(self.value1(F.relu(self.value_conv(x)).flatten(1)))
        return self.policy(x).flatten(1), torch.tanh(self.value2(v))


class _Mesh(nn.Module):
    """Messages along edges, of which the state is updated as well."""

    def __init__(self, w):
        super().__init__()
        self.edge = self._mlp(3 * w, w)
        self.node = self._mlp(2 * w, w)

    @staticmethod
    def _mlp(n, w):
        return nn.Sequential(nn.Linear(n, w), nn.SiLU(), nn.Linear(w, w), nn.LayerNorm(w))

    def forward(self, v, e, send, receive):
        e = e + self.edge(torch.cat([e, v[send], v[receive]], dim=-1))
        total = torch.zeros_like(v).index_add(0, receive, e)
        return v + self.node(torch.cat([v, total], dim=-1)), e


class Weather(nn.Module):
    """Weather on a mesh: encode, process, decode; the answer is added to the state of the air."""

    def __init__(self, w, d):
        super().__init__()
        self.enc_v, self.enc_e = _Mesh._mlp(5, w), _Mesh._mlp(3, w)
        self.process = nn.ModuleList([_Mesh(w) for _ in range(d)])
        self.dec = nn.Sequential(nn.Linear(w, w), nn.SiLU(), nn.Linear(w, 5))

    def forward(self, x, a, send, receive):
        v, e = self.enc_v(x), self.enc_e(a)
        for layer in self.process:
            v, e = layer(v, e, send, receive)
        return x + self.dec(v)


class _Filtered(nn.Module):
    """Atoms: filters of distances, a cutoff, sums over all neighbours."""

    def __init__(self, w, rbf=12):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(rbf, w), nn.Softplus(), nn.Linear(w, w))
        self.into, self.out1, self.out2 = nn.Linear(w, w, bias=False), nn.Linear(w, w), None
        self.out2 = nn.Linear(w, w)

    def forward(self, x, f, cut):
        weights = self.filter(f) * cut[..., None]
        y = torch.einsum("bijc,bjc->bic", weights, self.into(x))
        return self.out2(F.softplus(self.out1(y)) - math.log(2))


class Molecule(nn.Module):
    """Chemistry: continuous filters; the energy is a sum over atoms."""

    def __init__(self, w, d):
        super().__init__()
        self.atom = nn.Embedding(10, w)
        self.blocks = nn.ModuleList(_Filtered(w) for _ in range(d))
        self.lin1, self.lin2 = nn.Linear(w, w // 2), nn.Linear(w // 2, 1)
        self.register_buffer("centers", torch.linspace(0, 4, 12))

    def forward(self, z, r):
        dist = (r[:, :, None] - r[:, None]).square().sum(-1).clamp_min(1e-6).sqrt()
        f = torch.exp(-10 * (dist[..., None] - self.centers) ** 2)
        cut = 0.5 * (torch.cos(dist * math.pi / 5) + 1) * (dist < 5)
        x = self.atom(z)
        for block in self.blocks:
            x = x + block(x, f, cut)
        return self.lin2(F.softplus(self.lin1(x)) - math.log(2)).sum((1, 2))


class Genome(nn.Module):
    """Genomics: dilated convolutions whose activation comes first; profile and total counts."""

    def __init__(self, w, d):
        super().__init__()
        self.iconv = nn.Conv1d(4, w, 7, padding=3)
        self.rconvs = nn.ModuleList(
            nn.Conv1d(w, w, 3, padding=2 ** (i % 3), dilation=2 ** (i % 3)) for i in range(d)
        )
        self.profile, self.counts = nn.Conv1d(w, 2, 9, padding=4), nn.Linear(w, 1)

    def forward(self, x):
        x = F.relu(self.iconv(x))
        for conv in self.rconvs:
            x = torch.add(x, F.relu(conv(x)))
        return self.profile(x), self.counts(x.mean(-1))


class _Skewed(nn.Module):
    """Attention whose logits get those of relative positions, by the skewing trick."""

    def __init__(self, w, length, size=8):
        super().__init__()
        self.h = w // size
        self.q, self.k, self.v, self.o = (nn.Linear(w, w) for _ in range(4))
        self.rel = nn.Parameter(torch.randn(self.h, length, size) * size**-0.5)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = (f(x).view(b, t, self.h, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        r = torch.einsum("bhtd,hsd->bhts", q, self.rel)
        r = F.pad(r, (1, 0)).reshape(b, self.h, t + 1, t)[:, :, 1:]
        a = (q @ k.transpose(-2, -1) + r) / math.sqrt(q.shape[-1])
        a = a.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), float("-inf"))
        return self.o((a.softmax(-1) @ v).transpose(1, 2).reshape(b, t, w))


class Music(nn.Module):
    """Music: notes, relative attention, pre-norm, one table for input and output."""

    def __init__(self, w, d, notes=24, length=10):
        super().__init__()
        self.notes = nn.Embedding(notes, w)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "n1": nn.LayerNorm(w), "att": _Skewed(w, length), "n2": nn.LayerNorm(w),
                    "fc": nn.Linear(w, 3 * w), "proj": nn.Linear(3 * w, w),
                }
            )
            for _ in range(d)
        )  # fmt: skip
        self.last = nn.LayerNorm(w)

    def forward(self, ids):
        x = self.notes(ids)
        for b in self.layers:
            x = x + b["att"](b["n1"](x))
            x = x + b["proj"](F.relu(b["fc"](b["n2"](x))))
        return F.linear(self.last(x), self.notes.weight)


class Handwriting(nn.Module):
    """Handwriting: convolutions, two directions of LSTM layers on columns, a letter for each."""

    def __init__(self, w, d):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, w // 2, 3, 2, 1), nn.Conv2d(w // 2, w, 3, (2, 1), 1)
        self.rnn = nn.LSTM(w * 2, w, num_layers=2, bidirectional=True, batch_first=True)
        self.letters = nn.Linear(2 * w, 12)
        self.d = d

    def forward(self, x):
        x = F.relu(self.c2(F.relu(self.c1(x))))
        x, _ = self.rnn(x.flatten(1, 2).transpose(1, 2))
        return F.log_softmax(self.letters(x), dim=-1)


class _Skeleton(nn.Module):
    """Poses: a convolution for each part of the skeleton's graph, with its learned importance."""

    def __init__(self, w, joints):
        super().__init__()
        self.gcn, self.tcn = nn.Conv2d(w, 3 * w, 1), nn.Conv2d(w, w, (3, 1), padding=(1, 0))
        self.bn1, self.bn2 = nn.BatchNorm2d(w), nn.BatchNorm2d(w)
        self.importance = nn.Parameter(torch.ones(3, joints, joints))

    def forward(self, x, a):
        n, c, t, v = x.shape
        y = self.gcn(x).view(n, 3, c, t, v)
        y = torch.einsum("nkctv,kvw->nctw", y, a * self.importance)
        return F.relu(self.bn2(self.tcn(F.relu(self.bn1(y)))) + x)


class Poses(nn.Module):
    def __init__(self, w, d, joints=7):
        super().__init__()
        self.inp, self.out = nn.Conv2d(3, w, 1), nn.Conv2d(w, 5, 1)
        self.layers = nn.ModuleList(_Skeleton(w, joints) for _ in range(d))

    def forward(self, x, a):
        x = self.inp(x)
        for layer in self.layers:
            x = layer(x, a)
        return self.out(x.mean((2, 3), keepdim=True)).squeeze()


class OpticalFlow(nn.Module):
    """Motion: all-pairs correlations, and a convolutional GRU that refines again and again."""

    def __init__(self, w, d):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, w, 4, 4), nn.ReLU(), nn.Conv2d(w, w, 3, 1, 1))
        self.context = nn.Sequential(nn.Conv2d(3, w, 4, 4), nn.ReLU(), nn.Conv2d(w, w, 3, 1, 1))
        self.motion = nn.Conv2d(16 + 2, w, 3, padding=1)
        self.z, self.r, self.q = (nn.Conv2d(2 * w, w, 3, padding=1) for _ in range(3))
        self.flow = nn.Conv2d(w, 2, 3, padding=1)

    def forward(self, one, two):
        a, b = self.features(one), self.features(two)
        corr = torch.einsum("bchw,bcxy->bxyhw", a, b).flatten(1, 2) / math.sqrt(a.shape[1])
        h = torch.tanh(self.context(one))
        flow = torch.zeros_like(h[:, :2])
        for _ in range(3):
            x = F.relu(self.motion(torch.cat([corr, flow], 1)))
            both = torch.cat([h, x], 1)
            z, r = torch.sigmoid(self.z(both)), torch.sigmoid(self.r(both))
            q = torch.tanh(self.q(torch.cat([r * h, x], 1)))
            h = (1 - z) * h + z * q
            flow = flow + self.flow(h)
        return flow


class SuperResolution(nn.Module):
    """Images: residual blocks in residual groups in a long residual; channels weighted."""

    def __init__(self, w, d):
        super().__init__()
        self.head, self.tail = nn.Conv2d(3, w, 3, padding=1), nn.Conv2d(w, 12, 3, padding=1)
        self.groups = nn.ModuleList(
            nn.ModuleList(
                nn.ModuleList(
                    [
                        nn.Conv2d(w, w, 3, padding=1), nn.Conv2d(w, w, 3, padding=1),
                        nn.Conv2d(w, w // 4, 1), nn.Conv2d(w // 4, w, 1),
                    ]
                )
                for _ in range(2)
            )
            for _ in range(d)
        )  # fmt: skip
        self.ends = nn.ModuleList(nn.Conv2d(w, w, 3, padding=1) for _ in range(d))
        self.end = nn.Conv2d(w, w, 3, padding=1)

    def forward(self, x):
        x = shallow = self.head(x)
        for group, end in zip(self.groups, self.ends, strict=True):
            start = x
            for c1, c2, down, up in group:
                y = c2(F.relu(c1(x)))
                x = x + y * torch.sigmoid(up(F.relu(down(y.mean((2, 3), keepdim=True)))))
            x = start + end(x)
        return F.pixel_shuffle(self.tail(shallow + self.end(x)), 2)


class Advertising(nn.Module):
    """Advertisements: a history weighted by its likeness to the candidate, then layers."""

    def __init__(self, w, d):
        super().__init__()
        self.items = nn.Embedding(40, w)
        self.att1, self.att2 = nn.Linear(4 * w, w), nn.Linear(w, 1)
        self.join = nn.Linear(3 * w, w)
        self.cells = nn.ModuleList(
            nn.Sequential(nn.BatchNorm1d(w), nn.PReLU(), nn.Linear(w, w)) for _ in range(d)
        )
        self.click = nn.Linear(w, 1)

    def forward(self, history, candidate):
        k = self.items(history)
        q = self.items(candidate)[:, None].expand_as(k)
        s = self.att2(torch.sigmoid(self.att1(torch.cat([q, k, q - k, q * k], -1))))
        interest = (s.transpose(1, 2) @ k)[:, 0]
        x = self.join(torch.cat([interest, q[:, 0], interest * q[:, 0]], -1))
        for cell in self.cells:
            x = x + cell(x)
        return self.click(x)[:, 0].sigmoid()


class Knowledge(nn.Module):
    """Knowledge graphs: layers over head and relation, scores against all things in one table."""

    def __init__(self, w, d, things=30):
        super().__init__()
        self.ent = nn.Parameter(torch.empty(things, w))
        self.rel = nn.Parameter(torch.empty(6, w))
        nn.init.xavier_normal_(self.ent), nn.init.xavier_normal_(self.rel)
        self.mix = nn.ModuleList(nn.Linear(w, w) for _ in range(d))
        self.norm = nn.ModuleList(nn.LayerNorm(w) for _ in range(d))
        self.b = nn.Parameter(torch.zeros(things))

    def forward(self, h, r):
        x = self.ent[h] * self.rel[r]
        for f, n in zip(self.mix, self.norm, strict=True):
            x = x + f(F.gelu(n(x)))
        return x @ self.ent.T + self.b


class NeuralProcess(nn.Module):
    """Meta-learning: a context is averaged and attended to; a mean and a spread for each target."""

    def __init__(self, w, d):
        super().__init__()
        self.enc, self.key, self.query = nn.Linear(2, w), nn.Linear(1, w), nn.Linear(1, w)
        self.deep = nn.ModuleList(
            nn.ModuleList([nn.Linear(w, w), nn.Linear(w, w)]) for _ in range(d)
        )
        self.att = nn.MultiheadAttention(w, w // 8, batch_first=True)
        self.dec1, self.dec2 = nn.Linear(2 * w + 1, w), nn.Linear(w, 2)

    def forward(self, xc, yc, xt):
        r = self.enc(torch.cat([xc, yc], -1))
        for a, b in self.deep:
            r = r + b(F.relu(a(r)))
        c, _ = self.att(self.query(xt), self.key(xc), r, need_weights=False)
        m = r.mean(1, keepdim=True).expand(-1, xt.shape[1], -1)
        mean, raw = self.dec2(F.relu(self.dec1(torch.cat([c, m, xt], -1)))).chunk(2, -1)
        return mean, 0.1 + 0.9 * F.softplus(raw)


class _Dense(nn.Module):
    """A residual block of two matrices and a matrix on its shortcut."""

    def __init__(self, n, w, m):
        super().__init__()
        self.up, self.down, self.skip = nn.Linear(n, w), nn.Linear(w, m), nn.Linear(n, m)
        self.norm = nn.LayerNorm(m)

    def forward(self, x):
        return self.norm(self.down(F.relu(self.up(x))) + self.skip(x))


class Demand(nn.Module):
    """Forecasts of demand: dense blocks with a matrix as shortcut, and one of the past itself."""

    def __init__(self, w, d, past=12, future=4):
        super().__init__()
        self.first = _Dense(past, w, w)
        self.body = nn.Sequential(*(_Dense(w, w, w) for _ in range(2)))
        self.decode = _Dense(w, w, future * 4)
        self.each = nn.Linear(4, 1)
        self.past = nn.Linear(past, future)
        self.d = d

    def forward(self, x):
        y = self.decode(self.body(self.first(x))).view(len(x), -1, 4)
        return self.each(y)[..., 0] + self.past(x)


class Slots(nn.Module):
    """Objects: slots compete for places, a GRU cell updates each, a few times over."""

    def __init__(self, w, d, slots=4):
        super().__init__()
        self.enc = nn.Conv2d(3, w, 4, 4)
        self.res = nn.ModuleList(nn.Conv2d(w, w, 3, padding=1) for _ in range(d))
        self.ns = nn.ModuleList(nn.GroupNorm(4, w) for _ in range(d))
        self.start = nn.Parameter(torch.randn(1, slots, w))
        self.k, self.v, self.q = (nn.Linear(w, w, bias=False) for _ in range(3))
        self.n_in, self.n_s, self.n_m = nn.LayerNorm(w), nn.LayerNorm(w), nn.LayerNorm(w)
        self.gru = nn.GRUCell(w, w)
        self.mlp = nn.Sequential(nn.Linear(w, 2 * w), nn.ReLU(), nn.Linear(2 * w, w))
        self.out = nn.Linear(w, 6)

    def forward(self, x):
        x = self.enc(x)
        for c, n in zip(self.res, self.ns, strict=True):
            x = x + c(F.silu(n(x)))
        x = self.n_in(x.flatten(2).transpose(1, 2))
        k, v = self.k(x), self.v(x)
        s = self.start.expand(len(x), -1, -1)
        for _ in range(3):
            a = (k @ self.q(self.n_s(s)).transpose(1, 2) * k.shape[-1] ** -0.5).softmax(-1) + 1e-8
            u = (a / a.sum(1, keepdim=True)).transpose(1, 2) @ v
            s = self.gru(u.flatten(0, 1), s.flatten(0, 1)).view_as(s)
            s = s + self.mlp(self.n_m(s))
        return self.out(s)


class _Talking(nn.Module):
    """Heads that talk to each other before and after the softmax."""

    def __init__(self, w, heads=4):
        super().__init__()
        self.heads = heads
        self.to_qkv, self.to_out = nn.Linear(w, 3 * w, bias=False), nn.Linear(w, w)
        self.pre = nn.Parameter(torch.randn(heads, heads) / heads**0.5)
        self.post = nn.Parameter(torch.randn(heads, heads) / heads**0.5)

    def forward(self, x):
        q, k, v = self.to_qkv(x).unflatten(-1, (3, self.heads, -1)).movedim(2, 0).transpose(2, 3)
        a = torch.einsum("bhic,bhjc->bhij", q, k) * q.shape[-1] ** -0.5
        a = torch.einsum("bhij,hg->bgij", a, self.pre).softmax(-1)
        a = torch.einsum("bhij,hg->bgij", a, self.post)
        return self.to_out((a @ v).transpose(1, 2).flatten(2))


class Satellite(nn.Module):
    """Earth observation: series of bands, talking heads of growing size, dropped paths."""

    def __init__(self, w, d):
        super().__init__()
        self.bands, self.day = nn.Linear(5, w), nn.Linear(2, w, bias=False)
        self.blocks = nn.Sequential()
        for i in range(d):
            self.blocks.add_module(f"time_{i}", _SatelliteBlock(w))
        self.crop = nn.Sequential(nn.LayerNorm(w), nn.Linear(w, 7))

    def forward(self, x, t):
        a = t[..., None] * 2 * math.pi
        return self.crop(
            self.blocks(self.bands(x) + self.day(torch.cat([a.sin(), a.cos()], -1))).amax(1)
        )


class _SatelliteBlock(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.a, self.f = (
            _Talking(w),
            nn.Sequential(nn.Linear(w, 2 * w), nn.Mish(), nn.Linear(2 * w, w)),
        )
        self.na, self.nf, self.drop = nn.LayerNorm(w), nn.LayerNorm(w), nn.Dropout(0.1)
        self.ga, self.gf = nn.Parameter(0.1 * torch.ones(w)), nn.Parameter(0.1 * torch.ones(w))

    def forward(self, x):
        x = x + self.drop(self.ga * self.a(self.na(x)))
        return x + self.drop(self.gf * self.f(self.nf(x)))


class _Min(nn.Module):
    """A gated recurrence without a matrix of the state, by sums of logarithms."""

    def __init__(self, w):
        super().__init__()
        self.norm, self.hg = nn.RMSNorm(w), nn.Linear(w, 3 * w, bias=False)
        self.out = nn.Linear(w + w // 2, w, bias=False)

    def forward(self, x):
        h, g = self.hg(self.norm(x)).chunk(2, -1)
        keep = F.logsigmoid(-g).cumsum(1)
        new = F.logsigmoid(g) + torch.where(h >= 0, (F.relu(h) + 0.5).log(), F.logsigmoid(h))
        return x + self.out((keep + (new - keep).logcumsumexp(1)).exp())


class Heartbeat(nn.Module):
    """Medicine: curves of a heart through minimal gated recurrences, one answer in the end."""

    def __init__(self, w, d):
        super().__init__()
        self.patch, self.layers = nn.Conv1d(2, w, 4, 4), nn.Sequential(*(_Min(w) for _ in range(d)))
        self.norm, self.fc = nn.RMSNorm(w), nn.Linear(w, 4)

    def forward(self, x):
        return self.fc(self.norm(self.layers(self.patch(x).transpose(1, 2))[:, -1]))


class _Kernels(nn.Module):
    """Linear attention: positive features of keys are summed, a share for each query."""

    def __init__(self, w, size=8):
        super().__init__()
        self.norm, self.h = nn.LayerNorm(w), w // size
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(w, w) for _ in range(4))
        self.n2, self.w1, self.w2 = nn.LayerNorm(w), nn.Linear(w, 2 * w), nn.Linear(2 * w, w)

    def forward(self, x):
        y = self.norm(x)
        q, k, v = (f(y).unflatten(-1, (self.h, -1)) for f in (self.wq, self.wk, self.wv))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        kv = torch.einsum("nshd,nshm->nhmd", k, v)
        z = 1 / (torch.einsum("nlhd,nhd->nlh", q, k.sum(1)) + 1e-6)
        x = x + self.wo(torch.einsum("nlhd,nhmd,nlh->nlhm", q, kv, z).flatten(2))
        return x + self.w2(F.gelu(self.w1(self.n2(x))))


class Physics(nn.Module):
    """Particles: jets as sets, linear attention, a class token that asks in the end."""

    def __init__(self, w, d):
        super().__init__()
        self.inp = nn.Sequential(nn.Linear(4, w), nn.GELU(), nn.Linear(w, w))
        self.layers = nn.ModuleList([_Kernels(w) for _ in range(d)])
        self.cls = nn.Parameter(torch.zeros(1, 1, w))
        self.pool = nn.MultiheadAttention(w, w // 8, batch_first=True)
        self.fin, self.out = nn.LayerNorm(w), nn.Linear(w, 5)

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            x = layer(x)
        c = self.cls.expand(len(x), -1, -1)
        return self.out(self.fin(self.pool(c, x, x, need_weights=False)[0][:, 0]))


class _Monarch(nn.Module):
    """Two block-diagonal matrices with a transposition between them, in place of a dense one."""

    def __init__(self, w, blocks=4):
        super().__init__()
        n = w // blocks
        self.l = nn.Parameter(torch.randn(blocks, n, n) * n**-0.5)
        self.r = nn.Parameter(torch.randn(n, blocks, blocks) * blocks**-0.5)

    def forward(self, x):
        y = x.unflatten(-1, (self.l.shape[0], -1))
        y = torch.einsum("...bi,bij->...bj", y, self.l)
        return torch.einsum("...bj,jbc->...cj", y, self.r).flatten(-2)


class Trees(nn.Module):
    """Tables: soft trees over features, then structured matrices in residual blocks."""

    def __init__(self, w, d, features=6, depth=3):
        super().__init__()
        self.split, self.leaf = (
            nn.Linear(features, w * depth),
            nn.Parameter(torch.randn(w, 2**depth)),
        )
        self.depth = depth
        self.mix = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(w), _Monarch(w), nn.GELU(), _Monarch(w)) for _ in range(d)
        )
        self.out = nn.Linear(w, 2)

    def forward(self, x):
        p = torch.sigmoid(self.split(x).unflatten(-1, (-1, self.depth)))
        reach = torch.ones_like(p[..., :1])
        for i in range(self.depth):
            q = p[..., i : i + 1]
            reach = torch.cat([reach * q, reach * (1 - q)], -1)
        h = (reach * self.leaf).sum(-1)
        for f in self.mix:
            h = h + f(h)
        return self.out(h)


class Documents(nn.Module):
    """Law: words become sentences by a context vector, sentences pass layers, then a document."""

    def __init__(self, w, d):
        super().__init__()
        self.words, self.word_rnn = nn.Embedding(32, w), nn.GRU(w, w, batch_first=True)
        self.u, self.context = nn.Linear(w, w), nn.Parameter(torch.randn(w, 1) * w**-0.5)
        self.layers = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(w, w // 8, 2 * w, 0.0, batch_first=True, norm_first=True),
            d, enable_nested_tensor=False,
        )  # fmt: skip
        self.scale, self.label = nn.Parameter(torch.ones(())), nn.Linear(w, 6)

    def forward(self, ids):
        b, s, t = ids.shape
        h, _ = self.word_rnn(self.words(ids.view(b * s, t)))
        share = torch.tanh(self.u(h)).matmul(self.context).softmax(1)
        x = self.layers((share * h).sum(1).view(b, s, -1))
        return self.label(x.mean(1) * self.scale)
