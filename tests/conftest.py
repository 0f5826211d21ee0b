"""One thread per process: two torch thread pools on the same cores slow each other down.

Set before anything imports torch, so that a bare ``pytest`` behaves as ``make test`` does.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import settings
from jaxtyping import install_import_hook

# Types and shapes in signatures of these packages are checked at every call, while testing.
install_import_hook(["depthmup.limits", "depthmup.statistics"], "typechecker.checked")

# A deadline would make every property depend on how busy the machine is.
settings.register_profile("depthmup", deadline=None)
settings.load_profile("depthmup")
