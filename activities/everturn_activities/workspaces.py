"""The workspaces of a worker: what a turn runs under, and the tools that it calls."""

import functools
import hashlib
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from everturn.agents import AgentSpec, ToolSpec
from everturn.commands import NO_LIMITS_SET, CommandLimits
from everturn.errors import SecretMissing, ToolFailed, UsageError, WorkspaceError
from everturn.executors import ExecutorRules
from everturn.hooks import Hook
from everturn.mcp_tools import is_served
from everturn.secrets import SecretSource
from everturn.session import SessionKey
from everturn.tasks import Output
from everturn.tools import Tool, ToolContext
from everturn_activities import own_folders
from everturn_activities.bounded import Bounded
from everturn_activities.builtin import CODE, KNOWLEDGE, builtins
from everturn_activities.builtin.answer import answer
from everturn_activities.builtin.inside import NO_SERVICES, InsideContext, Services
from everturn_activities.call_checkpoints import CallCheckpoints
from everturn_activities.capped import capped
from everturn_activities.code.presence import may_hold_code
from everturn_activities.hook_files import hook_files
from everturn_activities.hooks import HookRan
from everturn_activities.keyed_http import keyed_http
from everturn_activities.running import run
from everturn_activities.store import Assignment
from everturn_activities.threads import in_thread
from everturn_activities.toolbox import ToolOutcome, call_tool, preview_call, verify_tool
from everturn_activities.trust import resolved
from everturn_activities.vault import Vault
from everturn_activities.workspace import (
    SKILL,
    Workspace,
    answering_spec,
    executor_spec,
    load,
    manager_spec,
    protected_paths,
)

FRESH_SECONDS = 1.0
"""How long the calls of a turn may find the tools of a workspace without looking at its files."""

KNOWN_SECONDS = 30.0
"""How long the values that a workspace's secrets had are those that are looked for."""

LOOKED_SECONDS = 60.0
"""How long sessions that begin in a folder go by one look at whether it holds code."""

SPECS_KEPT = 512


