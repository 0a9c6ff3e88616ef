"""Dockerfiles: from text to typed steps. Pure; runs nothing and opens no file.

:func:`parse_dockerfile` reads the whole file and finds every error before anything is built.
Variables are substituted where Docker does it, when a stage is *expanded* with the values of its
build arguments (:func:`expand_stage`), because ``FROM`` of a later stage and ``ENV`` of its base
decide them.

**Shape**: a :class:`Dockerfile` holds the global ``ARG`` lines and :class:`Stage` after stage;
a stage holds steps, each a frozen dataclass with the line it began at and its text.

**Left out, with an error that says so**: ``ONBUILD`` and ``ADD`` of a URL or a git repository
(use ``RUN curl``), ``RUN --mount`` other than caches, which are ignored.

Source: Dockerfile reference (docs.docker.com/reference/dockerfile), frontend 1.7.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from tupper.core.errors import TemplateError

_DIRECTIVE = re.compile(r"#\s*(\w+)\s*=\s*(\S+)\s*$")
_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)(?:\s+(.*))?$", re.DOTALL)
_HEREDOC = re.compile(r"(?<!\S)\d*<<(-?)(['\"]?)([A-Za-z_][A-Za-z0-9_.-]*)\2")
_FLAG = re.compile(r"--([a-z-]+)(?:=(\S*))?(?:\s+|$)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STAGE_NAME = re.compile(r"[a-z][a-z0-9_.-]*")
_PORT = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?(?:/(tcp|udp))?")
_REMOTE = re.compile(r"(https?|ftp|git|ssh)://|git@")
PREDEFINED_ARGS = frozenset(
    name for base in ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
    for name in (base, base.lower())
)  # fmt: skip
DEFAULT_SHELL = ("/bin/sh", "-c")


@dataclass(frozen=True, slots=True)
class Step:
    """What all steps have.

    Args:
        line: where it begins, from 1.
        text: its first line, for progress and errors.
    """

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Heredoc:
    """A text that stands in the file itself.

    Args:
        name: its delimiter; the file's name for COPY.
        content: without indentation if the delimiter said so.
        expand: whether variables in it are substituted (no quotes around the delimiter).
    """

    name: str
    content: str
    expand: bool


@dataclass(frozen=True, slots=True)
class Arg(Step):
    """``ARG name[=default]``."""

    name: str
    default: str | None


@dataclass(frozen=True, slots=True)
class Env(Step):
    """``ENV``: pairs in their order, which matters for substitution."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Label(Step):
    """``LABEL``."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Run(Step):
    """``RUN``.

    Args:
        command: the exec form, or the shell form's text as the only element.
        is_shell: whether it is the shell form.
        heredocs: bodies; with a shell form, ``command`` still holds the ``<<NAME`` words.
    """

    command: tuple[str, ...]
    is_shell: bool
    heredocs: tuple[Heredoc, ...] = ()

    def script(self) -> str:
        """The shell form as one script: bodies follow, as a shell reads them.

        A ``RUN <<EOF`` without a command runs its body.
        """
        text = self.command[0]
        if not self.heredocs:
            return text
        first = self.heredocs[0]
        if len(self.heredocs) == 1 and _HEREDOC.fullmatch(text.strip()):
            return first.content
        bodies = "".join(f"{doc.content}{doc.name}\n" for doc in self.heredocs)
        return f"{text}\n{bodies}"


@dataclass(frozen=True, slots=True)
class Copy(Step):
    """``COPY`` or ``ADD``.

    Args:
        sources: patterns below the context, or paths in ``from_``.
        target: ends with ``/`` when it must be a directory.
        from_: a stage's name or number, or an image; empty for the context.
        chown, chmod: as written; empty if not given.
        heredocs: files that stand in the Dockerfile.
        unpack: whether local tar archives are unpacked (ADD).
    """

    sources: tuple[str, ...]
    target: str
    from_: str = ""
    chown: str = ""
    chmod: str = ""
    heredocs: tuple[Heredoc, ...] = ()
    unpack: bool = False


@dataclass(frozen=True, slots=True)
class Workdir(Step):
    """``WORKDIR``; may be relative to the one before."""

    path: str


@dataclass(frozen=True, slots=True)
class User(Step):
    """``USER``."""

    user: str


@dataclass(frozen=True, slots=True)
class Expose(Step):
    """``EXPOSE``: the words as written; :func:`parse_ports` reads them after substitution."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entrypoint(Step):
    """``ENTRYPOINT``."""

    command: tuple[str, ...]
    is_shell: bool


