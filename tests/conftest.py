"""One thread per process: two torch thread pools on the same cores slow each other down.

Set before anything imports torch, so that a bare ``pytest`` behaves as ``make test`` does.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
