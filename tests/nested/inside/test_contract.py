"""What every backend must do, by QEMU with KVM."""

from qemu_contract import QemuContract


class TestQemuWithKvm(QemuContract):
    pass
