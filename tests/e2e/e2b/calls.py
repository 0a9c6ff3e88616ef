"""Which of an SDK's public calls a row makes: seen by the interpreter, not claimed by the row.

Only when a record for ``docs/e2b.md`` is made (``ROWS_CALLS=1``): it slows every call down.
"""

import inspect
import sys
import threading

# How the published package and ours name the halves of a call that is one name on class and instance.
_HALVES = (
    "{}", "_cls_{}", "_class_{}", "_instance_{}", "_cls_{}_sandbox", "_{}_own", "_{}_by_id",
)  # fmt: skip


def public_calls(sdk, sandbox_class):
    """{"Class.call": names of the functions behind it}."""
    found = {}
    for cls in _classes(sdk, sandbox_class):
        for name in dir(cls):
            if name.startswith("_") or not _is_call(cls, name):
                continue
            kinds = [kind.__name__ for kind in cls.__mro__[:-1]]
            found[f"{cls.__name__}.{name}"] = [
                f"{kind}.{half.format(name)}" for kind in kinds for half in _HALVES
            ]
    return found


def _classes(sdk, sandbox_class):
    names = ("Volume", "Template", "Secret", "CommandHandle", "WatchHandle")
    prefix = "Async" if sandbox_class.__name__.startswith("Async") else ""
    classes = [sandbox_class, *(getattr(sdk, prefix + name, None) for name in names)]
    for part in ("commands", "files", "pty", "git"):
        member = inspect.getattr_static(sandbox_class, part, None)
        kind = inspect.get_annotations(member.fget, eval_str=True).get("return") if member else None
        classes.append(kind)
    return [each for each in classes if inspect.isclass(each)]


def _is_call(cls, name):
    member = inspect.getattr_static(cls, name)
    return not isinstance(member, property) and (callable(member) or hasattr(member, "__get__"))


class Watch:
    """The names of the package's functions that ran since the last look."""

    def __init__(self, package):
        self._mark = f"/{package}/"
        self._names = set()

    def begin(self):
        """Watch this thread and those that are started from now on."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def _see(self, frame, event, arg):
        if event == "call" and self._mark in frame.f_code.co_filename:
            self._names.add(frame.f_code.co_qualname)

    def take(self):
        """The names, from then on none."""
        seen, self._names = self._names, set()
        return sorted(name for name in seen if "<" not in name)
