"""The engine: the only layer that knows all the ones below."""

from tupper.engine.engine import Engine
from tupper.engine.listing import Page, Query
from tupper.engine.metrics import Sample
from tupper.engine.store import ApiKey

__all__ = ["ApiKey", "Engine", "Page", "Query", "Sample"]