@dataclass(frozen=True, slots=True)
class Cmd(Step):
    """``CMD``."""

    command: tuple[str, ...]
    is_shell: bool


@dataclass(frozen=True, slots=True)
class Shell(Step):
    """``SHELL``."""

    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ignored(Step):
    """What has no meaning here: VOLUME, STOPSIGNAL, HEALTHCHECK, MAINTAINER."""

    instruction: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One ``FROM`` and what follows.

    Args:
        line: of its FROM.
        base: an image, a template or an earlier stage, before substitution.
        name: after ``AS``, lower-case; empty if none.
        platform: of ``--platform``, before substitution.
        steps: in order.
    """

    line: int
    base: str
    name: str
    platform: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """A whole file.

    Args:
        args: the ``ARG`` lines before the first FROM; FROM lines may use them.
        stages: at least one.
    """

    args: tuple[Arg, ...]
    stages: tuple[Stage, ...]

    def stage(self, name: str) -> Stage | None:
        """A stage by its name or number."""
        for number, stage in enumerate(self.stages):
            if name.lower() == stage.name or name == str(number):
                return stage
        return None


@dataclass(frozen=True, slots=True)
class _Line:
    """A logical line: continuations joined, bodies of heredocs taken off."""

    number: int
    text: str
    heredocs: tuple[Heredoc, ...]

    def fail(self, message: str) -> TemplateError:
        shown = self.text.strip().splitlines()[0][:160] if self.text.strip() else ""
        return TemplateError(f"Dockerfile line {self.number}: {message}: {shown}")

    @property
    def head(self) -> str:
        return self.text.strip().splitlines()[0][:160]


def parse_dockerfile(text: str) -> Dockerfile:
    """Read a Dockerfile.

    Raises:
        TemplateError: naming the line and its text.
    """
    args: list[Arg] = []
    stages: list[Stage] = []
    for line in _logical_lines(text):
        match = _INSTRUCTION.match(line.text)
        if match is None:
            raise line.fail("not an instruction")
        word, rest = match[1].upper(), (match[2] or "").strip()
        if word == "FROM":
            stages.append(_parse_from(line, rest))
            continue
        step = _parse_step(line, word, rest)
        if stages:
            stages[-1] = replace(stages[-1], steps=(*stages[-1].steps, step))
        elif isinstance(step, Arg):
            args.append(step)
        else:
            raise line.fail("the first instruction must be FROM (or ARG)")
    if not stages:
        raise TemplateError("Dockerfile: no FROM")
    return Dockerfile(tuple(args), tuple(stages))


def _logical_lines(text: str) -> Iterator[_Line]:
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    escape = _find_escape(lines)
    at = 0
    while at < len(lines):
        start = at
        joined, at = _join(lines, at, escape)
        if not joined.strip():
            continue
        documents: list[Heredoc] = []
        word = joined.split(None, 1)[0].upper()
        if word in {"RUN", "COPY", "ADD"}:
            for match in _HEREDOC.finditer(joined):
                document, at = _read_heredoc(lines, at, match, start + 1)
                documents.append(document)
        yield _Line(start + 1, joined, tuple(documents))


def _find_escape(lines: Sequence[str]) -> str:
    for line in lines:
        match = _DIRECTIVE.fullmatch(line.strip())
        if match is None:
            return "\\"
        if match[1].lower() == "escape":
            if match[2] not in {"\\", "`"}:
                raise TemplateError(f"Dockerfile line 1: escape must be \\ or `: {line}")
            return match[2]
    return "\\"


def _join(lines: Sequence[str], at: int, escape: str) -> tuple[str, int]:
    """Join continued lines; comments and empty lines between them are left out."""
    parts: list[str] = []
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.lstrip().startswith("#"):
            if parts:
                continue
            return "", at
        if parts and not line.strip():
            continue
        stripped = line.rstrip()
        if not stripped.endswith(escape):
            parts.append(line)
            break
        parts.append(stripped.removesuffix(escape))
    return "".join(parts), at


def _read_heredoc(
    lines: Sequence[str], at: int, match: re.Match[str], number: int
) -> tuple[Heredoc, int]:
    strip, quote, name = match[1] == "-", match[2], match[3]
    body: list[str] = []
    for index in range(at, len(lines)):
        line = lines[index].lstrip("\t") if strip else lines[index]
        if line == name:
            content = "".join(f"{item}\n" for item in body)
            return Heredoc(name, content, expand=not quote), index + 1
        body.append(line)
    raise TemplateError(f"Dockerfile line {number}: <<{name} is never ended: {lines[number - 1]}")


def _parse_from(line: _Line, rest: str) -> Stage:
    flags, rest = _take_flags(line, rest, {"platform"})
    words = rest.split()
    if len(words) == 3 and words[1].upper() == "AS":
        name = words[2].lower()
        if not _STAGE_NAME.fullmatch(name):
            raise line.fail(f"{words[2]!r} cannot be a stage's name")
    elif len(words) == 1:
        name = ""
    else:
        raise line.fail("FROM wants IMAGE [AS NAME]")
    return Stage(line.number, words[0], name, flags.get("platform", ""), ())


def _parse_step(line: _Line, word: str, rest: str) -> Step:
    parse = _PARSERS.get(word)
    if parse is None:
        if word == "ONBUILD":
            raise line.fail("ONBUILD is not supported")
        raise line.fail(f"unknown instruction {word}")
    if not rest:
        raise line.fail(f"{word} wants an argument")
    return parse(line, rest)


def _parse_arg(line: _Line, rest: str) -> Step:
    words = _split(line, rest)
    if len(words) != 1:
        raise line.fail("ARG wants NAME or NAME=VALUE")
    name, equals, value = words[0].partition("=")
    if not _NAME.fullmatch(name):
        raise line.fail(f"{name!r} is not a variable's name")
    return Arg(line.number, line.head, name, value if equals else None)


def _parse_pairs(line: _Line, rest: str) -> tuple[tuple[str, str], ...]:
    """``A=1 B="2 3"``, or the old ``A the rest``; values keep their quotes' meaning."""
    first = rest.split(None, 1)
    if "=" not in first[0]:
        if len(first) != 2:
            raise line.fail("a name without a value")
        return ((first[0], first[1]),)
    pairs: list[tuple[str, str]] = []
    for word in _split(line, rest):
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise line.fail(f"{word!r} is not NAME=VALUE")
        pairs.append((_unquote(name), value))
    return tuple(pairs)


