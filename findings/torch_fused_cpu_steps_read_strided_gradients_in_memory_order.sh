#!/bin/sh
# torch 2.13.0, CPU: a fused optimizer reads a gradient in the order of its memory, not of its
# indices, where the gradient's strides are not the parameter's. Nothing is raised or warned of; the
# entries of the step land in other places of the parameter.
#
# Valid input: .grad may be any tensor of the parameter's shape, device and dtype. backward() gives
# it the parameter's strides; torch.autograd.grad, torch.func.grad and vmap give what the products
# left, often a transposed view. Adam, AdamW, SGD and Adagrad do it alike with fused=True; with
# fused=False all are right. What helps: p.grad = g.contiguous().
#
# Seen (exit 0): "wrong" for all four. Exit 1: one of them now agrees with its own unfused step.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "torch==2.13.0+cpu" numpy \
    --extra-index-url https://download.pytorch.org/whl/cpu
"$folder/venv/bin/python" - <<'PY'
import sys

import torch

gradient = torch.tensor([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]])
transposed = gradient.T.contiguous().T  # equal, with strides (1, 2)
assert torch.equal(gradient, transposed) and transposed.stride() == (1, 2)


def stepped(kind, given, fused):
    parameter = torch.zeros(2, 3, requires_grad=True)
    parameter.grad = given
    kind([parameter], lr=0.1, fused=fused).step()
    return parameter.detach()


changed = False
for name in ("Adam", "AdamW", "SGD", "Adagrad"):
    kind = getattr(torch.optim, name)
    right = stepped(kind, gradient, False)
    assert torch.allclose(stepped(kind, transposed, False), right)
    assert torch.allclose(stepped(kind, gradient, True), right)
    agrees = torch.allclose(stepped(kind, transposed, True), right)
    changed |= agrees
    print(torch.__version__, name, "right" if agrees else "wrong", flush=True)
sys.exit(changed)
PY
