"""``tupper completion``: what makes a shell complete verbs, options and sandboxes."""

from __future__ import annotations

import os
from pathlib import PurePath

import click
from click.shell_completion import ShellComplete, get_completion_class

from tupper.cli import _output
from tupper.cli._app import root

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
def completion(*, shell: str | None) -> None:
    """Print the completion for SHELL; without SHELL, for that of $SHELL.

    \b
    bash:  eval "$(tupper completion bash)"       in ~/.bashrc
    zsh:   eval "$(tupper completion zsh)"        in ~/.zshrc
    fish:  tupper completion fish | source        in ~/.config/fish/config.fish
    """  # noqa: D301 - the character that keeps click from filling these lines
    name = shell or PurePath(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise click.UsageError(f"name a shell: {', '.join(SHELLS)}")
    kind = get_completion_class(name)
    if kind is None:
        raise click.UsageError(f"click has no completion for {name}")
    # The base's own: that of bash would start a bash to ask for its version.
    text = ShellComplete.source(kind(root, {}, "tupper", "_TUPPER_COMPLETE"))
    _output.result(text.rstrip("\n"))
