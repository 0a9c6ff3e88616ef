"""What ``tupper doctor`` says of a backend."""

from tupper.cli.doctor import render_probe
from tupper.core.backend import Isolation, Probe


def test_a_backend_that_works_needs_no_second_line():
    probe = Probe("qemu", usable=True, isolation=Isolation.HARDWARE_VM, mechanism="QEMU KVM")
    (line,) = render_probe(probe)
    assert line.split() == ["qemu", "usable", "hardware-vm", "QEMU", "KVM"]


def test_one_that_could_be_stronger_says_how():
    probe = Probe(
        "qemu",
        usable=True,
        isolation=Isolation.EMULATED_VM,
        mechanism="QEMU TCG",
        reason="no kvm: cannot open /dev/kvm: permission denied",
        remedy="sudo usermod -aG kvm $USER",
    )
    first, second = render_probe(probe)
    assert first.endswith("QEMU TCG, no kvm: cannot open /dev/kvm: permission denied")
    assert second.split(maxsplit=1) == ["remedy", "sudo usermod -aG kvm $USER"]


def test_one_that_does_not_work():
    probe = Probe("qemu", usable=False, reason="not installed", remedy="install it")
    first, second = render_probe(probe)
    assert first.endswith("not usable  not installed")
    assert second.split(maxsplit=1) == ["remedy", "install it"]
