import sys
from pathlib import Path

# The models of planning_zoo.py are used by most tests of this folder.
sys.path.insert(0, str(Path(__file__).parent))
