"""``python -m tupper`` is the command ``tupper``."""

from tupper.cli import main

main()
