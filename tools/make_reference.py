"""Write docs/reference/sdk.md from the docstrings: ``python tools/make_reference.py [--check]``."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import tupper
from tupper.sdk._shared.builder import TemplateBuilder

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "sdk.md"
_HEAD = """# SDK reference

Written from the docstrings by `make docs`. `AsyncSandbox` has the same members as `Sandbox`; the
calls that talk to a sandbox are awaited.
"""
_PARTS = ("commands", "files", "pty")
_SHOWN = {"Sandbox", "AsyncSandbox", "Template", "AsyncTemplate", "TemplateBase"}


def render() -> str:
    """The whole page."""
    sections = [_HEAD, *_section("Sandbox", tupper.Sandbox)]
    for part in _PARTS:
        sections += _section(f"Sandbox.{part}", _type_of_part(part))
    sections += _section("Template", tupper.Template)
    sections += _section("Template: steps", TemplateBuilder)
    sections.append("## Values\n")
    for name in sorted(tupper.__all__):
        value = getattr(tupper, name)
        is_value = inspect.isclass(value) and not issubclass(value, BaseException)
        if is_value and name not in _SHOWN:
            sections.append(f"### {name}\n\n{_doc(value)}\n")
    sections.append("## Exceptions\n")
    for name in sorted(tupper.__all__):
        value = getattr(tupper, name)
        if inspect.isclass(value) and issubclass(value, BaseException):
            bases = ", ".join(f"`{base.__name__}`" for base in value.__bases__)
            sections.append(f"### {name}\n\nIs a {bases}. {_doc(value)}\n")
    return "\n".join(sections).rstrip() + "\n"


def _type_of_part(part: str) -> type:
    attribute = inspect.getattr_static(tupper.Sandbox, part)
    hints = inspect.get_annotations(attribute.fget, eval_str=True)
    found: object = hints["return"]
    if not inspect.isclass(found):
        raise TypeError(f"Sandbox.{part} does not say what it returns")
    return found


def _section(title: str, kind: type) -> Iterator[str]:
    yield f"## {title}\n\n{_doc(kind)}\n"
    for name, member in inspect.getmembers(kind):
        if name.startswith("_") or not _doc(member):
            continue
        if callable(member):
            code = f"```python no-run\n{_signature(name, member)}\n```"
            yield f"### {title}.{name}\n\n{code}\n\n{_doc(member)}\n"
        elif isinstance(member, property):
            yield f"### {title}.{name}\n\n{_doc(member)}\n"


def _signature(name: str, member: object) -> str:
    """``def name(...): ...``, one argument a line when it is long."""
    try:
        signature = inspect.signature(member)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return f"def {name}(*args, **kwargs): ..."
    text = re.sub(r"<[^>]*>", "...", str(signature)).replace("tupper.sdk._shared.types.", "")
    line = f"def {name}{text}: ..."
    if len(line) <= 100:
        return line
    parts = [re.sub(r"<[^>]*>", "...", str(p)) for p in signature.parameters.values()]
    return f"# {len(parts)} parameters\ndef {name}{text}: ..."


def _doc(member: object) -> str:
    """A docstring as Markdown: sections of the Google style become paragraphs and lists."""
    text = inspect.getdoc(member) or ""
    lines: list[str] = []
    in_list = False
    for line in text.splitlines():
        heading = re.fullmatch(
            r"(Args|Returns|Raises|Errors|Shape|Units|Source|Yields):\s*(.*)", line
        )
        if heading:
            in_list = heading[1] in {"Args", "Raises", "Errors"}
            lines += ["", f"**{heading[1]}**" + (f" {heading[2]}" if heading[2] else ""), ""]
            continue
        entry = re.fullmatch(r" {4}(\*{0,2}[\w, .*]+): (.*)", line) if in_list else None
        lines.append(f"- `{entry[1]}`: {entry[2]}" if entry else re.sub(r"^ {4,}", "  ", line))
    return re.sub(r":(?:class|meth|func):`~?\.?([^`]+)`", r"`\1`", "\n".join(lines)).strip()


def main() -> int:
    """Write the page, or with ``--check`` say whether it is what would be written."""
    page = render()
    if "--check" in sys.argv[1:]:
        is_fresh = PAGE.is_file() and PAGE.read_text() == page
        print("fresh" if is_fresh else f"{PAGE.relative_to(ROOT)} is old; run: make docs")
        return 0 if is_fresh else 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page)
    print(PAGE.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
