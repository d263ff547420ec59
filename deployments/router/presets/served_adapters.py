"""Reads the files of adapters that a preset lists; raises ValueError for what can't be served."""

from collections.abc import Sequence

from deployments.adapter_files import read_adapter_info
from deployments.router.presets.option_types import ServedAdapterOptions
from deployments.router.settings import NamedAdapter

MAX_SERVED = 256  # of one preset


def read_adapters(options: Sequence[ServedAdapterOptions]) -> tuple[NamedAdapter, ...]:
    if len(options) > MAX_SERVED:
        raise ValueError(f"lora-modules: a model has at most {MAX_SERVED} adapters to choose from")
    names = [adapter.name for adapter in options]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"lora-modules: {name} is the name of two adapters")
    return tuple(map(read_adapter, options))


def read_adapter(options: ServedAdapterOptions) -> NamedAdapter:
    info = read_adapter_info(options.path)
    return NamedAdapter(
        name=options.name,
        path=options.path,
        digest=info.digest,
        rank=info.rank,
        scale=options.scale,
    )
