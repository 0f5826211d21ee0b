"""Importing the reports costs nothing: no torch, no Altair, no pandas, nothing else of ours."""

import json
import subprocess
import sys

SCRIPT = """
import json, sys
import depthmup.reports
print(json.dumps(sorted(sys.modules)))
"""


def test_importing_reports_loads_no_heavy_library():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    heavy = {"torch", "altair", "pandas", "numpy", "vl_convert", "jinja2", "rich"}
    assert heavy.isdisjoint(loaded)
    ours = {name.split(".")[1] for name in loaded if name.startswith("depthmup.")}
    assert ours <= {"_drafts", "_meant", "_version", "records", "reports", "rules"}
