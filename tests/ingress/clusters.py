"""An engine that plays scripts, and replicas that count: the routes of the root ask for numbers."""

from deployments.contract.slots import SlotStatus
from deployments.engine.limits import EngineLimits
from deployments.model.settings import MODEL_DEPLOYMENT, ModelSettings
from deployments.telemetry.metric_families import MetricFamily
from tests.ingress.engines import ScriptedEngine

STATS = {
    "active_requests": 1.0,
    "waiting_requests": 0.0,
    "total_requests": 7.0,
    "aborted_requests": 0.0,
    "tokens_generated": 40.0,
    "preemptions": 0.0,
    "pages_used": 3.0,
    "pages_total": 12.0,
}


class CountingCluster(ScriptedEngine):
    """An engine with as many replicas of every model as there are `stats`, each of two slots."""

    stats: tuple[dict[str, float], ...] = (STATS, {**STATS, "active_requests": 0.0})
    families: tuple[MetricFamily, ...] = ()
    limits = EngineLimits(max_running=2)
    slots: tuple[tuple[str, dict[int, SlotStatus]], ...] = ()  # of whoever asks, by replica

    async def broadcast(
        self, application: str, deployment: str, method: str, *args: object
    ) -> list[object]:
        if deployment != MODEL_DEPLOYMENT:
            return []
        settings = ModelSettings(name="tiny", path="tiny", limits=self.limits)
        samples = [({"replica": str(index)}, list(self.families)) for index, _ in enumerate("ab")]
        answers: dict[str, list[object]] = {
            "stats": [(str(index), stats) for index, stats in enumerate(self.stats)],
            "settings": [settings for _ in self.stats],
            "samples": list(samples),
            "slots": list(self.slots),
            "end_thoughts": [False for _ in self.stats],
        }
        return answers[method]
