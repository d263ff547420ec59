"""Processes that begin with all that they import, as they are forked from one that has done so."""

import multiprocessing

FORKING = multiprocessing.get_context("forkserver")
# All that anybody wants: the list of who sets it last counts for all.
FORKING.set_forkserver_preload(
    [
        "tests.engine.parallel.two_ranks",
        "transformers.models.llama.modeling_llama",
        "tests.web.api.server",
    ]
)
