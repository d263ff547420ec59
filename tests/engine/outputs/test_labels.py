"""Scores and classes are those of transformers; so are probabilities of labels as tokens."""

from typing import Any

import numpy as np
import pytest
import torch

from deployments.contract.outputs import Activation, LabelParams, ModelTask, Pooling, PoolParams
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.model_tasks import answer_as
from tests.encoders import label_logits, random_prompts, tiny_classifier, tiny_embedder
from tests.engine.drive import engine, request, roomy
from tests.engine.outputs.drive import EXACT, answers, ask, embedder, refusal
from tests.models import VOCAB, tiny_model

HEAD = PoolParams(use_head=True)
CLASSIFIERS = (
    *("bert", "roberta", "xlm_roberta", "mpnet", "distilbert", "modernbert"),
    *("nomic_bert", "gte", "deberta_v2", "qwen3", "mistral", "gemma2", "gemma3"),
)


@pytest.mark.parametrize("n_labels", [1, 3])
@pytest.mark.parametrize("architecture", CLASSIFIERS)
def test_logits_of_labels_are_those_of_transformers(architecture: str, n_labels: int) -> None:
    model = tiny_classifier(architecture, n_labels)
    asked = random_prompts(20, 40)
    expected = [label_logits(model, ids) for ids in asked]
    task = ModelTask.SCORE if n_labels == 1 else ModelTask.CLASSIFY
    with embedder(model, task=task, limits=roomy(max_batch_tokens=64)) as running:
        kinds = running.core.outputs.kinds
        assert (kinds.task, len(kinds.labels), kinds.can_generate) == (task, n_labels, False)
        found = answers(running.core, *(ask(str(n), ids, HEAD) for n, ids in enumerate(asked)))
        for answer, logits in zip(found, expected, strict=True):
            np.testing.assert_allclose(answer[0], logits, **EXACT)


def test_a_head_that_reads_the_mean_is_found() -> None:
    model = tiny_classifier("modernbert", 2, classifier_pooling="mean")
    [ids] = random_prompts(1, 40)
    expected = label_logits(model, ids)
    with embedder(model, task=ModelTask.CLASSIFY) as running:
        assert running.core.outputs.head_pooling is Pooling.MEAN
        [found] = answers(running.core, ask("one", ids, HEAD))
        np.testing.assert_allclose(found[0], expected, **EXACT)


def test_a_head_that_pools_its_own_logits_is_refused() -> None:
    model = tiny_classifier("eurobert", 2, classifier_pooling="late")
    with pytest.raises(UnsupportedModelError, match="more than one pooled vector"):
        answer_as(LoadedModel(model), ModelTask.CLASSIFY)


@pytest.mark.parametrize("architecture", ["qwen3", "gemma3", "diffllama"])
def test_labels_have_the_probabilities_of_next_tokens(architecture: str) -> None:
    model, ids, labels = tiny_model(architecture), tuple(range(3, 50)), (7, 3, 90)
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
    expected = logits.float().log_softmax(-1)[list(labels)].numpy()
    one = ask("one", ids, LabelParams(token_ids=labels))
    with engine(model=model, limits=roomy(max_batch_tokens=16)) as running:
        talk = request("talk", (4, 5, 6), max_tokens=5)
        for _ in range(2):
            *_, (_, event) = running.core.run([one])
            np.testing.assert_allclose(answers(running.core, one)[0][0], expected, **EXACT)
            assert event.token_ids == ()
        assert running.run(talk)[0].token_ids


@pytest.mark.parametrize(
    ("more", "activation"),
    [
        ({"num_labels": 1}, Activation.SIGMOID),
        ({"num_labels": 3}, Activation.SOFTMAX),
        ({"num_labels": 3, "problem_type": "multi_label_classification"}, Activation.SIGMOID),
        (
            {
                "num_labels": 1,
                "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"},
            },
            Activation.NONE,
        ),
    ],
)
def test_what_makes_probabilities_is_in_the_files(
    more: dict[str, Any], activation: Activation
) -> None:
    n_labels = more.pop("num_labels")
    model = tiny_classifier("bert", n_labels, **more)
    outputs = answer_as(LoadedModel(model), ModelTask.CLASSIFY).outputs
    assert outputs.kinds.activation is activation


def test_what_a_model_has_not_is_refused() -> None:
    ids = (3, 4, 5)
    label = ask("label", ids, LabelParams(token_ids=(1,)))
    with embedder(tiny_embedder("bert")) as running:
        core = running.core
        assert "no probabilities of tokens" in refusal(core, label).message
        assert "no labels" in refusal(core, ask("head", ids, HEAD)).message
        assert "generates no text" in refusal(core, request("talk", ids)).message
        for params, param in (
            (PoolParams(dimensions=33), "dimensions"),
            (PoolParams(normalize=-2), "normalize"),
        ):
            assert refusal(core, ask("one", ids, params)).param == param
        assert refusal(core, ask("pair", ids, second_at=3)).param == "second_at"
        assert refusal(core, ask("unknown", (VOCAB,))).param == "prompt"
        assert refusal(core, ask("long", [3] * 513)).message == (
            "the text has 513 tokens; this model takes 512 at most"
        )
    with embedder(tiny_classifier("bert", 2), task=ModelTask.CLASSIFY) as running:
        assert "no embeddings" in refusal(running.core, ask("one", ids)).message
    with engine("qwen3") as running:
        assert refusal(running.core, ask("one", ids)).param == "pooling"
        assert refusal(running.core, ask("pair", ids, PoolParams(), second_at=1)).param
    with engine("diffllama") as running:
        params = PoolParams(pooling=Pooling.LAST)
        assert "no embeddings" in refusal(running.core, ask("one", ids, params)).message
