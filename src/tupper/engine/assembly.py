"""The real layers below the engine, put together for this host and this user."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path

from tupper.backends.registry import load_backends
from tupper.core.backend import AgentAddress, BackendContext, Isolation, Probe
from tupper.core.paths import Paths
from tupper.core.sandbox import SandboxRecord
from tupper.core.select import choose
from tupper.core.settings import Settings
from tupper.engine.parts import Forward, Parts
from tupper.engine.recipes import RecipeBuilder
from tupper.guest import Agent, carry_on, claim_socket, dial, find_agent_binary
from tupper.images import Images, Templates, make_disk
from tupper.network import Policy
from tupper.network.find import find_network
from tupper.network.ports import PortForward


def find_parts(paths: Paths, settings: Settings, engine_id: str) -> Parts:
    """The layers below.

    Args:
        paths, settings: of the engine.
        engine_id: goes into host-wide names.
    """
    images = Images(paths.data, paths.cache, id_map=None if os.geteuid() == 0 else "unshare")

    def context_for(name: str) -> BackendContext:
        return BackendContext(paths.data, engine_id, settings.backends.get(name, {}))

    builder = RecipeBuilder()
    return Parts(
        images=images,
        templates=Templates(images, recipe_dirs(paths), builder=builder),
        network=find_network(engine_id, paths.data),
        backends=load_backends(context_for),
        choose=_choose,
        agent=_make_agent,
        claim=claim_socket,
        forward=_make_forward,
        make_disk=functools.partial(make_disk, cache_dir=paths.cache),
        agent_binary=find_agent_binary,
        policy=policy_of,
        dial=dial,
        carry_on=carry_on,
        bind=builder.bind,
    )


def _choose(probes: Sequence[Probe], wanted: str, least: Isolation | None) -> Probe:
    return choose(probes, wanted=wanted, min_isolation=least)


def _make_agent(address: AgentAddress, token: str) -> Agent:
    return Agent(address, token)


def _make_forward() -> Forward:
    return PortForward()


def policy_of(record: SandboxRecord) -> Policy:
    """What a sandbox may reach."""
    return Policy(record.allow_internet, record.allow_out, record.deny_out, record.allow_host_ports)


def recipe_dirs(paths: Paths) -> list[Path]:
    """Where recipes of templates are: the user's own first, then ours."""
    package = Path(__file__).parents[1]
    ours = [package / "_templates", package.parents[1] / "templates"]
    return [paths.config / "templates", *(place for place in ours if place.is_dir())]
