"""The command line: names become objects here."""

from depthmup.cli.main import main

__all__ = ["main"]
