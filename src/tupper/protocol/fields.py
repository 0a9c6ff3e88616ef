"""Reading JSON objects that somebody else wrote: typed, with the key's name in each complaint.

JSON enters as ``object``. A key that is absent, or null where null means "not given", yields the
default; a value of another type is an :class:`~tupper.core.errors.InvalidArgument`.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Collection, Mapping
from typing import TypeVar, cast

from tupper.core.errors import InvalidArgument

_T = TypeVar("_T")


def parse_object(raw: bytes | str) -> Fields:
    """Parse a JSON object; an empty text is an empty object.

    Raises:
        InvalidArgument: it is not JSON, or JSON of another kind.
    """
    if not raw.strip():
        return Fields({})
    try:
        value: object = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"the body is not JSON: {error}") from error
    _refuse_half_characters(value, raw)
    return Fields.of(value, "the body")


def _refuse_half_characters(value: object, raw: bytes | str) -> None:
    r"""Refuse ``"\ud800"`` alone: JSON can write it, and nothing else can take it."""
    text = raw if isinstance(raw, str) else raw.decode("latin-1")
    if "\\u" not in text:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument("the body has half of a character, such as \\ud800") from error


class Fields:
    """One JSON object.

    Args:
        values: its keys and values.
        where: prefix of key names in complaints, such as ``tupper.``.
    """

    def __init__(self, values: Mapping[str, object], where: str = "") -> None:
        self.values = values
        self._where = where

    @classmethod
    def of(cls, value: object, what: str, where: str = "") -> Fields:
        """Check that a value is an object."""
        if not isinstance(value, dict):
            raise InvalidArgument(f"{what} must be a JSON object, not {_kind(value)}")
        return cls(cast("dict[str, object]", value), where)

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Refuse keys that nobody would look at: a wish that is ignored is a silent lie.

        Raises:
            InvalidArgument: naming the first.
        """
        for key in self.values:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                raise InvalidArgument(
                    f"{self._where}{key[:80]} is no known key",
                    hint=f"did you mean {near[0]}?" if near else None,
                )

    def has(self, key: str) -> bool:
        """Whether the key is there, null included."""
        return key in self.values

    def text(self, key: str, default: str = "") -> str:
        """A string without NUL."""
        value = self._get(key, str, default)
        if "\0" in value:
            raise InvalidArgument(f"{self._where}{key} contains a NUL character")
        return value

    def flag(self, key: str) -> bool | None:
        """A boolean, or None when not given."""
        return self._get(key, bool, None)

    def whole(self, key: str) -> int | None:
        """A whole number, or None when not given. ``2.0`` is one, ``true`` is none."""
        value = self.number(key)
        if value is None:
            return None
        if not value.is_integer() or abs(value) > 2**53:
            raise InvalidArgument(f"{self._where}{key} must be a whole number, not {value:g}")
        return int(value)

    def number(self, key: str) -> float | None:
        """A finite number, or None when not given."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidArgument(f"{self._where}{key} must be a number, not {_kind(value)}")
        try:
            result = float(value)
        except OverflowError:
            result = math.inf
        if not math.isfinite(result):
            raise InvalidArgument(f"{self._where}{key} must be a finite number")
        return result

    def child(self, key: str) -> Fields | None:
        """An object, or None when not given."""
        value = self.values.get(key)
        if value is None:
            return None
        return Fields.of(value, f"{self._where}{key}", f"{self._where}{key}.")

    def items(self, key: str) -> list[object]:
        """A list; empty when not given."""
        return cast("list[object]", self._get(key, list, []))

    def objects(self, key: str) -> list[Fields]:
        """A list of objects."""
        name = f"{self._where}{key}"
        return [
            Fields.of(item, f"{name}[{index}]", f"{name}[{index}].")
            for index, item in enumerate(self.items(key))
        ]

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        for item in self.items(key):
            if not isinstance(item, str):
                raise InvalidArgument(f"{self._where}{key} must hold strings, not {_kind(item)}")
        return tuple(cast("list[str]", self.items(key)))

    def wholes(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        for item in self.items(key):
            if isinstance(item, bool) or not isinstance(item, int):
                raise InvalidArgument(
                    f"{self._where}{key} must hold whole numbers, not {_kind(item)}"
                )
        return tuple(cast("list[int]", self.items(key)))

    def text_map(self, key: str) -> dict[str, str]:
        """An object whose values are strings without NUL."""
        value = cast("dict[object, object]", self._get(key, dict, {}))
        for name, item in value.items():
            if not isinstance(item, str):
                raise InvalidArgument(
                    f"{self._where}{key}[{name!r}] must be a string, not {_kind(item)}"
                )
            if "\0" in item or "\0" in str(name):
                raise InvalidArgument(f"{self._where}{key}[{name!r}] contains a NUL character")
        return cast("dict[str, str]", dict(value))

    def _get(self, key: str, kind: type[_T], default: _T | None) -> _T:
        value = self.values.get(key)
        if value is None:
            return cast("_T", default)
        if not isinstance(value, kind):
            raise InvalidArgument(f"{self._where}{key} must be {_NAMES[kind]}, not {_kind(value)}")
        return value


_NAMES: dict[type[object], str] = {
    str: "a string",
    bool: "true or false",
    dict: "a JSON object",
    list: "a list",
    int: "a number",
    float: "a number",
    type(None): "null",
}


def _kind(value: object) -> str:
    return _NAMES.get(type(value), type(value).__name__)