def _parse_env(line: _Line, rest: str) -> Step:
    return Env(line.number, line.head, _parse_pairs(line, rest))


def _parse_label(line: _Line, rest: str) -> Step:
    return Label(line.number, line.head, _parse_pairs(line, rest))


def _parse_run(line: _Line, rest: str) -> Step:
    _, rest = _take_flags(line, rest, {"mount", "network", "security"})
    command, is_shell = _parse_command(line, rest)
    return Run(line.number, line.head, command, is_shell, line.heredocs)


def _parse_copy(line: _Line, rest: str) -> Step:
    flags, rest = _take_flags(line, rest, {"from", "chown", "chmod", "link", "parents", "exclude"})
    if "parents" in flags or "exclude" in flags:
        raise line.fail("--parents and --exclude are not supported")
    words = _parse_json_list(rest) or _split(line, rest)
    words = tuple(word for word in words if not _HEREDOC.fullmatch(word))
    if not words or len(words) + len(line.heredocs) < 2:
        raise line.fail("wants at least one source and a target")
    *sources, target = words
    return Copy(
        line.number,
        line.head,
        tuple(sources),
        target,
        from_=flags.get("from", ""),
        chown=flags.get("chown", ""),
        chmod=flags.get("chmod", ""),
        heredocs=line.heredocs,
    )


def _parse_add(line: _Line, rest: str) -> Step:
    step = cast("Copy", _parse_copy(line, rest))
    if any(_REMOTE.match(source) for source in step.sources):
        raise line.fail("ADD of an address is not supported, use RUN curl or RUN git clone")
    if step.from_:
        raise line.fail("ADD has no --from, use COPY")
    return replace(step, unpack=True)


def _parse_workdir(line: _Line, rest: str) -> Step:
    return Workdir(line.number, line.head, rest)


def _parse_user(line: _Line, rest: str) -> Step:
    if len(rest.split()) != 1:
        raise line.fail("USER wants one word")
    return User(line.number, line.head, rest)


def _parse_expose(line: _Line, rest: str) -> Step:
    return Expose(line.number, line.head, tuple(rest.split()))


def _parse_entrypoint(line: _Line, rest: str) -> Step:
    return Entrypoint(line.number, line.head, *_parse_command(line, rest))


def _parse_cmd(line: _Line, rest: str) -> Step:
    return Cmd(line.number, line.head, *_parse_command(line, rest))


def _parse_shell(line: _Line, rest: str) -> Step:
    command = _parse_json_list(rest)
    if not command:
        raise line.fail('SHELL wants the JSON form, such as ["/bin/bash", "-c"]')
    return Shell(line.number, line.head, command)


