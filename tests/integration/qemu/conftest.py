from qemu_fixtures import backend, place, rootfs

__all__ = ["backend", "place", "rootfs"]