class Workspaces:
    """`Workspaces` and `Toolbox` of the activities, on the folders of this machine."""

    def __init__(
        self,
        unsafe_commands: bool = False,
        services: Services = NO_SERVICES,
        limits: CommandLimits = NO_LIMITS_SET,
        checkpoints: CallCheckpoints | None = None,
    ) -> None:
        self._unsafe_commands = unsafe_commands
        self._limits = limits
        self._services = services
        self._vault = services.vault or Vault({})
        self._checkpoints = checkpoints
        self._loaded: dict[str, tuple[float, Workspace]] = {}
        self._made: Bounded[object, AgentSpec] = Bounded(SPECS_KEPT, 0)
        self._looked: Bounded[str, tuple[float, bool]] = Bounded(SPECS_KEPT, 0)

    def spec(self, assignment: Assignment) -> AgentSpec:
        workspace = self._load(assignment.workspace)
        spec = workspace.spec(assignment.agent, assignment.model, Path(assignment.working_dir))
        if assignment.rules is not None or spec.executors.managed:
            spec = self._placed(spec, assignment.rules)
        if assignment.output is not None:
            spec = self._answering(spec, assignment.output)
        useful = self._useful(spec, assignment)
        kept = {*useful, *(spec.agent.tools or ())}
        useless: set[str] = {name for name in spec.profile.when_useful if name not in kept}
        skills = self._services.skills
        if skills is None or (assignment.here and not skills.shelf(spec).has_root()):
            # Without any place for skills, a tool that reads them has nothing to do.
            useless.add(SKILL)
        tools = tuple(tool for tool in spec.tools if (tool.runs or tool.name) not in useless)
        working_dir = _own_place(spec, assignment)
        own = (len(tools), assignment.user, useful, working_dir, assignment.priority)
        if own == (len(spec.tools), spec.user, spec.useful, spec.working_dir, spec.priority):
            return spec
        asked = (spec.hash, *own)
        made = self._made.get(asked)
        if made is None:
            made = spec.but(
                tools=tools,
                user=assignment.user,
                useful=useful,
                working_dir=working_dir,
                priority=assignment.priority,
            )
            self._made.put(asked, made)
        return made

    def _placed(self, spec: AgentSpec, rules: ExecutorRules | None) -> AgentSpec:
        """As an executor's, or as a manager's."""
        asked = (spec.hash, rules)
        made = self._made.get(asked)
        if made is None:
            made = manager_spec(spec) if rules is None else executor_spec(spec, rules)
            self._made.put(asked, made)
        return made

    def _answering(self, spec: AgentSpec, output: Output) -> AgentSpec:
        asked = (spec.hash, output.model_dump_json())
        made = self._made.get(asked)
        if made is None:
            made = answering_spec(spec, output)
            self._made.put(asked, made)
        return made

    def agent_names(self, spec: AgentSpec) -> tuple[str, ...]:
        """The agents of its workspace that are offered to choose from; broken ones are not."""
        workspace = self._load(spec.workspace)
        found = []
        for name in workspace.agents:
            with suppress(UsageError):
                if workspace.agent(name).visible:
                    found.append(name)
        return tuple(found)

    def _useful(self, spec: AgentSpec, assignment: Assignment) -> tuple[str, ...]:
        """Those of the profile's `when_useful` that there is something for.

        What a session had, it keeps, so that a provider's cache of its tools stands; only a
        person who adds knowledge changes that.
        """
        wanted = spec.profile.when_useful
        found = set(assignment.useful or ())
        if KNOWLEDGE in wanted and assignment.searched:
            found.add(KNOWLEDGE)
        if (
            CODE in wanted
            and assignment.useful is None
            # In doubt it has them: what cannot be seen from here may hold code.
            and (not assignment.here or self._may_hold_code(spec))
        ):
            found.add(CODE)
        return tuple(sorted(found)) if wanted else ()

    def _may_hold_code(self, spec: AgentSpec) -> bool:
        looked = self._looked.get(spec.working_dir)
        if looked is None or time.monotonic() - looked[0] > LOOKED_SECONDS:
            folder = Path(spec.working_dir)
            looked = (time.monotonic(), may_hold_code(folder, _protected(spec, folder)))
            self._looked.put(spec.working_dir, looked)
        return looked[1]

    def tool(self, spec: AgentSpec, name: str) -> Tool | None:
        """Raises UsageError where the workspace has become unreadable; built-ins need none."""
        described = spec.tool(name)
        if described is not None:
            name = described.runs or name
            if described.source == "builtin":
                return builtins().get(name)
            if is_served(described):
                servers = self._services.servers
                return None if servers is None else servers.tool(described)
        if described is not None and described.source == "answer":
            return answer
        loaded = self._loaded.get(spec.workspace)
        if loaded is None or time.monotonic() - loaded[0] > FRESH_SECONDS:
            return self._load(spec.workspace).tool(name)
        return loaded[1].tool(name)

    def _load(self, path: str) -> Workspace:
        workspace = load(Path(path))
        self._loaded[path] = (time.monotonic(), workspace)
        self._vault.know(workspace.path, workspace.settings.secrets)
        return workspace

    def know(self, spec: AgentSpec) -> None:
        """Learn what may not be said in a turn that runs under `spec`."""
        self._secrets_of(spec.workspace, KNOWN_SECONDS)

    def _secrets_of(self, path: str, seconds: float) -> Mapping[str, SecretSource]:
        """The secrets that a workspace names; each value that can be had is known afterwards."""
        loaded = self._loaded.get(path)
        if loaded is None or time.monotonic() - loaded[0] > seconds:
            try:
                return self._load(path).settings.secrets
            except UsageError:
                # A turn goes on though its settings have been broken meanwhile.
                if loaded is None:
                    return {}
        assert loaded is not None
        named = loaded[1].settings.secrets
        if named:
            self._vault.know(loaded[1].path, named)
        return named

    def context(
        self, spec: AgentSpec, key: SessionKey, turn: int, step: int, index: int, attempt: int
    ) -> InsideContext:
        working_dir = Path(spec.working_dir)
        # A tool may come upon a value by itself, so all are known before any call.
        self.know(spec)
        loaded = self._loaded.get(spec.workspace)
        key_of_call = idempotency_key(key, turn, step, index)
        return InsideContext(
            tenant=key.tenant,
            session=key.session,
            working_dir=working_dir,
            idempotency_key=key_of_call,
            protected=_protected(spec, working_dir),
            attempt=max(attempt, 1),
            unsafe_commands=self._unsafe_commands,
            command_limits=self._limits,
            allowed_hosts=spec.agent.allowed_hosts,
            scrubber=self._vault.scrubber,
            spec=spec,
            turn=turn,
            step=step,
            index=index,
            services=self._services,
            http=functools.partial(keyed_http, spec.agent.allowed_hosts, key_of_call),
            search=None if loaded is None else loaded[1].settings.search,
            value_of=functools.partial(self._value, spec),
        )

    async def _value(self, spec: AgentSpec, name: str) -> str:
        return (await self._values(spec, [name]))[name]

    async def call(
        self,
        tool: Tool,
        spec: ToolSpec,
        arguments: dict[str, Any],
        malformed: str | None,
        context: ToolContext,
    ) -> ToolOutcome:
        inside = context
        try:
            context = await self._given(tool, spec, context)
        except SecretMissing as error:
            return ToolOutcome(str(error), failed=True)
        clock = inside.clock if isinstance(inside, InsideContext) else None
        running = call_tool(tool, spec, arguments, malformed, context, clock)
        if self._checkpoints is None or not isinstance(inside, InsideContext):
            return await running
        return await self._checkpoints.around(inside, spec, arguments, running)

    async def run_hook(self, spec: AgentSpec, hook: Hook, stdin: bytes | None = None) -> HookRan:
        working_dir = Path(spec.working_dir)
        try:
            secrets = await self._values(spec, spec.agent.command_secrets)
        except SecretMissing as error:
            raise ToolFailed(str(error)) from None
        context = ToolContext(
            tenant="",
            session="",
            working_dir=working_dir,
            idempotency_key="",
            protected=_protected(spec, working_dir),
            unsafe_commands=self._unsafe_commands,
            command_limits=self._limits,
            allowed_hosts=spec.agent.allowed_hosts,
            command_secrets=secrets,
            scrubber=self._vault.scrubber,
        )
        ended = await run(hook.line, context, hook.timeout_seconds, stdin)
        return HookRan(ended.code, capped(ended.output), capped(ended.errors))

    async def verify(self, tool: Tool, spec: ToolSpec, context: ToolContext) -> ToolOutcome | None:
        try:
            context = await self._given(tool, spec, context)
        except SecretMissing:
            return None
        return await verify_tool(tool, spec, context)

    async def preview(
        self, tool: Tool, spec: ToolSpec, arguments: dict[str, Any], context: ToolContext
    ) -> str | None:
        try:
            context = await self._given(tool, spec, context)
        except SecretMissing as error:
            return f"There is no preview: {error}"
        return await preview_call(tool, spec, arguments, context)

    async def _given(self, tool: Tool, spec: ToolSpec, context: ToolContext) -> ToolContext:
        """What a tool may know: a workspace's own is told nothing of the inside.

        Raises SecretMissing.
        """
        if not isinstance(context, InsideContext):
            return context
        turn = context.spec
        if tool.secrets:
            context = replace(context, secrets=await self._values(turn, tool.secrets))
        if spec.source != "builtin" and not is_served(spec):
            return context.outside()
        if turn.agent.command_secrets:
            values = await self._values(turn, turn.agent.command_secrets)
            context = replace(context, command_secrets=values)
        return context

    async def _values(self, spec: AgentSpec, names: Iterable[str]) -> dict[str, str]:
        """The secrets of these names. Raises SecretMissing."""
        if not names:
            return {}
        secrets, root = self._secrets_of(spec.workspace, FRESH_SECONDS), Path(spec.workspace)
        # A keyring may take its time.
        return await in_thread(
            lambda: {name: self._vault.value(root, secrets, name) for name in names}
        )