def _parse_ignored(line: _Line, rest: str) -> Step:
    del rest
    return Ignored(line.number, line.head, line.text.split(None, 1)[0].upper())


_PARSERS: dict[str, Callable[[_Line, str], Step]] = {
    "ARG": _parse_arg,
    "ENV": _parse_env,
    "LABEL": _parse_label,
    "RUN": _parse_run,
    "COPY": _parse_copy,
    "ADD": _parse_add,
    "WORKDIR": _parse_workdir,
    "USER": _parse_user,
    "EXPOSE": _parse_expose,
    "ENTRYPOINT": _parse_entrypoint,
    "CMD": _parse_cmd,
    "SHELL": _parse_shell,
    "VOLUME": _parse_ignored,
    "STOPSIGNAL": _parse_ignored,
    "HEALTHCHECK": _parse_ignored,
    "MAINTAINER": _parse_ignored,
}


def _parse_command(line: _Line, rest: str) -> tuple[tuple[str, ...], bool]:
    """The exec form if it is a JSON list of texts; else the shell form, as Docker decides it."""
    command = _parse_json_list(rest)
    if command is not None:
        return command, False
    if not rest:
        raise line.fail("no command")
    return (rest,), True


def _parse_json_list(text: str) -> tuple[str, ...] | None:
    if not text.startswith("["):
        return None
    try:
        value: object = json.loads(text)
    except ValueError:
        return None
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    if not all(isinstance(item, str) for item in items):
        return None
    return tuple(str(item) for item in items)


def _take_flags(line: _Line, rest: str, known: set[str]) -> tuple[dict[str, str], str]:
    flags: dict[str, str] = {}
    while match := _FLAG.match(rest):
        if match[1] not in known:
            raise line.fail(f"unknown flag --{match[1]}")
        flags[match[1]] = _unquote(match[2] or "")
        rest = rest[match.end() :]
    return flags, rest


def _split(line: _Line, text: str) -> tuple[str, ...]:
    """Split into words at white space outside quotes; quotes and backslashes stay in them."""
    words: list[str] = []
    word, quote, escaped = "", "", False
    for char in text:
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char.isspace():
            words += [word] if word else []
            word = ""
            continue
        word += char
    if quote:
        raise line.fail(f"a {quote} is never closed")
    return (*words, word) if word else tuple(words)


def _unquote(text: str) -> str:
    return expand(text, lambda _: None)


# Variables


def expand(text: str, lookup: Callable[[str], str | None]) -> str:
    r"""Substitute variables and take off quotes, as Docker does for ENV, COPY, WORKDIR and others.

    Known are ``$x``, ``${x}``, ``${x:-word}``, ``${x-word}``, ``${x:+word}``, ``${x+word}``,
    ``${x:?word}``, ``\$`` and single quotes, in which nothing is substituted.

    Raises:
        TemplateError: a ``${`` that is not closed, or ``${x:?message}`` without a value.
    """
    out: list[str] = []
    at, quote = 0, ""
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'" and at + 1 < len(text):
            keep = quote == '"' and text[at + 1] not in '"\\$'
            out.append(text[at : at + 2] if keep else text[at + 1])
            at += 2
        elif char in "\"'" and quote in {"", char}:
            quote = "" if quote else char
            at += 1
        elif char == "$" and quote != "'":
            value, at = _expand_variable(text, at, lookup)
            out.append(value)
        else:
            out.append(char)
            at += 1
    return "".join(out)


def _expand_variable(text: str, at: int, lookup: Callable[[str], str | None]) -> tuple[str, int]:
    """The value of the variable at ``text[at] == "$"``, and where the text goes on."""
    if text[at + 1 : at + 2] != "{":
        match = _NAME.match(text, at + 1)
        return ((lookup(match[0]) or ""), match.end()) if match else ("$", at + 1)
    end = _closing_brace(text, at + 1)
    match = _NAME.match(text, at + 2)
    if match is None or match.end() > end:
        raise TemplateError(f"Dockerfile: {text[at : end + 1]!r} names no variable")
    value = lookup(match[0])
    return _modify(value, text[match.end() : end], lookup, match[0]), end + 1


