import sys
from pathlib import Path

import pytest
import torch

# The seeded faults and simulated checks are benchmarks; the tests run slices of them.
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parent))  # the workers of tests with several processes


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
