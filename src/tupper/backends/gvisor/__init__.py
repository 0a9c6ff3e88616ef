"""gVisor: a kernel in user space, written in Go, between the guest and the host.

``options`` checks what the user set; ``program`` finds runsc and ``setup`` fetches it; ``probing``
runs one and decides; ``skeleton``, ``bundle`` and ``launch`` start a machine; ``machine`` is one.
"""

from tupper.backends.gvisor.backend import GVisor

__all__ = ["GVisor"]
