"""A model that sees and hears, as its card says, behind each of the protocols."""

from base64 import b64encode
from dataclasses import replace
from functools import cache

import httpx
from starlette.types import ASGIApp
from tokenizers import Tokenizer

from deployments.contract.media_rules import MediaRules
from deployments.contract.model_card import ModelCard
from deployments.contract.requests import GenerationRequest
from deployments.ingress.settings import IngressSettings
from deployments.media.audio_rules import WindowAudioRules
from deployments.media.image_rules import MergedPatchImageRules
from tests.ingress import edge
from tests.ingress.clusters import CountingCluster
from tests.ingress.edge import application
from tests.ingress.engines import says
from tests.openai.audio.patient import PATIENT
from tests.text.cards import byte_level, card

IMAGE, SOUND = "<|image_pad|>", "<|AUDIO|>"
SQUARE = 28  # pixels of an image that are one id, both ways
N_SOUND = 5
# As Qwen's: texts and parts, with tokens around each medium.
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part.type == 'audio' %}[<|AUDIO|>]"
    "{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ONLY_TEXTS = TEMPLATE.replace("m.content is string", "true")
ONLY_PARTS = TEMPLATE.replace("m.content is string", "false")


@cache
def tokenizer() -> Tokenizer:
    made = Tokenizer.from_str(byte_level().to_str())
    made.add_special_tokens([IMAGE, SOUND])
    return made


def rules() -> MediaRules:
    def id_of(token: str) -> int:
        found = tokenizer().token_to_id(token)
        assert found is not None
        return int(found)

    images = MergedPatchImageRules(
        marker=IMAGE,
        placeholder=IMAGE,
        placeholder_id=id_of(IMAGE),
        framed=f"<|vision_start|>{IMAGE}<|vision_end|>",
        square=SQUARE,
        min_pixels=SQUARE**2,
        max_pixels=2000 * SQUARE**2,
    )
    audio = WindowAudioRules(
        marker=SOUND,
        placeholder=SOUND,
        placeholder_id=id_of(SOUND),
        framed=f"[{SOUND}]",
        sampling_rate=16_000,
        max_samples=None,
        window=480_000,
        n_window=N_SOUND,
    )
    return MediaRules(images=images, audio=audio)


def seeing(template: str = TEMPLATE) -> ModelCard:
    made = card(tokenizer(), context_length=4096, chat_template=template)
    return replace(made, media=rules())


def blind() -> ModelCard:
    return card(tokenizer(), context_length=4096, chat_template=TEMPLATE)


def base64(data: bytes) -> str:
    return b64encode(data).decode()


def data_url(data: bytes, declared: str = "image/png") -> str:
    return f"data:{declared};base64,{base64(data)}"


def served(
    path: str, model: ModelCard, settings: IngressSettings = PATIENT
) -> tuple[ASGIApp, CountingCluster]:
    """The application that has this path."""
    cluster = CountingCluster(says("fine"), model)
    return application(path, cluster, settings), cluster


def ask(
    path: str, body: object, model: ModelCard, settings: IngressSettings = PATIENT
) -> tuple[httpx.Response, list[GenerationRequest]]:
    """The answer, and what the engine was asked for."""
    served_app, cluster = served(path, model, settings)
    if body is None:
        return edge.ask(served_app, "GET", path), cluster.requests
    return edge.ask(served_app, "POST", path, json=body), cluster.requests
