"""How many files and connections this process may have open.

Each stream through the proxy takes two descriptors, each running sandbox some more. The usual soft
limit, 1,024, is there for programs that call select(2); none of ours does.

Source: getrlimit(2); https://0pointer.net/blog/file-descriptor-limits.html.
"""

from __future__ import annotations

import contextlib
import resource

_WANTED = 65536


def most_files() -> int:
    """The soft limit of descriptors."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_file_limit() -> None:
    """Raise the soft limit towards the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
