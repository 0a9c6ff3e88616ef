"""The root command, and the edge where errors become text and exit codes.

A verb's module is imported when the verb runs: the root knows only names and summaries, so
``tupper --help`` costs what ``click`` costs.

Exit codes: 0; 1 when a verb failed; 2 when the command line was wrong. ``run``, ``exec`` and
``shell`` return the code of the command inside, 125 when tupper itself failed and 124 when a time
limit was over (Source: docker-run(1) and timeout(1), whose numbers these are); 130 after Ctrl-C.
"""

from __future__ import annotations

import difflib
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import click

from tupper.cli import _output

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

TUPPER_FAILED = 125
DEADLINE = 124
INTERRUPTED = 130
BROKEN_PIPE = 141  # as a shell says it: 128 + SIGPIPE
_PASSES_CODE_ON = frozenset({"run", "exec", "shell"})


@dataclass(frozen=True, slots=True)
class Verb:
    """Where a command is, and what the list of commands says about it."""

    module: str
    attribute: str
    summary: str


VERBS: Mapping[str, Verb] = {
    name: Verb(f"tupper.cli.{module}", attribute, summary)
    for name, module, attribute, summary in (
        ("setup", "setup", "setup", "Install or fetch what this host needs; safe to repeat."),
        ("doctor", "doctor", "doctor", "Say for each backend whether it works here, or why not."),
        ("run", "run", "run", "Run one command in a new sandbox and leave nothing behind."),
        ("create", "create", "create", "Create a sandbox and print its id."),
        ("list", "list", "list_sandboxes", "List sandboxes."),
        ("info", "info", "info", "Show all that is known about a sandbox."),
        ("exec", "exec", "exec_command", "Run a command in a sandbox."),
        ("shell", "shell", "shell", "Open a terminal in a sandbox."),
        ("cp", "cp", "cp", "Copy files or trees into or out of a sandbox."),
        ("read", "read", "read", "Print a file of a sandbox."),
        ("write", "write", "write", "Write standard input to a file of a sandbox."),
        ("watch", "watch", "watch", "Print changes below a directory of a sandbox."),
        ("port", "port", "port", "Make a port inside reachable on this host."),
        ("logs", "logs", "logs", "Print a sandbox's log."),
        ("events", "events", "events", "Print what happens to sandboxes, as it happens."),
        ("stats", "stats", "stats", "Show what sandboxes use."),
        ("top", "top", "top", "Show what runs and what it uses, live."),
        ("timeout", "timeout", "timeout", "Set how long a sandbox may still live."),
        ("pause", "pause", "pause", "Lay sandboxes on disk, with all that runs in them."),
        ("resume", "pause", "resume", "Let paused sandboxes go on where they were."),
        ("fork", "fork", "fork", "Start copies of a sandbox that runs."),
        ("snapshot", "snapshot", "snapshot", "Keep a sandbox as something to start others from."),
        ("kill", "kill", "kill", "End sandboxes."),
        ("image", "image", "image", "Pull, list and remove images."),
        ("template", "template", "template", "Build, list and remove templates."),
        ("volume", "volume", "volume", "Make, list and remove volumes."),
        ("serve", "serve", "serve", "Serve the API in the foreground, also over TCP."),
        ("mcp", "mcp", "mcp", "Serve sandboxes to a model over the Model Context Protocol."),
        ("key", "key", "key", "Make, list and remove API keys for clients over TCP."),
        ("config", "config", "config", "Show the configuration and where it comes from."),
        ("completion", "completion", "completion", "Print the completion for a shell."),
        ("sandbox", "sandbox", "sandbox", "The verbs on sandboxes, as a group."),
    )
}


class LazyGroup(click.Group):
    """A group that imports a command when it is used, and guesses what was meant.

    Args:
        verbs: name → where it is.
    """

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb; click would end with 1 when nobody reads our output any more."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise click.exceptions.Exit(BROKEN_PIPE) from None

    def __init__(self, *args: object, verbs: Mapping[str, Verb], **keys: object) -> None:
        super().__init__(*args, **keys)  # type: ignore[arg-type]
        self.verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the table."""
        del ctx
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        del ctx
        verb = self.verbs.get(cmd_name)
        if verb is None:
            return None
        command: click.Command = getattr(importlib.import_module(verb.module), verb.attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one fails with the nearest names."""
        if args and args[0] not in self.verbs and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.verbs, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else f"see {ctx.command_path} -h"
            _output.error(f"no command {args[0]!r}", hint=hint)
            ctx.exit(2)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names with summaries, without importing anything."""
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - rarely needed

        return [
            CompletionItem(name, help=verb.summary)
            for name, verb in self.verbs.items()
            if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Names and summaries, without importing anything."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.summary) for name, verb in self.verbs.items()])


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001
    if not wanted or ctx.resilient_parsing:
        return
    import tupper  # noqa: PLC0415

    _output.result(f"tupper {tupper.__version__}")
    ctx.exit()


@click.group(cls=LazyGroup, verbs=VERBS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Print the version and exit.",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def root(ctx: click.Context, debug: bool) -> None:  # noqa: FBT001
    """Sandboxes for AI agents on your own machine, each under its own kernel.

    SANDBOX is an id, the unique beginning of one, or a name.
    """
    ctx.obj = {"debug": debug}


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The ``tupper`` command."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _leave)
    code = _run(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Nobody reads any more; keep the interpreter from saying so at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = code or 1
    sys.exit(code)


def _leave(number: int, _: object) -> NoReturn:
    """End as after Ctrl-C: what was begun is undone on the way out."""
    raise SystemExit(128 + number)


def _run(arguments: list[str]) -> int:
    verb = next((a for a in arguments if not a.startswith("-")), "")
    failed = TUPPER_FAILED if verb in _PASSES_CODE_ON else 1
    try:
        outcome: object = root.main(args=arguments, prog_name="tupper", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as wrong:
        usage = wrong.ctx.get_usage() if wrong.ctx else None
        _output.error(wrong.format_message(), hint=usage)
        return TUPPER_FAILED if verb in _PASSES_CODE_ON else 2
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return BROKEN_PIPE
    except Exception as problem:  # noqa: BLE001 - the edge: every error becomes text here
        if "--debug" in arguments:
            _output.traceback()
        else:
            _output.failure(problem)
        return failed
    return outcome if isinstance(outcome, int) else 0
