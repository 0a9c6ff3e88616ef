"""``tupper mcp``."""

from __future__ import annotations

import math
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tupper.cli import _output
from tupper.cli._options import Span

if TYPE_CHECKING:
    from tupper.mcp.clients import Server
    from tupper.mcp.http import Place
    from tupper.mcp.sessions import Options

TOKEN = "TUPPER_MCP_TOKEN"  # noqa: S105 - the name of a variable
LISTEN = "127.0.0.1:8722"
CLIENTS = ("claude-code", "cursor", "codex", "vscode")


def read_share(value: str) -> tuple[str, bool]:
    """``DIR[:ro|:rw]`` as (absolute path, whether it may be written to)."""
    place, colon, mode = value.rpartition(":")
    if not colon or mode not in {"ro", "rw"}:
        place, mode = value, "ro"
    path = Path(place).expanduser()
    if not path.is_dir():
        raise click.BadParameter(f"{place!r} is not a directory", param_hint="--share")
    return str(path.absolute()), mode == "rw"


def read_listen(value: str) -> tuple[str, int]:
    """``HOST:PORT``."""
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{value!r} is not of the form HOST:PORT", param_hint="--listen")
    return host.strip("[]"), int(port)


@click.group(invoke_without_command=True)
@click.option("--template", metavar="NAME", help="Template of a session's own sandbox [base].")
@click.option("--image", metavar="REF", help="OCI image instead of a template.")
@click.option("--sandbox", metavar="SANDBOX", help="Use this one, and never end it.")
@click.option("--no-internet", is_flag=True, help="Sandboxes reach no internet, whatever is asked.")
@click.option("--cpus", type=click.FloatRange(min=0, min_open=True), help="Cores of each sandbox.")
@click.option("--memory-mib", type=click.IntRange(min=64), help="Memory of each sandbox.")
@click.option(
    "--idle-timeout",
    type=Span(may_be_never=True),
    default="1h",
    metavar="TIME",
    help="A sandbox that nobody uses for so long ends [1h].",
)
@click.option(
    "--share",
    multiple=True,
    metavar="DIR[:rw]",
    help="Let copy_files read this directory of the host, with :rw also write to it; repeatable.",
)
@click.option("--all", "every", is_flag=True, help="Let tools use all of your sandboxes.")
@click.option("--http", is_flag=True, help="Serve streamable HTTP instead of standard input.")
@click.option("--listen", metavar="HOST:PORT", default=LISTEN, help=f"For --http [{LISTEN}].")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False),
    help=f"For --http: the bearer token; or set {TOKEN}. Compulsory off loopback.",
)
@click.option("--allow-host", multiple=True, metavar="NAME", help="For --http: also called so.")
@click.option("--allow-origin", multiple=True, metavar="URL", help="For --http: pages from there.")
@click.pass_context
def mcp(
    ctx: click.Context,
    /,
    *,
    template: str | None,
    image: str | None,
    sandbox: str | None,
    no_internet: bool,
    cpus: float | None,
    memory_mib: int | None,
    idle_timeout: float,
    share: tuple[str, ...],
    every: bool,
    http: bool,
    listen: str,
    token_file: str | None,
    allow_host: tuple[str, ...],
    allow_origin: tuple[str, ...],
) -> int | None:
    """Serve sandboxes to a model over the Model Context Protocol, on standard input and output.

    Each client has a sandbox of its own, made when it first needs one and ended with its session.
    Needs the extra: pip install 'tupper[mcp]'.
    """
    if ctx.invoked_subcommand is not None:
        return None
    try:
        from tupper.mcp.http import Place  # noqa: PLC0415 - quick --help
        from tupper.mcp.sessions import Options  # noqa: PLC0415
    except ImportError as missing:
        hint = "pip install 'tupper[mcp]'"
        _output.error(f"the MCP server needs a package: {missing}", hint=hint)
        return 1
    options = Options(
        template=template,
        image=image,
        sandbox=sandbox,
        internet=False if no_internet else None,
        cpus=cpus,
        memory_mib=memory_mib,
        idle_timeout_s=0 if math.isinf(idle_timeout) else idle_timeout,
        share=dict(map(read_share, share)),
        every_sandbox=every,
    )
    if http:
        place = Place(*read_listen(listen), _token(token_file), allow_host, allow_origin)
        return _serve_http(options, place)
    return _serve_stdio(options)


def _token(file: str | None) -> str:
    return Path(file).read_text().strip() if file else os.environ.get(TOKEN, "")


def _serve_stdio(options: Options) -> int:
    from tupper.mcp import stdio  # noqa: PLC0415 - quick --help

    if sys.stdin.isatty():
        _output.note("waiting for a client on standard input; tupper mcp config CLIENT sets one up")
    stdio.serve(options)
    return 0


def _serve_http(options: Options, place: Place) -> int:
    from tupper.mcp import http  # noqa: PLC0415 - quick --help
    from tupper.mcp.server import build_server  # noqa: PLC0415

    http.check(place)

    def ready(url: str) -> None:
        _output.note(f"listening on {url}" + (" (bearer token needed)" if place.token else ""))

    http.serve(build_server(options), place, ready)
    return 0


@mcp.command()
@click.argument("client", type=click.Choice(CLIENTS))
@click.argument("options", nargs=-1, metavar="[-- OPTIONS]", type=click.UNPROCESSED)
@click.option("--url", metavar="URL", help="Of a server that runs with --http, instead.")
@click.option("--with-token", is_flag=True, help=f"With --url: the token is in {TOKEN}.")
def config(*, client: str, options: tuple[str, ...], url: str | None, with_token: bool) -> None:
    """Print the configuration of CLIENT, ready to paste.

    OPTIONS, after --, are options of tupper mcp, such as: -- --no-internet --share .
    """
    from tupper.mcp.clients import CLIENTS as KNOWN  # noqa: PLC0415
    from tupper.mcp.clients import Server  # noqa: PLC0415

    server: Server
    if url:
        server = Server(url=url, token_variable=TOKEN if with_token else "")
    else:
        server = Server(command=(_program(), "mcp", *options))
    render, place = KNOWN[client]
    _output.note(place)
    _output.result(render(server))


def _program() -> str:
    """An absolute path: clients with a window do not have the PATH of a shell."""
    own = Path(sys.argv[0])
    if own.name == "tupper" and own.exists():
        return str(own.absolute())
    return shutil.which("tupper") or "tupper"
