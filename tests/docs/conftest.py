"""timm needs torchvision, whose builds for CUDA do not load beside a PyTorch for the CPU.

Its Python code, which is all that timm uses, loads once the operators that it gives shapes to are
declared. ``make integrations`` keeps it out of the environment, for the page of timm alone: there
it would break transformers, which looks whether it is installed.
"""

import importlib.util

import torch

_BOXES = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

if importlib.util.find_spec("torchvision"):
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", _BOXES)
