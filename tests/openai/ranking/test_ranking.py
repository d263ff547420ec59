"""Ranks, scores and classes: every form of request and answer, by every kind of model."""

import math
from dataclasses import replace
from typing import Any

import pytest

from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import Activation, LabelParams, Pooling, PoolParams
from deployments.contract.requests import GenerationRequest
from deployments.openai.ranking.templates import INSTRUCTION, JUDGE
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.edge import Asked
from tests.ingress.engines import Script, pools
from tests.openai.pooling import CLASSIFIES, EMBEDS, GENERATES, SCORES, asked, known
from tests.text.cards import bert_like, card

TOKENIZER = TextTokenizer(card())
SCORER = known(SCORES)
# Logits of the test's own: a document with more tokens scores higher.
LOGITS = pools(lambda request: [[len(request.prompt_ids) / 10 - 1]])
DOCUMENTS = ["x", "x" * 12, "x" * 5]
BODY: dict[str, Any] = {"model": "tiny", "query": "Hello", "documents": DOCUMENTS}
YES, NO = 101, 102


def raw(text: str) -> float:
    return (len(TOKENIZER.encode("Hello" + text, True))) / 10 - 1


def sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def ranked(path: str, body: object, model: ModelCard = SCORER, script: Script = LOGITS) -> Asked:
    return asked(path, body, model, script)


