"""Names of templates: ``NAME`` or ``NAME:TAG``, and those that E2B's clients ask for. No I/O."""

from __future__ import annotations

import re
import uuid

from tupper.core.errors import InvalidArgument

DEFAULT_TAG = "default"
# What the published SDKs ask for by themselves. Source: e2b-code-interpreter 1.0 to 2.11.
_ALIASES = {"code-interpreter-v1": "code-interpreter", "code-interpreter-beta": "code-interpreter"}
_NAME = re.compile(r"[a-z0-9_][a-z0-9._-]{0,127}")
_TAG = re.compile(r"[a-z0-9_.-]{1,128}")


def check_name(name: str) -> str:
    """The name, if it can be one of a template.

    Raises:
        InvalidArgument: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"not a template name: {name!r}; lower-case letters, digits, '.', '_' and '-'"
        )
    return name


def parse_template(text: str) -> tuple[str, str]:
    """The name and the tag of a template, as somebody writes it; capitals do not count.

    The id of a build may stand for the tag: it names what that build made, whatever its tags are.

    Raises:
        InvalidArgument: it is none.
    """
    name, colon, tag = text.lower().partition(":")
    name = _ALIASES.get(name, name)
    if not colon:
        return check_name(name), DEFAULT_TAG
    return check_name(name), tag if is_build_id(tag) else check_tag(tag)


def is_build_id(tag: str) -> bool:
    """Whether what stands in the place of a tag has the form of a build's id."""
    try:
        uuid.UUID(tag)
    except ValueError:
        return False
    return True


def check_tag(tag: str) -> str:
    """The tag, if it can be one.

    Raises:
        InvalidArgument: it cannot.
    """
    if not _TAG.fullmatch(tag):
        raise InvalidArgument(
            f"not a tag of a template: {tag!r}; lower-case letters, digits, '.', '_' and '-'"
        )
    if is_build_id(tag):
        raise InvalidArgument(f"the tag {tag} has the form of a build's id")
    return tag
