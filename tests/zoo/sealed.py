"""Twenty-five architectures of fields that no other list has, committed before any plan of them.

Five classes of transformers (5.23) that no list names, and twenty by hand (``sealed_models``):
board games, weather, chemistry, genomics, music, handwriting, poses, motion, super-resolution,
advertisements, knowledge graphs, meta-learning, demand, objects, satellites, medicine, particles,
trees, law. ``WIDE`` have no depth that a factory could grow.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tests.zoo import sealed_models as by_hand
from tests.zoo.architectures import HEAD
from tests.zoo.case import Case
from tests.zoo.fresh import _drawn, _of

_G = torch.Generator().manual_seed(0)
_Inputs = tuple[Tensor, ...] | Mapping[str, Tensor]

WIDE = ("handwriting", "demand", "motion")
"""Models along whose width alone they grow."""


def _ids(n: int, *shape: int) -> Tensor:
    return torch.randint(1, n, shape, generator=_G)


def _transformer(name: str, **settings: Any) -> Callable[[int, int], nn.Module]:
    def make(w: int, d: int) -> nn.Module:
        config = _of(f"transformers.{name.split('For')[0].removesuffix('Model')}Config")
        own = {key: value(w, d) if callable(value) else value for key, value in settings.items()}
        common = {"hidden_size": w, "intermediate_size": 4 * w, "num_attention_heads": w // HEAD}
        return _of(f"transformers.{name}")(config(**(common | own)))  # type: ignore[no-any-return]

    return make


def _depth(w: int, d: int) -> int:
    return d


def _heads(w: int, d: int) -> int:
    return w // HEAD


_CONVOLVED = {"conv_dim": (16, 16), "conv_kernel": (4, 4), "conv_stride": (4, 4)}
_TRANSFORMERS: Mapping[str, tuple[Callable[[int, int], nn.Module], _Inputs]] = {
    "Lxmert": (
        _transformer(
            "LxmertModel", vocab_size=32, l_layers=_depth, x_layers=_depth, r_layers=_depth,
            visual_feat_dim=12, max_position_embeddings=32,
        ),
        {
            "input_ids": _ids(32, 2, 8), "visual_feats": _drawn(2, 5, 12),
            "visual_pos": torch.rand(2, 5, 4, generator=_G),
        },
    ),
    "VisualBert": (
        _transformer(
            "VisualBertModel", vocab_size=32, visual_embedding_dim=12,
            num_hidden_layers=_depth, max_position_embeddings=32,
        ),
        {
            "input_ids": _ids(32, 2, 8), "attention_mask": torch.ones(2, 8),
            "visual_embeds": _drawn(2, 5, 12),
            "visual_token_type_ids": torch.ones(2, 5, dtype=torch.long),
            "visual_attention_mask": torch.ones(2, 5),
        },
    ),
    "Yolos": (
        _transformer(
            "YolosForObjectDetection", num_hidden_layers=_depth, image_size=[32, 32], patch_size=8,
            num_detection_tokens=5, use_mid_position_embeddings=False, num_labels=4,
        ),
        {"pixel_values": _drawn(2, 3, 32, 32)},
    ),
    "Hubert": (
        _transformer(
            "HubertForCTC", num_hidden_layers=_depth, vocab_size=12, num_feat_extract_layers=2,
            num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, **_CONVOLVED,
        ),
        {"input_values": _drawn(2, 256)},
    ),
    "TimesFm": (
        _transformer(
            "TimesFmModelForPrediction", num_hidden_layers=_depth, head_dim=HEAD, patch_length=8,
            horizon_length=8, context_length=32,
        ),
        {"past_values": _drawn(2, 32)},
    ),
    "Moonshine": (
        _transformer(
            "MoonshineForConditionalGeneration", vocab_size=32, encoder_num_hidden_layers=_depth,
            decoder_num_hidden_layers=_depth, encoder_num_attention_heads=_heads,
            decoder_num_attention_heads=_heads, encoder_num_key_value_heads=_heads,
            decoder_num_key_value_heads=_heads,
        ),
        {"input_values": _drawn(2, 2048), "decoder_input_ids": _ids(32, 2, 8)},
    ),
}  # fmt: skip
_SEND, _RECEIVE = _ids(9, 24), _ids(9, 24)
_PARTS = torch.rand(3, 7, 7, generator=_G)
_PICTURE = _drawn(2, 3, 16, 16)
_BY_HAND: Mapping[str, tuple[Callable[[int, int], nn.Module], _Inputs]] = {
    "board game": (by_hand.BoardGame, (_drawn(4, 6, 6, 6),)),
    "weather": (by_hand.Weather, (_drawn(9, 5), _drawn(24, 3), _SEND, _RECEIVE)),
    "molecule": (by_hand.Molecule, (_ids(10, 3, 6), _drawn(3, 6, 3))),
    "genome": (by_hand.Genome, (_drawn(3, 4, 24),)),
    "music": (by_hand.Music, (_ids(24, 4, 10),)),
    "handwriting": (by_hand.Handwriting, (_drawn(3, 1, 8, 24),)),
    "poses": (by_hand.Poses, (_drawn(4, 3, 8, 7), _PARTS / _PARTS.sum(1, keepdim=True))),
    "motion": (by_hand.OpticalFlow, (_PICTURE, _PICTURE.flip(-1))),
    "super-resolution": (by_hand.SuperResolution, (_drawn(2, 3, 8, 8),)),
    "advertisements": (by_hand.Advertising, (_ids(40, 16, 6), _ids(40, 16))),
    "knowledge graph": (by_hand.Knowledge, (_ids(30, 16), _ids(6, 16))),
    "neural process": (by_hand.NeuralProcess, (_drawn(4, 6, 1), _drawn(4, 6, 1), _drawn(4, 5, 1))),
    "demand": (by_hand.Demand, (_drawn(16, 12),)),
    "objects": (by_hand.Slots, (_PICTURE,)),
    "satellite": (by_hand.Satellite, (_drawn(4, 8, 5), torch.rand(4, 8, generator=_G))),
    "heartbeat": (by_hand.Heartbeat, (_drawn(8, 2, 48),)),
    "particles": (by_hand.Physics, (_drawn(6, 8, 4),)),
    "trees": (by_hand.Trees, (_drawn(16, 6),)),
    "documents": (by_hand.Documents, (_ids(32, 3, 4, 5),)),
}


def sealed() -> Iterator[Case]:
    """All of them; those of transformers first."""
    for name, (make, inputs) in _TRANSFORMERS.items():
        yield Case(package="transformers", name=name, make=make, inputs=inputs)
    for name, (make, inputs) in _BY_HAND.items():
        yield Case(package="by hand", name=name, make=make, inputs=inputs)
