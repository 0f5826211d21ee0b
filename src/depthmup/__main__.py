"""``python -m depthmup``."""

import sys

from depthmup.cli import main

if __name__ == "__main__":
    sys.exit(main())
