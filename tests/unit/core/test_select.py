import pytest

from tupper.core.backend import Isolation, Probe
from tupper.core.errors import BackendNotFound, BackendUnavailable
from tupper.core.select import choose

HARD, EMU, USER = Isolation.HARDWARE_VM, Isolation.EMULATED_VM, Isolation.USER_KERNEL


def yes(name: str, tier: Isolation) -> Probe:
    return Probe(name, usable=True, isolation=tier)


def no(name: str, reason: str = "not here", remedy: str = "") -> Probe:
    return Probe(name, usable=False, reason=reason, remedy=remedy)


FC, KVM, TCG, GV = (
    yes("firecracker", HARD),
    yes("qemu", HARD),
    yes("qemu", EMU),
    yes("gvisor", USER),
)


@pytest.mark.parametrize(
    ("probes", "wanted", "least", "chosen"),
    [
        ([GV, TCG, FC], "", None, FC),
        ([GV, KVM, FC], "", None, FC),
        ([GV, KVM, no("firecracker")], "", None, KVM),
        ([TCG, GV, no("firecracker")], "", None, GV),  # emulation is slow: gVisor comes first
        ([TCG, no("gvisor")], "", None, TCG),
        ([TCG, GV], "", EMU, TCG),
        ([TCG, GV], "", USER, GV),
        ([TCG, GV], "qemu", None, TCG),
        ([FC, GV], "gvisor", None, GV),
        ([FC, GV], "gvisor", USER, GV),
        ([FC, GV, TCG], "firecracker", HARD, FC),
        ([yes("weak", USER), yes("other", HARD), no("gvisor")], "", None, yes("other", HARD)),
        ([yes("other", HARD), GV], "", None, GV),  # a third party's is never the surprise default
        ([yes("other", HARD), GV], "", HARD, yes("other", HARD)),
    ],
)
def test_choice(probes, wanted, least, chosen):
    assert choose(probes, wanted=wanted, min_isolation=least, platform="linux") == chosen


def test_order_on_macos():
    probes = [KVM, yes("apple", HARD)]
    assert choose(probes, platform="darwin").backend == "apple"


@pytest.mark.parametrize(
    ("probes", "wanted", "least", "error", "text", "hint"),
    [
        ([GV], "gvisr", None, BackendNotFound, "gvisr", "gvisor"),
        ([GV], "zzz", None, BackendNotFound, "zzz", "installed: gvisor"),
        (
            [no("gvisor", "too old", "run: tupper setup")],
            "gvisor",
            None,
            BackendUnavailable,
            "too old",
            "setup",
        ),
        ([GV, FC], "gvisor", HARD, BackendUnavailable, "weaker", "min_isolation"),
        ([GV], "", HARD, BackendUnavailable, "strongest is gvisor", "min_isolation"),
        (
            [GV, no("firecracker", "no kvm", "load kvm")],
            "",
            HARD,
            BackendUnavailable,
            "hardware-vm",
            "load kvm",
        ),
        (
            [no("gvisor", "a"), no("qemu", "b")],
            "",
            None,
            BackendUnavailable,
            "qemu: b; gvisor: a",
            "setup",
        ),
        ([], "", None, BackendUnavailable, "none is installed", "setup"),
        ([Probe("liar", usable=True)], "liar", None, BackendUnavailable, "liar", None),
    ],
)
def test_refusal(probes, wanted, least, error, text, hint):
    with pytest.raises(error) as caught:
        choose(probes, wanted=wanted, min_isolation=least, platform="linux")
    assert text in caught.value.message
    assert hint is None or hint in (caught.value.hint or "")
