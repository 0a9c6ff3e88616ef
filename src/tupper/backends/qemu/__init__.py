"""QEMU: a virtual machine with a Linux kernel of its own, on the processor or emulated.

``options`` checks what the user set; ``program`` and ``kvm`` find what there is, and ``probing``
boots it; ``command`` and ``launch`` start a machine, ``warm`` from where another one waited;
``machine`` is one, ``saving`` saves it, ``remains`` removes it.
"""

from tupper.backends.qemu.backend import Qemu

__all__ = ["Qemu"]
