"""Renders conversations with media: as the parts that templates for them read, or else as text."""

from collections.abc import Callable, Iterator, Sequence

from deployments.contract.errors import Refused
from deployments.contract.media_rules import MediaKind, MediaRules
from deployments.contract.model_card import ModelCard
from deployments.media.medium import Medium
from deployments.media.placeholders import ExpandedText, expand
from deployments.media.prompt_media import PromptMedia
from deployments.text.chat.messages import Message
from kv.content import PlaceholderRange

PARAM = "messages"
SPOKEN = ("system", "developer", "user", "assistant")  # roles whose messages may have parts
PROBE = "U-u"
Render = Callable[[Sequence[Message]], str]


def render_with_media(
    messages: Sequence[Message], media: PromptMedia, rules: MediaRules, render: Render
) -> ExpandedText:
    """The prompt's text, in which references are what the model knows media by. Raises Refused."""
    found = [medium for message in messages for medium in media.media_in(_text(message))]
    is_read = _reads_texts(render)
    parts = [
        message if is_read and not media.media_in(_text(message)) else in_parts(message, media)
        for message in messages
    ]
    if not found:
        return ExpandedText(render(messages if is_read else parts))
    try:
        return _expanded(render(parts), found, media, rules)
    except Refused:
        if not is_read:
            raise
    # The template reads no parts, or not in these messages.
    return _expanded(render(messages), found, media, rules)


def expand_text(text: str, media: PromptMedia, rules: MediaRules | None) -> ExpandedText:
    """A prompt without a template. Raises Refused."""
    found = media.media_in(text)
    return _expanded(text, found, media, rules) if rules and found else ExpandedText(text)


def _expanded(
    text: str, found: Sequence[Medium], media: PromptMedia, rules: MediaRules
) -> ExpandedText:
    return expand(media.replace(text, dict(_marks(rules))), rules, found, PARAM)


def _text(message: Message) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""


def in_parts(message: Message, media: PromptMedia) -> Message:
    """A message whose content is parts, if its role may have some."""
    text = _text(message)
    if message["role"] not in SPOKEN:
        return message
    split = list(media.split(text))
    last = len(split) - 1
    parts = (_part(piece, is_first=not at, is_last=at == last) for at, piece in enumerate(split))
    return {**message, "content": [part for part in parts if part.get("text") != ""]}


def _part(part: str | Medium, *, is_first: bool, is_last: bool) -> Message:
    """A line end beside a medium is ours."""
    if isinstance(part, Medium):
        return {"type": str(part.kind)}
    part = part if is_first else part.removeprefix("\n")
    return {"type": "text", "text": part if is_last else part.removesuffix("\n")}


def _marks(rules: MediaRules) -> Iterator[tuple[str, str]]:
    if rules.images is not None:
        yield MediaKind.IMAGE, rules.images.framed
    if rules.audio is not None:
        yield MediaKind.AUDIO, rules.audio.framed


def _reads_texts(render: Render) -> bool:
    """Whether the template shows a content that is a text. Some read only parts, and show nothing
    of it.
    """
    try:
        return PROBE in render([{"role": "user", "content": PROBE}])
    except Refused:
        return False


def ids_with_placeholders(
    expanded: ExpandedText, encode: Callable[[str], Sequence[int]], card: ModelCard, param: str
) -> tuple[Sequence[int], tuple[PlaceholderRange, ...]]:
    """The ids of a prompt with its media. More than the context has are only good to count. Raises
    Refused.
    """
    ids = encode(expanded.text)
    if len(ids) + expanded.n_more >= card.context_length:
        return bytes(len(ids) + expanded.n_more), ()
    return expanded.insert_placeholders(ids, param)
