"""What the rows of the checklist share.

A row gets a :class:`driver.World` and knows no SDK by name. It fails by raising.
"""

import urllib.error
import urllib.request
import uuid

ROWS = []
# Those that take seconds, mostly for the engine's work, which is the same whoever asks.
DEAR = set()


class NotHere(Exception):
    """This SDK has no such call in this version or half."""


def row(function):
    """Put a function on the list."""
    ROWS.append(function)
    return function


def dear(function):
    """Put a row among those that run with one half of each SDK only."""
    DEAR.add(function.__name__.removeprefix("row_"))
    return function


def http(url, data=None, headers=None):
    """(status, body) of a request without any SDK, and without a proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(url, data=data, headers=headers or {})
        with opener.open(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def form(name, data, kind="text/plain"):
    """A multipart form with one file: (body, headers)."""
    mark = uuid.uuid4().hex
    head = (
        f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        f"Content-Type: {kind}\r\n\r\n"
    )
    body = head.encode() + data + f"\r\n--{mark}--\r\n".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={mark}"}


def new_name():
    return f"t-{uuid.uuid4().hex[:8]}"