def _modify(value: str | None, rest: str, lookup: Callable[[str], str | None], name: str) -> str:
    if not rest:
        return value or ""
    colon = rest.startswith(":")
    operator, word = rest[colon : colon + 1], rest[colon + 1 :]
    is_set = bool(value) if colon else value is not None
    match operator:
        case "-":
            return (value or "") if is_set else expand(word, lookup)
        case "+":
            return expand(word, lookup) if is_set else ""
        case "?":
            if is_set:
                return value or ""
            raise TemplateError(f"Dockerfile: {name} is not set: {expand(word, lookup)}")
        case _:
            raise TemplateError(f"Dockerfile: ${{{name}{rest}}} is not supported")


def _closing_brace(text: str, at: int) -> int:
    depth = 0
    for index in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return index
    raise TemplateError(f"Dockerfile: a {text[at - 1 :][:40]!r} is never closed")


def global_args(dockerfile: Dockerfile, build_args: Mapping[str, str]) -> dict[str, str]:
    """The values of the ``ARG`` lines before the first FROM."""
    values: dict[str, str] = {}
    for arg in dockerfile.args:
        value = build_args.get(arg.name)
        if value is None and arg.default is not None:
            value = expand(arg.default, values.get)
        if value is not None:
            values[arg.name] = value
    return values


def expand_stage(
    stage: Stage,
    *,
    build_args: Mapping[str, str],
    outer: Mapping[str, str],
    env: Mapping[str, str],
) -> Iterator[tuple[Step, dict[str, str]]]:
    """The steps with their variables substituted, and the variables a RUN sees at each.

    Args:
        stage: whose steps.
        build_args: given by the user.
        outer: of :func:`global_args`; a stage sees one after it names it with ARG.
        env: of the base image.

    ENV wins over ARG. The text of RUN, CMD and ENTRYPOINT is left to the shell.
    """
    environment = dict(env)
    args = {name: build_args[name] for name in PREDEFINED_ARGS if name in build_args}

    def lookup(name: str) -> str | None:
        return environment.get(name, args.get(name))

    for step in stage.steps:
        expanded = _expand_step(step, lookup)
        if isinstance(expanded, Arg):
            value = build_args.get(expanded.name, outer.get(expanded.name, expanded.default))
            if expanded.default is not None and expanded.name not in build_args:
                value = expanded.default
            if value is not None:
                args[expanded.name] = value
        elif isinstance(expanded, Env):
            environment.update(expanded.pairs)
        yield expanded, args | environment


def _expand_step(step: Step, lookup: Callable[[str], str | None]) -> Step:
    match step:
        case Arg():
            default = None if step.default is None else expand(step.default, lookup)
            return replace(step, default=default)
        case Env() | Label():
            # All values of one line see the variables as they were before it.
            return replace(step, pairs=tuple((k, expand(v, lookup)) for k, v in step.pairs))
        case Copy():
            return _expand_copy(step, lookup)
        case Workdir():
            return replace(step, path=expand(step.path, lookup))
        case User():
            return replace(step, user=expand(step.user, lookup))
        case Expose():
            return replace(step, words=tuple(expand(word, lookup) for word in step.words))
        case _:
            return step


def _expand_copy(step: Copy, lookup: Callable[[str], str | None]) -> Copy:
    documents = tuple(
        replace(doc, content=_expand_body(doc.content, lookup)) if doc.expand else doc
        for doc in step.heredocs
    )
    return replace(
        step,
        sources=tuple(expand(source, lookup) for source in step.sources),
        target=expand(step.target, lookup),
        from_=expand(step.from_, lookup),
        chown=expand(step.chown, lookup),
        chmod=expand(step.chmod, lookup),
        heredocs=documents,
    )


def _expand_body(text: str, lookup: Callable[[str], str | None]) -> str:
    """Variables in a heredoc: quotes have no meaning there."""
    out: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == "\\" and text[at + 1 : at + 2] in {"$", "\\"}:
            out.append(text[at + 1])
            at += 2
        elif text[at] == "$":
            value, at = _expand_variable(text, at, lookup)
            out.append(value)
        else:
            out.append(text[at])
            at += 1
    return "".join(out)


def parse_ports(step: Expose) -> tuple[int, ...]:
    """The TCP ports of an expanded EXPOSE.

    Raises:
        TemplateError: a word is no port.
    """
    ports: set[int] = set()
    for word in step.words:
        match = _PORT.fullmatch(word)
        low = int(match[1]) if match else 0
        high = int(match[2]) if match and match[2] else low
        if match is None or not 0 < low <= high < 65536:
            raise TemplateError(f"Dockerfile line {step.line}: {word!r} is not a port: {step.text}")
        if match[3] != "udp":
            ports.update(range(low, high + 1))
    return tuple(sorted(ports))
