"""``tupper doctor``: one line per backend, usable with its tier, or the reason and the remedy."""

from __future__ import annotations

import asyncio

import click

from tupper.cli import _host, _output
from tupper.cli._options import json_option
from tupper.core.backend import Probe


@click.command()
@json_option
def doctor(*, as_json: bool) -> int:
    """Say for each backend whether it works here, or why not and what to do.

    A backend counts as usable only after it has run something. Exits with 1 if none is.
    """
    probes = asyncio.run(_host.probe_backends())
    if as_json:
        _output.as_json([probe_as_json(probe) for probe in probes])
    else:
        for probe in probes:
            for line in render_probe(probe):
                _output.result(line)
    return 0 if any(probe.usable for probe in probes) else 1


def render_probe(probe: Probe) -> list[str]:
    """One line, and one more with the remedy where there is one."""
    if probe.usable:
        tier = probe.isolation.value if probe.isolation else "?"
        facts = ", ".join(fact for fact in (probe.mechanism, probe.version, probe.reason) if fact)
        lines = [f"{probe.backend:<12}  usable      {tier:<12}  {facts}".rstrip()]
    else:
        lines = [f"{probe.backend:<12}  not usable  {probe.reason}".rstrip()]
    if probe.remedy:
        lines.append(f"{'':<12}  remedy      {probe.remedy}")
    return lines


def probe_as_json(probe: Probe) -> dict[str, object]:
    """All that the probe found out."""
    return {
        "backend": probe.backend,
        "usable": probe.usable,
        "reason": probe.reason,
        "remedy": probe.remedy,
        "isolation": probe.isolation.value if probe.isolation else None,
        "mechanism": probe.mechanism,
        "kernel": probe.kernel,
        "version": probe.version,
        "capabilities": sorted(probe.capabilities),
        "details": dict(probe.details),
    }
