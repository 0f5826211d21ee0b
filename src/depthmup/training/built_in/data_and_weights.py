"""What a cell starts from: its data, their order and its initial weights.

Common random numbers: everything here depends on the cell's seed and on the position in the network
alone, never on learning rate, multiplier or depth. So all learning rates and schemes of one seed
see the same data in the same order from the same initialization, and the first layers of a deeper
network equal those of a shallower one. Differences between runs of one seed are then due to what
the sweep varies, which takes much of the noise out of a comparison.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from depthmup.records import Cell, Data, Network
from depthmup.training.built_in.dataset import Dataset, digits, with_label_noise
from depthmup.training.built_in.residual_mlp import ResidualMLP
from depthmup.training.built_in.sources import found_data


def stream(seed: int, *labels: str | int) -> torch.Generator:
    """An independent generator for each seed and labels, such as ``stream(0, "branch", 3)``."""
    # A hash, since seed + layer would give neighbouring seeds the same weights in other layers. Its
    # first 7 bytes fit torch's 64-bit seeds, signed or not.
    digest = hashlib.sha256(repr((seed, *labels)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


@lru_cache(maxsize=4)
def dataset(data: Data) -> Dataset:
    """The data set that a cell names."""
    generator = torch.Generator().manual_seed(data.label_seed)
    if data.name == "digits":
        return digits(label_noise=data.label_noise, generator=generator)
    return with_label_noise(found_data(data.name, data.digest), data.label_noise, generator)


def batches(cell: Cell) -> Tensor:
    """The examples of every step, (steps, batch_size); a longer run begins like a shorter one."""
    data, generator = dataset(cell.data), stream(cell.seed, "batches")
    draw = {"replacement": data.batches, "epochs": data.epochs}[cell.order]
    return draw(cell.steps, cell.batch_size, generator)


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Initial weights U (width, inputs), W of every layer, drawn when asked for, and V."""

    network: Network
    seed: int

    def _draw(self, std: float, rows: int, columns: int, *labels: str | int) -> Tensor:
        return torch.randn(rows, columns, generator=stream(self.seed, *labels)) * std

    def input(self) -> Tensor:
        return self._draw(self.network.input_std, self.network.width, self.network.inputs, "input")

    def hidden(self, layer: int, matrix: int) -> Tensor:
        """One W of one branch, (width, width)."""
        n = self.network.width
        return self._draw(self.network.hidden_std, n, n, "branch", layer, matrix)

    def readout(self) -> Tensor:
        return self._draw(
            self.network.readout_std, self.network.outputs, self.network.width, "readout"
        )


def build(cell: Cell) -> ResidualMLP:
    """The cell's network as a module, at its initial weights."""
    spec, weights = cell.network, Weights(network=cell.network, seed=cell.seed)
    model = ResidualMLP(
        inputs=spec.inputs,
        width=spec.width,
        depth=spec.depth,
        outputs=spec.outputs,
        multiplier=spec.multiplier,
        block_depth=spec.block_depth,
        activation_name=spec.activation,
        nonlinearity=spec.nonlinearity,  # type: ignore[arg-type]
        mean_subtraction=spec.mean_subtraction,
        layer_norm=spec.layer_norm,
    )
    with torch.no_grad():
        model.input.weight.copy_(weights.input())
        model.readout.weight.copy_(weights.readout())
        for layer, branch in enumerate(model.branches):
            for matrix, linear in enumerate(branch.matrices):  # type: ignore[arg-type]
                linear.weight.copy_(weights.hidden(layer, matrix))
    model.input.requires_grad_(False)
    model.readout.requires_grad_(False)
    return model
