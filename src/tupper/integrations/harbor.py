"""Harbor: each trial of a task runs in a sandbox.

``harbor run -p TASK -a AGENT -e tupper.integrations.harbor:TupperEnvironment``. A task's
Dockerfile is built once into a template, which later trials of the same files use again; an image
is used as it is. Commands run as root, as in the containers that tasks are written for, unless the
task names another user. Network policies are enforced, also when they change between phases: no
network, and lists of IPv4 addresses and ranges. Lists of host names, Compose files and GPUs are
refused.

Source: ``harbor.environments.base`` 0.26. Needs Python 3.12.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tupper import ALL_TRAFFIC, AsyncSandbox, AsyncTemplate, Template
from tupper.integrations import _shell
from tupper.integrations._extra import missing

try:
    from harbor.environments import capabilities as abilities
    from harbor.environments import definition
    from harbor.environments.base import BaseEnvironment, ExecResult
    from harbor.models.task.config import NetworkMode, NetworkPolicy
except ImportError as error:
    raise missing("harbor", error) from error
ROOT = "root"


class TupperEnvironment(BaseEnvironment):
    """The sandbox of a trial. Takes what every environment of Harbor takes."""

    _sandbox: AsyncSandbox | None = None
    _working_dir: str | None = None

    @staticmethod
    def type() -> str:
        """Its name."""
        return "tupper"

    @property
    def capabilities(self) -> abilities.EnvironmentCapabilities:
        """What it can do."""
        return abilities.EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_ipv4_addresses=True,
            network_allowlist_ipv4_cidrs=True,
            dynamic_network_policy=True,
        )

    @classmethod
    def resource_capabilities(cls) -> abilities.EnvironmentResourceCapabilities:
        """Which limits it enforces."""
        enforced = ("cpu_limit", "memory_limit", "fractional_cpus")
        return abilities.EnvironmentResourceCapabilities(**dict.fromkeys(enforced, True))

    @property
    def sandbox(self) -> AsyncSandbox:
        """The sandbox."""
        if self._sandbox is None:
            raise RuntimeError("the environment has no sandbox: await start() first")
        return self._sandbox

    def _validate_definition(self) -> None:
        definition.require_agent_environment_definition(
            self.environment_dir, docker_image=self.task_env_config.docker_image
        )

    async def start(self, force_build: bool) -> None:
        """Make the sandbox; build its template if there is none of these files."""
        image, template = self.task_env_config.docker_image, None
        if not definition.should_use_prebuilt_docker_image(
            self.environment_dir, docker_image=image, force_build=force_build
        ):
            image, template = None, await self._template(force_build)
        self._sandbox = await AsyncSandbox.create(
            template,
            image=image,
            timeout=_shell.LIFETIME_S,
            metadata={"harbor-session": self.session_id},
            envs=self._startup_env(),
            cpus=self._effective_cpus,
            memory=self._effective_memory_mb,
            disk=self._effective_storage_mb,
            network=_network(self.network_policy),
        )
        here = self.task_env_config.workdir or await _shell.working_dir(self._sandbox)
        self._working_dir = here
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def _template(self, force_build: bool) -> str:
        name = f"harbor-{self.environment_id}"
        if force_build or not await AsyncTemplate.exists(name):
            text = (self.environment_dir / "Dockerfile").read_text()
            template = Template(file_context_path=self.environment_dir).from_dockerfile(text)
            await AsyncTemplate.build(template, name, skip_cache=force_build)
        return name

    async def stop(self, delete: bool) -> None:
        """End the sandbox; one that is kept is paused, and can be connected to."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            await (sandbox.kill() if delete else sandbox.pause())

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command in a login shell."""
        who = self._resolve_user(user)
        options: dict[str, Any] = {"envs": self._merge_env(env), "cwd": cwd or self._working_dir}
        options["user"] = ROOT if who is None else str(who)
        outcome = await _shell.arun(self.sandbox, command, timeout_s=timeout_sec, **options)
        if outcome.timed_out:
            raise TimeoutError(f"the command reached its time limit of {timeout_sec} s")
        code, out, err = outcome.exit_code, outcome.stdout, outcome.stderr
        return ExecResult(return_code=code, stdout=out, stderr=err)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file into the sandbox."""
        await self.sandbox.files.upload(source_path, target_path, user=ROOT)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy a directory into the sandbox, into the one that may be there."""
        await self.sandbox.files.upload(source_dir, target_dir, user=ROOT)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file from the sandbox."""
        await self.sandbox.files.download(source_path, target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy a directory from the sandbox, into the one that may be there."""
        await self.sandbox.files.download(source_dir, target_dir)

    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        await self.sandbox.update_network(_network(network_policy))


def _network(policy: NetworkPolicy) -> dict[str, Any]:
    if policy.network_mode == NetworkMode.PUBLIC:
        return {}
    return {"allow_out": [*policy.allowed_hosts], "deny_out": [ALL_TRAFFIC]}