@pytest.mark.parametrize("path", ["/v1/rerank", "/v1/reranking", "/rerank", "/reranking"])
def test_documents_come_back_in_the_order_of_their_scores(path: str) -> None:
    got = ranked(path, BODY)
    answer = got.json
    assert [result["index"] for result in answer["results"]] == [1, 2, 0]
    scores = [result["relevance_score"] for result in answer["results"]]
    assert scores == pytest.approx([sigmoid(raw(DOCUMENTS[index])) for index in (1, 2, 0)])
    assert {request.output for request in got.requests} == {PoolParams(use_head=True)}
    n_tokens = sum(len(request.prompt_ids) for request in got.requests)
    assert answer["usage"] == {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    assert (answer["object"], answer["model"]) == ("list", "tiny")
    assert "document" not in answer["results"][0]


def test_jinas_fields_are_honoured() -> None:
    documents = [{"text": document, "id": {"of": "mine"}} for document in DOCUMENTS]
    body = {**BODY, "documents": documents, "top_n": 2, "return_documents": True}
    results = ranked("/v1/rerank", body).json["results"]
    assert [(result["index"], result["document"]) for result in results] == [
        (1, documents[1]),
        (2, documents[2]),
    ]
    assert len(ranked("/v1/rerank", {**BODY, "top_n": 9}).json["results"]) == 3


def test_scores_are_raw_on_request() -> None:
    results = ranked("/v1/rerank", {**BODY, "use_activation": False}).json["results"]
    assert results[0]["relevance_score"] == pytest.approx(raw(DOCUMENTS[1]))


def test_coheres_form_cuts_documents_to_the_model() -> None:
    long = {**BODY, "documents": ["x" * 100, "x"]}
    error = ranked("/rerank", long).refusal()
    assert error["param"] == "documents[0]"
    got = ranked("/v2/rerank", long)
    assert len(got.requests[0].prompt_ids) == 64
    answer = got.json
    assert answer["meta"]["api_version"] == {"version": "2"}
    assert [result["index"] for result in answer["results"]] == [0, 1]
    got = ranked("/v2/rerank", {**long, "max_tokens_per_doc": 7})
    n_query = len(TOKENIZER.encode("Hello", False))
    assert len(got.requests[0].prompt_ids) == n_query + 7
    got = ranked("/v2/rerank", {**long, "max_tokens_per_doc": 4096})
    assert len(got.requests[0].prompt_ids) == 64
    fields = {"truncate_prompt_tokens": 9, "max_tokens_per_doc": 4096}
    assert len(ranked("/v2/rerank", {**long, **fields}).requests[0].prompt_ids) == 9


def test_the_form_of_text_embeddings_inference_is_a_list() -> None:
    body: dict[str, Any] = {"query": "Hello", "texts": DOCUMENTS}
    scores = [sigmoid(raw(document)) for document in DOCUMENTS]
    assert ranked("/rerank", body).json == [
        {"index": index, "score": pytest.approx(scores[index])} for index in (1, 2, 0)
    ]
    body |= {"return_text": True, "raw_scores": True, "top_n": 1}
    assert ranked("/rerank", body).json == [
        {"index": 1, "score": pytest.approx(raw(DOCUMENTS[1])), "text": DOCUMENTS[1]}
    ]
    bare = known(replace(SCORES, activation=Activation.NONE))  # whose files say logits
    for raw_scores, score in ((None, raw), (False, lambda text: sigmoid(raw(text)))):
        [first] = ranked("/rerank", {**body, "raw_scores": raw_scores}, bare).json
        assert first["score"] == pytest.approx(score(DOCUMENTS[1]))
    long = {"query": "Hello", "texts": ["x" * 100]}
    assert ranked("/rerank", long).refusal()["param"] == "texts[0]"
    assert len(ranked("/rerank", {**long, "truncate": True}).requests[0].prompt_ids) == 64


WRONG: list[tuple[dict[str, object], str]] = [
    ({"query": None}, "query"),
    ({"documents": []}, "documents"),
    ({"documents": ["x", 5]}, "documents[1]"),
    ({"documents": [{"title": "x"}]}, "documents[0].text"),
    ({"documents": [{"text": "x", "image": "y"}]}, "documents[0].image"),
    ({"documents": ["x"] * 8192}, "documents"),
    ({"query": "x" * 60_000, "documents": ["x"] * 100}, "documents"),
    ({"top_n": 0}, "top_n"),
    ({"max_tokens_per_doc": -1}, "max_tokens_per_doc"),
    ({"instruction": "be strict"}, "instruction"),
    ({"rank_fields": ["title"]}, "rank_fields"),
    ({"poem": 1}, "poem"),
]


def test_pairs_have_types_of_tokens_where_the_model_has_them() -> None:
    bert = replace(SCORER, tokenizer_json=bert_like().to_str())
    body = {"query": "w0 w1", "documents": ["w2"]}
    [request] = ranked("/v1/rerank", body, bert).requests
    assert (request.prompt_ids, request.second_at) == ((0, 3, 4, 1, 5, 1), 4)
    without = replace(bert, answers=replace(SCORES, takes_pairs=False))
    [request] = ranked("/v1/rerank", body, without).requests
    assert (request.prompt_ids, request.second_at) == ((0, 3, 4, 1, 5, 1), 0)


@pytest.mark.parametrize(("fields", "param"), WRONG)
def test_what_is_wrong_is_named(fields: dict[str, object], param: str) -> None:
    assert ranked("/v1/rerank", {**BODY, **fields}).refusal()["param"].startswith(param)


def test_a_model_that_ranks_nothing_says_so() -> None:
    error = asked("/v1/embeddings", {"input": "x"}, SCORER).refusal()
    assert error["message"] == "The model 'tiny' can't make embeddings: it scores pairs of texts"
    error = asked("/v1/rerank", BODY, known(CLASSIFIES)).refusal()
    assert error["message"] == "The model 'tiny' can't rank texts: it classifies texts"
    assert asked("/v1/score", {"text_1": "x", "text_2": "y"}, known(GENERATES)).refusal()


@pytest.mark.parametrize(
    ("first", "second"),
    [("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2")],
)
def test_score_takes_one_text_with_many_or_pairs(first: str, second: str) -> None:
    for path, texts in (("/score", "Hello"), ("/v1/score", ["Hello"] * 3)):
        got = ranked(path, {first: texts, second: DOCUMENTS})
        assert [item["index"] for item in got.json["data"]] == [0, 1, 2]
        scores = [item["score"] for item in got.json["data"]]
        assert scores == pytest.approx([sigmoid(raw(document)) for document in DOCUMENTS])
        assert {item["object"] for item in got.json["data"]} == {"score"}
    error = ranked("/score", {first: ["x", "y"], second: DOCUMENTS}).refusal()
    assert error["param"] == first
    assert ranked("/score", {first: "x"}).refusal()["param"] == "queries"


def vectors_of(request: GenerationRequest) -> list[list[float]]:
    """Returns a vector of length 1, in the direction of the number of tokens."""
    assert isinstance(request.output, PoolParams)
    assert request.output.normalize == 2
    angle = len(request.prompt_ids) / 10
    return [[math.cos(angle), math.sin(angle)]]


def test_an_embedding_model_ranks_by_cosines_with_its_own_prompts() -> None:
    got = asked("/v1/rerank", BODY, known(EMBEDS), pools(vectors_of))
    query, *documents = got.requests
    assert query.prompt_ids == tuple(TOKENIZER.encode("Hello Hello", True))
    assert documents[0].prompt_ids == tuple(TOKENIZER.encode("how x", True))
    angles = [len(request.prompt_ids) / 10 for request in got.requests]
    cosines = {index: math.cos(angles[0] - angle) for index, angle in enumerate(angles[1:])}
    results = got.json["results"]
    assert [result["index"] for result in results] == sorted(cosines, key=lambda i: -cosines[i])
    for result in results:
        assert result["relevance_score"] == pytest.approx(cosines[result["index"]], abs=1e-6)


def test_late_interaction_takes_the_nearest_token_of_each() -> None:
    late = known(replace(EMBEDS, prompts=(), pooling=Pooling.TOKEN))
    corners = {5: [1.0, 0.0], 6: [0.0, 1.0], 7: [0.6, 0.8]}
    script = pools(lambda request: [corners[len(request.prompt_ids) + 4]] * 2 + [[0.0, 1.0]])
    texts = {n: "x" * n for n in (1, 2, 3)}
    body = {"query": texts[1], "documents": [texts[2], texts[3]]}
    results = asked("/rerank", body, late, script).json["results"]
    scores = {result["index"]: result["relevance_score"] for result in results}
    # Of the query's tokens two lie on one axis, and one on the other one, which both texts have.
    assert scores == {0: pytest.approx(1 / 3), 1: pytest.approx((0.6 + 0.6 + 1) / 3)}


def judge(answers: Any = GENERATES, **fields: Any) -> ModelCard:
    kinds = replace(answers, score_token_ids=(YES, NO), **fields)
    return card(answers=kinds, context_length=2048)


def odds(request: GenerationRequest) -> list[list[float]]:
    return [[-1.0, -1.0 - len(request.prompt_ids) / 1000]]


def test_a_generator_with_yes_and_no_judges_in_its_template() -> None:
    body = {**BODY, "instruction": "Find greetings"}
    got = asked("/v1/rerank", body, judge(), pools(odds))
    first = got.requests[0]
    assert first.output == LabelParams(token_ids=(YES, NO))
    text = TOKENIZER.decode(first.prompt_ids, skip_special_tokens=False)
    assert text == (
        f"<|im_start|>system\n{JUDGE}<|im_end|>\n"
        "<|im_start|>user\n<Instruct>: Find greetings\n<Query>: Hello\n<Document>: x<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    scores = {result["index"]: result["relevance_score"] for result in got.json["results"]}
    for index, request in enumerate(got.requests):
        assert scores[index] == pytest.approx(sigmoid(len(request.prompt_ids) / 1000))


def test_only_the_document_is_cut_within_a_template() -> None:
    body = {**BODY, "documents": ["x" * 5000], "truncate_prompt_tokens": -1}
    [request] = asked("/v1/rerank", body, judge(), pools(odds)).requests
    assert len(request.prompt_ids) == 2048
    text = TOKENIZER.decode(request.prompt_ids, skip_special_tokens=False)
    assert text.endswith("xxx<|im_end|>\n<|im_start|>assistant\n")
    assert INSTRUCTION in text
    error = asked("/v1/rerank", {**BODY, "max_tokens_per_query": 1}, judge()).refusal()
    assert error["param"] == "max_tokens_per_query"


def test_a_template_with_roles_for_pairs_is_used() -> None:
    template = (
        "{{ instruction or 'none' }}|{% for m in messages %}"
        "{% if m.role == 'query' %}Q {{ m.content }}{% endif %}"
        "{% if m.role == 'document' %} D {{ m.content }}{% endif %}{% endfor %}|"
    )
    head = replace(card(answers=SCORES), chat_template=template)
    got = ranked("/v1/rerank", {**BODY, "instruction": "how"}, head)
    assert TOKENIZER.decode(got.requests[0].prompt_ids) == "how|Q Hello D x|"


def test_classes_have_labels_and_probabilities() -> None:
    script = pools(lambda request: [[0.0, math.log(3), 0.0]])
    for path in ("/classify", "/v1/classify"):
        got = asked(path, {"input": ["Hello", "x"]}, known(CLASSIFIES), script)
        assert [item["index"] for item in got.json["data"]] == [0, 1]
        for item in got.json["data"]:
            assert (item["label"], item["num_classes"]) == ("fair", 3)
            assert item["probs"] == pytest.approx([0.2, 0.6, 0.2])
    body = {"input": "Hello", "use_activation": False}
    logits = asked("/classify", body, known(CLASSIFIES), script).json["data"][0]["probs"]
    assert logits == pytest.approx([0.0, math.log(3), 0.0])
    error = asked("/classify", {"input": "x"}, known(EMBEDS)).refusal()
    assert error["message"] == "The model 'tiny' can't classify: it makes embeddings"
