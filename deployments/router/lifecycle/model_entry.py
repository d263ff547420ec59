"""A model as the router sees it: the phase of its application, and the state from it.

Pure: Serve's view and the replicas' reports come in, the time is passed in, and nobody is called.
"""

import math
import time
from collections.abc import Sequence
from enum import Enum, auto

from ray.serve.schema import ApplicationStatus

from deployments.contract.model_status import LoadProgress, ModelState, ModelStatus
from deployments.contract.replica_status import ReplicaReport, ReplicaStatus
from deployments.contract.routing import RoutingDecision
from deployments.router.lifecycle.adapter_set import AdapterSet
from deployments.router.lifecycle.applications import DeployedApplication
from deployments.router.lifecycle.capacity import ResourceHolder, Resources
from deployments.router.lifecycle.replica_statuses import replica_statuses
from deployments.router.replicas.replica_set import ReplicaSet
from deployments.router.settings import Preset
from deployments.serving.deploy_errors import last_error

DEPLOY_GRACE_S = 10.0  # for Serve to tell of an application that was just deployed
BUSY_GRACE_S = 1.0  # a model is not idle so long after a replica was busy
FIRST_REPORT_GRACE_S = 5.0  # for the replicas of a model that has come up to say how busy they are
SCALE_UP_GRACE_S = 120.0  # for the first replica of a model that a request found without any
# Of replicas of a model that was up, one after the other, while none runs: the model has failed.
# Memory of a process that died may be in the way of the first ones.
MAX_FAILED_STARTS = 3
RETRY_DELAY_S = 30.0  # before a failed model of the start is retried; doubled each time
REQUEST_RETRY_DELAY_S = 5.0  # before a request may load a failed model; doubled each time
MAX_RETRY_DOUBLINGS = 4
UP_STATUSES = {
    ApplicationStatus.RUNNING,
    ApplicationStatus.UNHEALTHY,
}  # Serve replaces unhealthy replicas


class Phase(Enum):
    """The phase of an application: GONE holds nothing, and STOPPING holds all until it is GONE."""

    GONE = auto()
    STARTING = auto()
    UP = auto()
    STOPPING = auto()


