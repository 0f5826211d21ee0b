"""Seventy architectures of packages that the library was never tried on, chosen before any result.

    pip install --no-deps litgpt lightning monai pytorchcv open_clip_torch neuraloperator tensorly \
        tensorly-torch torchdiffeq ncps fair-esm torch_geometric denoising_diffusion_pytorch \
        s5-pytorch tabm rtdl_num_embeddings ...

The packages are named beside the models; a model whose package is not installed is not built.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tests.zoo.architectures import HEAD, IDS
from tests.zoo.case import Case


def _drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


_IMAGES, _PICTURES = _drawn(2, 3, 32, 32), _drawn(1, 3, 224, 224)
_PLANES, _NUMBERS, _SEQUENCE = _drawn(2, 1, 32, 32), _drawn(4, 6), _drawn(2, 8, 12)
_NODES, _TIME = _drawn(6, 12), torch.zeros(2)
_EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 3, 5]])
_Inputs = tuple[Tensor, ...] | Mapping[str, Tensor]
_Make = Callable[[int, int], nn.Module]


def _of(path: str, **settings: Any) -> Any:
    """What a package exports, called if there are settings."""
    module, name = path.rsplit(".", 1)
    exported = getattr(importlib.import_module(module), name)
    return exported(**settings) if settings else exported


def _litgpt(name: str, **more: Any) -> _Make:
    """A configuration of litgpt in another size: its kinds of norms, gates, heads and experts."""

    def make(w: int, d: int) -> nn.Module:
        config = _of("litgpt.config.Config").from_name(
            name, n_layer=d, n_embd=w, n_head=w // HEAD, head_size=HEAD, n_query_groups=w // HEAD,
            intermediate_size=2 * w, block_size=8, vocab_size=64, padded_vocab_size=64, **more,
        )  # fmt: skip
        return _of("litgpt.model.GPT")(config)

    return make


def _cv(module: str, kind: str, stages: int = 4, growth: int = 2, **more: Any) -> _Make:
    """A convolutional network of pytorchcv: blocks by stage, whose width doubles."""

    def make(w: int, d: int) -> nn.Module:
        return _of(f"pytorchcv.models.{module}.{kind}")(
            channels=[[w * growth**stage] * d for stage in range(stages)], init_block_channels=w,
            in_size=(32, 32), num_classes=10, **more,
        )  # fmt: skip

    return make


def _vision(**more: Any) -> _Make:
    """A vision transformer of open_clip."""

    def make(w: int, d: int) -> nn.Module:
        return _of("open_clip.transformer.VisionTransformer")(
            image_size=32, patch_size=8, width=w, layers=d, heads=w // HEAD, mlp_ratio=2.0,
            output_dim=10, **more,
        )  # fmt: skip

    return make


def _planes(kind: str, sizes: Callable[[int, int], dict[str, Any]]) -> tuple[_Make, _Inputs]:
    """A network of monai from one plane to two."""

    def make(w: int, d: int) -> nn.Module:
        return _of(f"{_MONAI}.{kind}")(spatial_dims=2, in_channels=1, out_channels=2, **sizes(w, d))

    return make, (_PLANES,)


class Between(nn.Module):
    """Layers of a package between an input and an output of its own."""

    def __init__(self, first: nn.Module, layers: nn.Module, last: nn.Module, *, extra: Any = None):
        super().__init__()
        self.first, self.layers, self.last, self.extra = first, layers, last, extra

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        x = self.first(x)
        for layer in self.layers if isinstance(self.layers, nn.ModuleList) else [self.layers]:
            x = layer(x, *others)
            x = x[0] if isinstance(x, tuple) else x
        return self.last(x)  # type: ignore[no-any-return]


class Flow(nn.Module):
    """A neural differential equation, solved in as many steps as it is deep."""

    def __init__(self, width: int, depth: int, method: str) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(12, width), nn.Linear(width, 5)
        self.field = nn.Sequential(
            nn.Linear(width, 2 * width), nn.Tanh(), nn.Linear(2 * width, width)
        )
        self.depth, self.method = depth, method

    def forward(self, x: Tensor) -> Tensor:
        solve = _of("torchdiffeq.odeint")
        step = 1 / self.depth
        times = torch.linspace(0.0, 1.0, 2)
        path = solve(
            lambda t, y: self.field(y), self.first(x), times, method=self.method,
            options={"step_size": step},
        )  # fmt: skip
        return self.last(path[-1])  # type: ignore[no-any-return]


def _tokens(layers: Callable[[int, int], nn.Module]) -> _Make:
    return lambda w, d: Between(nn.Embedding(64, w), layers(w, d), nn.Linear(w, 64))


def _numbers(layers: Callable[[int, int], nn.Module], inputs: int = 12) -> _Make:
    return lambda w, d: Between(nn.Linear(inputs, w), layers(w, d), nn.Linear(w, 5))


def _graph(layer: Callable[[int], nn.Module]) -> _Make:
    return _numbers(lambda w, d: nn.ModuleList(layer(w) for _ in range(d)))


def _clip(w: int) -> dict[str, Any]:
    return {
        "embed_dim": w,
        "vision_cfg": {
            "layers": 2,
            "width": w,
            "head_width": HEAD,
            "patch_size": 8,
            "image_size": 32,
        },
        "text_cfg": {
            "context_length": 8,
            "vocab_size": 64,
            "width": w,
            "heads": w // HEAD,
            "layers": 2,
        },
    }


_MONAI = "monai.networks.nets"
_TABLES: dict[str, dict[str, tuple[_Make, _Inputs]]] = {
    "litgpt": {
        name: (_litgpt(name, **more), (IDS,))
        for name, more in {
            "pythia-14m": {},
            "phi-2": {},
            "falcon-7b": {},
            "Llama-2-7b-hf": {},
            "Qwen3-0.6B": {},
            "Gemma-2-2b": {},
            "Gemma-3-1b-it": {},
            "OLMo-2-1124-7B": {},
            "Mixtral-8x7B-v0.1": {"moe_intermediate_size": None},
            "stablelm-3b-4e1t": {},
        }.items()
    },
    "fair-esm": {
        "ESM2": (
            lambda w, d: _of("esm.model.esm2.ESM2")(
                num_layers=d, embed_dim=w, attention_heads=w // HEAD
            ),
            (IDS % 20 + 4,),
        ),
    },
    "open_clip": {
        "VisionTransformer": (_vision(), (_IMAGES,)),
        "attentional pool": (
            _vision(attentional_pool=True, attn_pooler_queries=4, attn_pooler_heads=2),
            (_IMAGES,),
        ),
        "TextTransformer": (
            lambda w, d: _of("open_clip.transformer.TextTransformer")(
                context_length=8, vocab_size=64, width=w, heads=w // HEAD, layers=d, output_dim=10
            ),
            (IDS,),
        ),
    },
    "monai": {
        "ViT": (
            lambda w, d: _of(f"{_MONAI}.ViT")(
                in_channels=3,
                img_size=(32, 32),
                patch_size=(8, 8),
                hidden_size=w,
                mlp_dim=2 * w,
                num_layers=d,
                num_heads=w // HEAD,
                classification=True,
                spatial_dims=2,
            ),
            (_IMAGES,),
        ),
        "SegResNet": _planes(
            "SegResNet",
            lambda w, d: {"init_filters": w, "blocks_down": (d, d, d), "blocks_up": (1, 1)},
        ),
        "SegResNet, up": _planes(
            "SegResNet",
            lambda w, d: {"init_filters": w, "blocks_down": (d, d, d), "blocks_up": (d, d)},
        ),
        "UNet": _planes(
            "UNet",
            lambda w, d: {"channels": (w, 2 * w, 4 * w), "strides": (2, 2), "num_res_units": 2},
        ),
        "AttentionUnet": _planes(
            "AttentionUnet", lambda w, d: {"channels": (w, 2 * w, 4 * w), "strides": (2, 2)}
        ),
        "BasicUNet": _planes(
            "BasicUNet", lambda w, d: {"features": (w, w, 2 * w, 4 * w, 8 * w, w)}
        ),
        "HighResNet": _planes(
            "HighResNet",
            lambda w, d: {
                "layer_params": (
                    {"name": "conv_0", "n_features": w, "kernel_size": 3},
                    *(
                        {"name": f"res_{i}", "n_features": w * 2**i, "kernels": (3, 3), "repeat": d}
                        for i in range(3)
                    ),
                    {"name": "conv_1", "n_features": 4 * w, "kernel_size": 1},
                    {"name": "conv_2", "kernel_size": 1},
                ),
            },
        ),
        "UNETR": _planes(
            "UNETR",
            lambda w, d: {
                "img_size": (32, 32),
                "feature_size": w // 2,
                "hidden_size": w,
                "mlp_dim": 2 * w,
                "num_heads": w // HEAD,
            },
        ),
        "SwinUNETR": (
            lambda w, d: _of(f"{_MONAI}.SwinUNETR")(
                in_channels=1,
                out_channels=2,
                depths=(d, d, d, d),
                num_heads=(2, 2, 2, 2),
                feature_size=12 * (w // 8),
                spatial_dims=2,
                window_size=2,
            ),
            (_drawn(1, 1, 64, 64),),
        ),
        "DecoderOnlyTransformer": (
            lambda w, d: _of(f"{_MONAI}.DecoderOnlyTransformer")(
                num_tokens=64,
                max_seq_len=8,
                attn_layers_dim=w,
                attn_layers_depth=d,
                attn_layers_heads=w // HEAD,
            ),
            (IDS,),
        ),
    },
    "pytorchcv": {
        "PreResNet": (
            _cv("preresnet", "PreResNet", bottleneck=False, conv1_stride=True),
            (_PICTURES,),
        ),
        "ResNeXt": (_cv("resnext", "ResNeXt", cardinality=4, bottleneck_width=64), (_PICTURES,)),
        "SEResNet": (_cv("seresnet", "SEResNet", bottleneck=True, conv1_stride=True), (_PICTURES,)),
        "BAM-ResNet": (_cv("bamresnet", "BamResNet", bottleneck=False), (_PICTURES,)),
        "CBAM-ResNet": (_cv("cbamresnet", "CbamResNet", bottleneck=False), (_PICTURES,)),
        "SCNet": (_cv("scnet", "SCNet"), (_PICTURES,)),
        "IBN-ResNet": (_cv("ibnresnet", "IBNResNet"), (_PICTURES,)),
        "WRN": (_cv("wrn", "WRN", width_factor=1.0), (_PICTURES,)),
        "RevNet": (_cv("revnet", "RevNet", stages=3, bottleneck=False), (_PICTURES,)),
        "DiracNetV2": (_cv("diracnetv2", "DiracNetV2"), (_PICTURES,)),
        "RegNet": (_cv("regnet", "RegNet", groups=[1, 1, 1, 1], use_se=True), (_PICTURES,)),
        "ResNet-D": (_cv("resnetd", "ResNetD", conv1_stride=False, bottleneck=True), (_PICTURES,)),
    },
    "neuraloperator": {
        "FNO": (
            lambda w, d: _of("neuralop.models.FNO")(
                n_modes=(4, 4), in_channels=1, out_channels=1, hidden_channels=w, n_layers=d
            ),
            (_PLANES,),
        ),
        "FNO, identity skip": (
            lambda w, d: _of("neuralop.models.FNO")(
                n_modes=(4, 4),
                in_channels=1,
                out_channels=1,
                hidden_channels=w,
                n_layers=d,
                fno_skip="identity",
                channel_mlp_skip="identity",
            ),
            (_PLANES,),
        ),
    },
    "torch_geometric": {
        "GCN": (
            lambda w, d: _of("torch_geometric.nn.models.GCN")(12, w, 2, out_channels=5),
            (_NODES, _EDGES),
        ),
        "GraphSAGE": (
            lambda w, d: _of("torch_geometric.nn.models.GraphSAGE")(12, w, 2, out_channels=5),
            (_NODES, _EDGES),
        ),
        "GAT": (
            lambda w, d: _of("torch_geometric.nn.models.GAT")(
                12, w, 2, out_channels=5, heads=w // HEAD
            ),
            (_NODES, _EDGES),
        ),
        "GIN": (
            lambda w, d: _of("torch_geometric.nn.models.GIN")(12, w, 2, out_channels=5),
            (_NODES, _EDGES),
        ),
        "DeepGCN": (
            _graph(
                lambda w: _of("torch_geometric.nn.DeepGCNLayer")(
                    _of("torch_geometric.nn.GENConv")(w, w, num_layers=2, norm="layer"),
                    nn.LayerNorm(w),
                    nn.ReLU(),
                )
            ),
            (_NODES, _EDGES),
        ),
        "GPS": (
            _graph(
                lambda w: _of("torch_geometric.nn.GPSConv")(
                    w,
                    _of("torch_geometric.nn.GINConv")(nn.Linear(w, w)),
                    heads=w // HEAD,
                    norm="layer_norm",
                )
            ),
            (_NODES, _EDGES),
        ),
    },
    "torchdiffeq": {
        method: (lambda w, d, method=method: Flow(w, d, method), (_SEQUENCE,))
        for method in ("euler", "midpoint", "rk4")
    },
    "ncps": {
        "CfC": (_numbers(lambda w, d: _of("ncps.torch.CfC")(w, w)), (_SEQUENCE,)),
        "LTC": (_numbers(lambda w, d: _of("ncps.torch.LTC")(w, w)), (_SEQUENCE,)),
    },
    "s5": {
        "S5": (
            _numbers(
                lambda w, d: nn.Sequential(*(_of("s5.S5Block")(w, w, False) for _ in range(d)))
            ),
            (_SEQUENCE,),
        ),
    },
    "lucidrains": {
        "gMLP": (
            lambda w, d: _of("g_mlp_pytorch.gMLP")(
                num_tokens=64, dim=w, depth=d, seq_len=8, ff_mult=2, causal=True
            ),
            (IDS,),
        ),
        "gMLPVision": (
            lambda w, d: _of("g_mlp_pytorch.gMLPVision")(
                image_size=32, patch_size=8, num_classes=10, dim=w, depth=d
            ),
            (_IMAGES,),
        ),
        "MLPMixer": (
            lambda w, d: _of("mlp_mixer_pytorch.MLPMixer")(
                image_size=32, channels=3, patch_size=8, dim=w, depth=d, num_classes=10
            ),
            (_IMAGES,),
        ),
        "PaLM": (
            lambda w, d: _of("palm_pytorch.PaLM")(
                dim=w, num_tokens=64, depth=d, dim_head=HEAD, heads=w // HEAD
            ),
            (IDS,),
        ),
        "Mega": (
            lambda w, d: _of("mega_pytorch.mega_pytorch.Mega")(
                dim=w, num_tokens=64, depth=d, pre_norm=True
            ),
            (IDS,),
        ),
        "Hourglass": (
            lambda w, d: _of("hourglass_transformer_pytorch.HourglassTransformerLM")(
                num_tokens=64,
                dim=w,
                max_seq_len=8,
                depth=(d, (d, d, d), d),
                shorten_factor=(2, 2),
                heads=w // HEAD,
                dim_head=HEAD,
            ),
            (IDS,),
        ),
        "Titans": (
            lambda w, d: _of("titans_pytorch.MemoryAsContextTransformer")(
                num_tokens=64,
                dim=w,
                depth=d,
                segment_len=8,
                dim_head=HEAD,
                heads=w // HEAD,
                neural_memory_layers=(),
                num_residual_streams=1,
                num_persist_mem_tokens=2,
            ),
            (IDS,),
        ),
        "TimeSformer": (
            lambda w, d: _of("timesformer_pytorch.TimeSformer")(
                dim=w,
                num_frames=2,
                num_classes=10,
                image_size=32,
                patch_size=8,
                depth=d,
                heads=w // HEAD,
                dim_head=HEAD,
            ),
            (_drawn(1, 2, 3, 32, 32),),
        ),
        "EGNN": (
            lambda w, d: _of("egnn_pytorch.EGNN_Network")(
                num_tokens=21, dim=w, depth=d, num_nearest_neighbors=4
            ),
            (IDS % 21, _drawn(2, 8, 3)),
        ),
        "Nystromformer": (
            _tokens(
                lambda w, d: _of("nystrom_attention.Nystromformer")(
                    dim=w, depth=d, dim_head=HEAD, heads=w // HEAD, num_landmarks=4
                )
            ),
            (IDS,),
        ),
        "Reformer": (
            lambda w, d: _of("reformer_pytorch.ReformerLM")(
                num_tokens=64,
                dim=w,
                depth=d,
                max_seq_len=8,
                heads=w // HEAD,
                dim_head=HEAD,
                bucket_size=4,
                causal=True,
                use_full_attn=True,
                ff_chunks=1,
            ),
            (IDS,),
        ),
        "Linformer": (
            lambda w, d: _of("linformer.LinformerLM")(
                num_tokens=64, dim=w, seq_len=8, depth=d, k=4, heads=w // HEAD, dim_head=HEAD
            ),
            (IDS,),
        ),
        "LocalTransformer": (
            lambda w, d: _of("local_attention.LocalTransformer")(
                num_tokens=64,
                max_seq_len=8,
                dim=w,
                depth=d,
                local_attn_window_size=4,
                dim_head=HEAD,
                heads=w // HEAD,
                num_residual_streams=1,
            ),
            (IDS,),
        ),
        "residual MLP": (
            lambda w, d: _of("x_mlps_pytorch.residual_normed_mlp.ResidualNormedMLP")(
                w, depth=2 * d, residual_every=2, dim_in=6, dim_out=5
            ),
            (_NUMBERS,),
        ),
        "residual MLP, orthogonal": (
            lambda w, d: _of("x_mlps_pytorch.residual_normed_mlp.ResidualNormedMLP")(
                w, depth=2 * d, residual_every=2, dim_in=6, dim_out=5, use_orthogonal_residual=True
            ),
            (_NUMBERS,),
        ),
        "Unet1D": (
            lambda w, d: _of("denoising_diffusion_pytorch.Unet1D")(
                dim=w, dim_mults=(1, 2), channels=3, attn_dim_head=HEAD, attn_heads=w // HEAD
            ),
            (_drawn(2, 3, 16), _TIME),
        ),
        "KarrasUnet": (
            lambda w, d: _of("denoising_diffusion_pytorch.KarrasUnet")(
                image_size=32,
                dim=w,
                dim_max=2 * w,
                channels=3,
                num_downsamples=1,
                num_blocks_per_stage=2,
                attn_res=(16,),
                attn_dim_head=HEAD,
                fourier_dim=16,
            ),
            (_IMAGES, _TIME),
        ),
    },
    "tabular": {
        "TabM": (
            lambda w, d: _of("tabm.TabM")(
                n_num_features=6,
                d_out=2,
                n_blocks=2,
                d_block=w,
                dropout=0.0,
                k=4,
                start_scaling_init="normal",
            ),
            (_NUMBERS,),
        ),
        "periodic embeddings": (
            lambda w, d: nn.Sequential(
                _of("rtdl_num_embeddings.PeriodicEmbeddings")(6, w // 2, lite=False),
                nn.Flatten(),
                nn.Linear(6 * (w // 2), w),
                nn.ReLU(),
                nn.Linear(w, 2),
            ),
            (_NUMBERS,),
        ),
        "rtdl ResNet, old": (
            lambda w, d: _of("rtdl.ResNet")(
                d_in=6,
                n_blocks=d,
                d_main=w,
                d_hidden=2 * w,
                dropout_first=0.0,
                dropout_second=0.0,
                normalization="BatchNorm1d",
                activation="ReLU",
                d_out=2,
            ),
            (_NUMBERS,),
        ),
    },
}


def fresh() -> Iterator[Case]:
    """All of them, in the order of their packages."""
    for package, models in _TABLES.items():
        for name, (make, inputs) in models.items():
            yield Case(package=package, name=name, make=make, inputs=inputs)
