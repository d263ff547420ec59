"""A medium in a request of any protocol is in the prompt where it was, with its ids and file."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest
from PIL import Image

from deployments.contract.media_rules import MediaKind
from deployments.contract.requests import GenerationRequest, MediumFile
from deployments.ingress.settings import DEFAULTS
from deployments.media.images import as_png, open_image
from deployments.media.settings import MediaSettings
from kv.content import page_hashes
from tests.media.files import image, pdf, wav
from tests.media.serving import (
    IMAGE,
    N_SOUND,
    ONLY_PARTS,
    ONLY_TEXTS,
    SOUND,
    SQUARE,
    TEMPLATE,
    ask,
    base64,
    blind,
    data_url,
    seeing,
    served,
    tokenizer,
)
from tests.openai.serving import http

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
PICTURE = image((2 * SQUARE, 3 * SQUARE))  # of six ids
OTHER = image((2 * SQUARE, 3 * SQUARE), color="blue")
SHOWN = f"<|vision_start|>{IMAGE * 6}<|vision_end|>"


def chat(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def picture(data: bytes = PICTURE, **fields: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(data), **fields}}


def sound() -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": base64(wav()), "format": "wav"}}


def responses(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": list(parts)}], "store": False}


def messages(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": "tiny",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": list(blocks)}],
    }


def block(
    data: bytes = PICTURE, kind: str = "image", declared: str = "image/png"
) -> dict[str, Any]:
    source = {"type": "base64", "media_type": declared, "data": base64(data)}
    return {"type": kind, "source": source}


IN_EACH_PROTOCOL: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, chat(text("A"), picture(), text("B"))),
    "llama-server": ("/chat/completions", chat(text("A"), picture(), text("B"))),
    "responses": (
        RESPONSES,
        responses(
            {"type": "input_text", "text": "A"},
            {"type": "input_image", "image_url": data_url(PICTURE)},
            {"type": "input_text", "text": "B"},
        ),
    ),
    "messages": (MESSAGES, messages(text("A"), block(), text("B"))),
}


def only(requests: Sequence[GenerationRequest]) -> GenerationRequest:
    [request] = requests
    return request


def shown(request: GenerationRequest) -> str:
    """The prompt, in which special tokens are as they are written."""
    words: str = tokenizer().decode(list(request.prompt_ids), skip_special_tokens=False)
    return words


@pytest.mark.parametrize("protocol", IN_EACH_PROTOCOL)
def test_an_image_is_in_the_prompt_where_it_was(protocol: str) -> None:
    path, body = IN_EACH_PROTOCOL[protocol]
    response, requests = ask(path, body, seeing())
    assert response.status_code == 200, response.text
    request = only(requests)
    assert f"user\nA{SHOWN}B<|im_end|>" in shown(request)
    [medium] = request.content.media
    placeholder = tokenizer().token_to_id(IMAGE)
    assert request.prompt_ids[medium.first : medium.end] == (placeholder,) * 6
    assert request.prompt_ids.count(placeholder) == 6
    assert request.media == (MediumFile(kind=MediaKind.IMAGE, data=PICTURE),)
    usage = response.json()["usage"]
    if protocol == "messages":  # which counts what was cached apart
        usage["input_tokens"] += usage["cache_read_input_tokens"]
    assert usage.get("prompt_tokens", usage.get("input_tokens")) == len(request.prompt_ids)


def file(data: bytes) -> dict[str, Any]:
    return {"type": "file", "file": {"file_data": data_url(data, "application/pdf")}}


@pytest.mark.parametrize("protocol", IN_EACH_PROTOCOL)
def test_a_model_that_reads_text_says_so_and_names_the_part(protocol: str) -> None:
    path, body = IN_EACH_PROTOCOL[protocol]
    response, requests = ask(path, body, blind())
    assert (response.status_code, requests) == (400, [])
    where = "input[0].content[1]" if path == RESPONSES else "messages[0].content[1]"
    message = response.json()["error"]["message"]
    assert f"`{where}" in message
    assert "is an image; the model 'tiny' reads text only" in message


def test_counting_tokens_counts_those_of_images() -> None:
    path, body = IN_EACH_PROTOCOL["messages"]
    _, requests = ask(path, body, seeing())
    n_tokens = len(only(requests).prompt_ids)
    del body["max_tokens"]
    counted, _ = ask(f"{path}/count_tokens", body, seeing())
    assert counted.json()["input_tokens"] == n_tokens
    path, body = IN_EACH_PROTOCOL["chat"]
    counted, _ = ask(f"{path}/input_tokens", body, seeing())
    assert counted.json()["input_tokens"] == n_tokens


def test_pages_are_shared_by_the_same_pixels_and_by_no_others() -> None:
    again = BytesIO()
    with Image.open(BytesIO(PICTURE)) as opened:
        opened.save(again, "PNG", compress_level=0)

    def hashes(data: bytes) -> list[bytes]:
        """Returns the hashes of the pages from the first one that has a part of the image."""
        request = only(ask(CHAT, chat(picture(data), text("What is it?")), seeing())[1])
        first = request.content.media[0].first // 4
        return page_hashes(request.prompt_ids, 4, request.content)[first:]

    assert again.getvalue() != PICTURE
    assert hashes(again.getvalue()) == hashes(PICTURE)
    assert not set(hashes(OTHER)) & set(hashes(PICTURE))


def test_an_image_of_low_detail_is_scaled_down() -> None:
    large = image((1024, 512))
    request = only(ask(CHAT, chat(picture(large, detail="low")), seeing())[1])
    assert shown(request).count(IMAGE) == round(512 / SQUARE) * round(256 / SQUARE)
    with Image.open(BytesIO(request.media[0].data)) as sent:
        assert sent.size == (512, 256)
    others = [picture(large, detail=detail) for detail in ("auto", "high", "original")]
    request = only(ask(CHAT, chat(*others), seeing())[1])
    assert [medium.data for medium in request.media] == [large] * 3


def test_what_is_transparent_is_white_and_grey_of_16_bits_is_grey() -> None:
    clear, deep = Image.new("RGBA", (2, 1)), Image.new("I;16", (2, 1))
    clear.putpixel((0, 0), (10, 20, 30, 255))
    deep.putpixel((0, 0), 200 << 8)
    found = [open_image(as_png(source)) for source in (clear, deep)]
    pixels = [[opened.getpixel((x, 0)) for x in range(2)] for opened in found]
    assert pixels == [[(10, 20, 30), (255, 255, 255)], [(200, 200, 200), (0, 0, 0)]]


def test_a_sound_is_in_the_prompt_where_it_was() -> None:
    part = {**sound(), "type": "input_audio"}
    for path, body in ((CHAT, chat(sound())), (RESPONSES, responses(part))):
        response, requests = ask(path, body, seeing())
        assert response.status_code == 200, response.text
        request = only(requests)
        assert f"[{SOUND * N_SOUND}]" in shown(request)
        assert request.media == (MediumFile(kind=MediaKind.AUDIO, data=wav()),)


DOCUMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, chat(file(pdf(2)))),
    "chat, behind junk": (CHAT, chat(file(b"\r\n" * 500 + pdf(2)))),
    "responses": (RESPONSES, responses({"type": "input_file", "file_data": base64(pdf(2))})),
    "messages": (MESSAGES, messages(block(pdf(2), "document", "application/pdf"))),
}


@pytest.mark.parametrize("protocol", DOCUMENTS)
def test_a_document_is_text_and_images_for_a_model_that_sees_them(protocol: str) -> None:
    path, body = DOCUMENTS[protocol]
    response, requests = ask(path, body, blind())
    assert response.status_code == 200, response.text
    assert "user\nHello page\n\nHello page<|im_end|>" in shown(only(requests))
    assert not only(requests).media
    _, requests = ask(path, body, seeing())
    assert len(only(requests).media) == 2
    assert shown(only(requests)).count("<|vision_end|>Hello page") == 2


def test_a_document_without_text_is_refused_for_a_model_that_reads_text() -> None:
    body = chat({"type": "file", "file": {"file_data": base64(pdf(1, ""))}})
    response, _ = ask(CHAT, body, blind())
    assert response.status_code == 400
    assert "has no text, and the model 'tiny' reads only text" in response.text


@pytest.mark.parametrize("template", [TEMPLATE, ONLY_TEXTS, ONLY_PARTS])
def test_templates_show_images_as_parts_or_as_texts(template: str) -> None:
    body = {
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": [picture(), picture(OTHER), text("Which is red?")]},
            {"role": "assistant", "content": "The first."},
            {"role": "user", "content": "Why?"},
        ]
    }
    response, requests = ask(CHAT, body, seeing(template))
    assert response.status_code == 200, response.text
    prompt, request = shown(only(requests)), only(requests)
    assert prompt.count(SHOWN) == 2
    for words in ("Be short.", "Which is red?", "The first.", "Why?"):
        assert words in prompt
    assert "media-" not in prompt
    assert [medium.data for medium in request.media] == [PICTURE, OTHER]


def test_a_stored_image_is_in_the_prompt_of_what_continues_it() -> None:
    served_app, cluster = served(RESPONSES, seeing())
    body = {**IN_EACH_PROTOCOL["responses"][1], "store": True}

    async def asks() -> None:
        async with http(served_app) as client:
            first = (await client.post(RESPONSES, json=body)).json()
            again = {"input": "Why?", "previous_response_id": first["id"]}
            assert (await client.post(RESPONSES, json=again)).status_code == 200
            listed = (await client.get(f"{RESPONSES}/{first['id']}/input_items")).json()
            [kept] = listed["data"]
            assert kept["content"][1]["image_url"] == data_url(PICTURE)

    asyncio.run(asks())
    first, second = cluster.requests
    assert first.media == second.media
    assert f"user\nA{SHOWN}B<|im_end|>" in shown(second)


def test_images_in_results_of_tools_are_shown() -> None:
    use = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    body = {
        **messages(text("Look")),
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
    }
    result = {"type": "tool_result", "tool_use_id": "t", "content": [block()]}
    body["messages"] += [
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    response, requests = ask(MESSAGES, body, seeing())
    assert response.status_code == 200, response.text
    assert SHOWN in shown(only(requests))


def test_a_text_that_is_written_like_an_image_is_none() -> None:
    """It is one too many where messages may spell control tokens."""
    body = chat(picture(), text(IMAGE))
    response, requests = ask(CHAT, body, seeing())
    assert response.status_code == 200, response.text
    assert f"{SHOWN}{IMAGE}<|im_end|>" in shown(only(requests))
    placeholder = tokenizer().token_to_id(IMAGE)
    assert only(requests).prompt_ids.count(placeholder) == 6
    response, _ = ask(CHAT, body, replace(seeing(), parses_special=True))
    assert response.status_code == 400
    assert "has 2 placeholders for images and the request 1" in response.text


def test_llama_servers_marker_stands_for_its_files() -> None:
    prompt = {"prompt_string": "A<__media__>B<__media__>C", "multimodal_data": []}
    data = [base64(PICTURE), base64(wav())]
    _, requests = ask("/completion", {"prompt": {**prompt, "multimodal_data": data}}, seeing())
    assert shown(only(requests)) == f"A{SHOWN}B[{SOUND * N_SOUND}]C"
    response, _ = ask("/completion", {"prompt": {**prompt, "multimodal_data": data[:1]}}, seeing())
    assert response.status_code == 400
    assert "has 1 files, and `prompt_string` has 2 times" in response.text


def test_more_ids_than_the_context_has_are_refused_with_the_numbers() -> None:
    large = image((SQUARE * 50, SQUARE * 40))
    response, _ = ask(CHAT, chat(picture(large), picture(large), picture(large)), seeing())
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_limits_are_named_with_their_numbers() -> None:
    settings = replace(DEFAULTS, media=MediaSettings(max_pixels=1000, max_bytes=500_000))
    response, _ = ask(CHAT, chat(picture()), seeing(), settings)
    assert "has 56 x 84 pixels, and at most 1,000 pixels are allowed" in response.text


def test_what_a_model_reads_is_told() -> None:
    for model, reads in ((seeing(), True), (blind(), False)):
        props = ask("/props", None, model)[0].json()
        assert props["modalities"] == {"vision": reads, "video": False, "audio": reads}
        assert ("media_marker" in props) is reads
        for path in ("/v1/models", "/models"):
            [listed] = ask(path, None, model)[0].json()["data"]
            inputs = ["text", "image", "audio"] if reads else ["text"]
            assert listed["architecture"]["input_modalities"] == inputs
