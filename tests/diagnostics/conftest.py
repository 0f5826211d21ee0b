import sys
from pathlib import Path

import pytest
import torch

# The seeded faults are a benchmark; the tests run a slice of it.
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
