"""Thirty more architectures that the library was never tried on, chosen before any result.

    pip install --no-deps spandrel xlstm yet-another-retnet openai-whisper encodec \
        pytorch-tabnet itransformer pytorch-tsmixer tabicl rsl-rl-lib segment-anything \
        dynamic-network-architectures kornia enformer-pytorch curated-transformers a-unet \
        pytorch-tcn continuiti speechbrain braindecode zuko pykan ...

The packages are named beside the models; a model whose package is not installed is not built.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tests.zoo.architectures import HEAD, IDS, PIXELS
from tests.zoo.case import Case
from tests.zoo.fresh import Between, _drawn, _of

_Inputs = tuple[Any, ...] | Mapping[str, Any]
_Make = Callable[[int, int], nn.Module]
_SERIES, _CELLS = _drawn(2, 16, 6), _drawn(4, 6)


class _Rows(nn.Module):
    """A network of the rows of a table of observations."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(_of("tensordict.TensorDict", source={"rows": x}, batch_size=[len(x)]))


class _Density(nn.Module):
    """The density that a flow gives to its inputs."""

    def __init__(self, flow: nn.Module) -> None:
        super().__init__()
        self.flow = flow

    def forward(self, x: Tensor) -> Tensor:
        return self.flow().log_prob(x)  # type: ignore[no-any-return]


class _Logits(nn.Module):
    """A language model of curated transformers."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, ids: Tensor) -> Tensor:
        mask = _of("curated_transformers.layers.AttentionMask")(torch.ones_like(ids).bool())
        return self.inner(ids, mask).logits  # type: ignore[no-any-return]


class _Species(nn.Module):
    """Enformer's trunk and its head of one species."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, head="human")  # type: ignore[no-any-return]


def _causal(name: str, sizes: Callable[[int, int], dict[str, Any]], config: str = "") -> _Make:
    """A language model of transformers."""

    def make(w: int, d: int) -> nn.Module:
        settings = _of(f"transformers.{config or name}Config")(
            vocab_size=64, hidden_size=w, pad_token_id=0, bos_token_id=0, eos_token_id=0,
            **sizes(w, d),
        )  # fmt: skip
        return _of(f"transformers.{name}ForCausalLM")(settings)

    return make


