"""``tupper serve``."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from tupper.cli import _output


@click.command()
@click.option(
    "--listen", multiple=True, metavar="HOST:PORT", help="Also on TCP, with API keys; repeatable."
)
@click.option(
    "--domain", metavar="NAME", help="What clients append to PORT-SANDBOX to reach ports."
)
def serve(*, listen: tuple[str, ...], domain: str | None) -> int:
    """Serve the API in the foreground until Ctrl-C; sandboxes run on after that.

    On the private unix socket of this user, and with --listen on TCP too, where every request
    needs a key; the first is made and shown, tupper key create makes more. Takes the place of
    the background process.
    """
    from tupper.cli._control import displace_background  # noqa: PLC0415 - quick --help
    from tupper.core.config import load_config  # noqa: PLC0415 - quick --help
    from tupper.core.paths import find_paths  # noqa: PLC0415
    from tupper.server.daemon import Options, run  # noqa: PLC0415 - POSIX only

    os.umask(0o077)
    displace_background()
    paths = find_paths()
    settings = load_config(paths, environ=os.environ).settings

    made: list[str] = []

    def ready(urls: Sequence[str]) -> None:
        for address in urls:
            _output.note(f"listening on {address}")
        for address in [url for url in urls if url.startswith("http")][:1]:
            _output.note("for E2B's SDKs:")
            names = ("E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL")
            _output.note("  export " + " ".join(f"{name}={address}" for name in names))
            key = made[0] if made else "$(tupper key create)"
            _output.note(f"  export E2B_API_KEY={key}")

    return run(
        paths, settings, Options(listen=listen, domain=domain, ready=ready, first_key=made.append)
    )
