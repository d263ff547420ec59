"""Embeddings and ranks of real models, through the clients that people have for them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cohere
import httpx
import numpy as np
import openai
import pytest
import torch
from langchain_openai import OpenAIEmbeddings
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.postprocessor.jinaai_rerank import JinaRerank
from numpy.typing import NDArray
from pydantic import SecretStr
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from tests.e2e.server import Server
from tests.e2e.shared.models import MINILM

# tests/engine/outputs/test_minilm.py has the vectors, tests/openai the shapes of all answers.
pytestmark = pytest.mark.exhaustive

Floats = NDArray[np.float32]
CLOSE = 1e-5
CATS = "A cat sits on the windowsill and watches the birds."
KITTEN = "The kitten looks at sparrows through the glass."
BONDS = "Central banks raised interest rates again this quarter."
SENTENCES = [CATS, KITTEN, BONDS, "", "Ünïcödé 日本語 🙂", "word " * 200]
OTHERS = [f"{index} of many sentences, " + "and on " * (index % 17) for index in range(64)]


@pytest.fixture(scope="module")
def expected() -> Floats:
    """The embeddings of sentence-transformers: the mean of the last hidden states, at length 1."""
    tokenizer = AutoTokenizer.from_pretrained(MINILM)
    model = AutoModel.from_pretrained(MINILM, dtype=torch.float32).eval()
    with torch.inference_mode():
        texts = [tokenizer(sentence, return_tensors="pt") for sentence in SENTENCES]
        means = [model(**text).last_hidden_state.mean(1)[0] for text in texts]
        found: Floats = torch.nn.functional.normalize(torch.stack(means), dim=1).numpy()
    return found


def check(found: Sequence[Sequence[float]], expected: Floats) -> None:
    assert np.abs(np.asarray(found) - expected).max() < CLOSE


def test_openais_sdk_has_the_vectors_of_sentence_transformers(
    client: openai.OpenAI, expected: Floats
) -> None:
    def ask(texts: list[str]) -> list[list[float]]:
        answer = client.embeddings.create(model="minilm", input=texts)
        return [entry.embedding for entry in answer.data]

    check([ask([sentence])[0] for sentence in SENTENCES], expected)
    check(ask([*OTHERS, *SENTENCES])[len(OTHERS) :], expected)
    cats, kitten, bonds = np.asarray(ask(SENTENCES[:3]))
    assert cats @ kitten > 0.4 > 0.2 > cats @ bonds


def test_floats_are_base64_to_the_bit_and_dimensions_are_normalized(
    server: Server, client: openai.OpenAI
) -> None:
    """One text: what it is computed with may change its last bits."""

    def ask(**fields: object) -> Any:
        body = {"model": "minilm", "input": CATS, **fields}
        answer = server.http.post("/v1/embeddings", json=body).json()
        return [entry["embedding"] for entry in answer["data"]]

    plain = ask()
    packed = client.embeddings.create(model="minilm", input=CATS).data
    assert [entry.embedding for entry in packed] == plain
    cut = np.asarray(plain)[:, :64]
    check(ask(dimensions=64), cut / np.linalg.norm(cut, axis=1, keepdims=True))


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    """An HTTP client for SDKs that do not close their own."""
    with httpx.Client(timeout=120) as made:
        yield made


def test_langchain_and_llamaindex_have_them_too(
    server: Server, http: httpx.Client, expected: Floats
) -> None:
    url, key = f"{server.url}/v1", "none"
    langchain = OpenAIEmbeddings(
        model="minilm",
        base_url=url,
        api_key=SecretStr(key),
        check_embedding_ctx_length=False,
        http_client=http,
    )
    check(langchain.embed_documents(SENTENCES), expected)
    check([langchain.embed_query(CATS)], expected[:1])
    llamaindex = OpenAILikeEmbedding(
        model_name="minilm", api_base=url, api_key=key, http_client=http
    )
    check([llamaindex.get_query_embedding(KITTEN)], expected[1:2])
    check(llamaindex.get_text_embedding_batch([CATS, BONDS]), expected[[0, 2]])


def test_coheres_client_has_them_too(server: Server, http: httpx.Client, expected: Floats) -> None:
    client = cohere.ClientV2(api_key="none", base_url=server.url, httpx_client=http)
    answer = client.embed(
        model="minilm",
        texts=SENTENCES,
        input_type="search_document",
        embedding_types=["float"],
        truncate="END",
    )
    check(answer.embeddings.float_ or [], expected)


def test_a_text_that_is_too_long_is_refused_with_both_numbers(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"at most 256 tokens.* has 302"):
        client.embeddings.create(model="minilm", input="word " * 300)
    cut = {"truncate_prompt_tokens": -1}
    answer = client.embeddings.create(model="minilm", input="word " * 300, extra_body=cut)
    assert answer.usage.prompt_tokens == 256


def test_an_embedding_model_refuses_a_chat(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="'minilm' can't generate text"):
        client.chat.completions.create(model="minilm", messages=[{"role": "user", "content": "x"}])


@pytest.fixture(scope="module")
def scores(presets: Path) -> list[float]:
    """The scores of all sentences for the first one, by transformers alone."""
    tokenizer = AutoTokenizer.from_pretrained(presets.parent / "judge")
    path = presets.parent / "judge"
    model = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.float32).eval()
    with torch.inference_mode():
        pairs = [tokenizer([CATS], [sentence], return_tensors="pt") for sentence in SENTENCES]
        return [float(model(**pair).logits.sigmoid()) for pair in pairs]


def ranked_by_jina(server: Server, model: str) -> list[tuple[str, float]]:
    rerank = JinaRerank(top_n=3, model=model, base_url=f"{server.url}/v1", api_key="none")
    nodes = [NodeWithScore(node=TextNode(text=text)) for text in (BONDS, KITTEN, CATS)]
    with rerank._session:
        ranks = rerank.postprocess_nodes(nodes, QueryBundle(CATS))
    return [(node.node.get_content(), node.score or 0.0) for node in ranks]


def test_coheres_and_jinas_clients_have_the_ranks_of_an_embedding_model(
    server: Server, http: httpx.Client
) -> None:
    """The ranks are those of the cosines."""
    client = cohere.ClientV2(api_key="none", base_url=server.url, httpx_client=http)
    answer = client.rerank(model="minilm", query=CATS, documents=[BONDS, KITTEN, CATS])
    assert [result.index for result in answer.results] == [2, 1, 0]
    assert [text for text, _ in ranked_by_jina(server, "minilm")] == [CATS, KITTEN, BONDS]


def test_coheres_client_has_the_ranks_of_a_cross_encoder(
    server: Server, http: httpx.Client, scores: list[float]
) -> None:
    client = cohere.ClientV2(api_key="none", base_url=server.url, httpx_client=http)
    answer = client.rerank(model="judge", query=CATS, documents=SENTENCES, top_n=4)
    found = [(result.index, result.relevance_score) for result in answer.results]
    best = sorted(enumerate(scores), key=lambda one: -one[1])[:4]
    assert [index for index, _ in found] == [index for index, _ in best]
    assert [score for _, score in found] == pytest.approx([score for _, score in best], abs=CLOSE)


def test_jinas_client_has_them_too(server: Server, scores: list[float]) -> None:
    by_text = dict(zip(SENTENCES, scores, strict=True))
    for text, score in ranked_by_jina(server, "judge"):
        assert score == pytest.approx(by_text[text], abs=CLOSE)
