"""One model as the router sees it: its state, its replicas' loads, where its prefixes went."""

import time
from collections.abc import Sequence

from deployments.model.settings import ModelSettings
from deployments.router.index import PrefixIndex
from deployments.router.policy import Candidate, CostWeights, choose
from deployments.wire import ModelState, ModelStatus, ReplicaLoad

MAX_INDEX_PAGES = 200_000


class ModelEntry:
    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings
        self.created = int(time.time())
        self._state = ModelState.LOADING
        self._message = ""
        self._index = PrefixIndex(MAX_INDEX_PAGES)
        self._active: dict[str, int] = {}

    def loading(self, message: str) -> None:
        self._state, self._message = ModelState.LOADING, message

    def ready(self) -> None:
        self._state, self._message = ModelState.READY, ""

    def failed(self, message: str) -> None:
        self._state, self._message = ModelState.FAILED, message

    @property
    def status(self) -> ModelStatus:
        state, message = self._state, self._message
        if state is ModelState.READY and not self._active:
            state, message = ModelState.LOADING, "no replica answers"
        return ModelStatus(
            name=self.settings.name,
            application=self.settings.application,
            state=state,
            created=self.created,
            message=message,
        )

    def observe(self, loads: Sequence[ReplicaLoad]) -> None:
        """What the replicas said of themselves; those that said nothing are gone."""
        active = {load.replica_id: load.running + load.waiting for load in loads}
        if active.keys() != self._active.keys():
            self._index.keep_only(set(active))
        self._active = active

    def choose(self, hashes: Sequence[bytes], weights: CostWeights) -> str | None:
        """A replica for a prompt, counted as busier from now on; None when none is known."""
        overlap = self._index.overlap(hashes)
        candidates = [
            Candidate(replica_id, overlap.get(replica_id, 0), active)
            for replica_id, active in self._active.items()
        ]
        chosen = choose(candidates, len(hashes), weights)
        if chosen is not None:
            self._active[chosen] += 1
            self._index.insert(chosen, hashes)
        return chosen
