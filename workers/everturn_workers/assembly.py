"""The activities of a worker, each put together when a role of the worker first asks for it."""

from collections.abc import Awaitable, Callable
from functools import cached_property

from everturn_activities import prices, tokens
from everturn_activities.admission import Admission
from everturn_activities.call_hooks import CallHookActivities
from everturn_activities.candidates import Candidates
from everturn_activities.compaction import CompactionActivities
from everturn_activities.consolidation import ConsolidationActivities
from everturn_activities.end_hooks import EndHookActivities
from everturn_activities.executors import ExecutorActivities, Messenger
from everturn_activities.flights import CancelWatch
from everturn_activities.folders import FolderActivities
from everturn_activities.frames import Frames
from everturn_activities.gathering import Gatherer
from everturn_activities.hook_running import HookRunner
from everturn_activities.hooks import HookActivities
from everturn_activities.mcp.gather import GatherActivities
from everturn_activities.mcp.homes import Homes
from everturn_activities.mcp.rendering import Renderer
from everturn_activities.model import GatewayChoice, ModelActivities
from everturn_activities.placement import Placements
from everturn_activities.request_log import RequestLog
from everturn_activities.scheduled import ScheduleActivities
from everturn_activities.session_homes import SessionHomes
from everturn_activities.sources import Sources
from everturn_activities.sources.documents import DocumentSources
from everturn_activities.sources.hooks import HookSources
from everturn_activities.sources.knowledge import knowledge_source
from everturn_activities.sources.memory import memory_source
from everturn_activities.sources.plain import PLAIN
from everturn_activities.sources.skills import SkillSources
from everturn_activities.step import StepActivities
from everturn_activities.swarms import SwarmActivities
from everturn_activities.tools import ToolActivities, Toolbox
from everturn_activities.turn import TurnActivities, Workspaces
from everturn_activities.vault import Vault
from everturn_activities.workspace import left_out_of_copies, protected_from_tools
from everturn_workers.runtime import TOKENS_OF, Runtime, count_text, count_tokens
from everturn_workers.settings import Settings
from everturn_workers.temporal import TemporalWaker


