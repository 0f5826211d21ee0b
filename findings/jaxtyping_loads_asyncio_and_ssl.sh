#!/bin/sh
# jaxtyping 0.3.11: `from jaxtyping import Float`, which is all that annotations need, loads its
# import hook, and with it unittest.mock, asyncio, concurrent.futures and ssl.
#
# Valid input: the import alone, with NumPy. Without jaxtyping a process that uses NumPy has none of
# the four. They are most of what the import costs, in every worker of a program whose annotations
# have shapes. What helps: import it where types are checked alone, or say shapes in docstrings on
# paths that must start fast.
#
# Seen (exit 0): all four. Exit 1: one of them is no longer loaded.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "jaxtyping==0.3.11" "numpy==2.4.6"
"$folder/venv/bin/python" - <<'PY'
import sys
import time

import numpy

begun = time.process_time()
heavy = ("unittest.mock", "asyncio", "concurrent.futures", "ssl")
before = [name for name in heavy if name in sys.modules]
from jaxtyping import Float

took = time.process_time() - begun
after = [name for name in heavy if name in sys.modules]
print("numpy alone:", before, "with jaxtyping:", after, f"{1000 * took:.0f} ms", flush=True)
assert Float[numpy.ndarray, "rows columns"]
sys.exit(before != [] or after != list(heavy))
PY
