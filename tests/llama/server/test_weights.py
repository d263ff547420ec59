"""Lists of models and properties tell in which form the files of a model have its weights."""

import asyncio
from dataclasses import replace

import httpx

from deployments.contract.model_status import ModelState
from deployments.contract.weights_form import WeightsForm
from tests.ingress.clusters import CountingCluster
from tests.ingress.engines import says
from tests.llama.serving import send
from tests.text.cards import card

PACKED = WeightsForm(
    format="gguf",
    type="Q4_K_M",
    bits=4.8512,
    n_weights=8_030_261_312,
    n_bytes=4_869_000_000,
    family="llama",
    context_length=131_072,
    vocab_type=2,
)
SHOWN = {
    "format": "gguf",
    "type": "Q4_K_M",
    "bits": 4.85,
    "n_params": 8_030_261_312,
    "family": "llama",
}


def asked(cluster: CountingCluster, path: str) -> httpx.Response:
    return asyncio.run(send(cluster, "GET", path))


def test_the_form_of_weights_is_told_before_a_model_is_loaded_and_after() -> None:
    cluster = CountingCluster(says("x"), card(), card(name="loaded"), card(name="plain"))
    cluster.cards["loaded"] = replace(cluster.cards["loaded"], weights=PACKED)
    cluster.weights, cluster.paths = {"tiny": PACKED}, {"loaded": "/models/x.gguf"}
    cluster.states = {"tiny": ModelState.UNLOADED}
    body = asked(cluster, "/models").json()
    waiting, loaded, plain = body["data"]
    assert waiting["weights"] == loaded["weights"] == SHOWN
    assert "weights" not in plain
    assert loaded["meta"] == {
        "n_vocab": card().vocab_size,
        "n_ctx": 512,
        "n_ctx_train": 131_072,
        "vocab_type": 2,
        "n_params": 8_030_261_312,
        "size": 4_869_000_000,
        "ftype": "Q4_K_M",
    }
    details = [entry["details"] for entry in body["models"]]
    assert details[0] == details[1]
    assert details[0]["format"] == "gguf"
    assert (details[0]["parameter_size"], details[0]["quantization_level"]) == ("8.0B", "Q4_K_M")
    assert (details[2]["format"], details[2]["parameter_size"]) == ("safetensors", "")
    cluster.weights = {"tiny": replace(PACKED, makes_vectors=True)}
    body = asked(cluster, "/models").json()
    assert body["data"][0]["tasks"] == ["embed"]
    assert [entry["capabilities"] for entry in body["models"][:2]] == [
        ["embedding"],
        ["completion"],
    ]
    props = asked(cluster, "/props?model=loaded").json()
    assert (props["model_path"], props["weights"]) == ("/models/x.gguf", SHOWN)
    plain = asked(cluster, "/props?model=plain").json()
    assert (plain["model_path"], "weights" in plain) == ("plain", False)
