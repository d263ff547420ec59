"""Refuses what an engine can't do at once."""

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loaded_model import LoadedModel


def check_combination(
    loaded: LoadedModel, limits: EngineLimits, *, has_ranks: bool, has_draft: bool
) -> None:
    """Raises UnsupportedModelError for what can't be done with this model or beside each other,
    ValueError for limits that contradict themselves."""
    is_encoder, transcribes = loaded.is_encoder, loaded.speech is not None
    has_adapters, on_disk = limits.max_loras > 0, limits.cache_disk is not None
    pulls = limits.pull_prefixes is True
    saves_slots = limits.slot_save_path is not None
    refused = {
        "ranks can't share what drafts": has_draft and has_ranks,
        "an encoder says no tokens that could be drafted": has_draft and is_encoder,
        "no model drafts for one that transcribes": has_draft and transcribes,
        "ranks can't share an encoder": has_ranks and is_encoder,
        "ranks can't share a model that transcribes": has_ranks and transcribes,
        "max_loras: ranks that share a model take no adapters": has_adapters and has_ranks,
        "max_loras: a model that transcribes takes no adapters": has_adapters and transcribes,
        "cache-disk: ranks that share a model keep no prefixes on a disk; say tensor_parallel = 1, "
        "or leave cache-disk out": on_disk and has_ranks,
        "cache-disk: an encoder has no prefixes": on_disk and is_encoder,
        "cache-disk: a model that transcribes has none": on_disk and transcribes,
        "pull-prefixes: ranks that share a model send none yet": pulls and has_ranks,
        "pull-prefixes: an encoder has no prefixes": pulls and is_encoder,
        "pull-prefixes: a model that transcribes has none": pulls and transcribes,
        "slot-save-path: ranks that share a model save no slots yet": saves_slots and has_ranks,
        "slot-save-path: an encoder has no slots": saves_slots and is_encoder,
        "slot-save-path: a model that transcribes has none": saves_slots and transcribes,
        "max_loras: an encoder takes no adapters of requests": has_adapters and is_encoder,
    }
    for message, is_asked_for in refused.items():
        if is_asked_for:
            raise UnsupportedModelError(message)
    if has_draft and not limits.draft_tokens:
        raise ValueError("draft_tokens: nothing is drafted with 0")