def _own_place(spec: AgentSpec, assignment: Assignment) -> str:
    """Where the agent works in a session that has a folder of its own, or just in `spec`'s."""
    if assignment.own_dir is None:
        return spec.working_dir
    if assignment.here and not assignment.folder_due and not Path(assignment.own_dir).is_dir():
        raise WorkspaceError(own_folders.gone(assignment.own_dir))
    source, place = resolved(Path(assignment.working_dir)), Path(spec.working_dir)
    if not place.is_relative_to(source):
        raise WorkspaceError(
            f"Agent {spec.agent.name!r} works in {place}, outside of {source}, of which the session"
            " has a folder of its own; open a session with the folder 'shared', or mend the"
            " agent's working_directory."
        )
    return str(Path(assignment.own_dir, place.relative_to(source)))


def _protected(spec: AgentSpec, working_dir: Path) -> tuple[Path, ...]:
    known = protected_paths(Path(spec.workspace), working_dir, spec.profile.skills.roots)
    hooks = spec.agent.hooks
    return (*known, *hook_files(hooks, working_dir)) if hooks.all else known


def idempotency_key(key: SessionKey, turn: int, step: int, index: int) -> str:
    """The same for every attempt of one call, and for no other call."""
    name = f"{key.tenant}/{key.session}/{turn}/{step}/{index}"
    return hashlib.sha256(name.encode()).hexdigest()
