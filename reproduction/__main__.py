"""``python -m reproduction fig10 fig11``: as ``depthmup reproduce``, from the root of a clone."""

import sys

from depthmup.cli import main

if __name__ == "__main__":
    # What is typed is recorded beside the results.
    sys.argv[1:] = ["reproduce", *sys.argv[1:]]
    sys.exit(main())