def _heads(w: int) -> dict[str, Any]:
    return {"num_attention_heads": w // HEAD, "num_key_value_heads": w // HEAD, "head_dim": HEAD}


def _configured(kind: str, config: str, sizes: Callable[[int, int], dict[str, Any]]) -> _Make:
    return lambda w, d: _of(f"transformers.{kind}")(_of(f"transformers.{config}")(**sizes(w, d)))


def _xlstm(w: int, d: int) -> nn.Module:
    layer = _of("xlstm.mLSTMLayerConfig", num_heads=w // HEAD, proj_factor=4.0)
    return _of("xlstm.xLSTMBlockStack")(
        _of(
            "xlstm.xLSTMBlockStackConfig", mlstm_block=_of("xlstm.mLSTMBlockConfig", mlstm=layer),
            context_length=8, num_blocks=d, embedding_dim=w,
        )
    )  # fmt: skip


def _unet(w: int, d: int) -> nn.Module:
    block, items = _of("a_unet.apex.Block"), [_of("a_unet.apex.ResnetItem")] * d

    def stage(channels: int) -> Any:
        return _of("a_unet.T")(block)(channels=channels, factor=2, items=items)

    return _of("a_unet.apex.XUNet")(
        in_channels=3, out_channels=3, blocks=[stage(w), stage(2 * w)], dim=1, resnet_groups=4
    )


def _whisper(w: int, d: int) -> nn.Module:
    sizes = _of(
        "whisper.model.ModelDimensions", n_mels=4, n_audio_ctx=8, n_audio_state=w,
        n_audio_head=w // HEAD, n_audio_layer=d, n_vocab=64, n_text_ctx=8,
        n_text_state=w, n_text_head=w // HEAD, n_text_layer=d,
    )  # fmt: skip
    model = _of("whisper.model.Whisper")(sizes)
    nn.init.normal_(model.decoder.positional_embedding, std=0.02)  # memory without values
    return model  # type: ignore[no-any-return]


def _shapes() -> Any:
    """One function of a line, known at eight places and wanted at five."""
    known, wanted = (
        _of("continuiti.operators.shape.TensorShape", dim=1, size=torch.Size([n])) for n in (8, 5)
    )
    return _of("continuiti.operators.shape.OperatorShapes", x=known, u=known, y=wanted, v=wanted)


_SIZES: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "NemotronH": lambda w, d: _heads(w) | {
        "layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp"] * d,
        "intermediate_size": 2 * w, "mamba_num_heads": w // 4, "mamba_head_dim": 8,
        "ssm_state_size": 8, "n_groups": 1,
    },
    "Zamba2": lambda w, d: {
        "num_hidden_layers": 2 * d, "layers_block_type": ["linear_attention", "hybrid"] * d,
        "num_attention_heads": w // HEAD, "num_key_value_heads": w // HEAD,
        "intermediate_size": 2 * w, "n_mamba_heads": w // 4, "mamba_d_state": 8, "adapter_rank": 4,
    },
    "HrmText": lambda w, d: _heads(w) | {
        "num_layers_per_stack": d, "num_hidden_layers": 8 * d, "intermediate_size": 2 * w,
    },
    "Zaya": lambda w, d: _heads(w) | {
        "num_hidden_layers": d, "num_experts": 4, "moe_intermediate_size": 2 * w,
        "router_hidden_size": w, "layer_types": ["hybrid"] * d,
    },
    "Lfm3": lambda w, d: _heads(w) | {
        "num_hidden_layers": 2 * d, "layer_types": ["conv", "full_attention"] * d,
        "intermediate_size": 2 * w,
    },
    "Gemma3n": lambda w, d: _heads(w) | {
        "num_hidden_layers": d, "intermediate_size": [2 * w] * d, "num_kv_shared_layers": 0,
        "layer_types": ["full_attention"] * d, "activation_sparsity_pattern": [0.0] * d,
        "hidden_size_per_layer_input": 8, "laurel_rank": 4, "vocab_size_per_layer_input": 64,
    },
    "LongcatFlash": lambda w, d: {
        "num_layers": d, "num_attention_heads": w // HEAD, "num_key_value_heads": w // HEAD,
        "ffn_hidden_size": 2 * w, "expert_ffn_hidden_size": w, "q_lora_rank": w // 2,
        "kv_lora_rank": w // 2, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "head_dim": 4,
        "v_head_dim": 8, "n_routed_experts": 4, "zero_expert_num": 2, "moe_topk": 2,
    },
}  # fmt: skip
_SPANDREL = "spandrel.architectures"
_UNETS = "dynamic_network_architectures.architectures.unet"
_TABLES: dict[str, dict[str, tuple[_Make, _Inputs]]] = {
    "transformers": {
        **{
            name: (
                _causal(name, sizes, "Gemma3nText" if name == "Gemma3n" else ""),
                {"input_ids": IDS},
            )
            for name, sizes in _SIZES.items()
        },
        "Wav2Vec2": (
            _configured(
                "Wav2Vec2ForCTC",
                "Wav2Vec2Config",
                lambda w, d: {
                    "hidden_size": w, "num_hidden_layers": d, "num_attention_heads": w // HEAD,
                    "intermediate_size": 2 * w, "conv_dim": (w,) * 3, "conv_stride": (5, 2, 2),
                    "conv_kernel": (10, 3, 3), "num_conv_pos_embeddings": 4,
                    "num_conv_pos_embedding_groups": 4, "num_feat_extract_layers": 3,
                    "apply_spec_augment": False, "layerdrop": 0.0,
                },
            ),
            {"input_values": _drawn(2, 400)},
        ),
        "PatchTST": (
            _configured(
                "PatchTSTForPrediction",
                "PatchTSTConfig",
                lambda w, d: {
                    "num_input_channels": 6, "context_length": 16, "patch_length": 4,
                    "patch_stride": 4, "d_model": w, "num_hidden_layers": d, "ffn_dim": 2 * w,
                    "num_attention_heads": w // HEAD, "prediction_length": 4,
                },
            ),
            {"past_values": _SERIES},
        ),
        "DecisionTransformer": (
            _configured(
                "DecisionTransformerModel",
                "DecisionTransformerConfig",
                lambda w, d: {
                    "state_dim": 6, "act_dim": 2, "hidden_size": w, "n_layer": d,
                    "n_head": w // HEAD, "max_ep_len": 16, "bos_token_id": 0, "eos_token_id": 0,
                },
            ),
            {
                "states": _drawn(2, 4, 6), "actions": _drawn(2, 4, 2), "rewards": _drawn(2, 4, 1),
                "returns_to_go": _drawn(2, 4, 1), "timesteps": torch.arange(4).repeat(2, 1),
                "attention_mask": torch.ones(2, 4),
            },
        ),
    },
    "spandrel": {
        "SwinIR": (
            lambda w, d: _of(f"{_SPANDREL}.SwinIR.SwinIR")(
                img_size=8, embed_dim=w, depths=[2] * d, num_heads=[w // HEAD] * d,
                window_size=4, mlp_ratio=2, upscale=2, upsampler="pixelshuffle",
            ),
            (_drawn(1, 3, 8, 8),),
        ),
        "ESRGAN": (
            lambda w, d: _of(f"{_SPANDREL}.ESRGAN.__arch.RRDB.RRDBNet")(
                num_filters=w, num_blocks=d, scale=2
            ),
            (_drawn(1, 3, 8, 8),),
        ),
        "NAFNet": (
            lambda w, d: _of(f"{_SPANDREL}.NAFNet.NAFNet")(
                width=w, middle_blk_num=d, enc_blk_nums=[d], dec_blk_nums=[d]
            ),
            (_drawn(1, 3, 8, 8),),
        ),
    },
    "xlstm": {
        "mLSTM": (
            lambda w, d: Between(nn.Embedding(64, w), _xlstm(w, d), nn.Linear(w, 64)),
            (IDS,),
        ),
    },
    "yet-another-retnet": {
        "RetNet": (
            lambda w, d: nn.Sequential(
                nn.Embedding(64, w),
                *(
                    _of("yet_another_retnet.retnet.RetNetDecoderLayer")(w, w // HEAD, 2 * w)
                    for _ in range(d)
                ),
                nn.Linear(w, 64),
            ),
            (IDS,),
        ),
    },
    "openai-whisper": {
        "Whisper": (
            _whisper,
            (_drawn(2, 4, 16), IDS),
        ),
    },
    "encodec": {
        "SEANetEncoder": (
            lambda w, d: _of("encodec.modules.SEANetEncoder")(
                dimension=2 * w, n_filters=w // 4, n_residual_layers=d, ratios=[2, 2], lstm=0
            ),
            (_drawn(2, 1, 64),),
        ),
    },
    "pytorch-tabnet": {
        "TabNet": (
            lambda w, d: _of("pytorch_tabnet.tab_network.TabNet")(
                6, 2, n_d=w, n_a=w, n_steps=d, group_attention_matrix=torch.eye(6)
            ),
            (_CELLS,),
        ),
    },
    "itransformer": {
        "iTransformer": (
            lambda w, d: _of("iTransformer.iTransformer")(
                num_variates=6, lookback_len=16, depth=d, dim=w, pred_length=4, dim_head=HEAD,
                heads=w // HEAD, num_residual_streams=1,
            ),
            (_SERIES,),
        ),
    },
    "pytorch-tsmixer": {
        "TSMixer": (
            lambda w, d: _of("torchtsmixer.TSMixer")(
                16, 4, 6, num_blocks=d, ff_dim=w, norm_type="layer"
            ),
            (_SERIES,),
        ),
    },
    "tabicl": {
        "TabICL": (
            lambda w, d: _of("tabicl._model.tabicl.TabICL")(
                max_classes=2, embed_dim=w, col_num_blocks=d, col_nhead=w // HEAD, col_num_inds=4,
                row_num_blocks=d, row_nhead=w // HEAD, row_num_cls=2, icl_num_blocks=d,
                icl_nhead=2 * w // HEAD,
            ),
            (_drawn(2, 5, 6), torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]])),
        ),
    },
    "rsl-rl": {
        "actor": (
            lambda w, d: _Rows(
                _of("rsl_rl.models.MLPModel")(
                    _of("tensordict.TensorDict", source={"rows": _CELLS}, batch_size=[4]),
                    {"actor": ["rows"]}, "actor", 2, hidden_dims=[w, w],
                )
            ),
            (_CELLS,),
        ),
    },
    "segment-anything": {
        "ImageEncoderViT": (
            lambda w, d: _of("segment_anything.modeling.ImageEncoderViT")(
                img_size=32, patch_size=8, embed_dim=w, depth=d, num_heads=w // HEAD, mlp_ratio=2.0,
                out_chans=16, use_rel_pos=True, window_size=2, global_attn_indexes=(1,),
            ),
            (PIXELS,),
        ),
    },
    "dynamic-network-architectures": {
        "ResidualEncoderUNet": (
            lambda w, d: _of(f"{_UNETS}.ResidualEncoderUNet")(
                input_channels=3, n_stages=2, features_per_stage=[w, 2 * w], conv_op=nn.Conv2d,
                kernel_sizes=3, strides=[1, 2], n_blocks_per_stage=[d, d], num_classes=2,
                n_conv_per_stage_decoder=1, norm_op=nn.InstanceNorm2d, nonlin=nn.ReLU,
                norm_op_kwargs={"affine": True},
            ),
            (PIXELS,),
        ),
    },
    "kornia": {
        "VisionTransformer": (
            lambda w, d: nn.Sequential(
                _of("kornia.models.vit.VisionTransformer")(
                    image_size=32, patch_size=8, embed_dim=w, depth=d, num_heads=w // HEAD
                ),
                nn.Linear(w, 10),
            ),
            (PIXELS,),
        ),
    },
    "enformer-pytorch": {
        "Enformer": (
            lambda w, d: _Species(
                _of("enformer_pytorch.Enformer").from_hparams(
                    dim=3 * w, depth=d, heads=w // HEAD, output_heads={"human": 5},
                    target_length=4, num_downsamples=3, dim_divisible_by=w // 2, attn_dim_key=HEAD,
                )
            ),
            (_drawn(1, 64, 4).softmax(-1),),
        ),
    },
    "curated-transformers": {
        "Llama": (
            lambda w, d: _Logits(
                _of("curated_transformers.models.LlamaCausalLM")(
                    _of(
                        "curated_transformers.models.LlamaConfig", hidden_width=w,
                        intermediate_width=2 * w, n_query_heads=w // HEAD, n_hidden_layers=d,
                        n_key_value_heads=w // HEAD, n_pieces=64, dtype=torch.float32,
                        rotary_embedding_fraction=1.0,
                    )
                )
            ),
            (IDS,),
        ),
    },
    "a-unet": {"XUNet": (_unet, (_drawn(2, 3, 16),))},
    "pytorch-tcn": {
        "TCN": (
            lambda w, d: nn.Sequential(
                nn.Conv1d(6, w, 1),
                _of("pytorch_tcn.TCN")(
                    w, [w] * d, dilations=[1] * d, output_projection=2, use_norm="weight_norm"
                ),
            ),
            (_drawn(2, 6, 16),),
        ),
    },
    "continuiti": {
        "DeepONet": (
            lambda w, d: _of("continuiti.operators.DeepONet")(
                _shapes(), branch_width=w, branch_depth=2, trunk_width=w, trunk_depth=2,
                basis_functions=w,
            ),
            (_drawn(2, 1, 8), _drawn(2, 1, 8), _drawn(2, 1, 5)),
        ),
    },
    "speechbrain": {
        name: (
            lambda w, d, name=name, more=more: Between(
                nn.Linear(6, w),
                _of(f"speechbrain.lobes.models.transformer.{name}.{name}Encoder")(
                    num_layers=d, d_model=w, nhead=w // HEAD, kernel_size=3,
                    attention_type="regularMHA", **{k: f(w) for k, f in more.items()},
                ),
                nn.Linear(w, 10),
            ),
            (_SERIES,),
        )
        for name, more in {
            "Conformer": {"d_ffn": lambda w: 2 * w},
            "Branchformer": {"csgu_linear_units": lambda w: 2 * w},
        }.items()
    },
    "braindecode": {
        "EEGConformer": (
            lambda w, d: _of("braindecode.models.EEGConformer")(
                n_outputs=2, n_chans=4, n_times=128, n_filters_time=w, num_layers=d,
                num_heads=w // HEAD, filter_time_length=5, pool_time_length=16, pool_time_stride=8,
            ),
            (_drawn(2, 4, 128),),
        ),
    },
    "zuko": {
        "MAF": (
            lambda w, d: _Density(
                _of("zuko.flows.MAF")(6, transforms=2, hidden_features=(w, w))
            ),
            (_CELLS,),
        ),
        "NSF coupling": (
            lambda w, d: _Density(
                _of("zuko.flows.NICE")(6, transforms=2, hidden_features=(w, w))
            ),
            (_CELLS,),
        ),
    },
    "pykan": {
        "KAN": (
            lambda w, d: _of("kan.KAN")(
                width=[6, w, w, 2], grid=3, k=3, symbolic_enabled=False, auto_save=False,
                save_act=False,
            ),
            (_CELLS,),
        ),
    },
}  # fmt: skip


def thirty() -> Iterator[Case]:
    """All of them, in the order of their packages."""
    for package, models in _TABLES.items():
        for name, (make, inputs) in models.items():
            yield Case(package=package, name=name, make=make, inputs=inputs)
