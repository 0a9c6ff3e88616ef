"""The description of the API: tables of ours, rendered as OpenAPI 3.1."""

from tupper.server.openapi.document import render_document
from tupper.server.openapi.operations import OPERATIONS

__all__ = ["OPERATIONS", "render_document"]
