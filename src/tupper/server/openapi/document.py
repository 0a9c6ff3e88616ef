"""The tables as one OpenAPI document."""

from __future__ import annotations

import re

from tupper.core.version import VERSION
from tupper.server.openapi.operation import BYTES, JSON, Operation, Query, Reply
from tupper.server.openapi.operations import OPERATIONS
from tupper.server.openapi.shapes import SHAPES, TEXT, Schema, ref

_ERRORS = {
    400: "a value cannot be used",
    401: "no key, or a wrong one",
    403: "only the machine's own user may do that",
    404: "there is no such thing, or it belongs to another key",
    409: "taken, or in a state that does not allow this",
    413: "too large",
    429: "too many",
    501: "this tupper cannot do that; the message says why",
    503: "not now",
    504: "not in time",
    507: "no room on the disk",
}
_PARAMETER = re.compile(r"{(\w+)}")


def render_document() -> Schema:
    """The document."""
    paths: dict[str, dict[str, object]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tupper",
            "version": VERSION,
            "summary": "Sandboxes for AI agents on your own machine",
            "description": "E2B's routes, plain routes for curl, and our own below `/tupper/v1`. "
            "E2B's routes that are not listed here answer 501 with the reason.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "security": [{"key": []}, {"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": dict(SHAPES),
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "X-API-KEY"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _operation(operation: Operation) -> Schema:
    words = re.sub(r"\W+", " ", operation.path).title().replace(" ", "")
    out: Schema = {
        "operationId": f"{operation.method}{words}",
        "tags": [operation.group],
        "summary": operation.text,
        "responses": _responses(operation),
    }
    parameters = [_in_path(name) for name in _PARAMETER.findall(operation.path)]
    parameters += [_in_query(query) for query in operation.query]
    if parameters:
        out["parameters"] = parameters
    if operation.body:
        out["requestBody"] = _body(operation)
    elif operation.bytes_in:
        out["requestBody"] = {"required": True, "content": {BYTES: {}}}
    if operation.is_open:
        out["security"] = []
    elif operation.has_token:
        out["security"] = [{"bearer": []}]
    return out


def _in_path(name: str) -> Schema:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": "an id, a name, or a unique beginning of an id" if name == "id" else "",
        "schema": {**TEXT, "minLength": 1},
    }


def _in_query(query: Query) -> Schema:
    return {
        "name": query.name,
        "in": "query",
        "required": query.is_required,
        "description": query.text,
        "schema": query.schema,
    }


def _body(operation: Operation) -> Schema:
    shapes = [ref(name) for name in operation.body]
    schema = shapes[0] if len(shapes) == 1 else {"anyOf": shapes}
    needed = all(SHAPES[name].get("required") for name in operation.body)
    return {"required": needed, "content": {JSON: {"schema": schema}}}


def _responses(operation: Operation) -> Schema:
    out: Schema = {}
    for status, reply in operation.replies.items():
        out[str(status)] = _reply(reply)
    shape = ref("ContentError" if operation.has_token else "Error")
    for status, text in _ERRORS.items():
        out[str(status)] = {"description": text, "content": {JSON: {"schema": shape}}}
    return out


def _reply(reply: Reply) -> Schema:
    if reply.schema is None:
        return {"description": "done"}
    content: Schema = {reply.kind: {"schema": reply.schema}}
    if reply.also:
        content[reply.also] = {"schema": TEXT}
    return {"description": "the answer", "content": content}
