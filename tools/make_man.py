"""Write docs/tupper.1 from the commands: ``python tools/make_man.py [--check]``.

Source of the form: man(7), man-pages(7).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from tupper.cli._app import VERBS, root

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tupper.1"
_HEAD = r""".\" Written by tools/make_man.py from the commands. Do not edit.
.TH TUPPER 1 "" "tupper" "User Commands"
.SH NAME
tupper \- sandboxes for AI agents on your own machine
.SH SYNOPSIS
.B tupper
.RI [ OPTIONS ]
.I COMMAND
.RI [ ARGS ]...
.SH DESCRIPTION
"""
_TAIL = r""".SH EXIT STATUS
.TP
.B 0
Success.
.TP
.B 1
The command failed; \fIerror:\fR and, where there is one, \fIhint:\fR on standard error say why.
.TP
.B 2
The command line was wrong.
.TP
.B 124, 125
.BR run ,
.B exec
and
.B shell
return the code of the command inside; 124 when \fB\-\-timeout\fR was over, 125 when tupper failed.
.TP
.B 130
Ctrl\-C.
.TP
.B 141
Nobody reads the output any more.
.SH ENVIRONMENT
.TP
.B TUPPER_HOME
Where data and configuration are, in place of the directories of the user.
.TP
.BR TUPPER_URL ", " TUPPER_API_KEY
The server to talk to, in place of the local background process.
.TP
.B TUPPER_PROFILE
The profile that is used when a call names none.
.TP
.B NO_COLOR
No colours, whatever its value is, if it has one.
"""


def render() -> str:
    """The whole page."""
    context = click.Context(root, info_name="tupper")
    parts = [_HEAD, *_paragraphs(root.help or ""), ".SH OPTIONS\n", *_options(root, context)]
    parts.append(".SH COMMANDS\n")
    for name in VERBS:
        command = root.get_command(context, name)
        if command is not None and name != "sandbox":
            parts += _section(command, name, context)
    parts += [
        ".SS tupper sandbox\n",
        *_paragraphs("The verbs on sandboxes, as a group: tupper sandbox list is tupper list."),
    ]
    return "".join([*parts, _TAIL])


def _section(command: click.Command, path: str, above: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=path.rpartition(" ")[2], parent=above)
    if isinstance(command, click.Group):
        yield f".SS {_escape(f'tupper {path}')}\n"
        yield from _paragraphs(command.help or "")
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from _section(child, f"{path} {name}", context)
        return
    usage = " ".join(command.collect_usage_pieces(context))
    yield f".SS {_escape(f'tupper {path} {usage}')}\n"
    yield from _paragraphs(command.help or "")
    yield from _options(command, context)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            yield f".TP\n.B {_escape(record[0])}\n{_line(record[1])}\n"


def _paragraphs(text: str) -> Iterator[str]:
    """Text as click has it: a paragraph that begins with a backspace keeps its lines."""
    for paragraph in text.replace("\f", "").strip().split("\n\n"):
        lines = [line.strip() for line in paragraph.strip().splitlines()]
        if lines[0] == "\b":
            shown = "\n.br\n".join(_line(line) for line in lines[1:])
        else:
            shown = _line(" ".join(lines))
        yield f".PP\n{shown}\n"


def _line(text: str) -> str:
    """A line of text: one that began with a control character would be a request."""
    escaped = _escape(text)
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _escape(text: str) -> str:
    return text.replace("\\", r"\e").replace("-", r"\-")


def main() -> int:
    """Write it, or say whether it is fresh."""
    text = render()
    if "--check" in sys.argv[1:]:
        fresh = PAGE.exists() and PAGE.read_text() == text
        if not fresh:
            print("docs/tupper.1 is stale: python tools/make_man.py")
        return 0 if fresh else 1
    PAGE.write_text(text)
    print(PAGE.relative_to(PAGE.parent.parent))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
