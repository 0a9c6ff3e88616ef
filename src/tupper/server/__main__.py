"""``python -m tupper.server``: how clients start the background process."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

from tupper.core.config import load_config
from tupper.core.errors import TupperError
from tupper.core.paths import find_paths, make_private

_LOG_BYTES = 2 * 1024 * 1024
_LOG_FILES = 3


def log_to(directory: Path) -> None:
    """Write events into a file in the data directory, bounded in size."""
    make_private(directory)
    handler = RotatingFileHandler(
        directory / "daemon.log", maxBytes=_LOG_BYTES, backupCount=_LOG_FILES, delay=True
    )
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("tupper")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    logger.propagate = False
    logging.raiseExceptions = False  # a full disk is no reason to fill another with complaints


def tell(fd: int, line: str) -> None:
    """Say one line to who started us, and hang up."""
    if fd < 0:
        return
    with contextlib.suppress(OSError):
        os.write(fd, line.encode() + b"\n")
    with contextlib.suppress(OSError):
        os.close(fd)


def main(argv: list[str] | None = None) -> int:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m tupper.server")
    parser.add_argument("--background", action="store_true", help="leave when idle")
    parser.add_argument("--ready-fd", type=int, default=-1, help="where to say `ready URL`")
    parser.add_argument("--listen", action="append", default=[], metavar="HOST:PORT")
    parser.add_argument("--domain", default=None)
    options = parser.parse_args(argv)
    paths = find_paths()
    try:
        log_to(paths.data)
        settings = load_config(paths, environ=os.environ).settings
    except (TupperError, OSError) as error:
        tell(options.ready_fd, f"error {error}")
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - a program's main
        return 1
    from tupper.server.daemon import Options, run  # noqa: PLC0415 - errors above come quickly

    return run(
        paths,
        settings,
        Options(
            background=options.background,
            listen=options.listen,
            domain=options.domain,
            ready=lambda urls: tell(options.ready_fd, f"ready {urls[0]}"),
            failed=lambda reason: tell(options.ready_fd, f"error {' '.join(reason.split())}"),
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