class ModelEntry:
    """`commands` counts commands to Serve: what Serve reported before the last one is stale.

    is_removed: no source names it any more.
    has_any_name: as its status.
    unloads: by an operator, so far.
    """

    def __init__(self, preset: Preset, needs: Resources, replicas: ReplicaSet) -> None:
        self.preset = preset
        self.needs = needs
        self.replicas = replicas
        self.adapters = AdapterSet()
        self.phase = Phase.GONE
        self.failure = ""
        self.failed_at = 0.0
        self.commands = 0
        self.is_removed = False
        self.has_any_name = False
        self.unloads = 0
        self.loads = 0
        self.evictions = 0
        self.failures = 0
        self._failures_since_up = 0
        self._created = int(time.time())
        self._since = 0.0  # when the phase began
        self._waited_since = math.inf  # for a first replica, or for another after the last one
        self._last_used = 0.0
        self._not_idle_until = 0.0
        self._message = ""
        self._progress: LoadProgress | None = None
        self._deployed: DeployedApplication | None = None

    @property
    def name(self) -> str:
        return self.preset.settings.name

    @property
    def names(self) -> tuple[str, ...]:
        return self.name, *self.preset.aliases

    @property
    def application(self) -> str:
        return self.preset.settings.application

    @property
    def is_settled(self) -> bool:
        """Whether Serve's state of it need not be read often."""
        return self.phase in (Phase.GONE, Phase.UP) and self.state is not ModelState.LOADING

    @property
    def state(self) -> ModelState:
        if self.failure and self.phase in (Phase.GONE, Phase.STOPPING):
            return ModelState.FAILED
        if self.phase is Phase.UP:
            return self._state_when_up()
        return PHASE_STATES[self.phase]

    @property
    def status(self) -> ModelStatus:
        return ModelStatus(
            name=self.name,
            application=self.application,
            state=self.state,
            created=self._created,
            message=self._status_message(),
            aliases=self.preset.aliases,
            tags=self.preset.tags,
            source=self.preset.source,
            preset=self.preset.text,
            starters=self.preset.starters,
            path=self.preset.settings.path,
            modalities=self.preset.modalities,
            weights=self.preset.weights,
            pinned=self.preset.pinned,
            replicas=len(self._running),
            replicas_target=self._deployed.target if self._deployed else 0,
            version=self.replicas.version,
            unloads=self.unloads,
            will_retry=self.will_retry,
            progress=self._progress if self.phase is Phase.STARTING else None,
            has_any_name=self.has_any_name,
            adapters=self.adapters.table,
        )

    @property
    def replica_statuses(self) -> tuple[ReplicaStatus, ...]:
        return replica_statuses(self._deployed, self.replicas)

    def holder(self, now: float) -> ResourceHolder:
        """Its resources. The entry must not be GONE."""
        allocated = self._allocated()
        return ResourceHolder(
            name=self.name,
            needs=allocated,
            extra=allocated.minus(self.needs),
            last_used=self.last_used(now),
            leaving=self.phase is Phase.STOPPING,
            idle=self._is_idle(now),
            pinned=self.preset.pinned,
        )

    def last_used(self, now: float) -> float:
        known = bool(self.replicas.replicas)
        return max(self._last_used, now - self.replicas.idle_s()) if known else self._last_used

    def is_overdue(self, now: float, timeout_s: float) -> bool:
        """Whether a load, or the successor of its last replica, takes too long."""
        return now - self._waited_since > timeout_s

    @property
    def will_retry(self) -> bool:
        """Whether it is retried without a request.

        It was to be loaded at the start, and failed; or its replicas try to wake.
        """
        retries = self.preset.load_on_startup or self.phase is Phase.UP
        return retries and self.state is ModelState.FAILED

    def is_retry_due(self, now: float) -> bool:
        gone = self.phase is Phase.GONE
        return self.will_retry and gone and self._has_paused(RETRY_DELAY_S, now)

    def may_be_asked_for(self, now: float) -> bool:
        """Whether a request may load it though it has failed."""
        down = self.phase in (Phase.GONE, Phase.STOPPING)
        return down and bool(self.failure) and self._has_paused(REQUEST_RETRY_DELAY_S, now)

    def wait(self, message: str) -> None:
        """It waits to be loaded, or no longer does."""
        if self.phase is Phase.GONE:
            self._message = message

    def start(self, now: float) -> None:
        """It is being deployed."""
        self._enter(Phase.STARTING, now)
        self.failure = ""
        self.loads += 1
        self._last_used = now

    def resume(self, now: float) -> None:
        """It is needed after all, and nothing was done yet to unload it."""
        assert self.phase is Phase.STOPPING
        self._enter(Phase.UP, now)
        self._last_used = now
        self._not_idle_until = now + BUSY_GRACE_S

    def stop(self, now: float) -> None:
        self._enter(Phase.STOPPING, now)
        self.failure = ""

    def fail(self, message: str, now: float) -> None:
        """It can't be loaded. Its application, if any, has to be deleted."""
        if self.phase is not Phase.GONE:
            self.stop(now)
        self.failure, self.failed_at = message, now
        self.failures += 1
        self._failures_since_up += 1

    def clear_failure(self) -> None:
        """It may be loaded again."""
        self.failure = ""

    def observe(self, deployed: DeployedApplication | None, now: float) -> None:
        """Serve's state of its application; None without one."""
        if deployed is None:
            is_new = self.phase is Phase.STARTING and self._deployed is None
            if not (is_new and now - self._since < DEPLOY_GRACE_S):
                self._set_gone(now)
        elif deployed.status is ApplicationStatus.DELETING:
            self._set_stopping(now)
        elif self.phase is not Phase.STOPPING:
            self._follow(deployed, now)

    def choose(
        self, hashes: Sequence[bytes], request_id: str, session: str, version: str, now: float
    ) -> RoutingDecision:
        if self.phase is not Phase.UP or self.state is ModelState.FAILED:
            return RoutingDecision(None, False, unloads=self.unloads)
        self._last_used = now
        if not self._running:
            self._not_idle_until = now + SCALE_UP_GRACE_S
        replica_id, holder = self.replicas.choose(hashes, request_id, session, version)
        version = self.replicas.version_of(replica_id)
        return RoutingDecision(replica_id, True, version, self.unloads, holder=holder)

    def report(self, report: ReplicaReport) -> bool:
        """Whether the replica has to send a snapshot. Reports of stopping replicas are ignored."""
        stopping = self._deployed.stopping if self._deployed else frozenset()
        if self.phase is Phase.STOPPING or report.replica_id in stopping:
            return False
        return self.replicas.report(report)

    def progress(self, progress: LoadProgress) -> None:
        self._progress = progress

    @property
    def _running(self) -> frozenset[str]:
        return self._deployed.running if self._deployed else frozenset()

    def _allocated(self) -> Resources:
        """The needs of all its replicas; with autoscaling `needs` are of the fewest."""
        scaling = self.preset.settings.autoscaling
        if scaling is None or self._deployed is None:
            return self.needs
        replicas = max(scaling.fewest, self._deployed.target, len(self._running))
        return self.needs.times(replicas / scaling.fewest)

    def _has_paused(self, delay_s: float, now: float) -> bool:
        """Whether the pause since it failed is over. It is longer with each failure."""
        doublings = min(max(0, self._failures_since_up - 1), MAX_RETRY_DOUBLINGS)
        return now - self.failed_at >= delay_s * (1 << doublings)

    def _is_idle(self, now: float) -> bool:
        if self.phase is not Phase.UP or self.replicas.busy or now < self._not_idle_until:
            return False
        if not self._running and self._deployed is not None and self._deployed.target > 0:
            return False  # one is coming, perhaps for those who wait
        return now - self._since >= FIRST_REPORT_GRACE_S or self._running <= set(
            self.replicas.replicas
        )

    def _state_when_up(self) -> ModelState:
        if self.replicas.failure:
            return ModelState.FAILED
        if self._running or self.replicas.replicas:
            return ModelState.SLEEPING if self.replicas.asleep else ModelState.READY
        scaled_to_zero = self._deployed is not None and self._deployed.target == 0
        return ModelState.SLEEPING if scaled_to_zero else ModelState.LOADING

    def _status_message(self) -> str:
        if failure := self.failure or self.replicas.failure:
            return failure
        if self.phase is Phase.UP and self.state is ModelState.LOADING:
            return "no replica answers"
        return self._message

    def _enter(self, phase: Phase, now: float) -> None:
        self.phase, self._since, self._message = phase, now, ""
        self._waited_since = now if phase is Phase.STARTING else math.inf
        self._progress = None
        if phase in (Phase.STARTING, Phase.GONE):
            self._deployed = None
            self.replicas.keep_only(set())

    def _set_gone(self, now: float) -> None:
        if self.phase is not Phase.GONE:
            self._enter(Phase.GONE, now)

    def _come_up(self, now: float) -> None:
        self._enter(Phase.UP, now)
        self._last_used = now
        self._failures_since_up = 0

    def _set_stopping(self, now: float) -> None:
        if self.phase is not Phase.STOPPING:
            self._enter(Phase.STOPPING, now)

    def _follow(self, deployed: DeployedApplication, now: float) -> None:
        """Its application exists and is not being deleted."""
        if is_found := self.phase is Phase.GONE:  # an earlier router deployed it
            self._enter(Phase.STARTING, now)
        self._deployed = deployed
        self.replicas.keep_only(deployed.running)
        failed = deployed.status is ApplicationStatus.DEPLOY_FAILED
        if self.phase is Phase.UP:
            is_down = not deployed.running and deployed.target > 0
            self._waited_since = min(self._waited_since, now) if is_down else math.inf
        given_up = failed or deployed.failed_starts >= MAX_FAILED_STARTS
        if given_up and not deployed.running:
            self.fail(last_error(deployed.message), now)
        elif self.phase is Phase.STARTING and (deployed.status in UP_STATUSES or deployed.running):
            self._come_up(now)  # replicas that run take requests while others load or change
        if is_found:
            self._last_used = 0.0  # unknown: its replicas report it
        if self.phase is Phase.STARTING:
            self._message = last_error(deployed.message) if deployed.message else ""
        elif self.phase is Phase.UP:
            self.failure = (
                f"the last change failed: {last_error(deployed.message)}" if failed else ""
            )


PHASE_STATES = {
    Phase.GONE: ModelState.UNLOADED,
    Phase.STARTING: ModelState.LOADING,
    Phase.STOPPING: ModelState.UNLOADING,
}
