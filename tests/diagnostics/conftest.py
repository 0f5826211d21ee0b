import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # the workers of tests with several processes


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
