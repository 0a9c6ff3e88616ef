"""The command line: one verb a file, imported when it runs."""

from tupper.cli._app import main

__all__ = ["main"]
