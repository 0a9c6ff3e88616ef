"""The description of the API as one page of HTML: no script, nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from tupper.core.version import VERSION
from tupper.protocol.connect import as_list, as_object
from tupper.server.openapi.operation import Operation
from tupper.server.openapi.operations import OPERATIONS
from tupper.server.openapi.shapes import SHAPES, Schema

STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, .path { font-family: ui-monospace, monospace; font-size: 0.92em; }
details { border: 1px solid #8884; border-radius: 6px; margin: 0.4rem 0; padding: 0.4rem 0.8rem; }
summary { cursor: pointer; } summary .text { opacity: 0.8; }
.method { display: inline-block; min-width: 4.2em; font-weight: 700; }
table { border-collapse: collapse; width: 100%; margin: 0.5rem 0; }
th, td { text-align: left; vertical-align: top; padding: 0.2rem 0.6rem; }
td { border-top: 1px solid #8883; }
"""


def render_page() -> str:
    """The page."""
    groups = list(dict.fromkeys(operation.group for operation in OPERATIONS))
    parts = [_head()]
    for group in groups:
        parts.append(f"<h2>{escape(group)}</h2>")
        parts += [_operation(each) for each in OPERATIONS if each.group == group]
    parts.append("<h2>Shapes</h2>")
    parts += [_shape(name) for name in sorted(SHAPES)]
    return "\n".join([*parts, "</body></html>\n"])


def _head() -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>tupper API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><h1>tupper API <small>{escape(VERSION)}</small></h1>"
        "<p>For programs: <a href='/openapi.json'>/openapi.json</a>. A key goes along as "
        "<code>X-API-KEY</code> or <code>Authorization: Bearer</code>. E2B's routes that are not "
        "here answer 501 with the reason. Errors are all of the shape <a href='#Error'>Error</a>, "
        "whose <code>code</code> is the HTTP status.</p>"
    )


def _operation(operation: Operation) -> str:
    head = (
        f"<span class='method'>{operation.method.upper()}</span>"
        f"<span class='path'>{escape(operation.path)}</span> "
        f"<span class='text'>{_text(operation.text)}</span>"
    )
    parts = [f"<details><summary>{head}</summary>"]
    if operation.is_open:
        parts.append("<p>Asks for no key.</p>")
    if operation.has_token:
        parts.append("<p>Asks for the volume's token instead of a key.</p>")
    if operation.query:
        rows = [
            (query.name, _kind(query.schema), query.text, query.is_required)
            for query in operation.query
        ]
        parts.append(_table("query", rows))
    if operation.body:
        parts.append(f"<p>Body: {' or '.join(_link(name) for name in operation.body)}</p>")
    if operation.bytes_in:
        parts.append("<p>Body: the file.</p>")
    for status, reply in operation.replies.items():
        what = "nothing" if reply.schema is None else _kind(reply.schema)
        kind = "" if reply.schema is None else f" as <code>{escape(reply.kind)}</code>"
        also = f" or <code>{escape(reply.also)}</code>" if reply.also else ""
        parts.append(f"<p><b>{status}</b>: {what}{kind}{also}</p>")
    return "".join([*parts, "</details>"])


def _shape(name: str) -> str:
    schema = SHAPES[name]
    needed = as_list(schema.get("required")) or []
    rows = [
        (key, _kind(value), _said(value), key in needed)
        for key, value in (as_object(schema.get("properties")) or {}).items()
    ]
    said = _said(schema)
    text = f"<p>{_text(said)}</p>" if said else ""
    head = f"<details id='{name}' open><summary><b>{name}</b></summary>"
    return f"{head}{text}{_table('key', rows)}</details>"


def _table(first: str, rows: Iterable[tuple[str, str, str, bool]]) -> str:
    lines = "".join(
        f"<tr><td><code>{escape(name)}</code>{' *' if needed else ''}</td><td>{kind}</td>"
        f"<td>{_text(text)}</td></tr>"
        for name, kind, text, needed in rows
    )
    return f"<table><tr><th>{first}</th><th>kind</th><th></th></tr>{lines}</table>"


def _said(schema: object) -> str:
    text = (as_object(schema) or {}).get("description")
    return text if isinstance(text, str) else ""


def _text(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _link(name: str) -> str:
    return f"<a href='#{name}'>{name}</a>"


def _kind(schema: object) -> str:
    """A schema in a few words."""
    fields = as_object(schema) or {}
    to, kind = fields.get("$ref"), fields.get("type")
    if isinstance(to, str):
        return _link(to.rpartition("/")[2])
    if choices := as_list(fields.get("enum")):
        return " | ".join(f"<code>{escape(str(each))}</code>" for each in choices)
    if choices := as_list(fields.get("anyOf")):
        return " or ".join(_kind(each) for each in choices)
    if kind == "array":
        return f"list of {_kind(fields.get('items'))}"
    return _kind_of_object(fields) if kind == "object" else _names(kind)


def _kind_of_object(fields: Schema) -> str:
    if inner := as_object(fields.get("additionalProperties")):
        return f"object of {_kind(inner)}"
    keys = ", ".join(
        f"<code>{escape(key)}</code>" for key in as_object(fields.get("properties")) or {}
    )
    return f"object ({keys})" if keys else "object"


def _names(kind: object) -> str:
    return " or ".join(escape(str(name)) for name in as_list(kind) or [kind])