class Assembly:
    """`lives` tells whether a worker is alive. `own_queue` names the queue that MCP servers are
    launched by: this worker's own, or that of all tools where this worker runs none. `home` is the
    id of the worker's home."""

    def __init__(
        self,
        runtime: Runtime,
        settings: Settings,
        gateways: GatewayChoice,
        workspaces: Workspaces,
        toolbox: Toolbox,
        sources: Sources | None,
        waker: TemporalWaker,
        instance: str,
        lives: Callable[[str], Awaitable[bool]],
        own_queue: Callable[[], Awaitable[str]],
        home: str,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._gateways = gateways
        self._workspaces = workspaces
        self._toolbox = toolbox
        self._own_sources = sources
        self._waker = waker
        self._instance = instance
        self._lives = lives
        self._own_queue = own_queue
        self._session_homes = SessionHomes(
            runtime.store,
            runtime.workers if settings.has_homes else None,
            home,
            settings.home,
            "tools" in settings.works,
        )
        self._store = runtime.store

    @cached_property
    def turns(self) -> TurnActivities:
        return TurnActivities(
            *(self._store, self._workspaces, self._waker, self._messenger, self._session_homes)
        )

    @cached_property
    def steps(self) -> StepActivities:
        return StepActivities(
            *(self._store, self._candidates, self._placements, self._frames, self._gatherer),
            *(self._admission, self.models, self.tools),
            self._runtime.servers if "tools" in self._settings.works else None,
            self._own_queue,
            self._renderer,
            self._session_homes,
            calls_models="turns" in self._settings.works,
        )

    @cached_property
    def models(self) -> ModelActivities:
        return ModelActivities(
            self._store,
            self._runtime.events,
            self._gateways,
            prices.cost_usd,
            count_tokens,
            self._gatherer,
            self._candidates,
            self._placements,
            self._watch,
            self._admission,
            self._homes,
            self._instance,
            _request_log(self._settings, self._runtime.vault),
            self._toolbox.know,
        )

    @cached_property
    def compactions(self) -> CompactionActivities:
        return CompactionActivities(
            self._store,
            self._gateways,
            prices.cost_usd,
            self._frames,
            self._gatherer,
            count_text,
            self._watch,
            self._admission,
            self._instance,
            self._toolbox.know,
        )

    @cached_property
    def consolidations(self) -> ConsolidationActivities:
        return ConsolidationActivities(
            self._store,
            self._runtime.memories,
            self._gateways,
            prices.cost_usd,
            count_text,
            self._admission,
            self._instance,
            self._toolbox.know,
        )

    @cached_property
    def tools(self) -> ToolActivities:
        return ToolActivities(
            *(self._store, self._toolbox, self._placements, self._watch),
            *(self._instance, self._lives, self._homes, self._session_homes.is_elsewhere),
        )

    @cached_property
    def hooks(self) -> HookActivities:
        run_hook = self._toolbox.run_hook
        return HookActivities(self._store, run_hook, self._watch, self._instance, self._lives)

    @cached_property
    def call_hooks(self) -> CallHookActivities:
        return CallHookActivities(self._store, self._hook_runner, self.tools.refusal, self._watch)

    @cached_property
    def end_hooks(self) -> EndHookActivities:
        return EndHookActivities(self._store, self._hook_runner)

    @cached_property
    def folders(self) -> FolderActivities:
        return FolderActivities(
            self._store,
            self._settings.home,
            self._watch,
            left_out_of_copies,
            protected_from_tools,
            self._runtime.checkpoints,
            self._session_homes,
        )

    @cached_property
    def executors(self) -> ExecutorActivities:
        return ExecutorActivities(self._store, self._workspaces, self._messenger)

    @cached_property
    def swarms(self) -> SwarmActivities:
        swarms = self._runtime.swarms
        return SwarmActivities(self._store, swarms, self.turns, self.steps, self._waker)

    @cached_property
    def gathering(self) -> GatherActivities:
        return GatherActivities(
            *(self._store, self._runtime.servers, self._homes, self._renderer),
            *(self._watch, self._instance),
        )

    @cached_property
    def schedules(self) -> ScheduleActivities:
        return ScheduleActivities(self._runtime.schedules, self._waker)

    # What several of them share.

    @cached_property
    def _messenger(self) -> Messenger:
        return Messenger(self._store, self._waker)

    @cached_property
    def _watch(self) -> CancelWatch:
        return CancelWatch(self._store, self._runtime.wakeups)

    @cached_property
    def _placements(self) -> Placements:
        return Placements(self._store, self._settings.placement)

    @cached_property
    def _candidates(self) -> Candidates:
        return Candidates(prices, self._runtime.governor)

    @cached_property
    def _admission(self) -> Admission:
        governor = self._runtime.governor
        return Admission(self._store, governor, self._candidates, self._gateways)

    @cached_property
    def _frames(self) -> Frames:
        return Frames(tokens.count_text, prices.window, _counts_exactly)

    @cached_property
    def _gatherer(self) -> Gatherer:
        return Gatherer(
            self._store,
            self._sources if self._own_sources is None else self._own_sources,
            tokens.count_text,
            left_out=self._gateways.left_out,
            clean=self._runtime.vault.scrubber.scrubbed,
            know=self._toolbox.know,
        )

    @cached_property
    def _sources(self) -> Sources:
        """All that layers may name as their source."""
        return {
            **PLAIN,
            "memory": memory_source(self._runtime.memories),
            "knowledge": knowledge_source(self._runtime.library),
            **SkillSources(self._runtime.skills, self._store.invocations).named(),
            **DocumentSources(self._settings.home).named(),
            **HookSources(self._store.hook_outputs).named(),
        }

    @cached_property
    def _homes(self) -> Homes:
        return Homes(
            *(self._store, self._runtime.servers, self._instance, self._lives),
            self._settings.own_queue,
            self._own_queue,
        )

    @cached_property
    def _renderer(self) -> Renderer:
        return Renderer(
            *(self._store, self._runtime.renderings, self._runtime.servers, self._homes),
            know=self._toolbox.know,
            clean=self._runtime.vault.scrubber.scrubbed,
        )

    @cached_property
    def _hook_runner(self) -> HookRunner:
        return HookRunner(self._store, self._toolbox.run_hook, self._instance, self._lives)


def _request_log(settings: Settings, vault: Vault) -> RequestLog | None:
    if settings.request_log is None:
        return None
    path = settings.request_log.expanduser().absolute()
    return RequestLog(path, vault.scrubber)


def _counts_exactly(model: str) -> bool:
    """Whether our count is the model's own: stored messages have one measure for all models."""
    return tokens.encoding_of(model) == tokens.encoding_of(TOKENS_OF)
