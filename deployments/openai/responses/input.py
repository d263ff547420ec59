"""Makes the prompt of a Responses request: of earlier items, instructions and its own items."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from deployments.contract.errors import ErrorKind, Refused, refused
from deployments.contract.model_card import ModelCard
from deployments.ingress.http.sse import encode
from deployments.media.prompt_media import NO_MEDIA, PromptMedia
from deployments.media.source import Source
from deployments.openai.fields.tools import resolve_tools
from deployments.openai.responses.encryption import OwnedCipher
from deployments.openai.responses.items import (
    KEPT,
    MEDIA_PARTS,
    HostedItem,
    Item,
    MessageItem,
    ReasoningItem,
    ReferenceItem,
    ResultItem,
    SearchCallItem,
    SearchOutputItem,
    ToolsItem,
)
from deployments.openai.responses.offered_tools import OfferedTools, ToolsWithPath
from deployments.openai.responses.schema import (
    LOGPROBS,
    ResponsesJsonObjectFormat,
    ResponsesJsonSchemaFormat,
    ResponsesRequest,
)
from deployments.openai.responses.tools import LeftOut
from deployments.openai.responses.transcript import ItemWithPath, collect_messages, hosted_calls
from deployments.store.items import CONVERSATION_PARAM, PREVIOUS, Recalled, StoredItem
from deployments.text.chat.conversation import Conversation, Thinking, prepare_prompt
from deployments.text.chat.prompt import ChatPrompt
from deployments.text.grammar.grammar import any_json_object, from_json_schema, lenient_json_schema
from deployments.text.tokens.tokenizer import TextTokenizer

EFFORT = "reasoning.effort"
ANSWER_PART = 4  # of the context that truncation leaves, where the request does not say how much
KEPT_ROLES = ("system", "developer")  # roles whose messages are never truncated


def referred_ids(items: Sequence[tuple[str, Item | ReferenceItem]]) -> tuple[str, ...]:
    return tuple(item.id for _, item in items if isinstance(item, ReferenceItem))


def given_items(
    items: Sequence[tuple[str, Item | ReferenceItem]], recalled: Recalled
) -> list[ItemWithPath]:
    """A request's own items with their paths; references are resolved. Raises Refused."""
    taken = {item.id for item in recalled.earlier} if recalled.conversation is not None else set()
    found: list[ItemWithPath] = []
    for path, item in items:
        if item.id and item.id in taken:
            raise refused(f"`{path}.id`: the item {item.id!r} is there already", f"{path}.id")
        if isinstance(item, ReferenceItem):
            taken.add(item.id)  # one item may be long
            item = _referred(path, item, recalled)
        elif recalled.conversation is not None:
            taken.add(item.id)
        found.append((path, item))
    return found


def _referred(path: str, reference: ReferenceItem, recalled: Recalled) -> Item:
    found = recalled.known.get(reference.id)
    if found is None:
        message = f"`{path}.id`: there is no stored item {reference.id!r}"
        raise Refused.of_kind(ErrorKind.NOT_FOUND, message, f"{path}.id")
    return KEPT.validate_json(found.body)


def stored_item(item: Item, recalled: Recalled) -> StoredItem:
    """An id that its client made up is no one to refer to. Ours are the ids that items get here,
    and those of items that the request refers to.
    """
    listed = item.listed()
    stored = StoredItem(str(listed["id"]), encode(listed))
    known = recalled.known.get(stored.id)
    is_known = known is not None and json.loads(known.body) == json.loads(stored.body)
    is_ours = not item.id or is_known
    return replace(stored, is_referable=is_ours)


def decrypted(items: Sequence[ItemWithPath], cipher: OwnedCipher) -> list[ItemWithPath]:
    """The items with the thoughts that are encrypted in them. Raises Refused."""
    return [(path, _decrypted(path, item, cipher)) for path, item in items]


def _decrypted(path: str, item: Item, cipher: OwnedCipher) -> Item:
    if not isinstance(item, ReasoningItem) or item.encrypted_content is None:
        return item
    try:
        thought = cipher.decrypt(item.encrypted_content, f"{path}.encrypted_content")
    except Refused:
        if item.text and path in (PREVIOUS, CONVERSATION_PARAM):
            return item  # what was stored here beside it: the key is another one by now
        raise
    return item.with_thought(thought)


def read_items(recalled: Recalled) -> list[ItemWithPath]:
    param = PREVIOUS if recalled.conversation is None else CONVERSATION_PARAM
    return [(param, KEPT.validate_json(item.body)) for item in recalled.earlier]


def offered_tools(request: ResponsesRequest, items: Sequence[ItemWithPath]) -> OfferedTools:
    return OfferedTools(_tool_lists(request, items))


def _tool_lists(request: ResponsesRequest, items: Sequence[ItemWithPath]) -> list[ToolsWithPath]:
    """The request's own, and those of items."""
    return [
        ToolsWithPath("tools", request.tools or ()),
        *(
            ToolsWithPath(f"{path}.tools", item.tools, isinstance(item, SearchOutputItem))
            for path, item in items
            if isinstance(item, ToolsItem | SearchOutputItem)
        ),
    ]


def prompt_of(
    request: ResponsesRequest,
    items: Sequence[ItemWithPath],
    offered: OfferedTools,
    card: ModelCard,
    tokenizer: TextTokenizer,
    media: PromptMedia = NO_MEDIA,
) -> ChatPrompt:
    """Raises Refused."""
    shown = _shown_items(request, items)
    messages = [message.as_dict() for message in collect_messages(shown, offered.shown, media)]
    if request.instructions is not None:
        messages.insert(0, {"role": "system", "content": request.instructions})
    talk = replace(conversation(request, offered, messages), media=media)
    try:
        prompt = _prompt_that_fits(request, talk, card, tokenizer)
    except Refused as refusal:
        if refusal.error.param != "messages":
            raise
        raise Refused(replace(refusal.error, param="input")) from refusal
    _check_logprobs(request, prompt)
    return replace(prompt, warnings=(*prompt.warnings, *left_out(request, items)))


def left_out(request: ResponsesRequest, items: Sequence[ItemWithPath]) -> Iterator[str]:
    """Yields what the prompt leaves out of the request and of what that continues, in words."""
    for given in _tool_lists(request, items):
        for index, tool in enumerate(given.tools):
            if isinstance(tool, LeftOut):
                yield f"{given.path}[{index}] of type {tool.type} is not in the prompt"
    passed = hosted_calls(items)
    for path, item in items:
        is_result = isinstance(item, ResultItem) and item.call_id in passed
        if is_result or isinstance(item, HostedItem) or _is_hosted_search(item):
            yield f"{path} of type {item.type} is not in the prompt"


def _is_hosted_search(item: Item) -> bool:
    return isinstance(item, SearchCallItem) and item.execution == "server"


def _shown_items(
    request: ResponsesRequest, items: Sequence[ItemWithPath]
) -> Sequence[ItemWithPath]:
    """The items without those that the request keeps out of the prompt."""
    if not request.forgets_earlier_thoughts:
        return items
    turns = [
        index
        for index, (_, item) in enumerate(items)
        if isinstance(item, MessageItem) and item.role == "user"
    ]
    begin = turns[-1] if turns else 0
    earlier = (entry for entry in items[:begin] if not isinstance(entry[1], ReasoningItem))
    return [*earlier, *items[begin:]]


def conversation(
    request: ResponsesRequest,
    offered: OfferedTools,
    messages: Sequence[Mapping[str, object]],
) -> Conversation:
    tools = resolve_tools(offered.resolved(), offered.selection(request.tool_choice))
    if request.wants_logprobs and tools.tools and tools.choice != "none":
        raise refused(f"`include`: {LOGPROBS} cannot be combined with `tools`", "include")
    return Conversation(
        messages=messages,
        tools=tools.tools,
        choice=tools.choice,
        callable=tools.callable,
        parallel_calls=not tools.one and request.parallel_tool_calls is not False,
        answer=_answer(request),
        answer_param="text.format",
        thinking=_thinking(request),
        verbosity=request.text.verbosity if request.text is not None else None,
        split_thoughts=not request.wants_logprobs,
        template_kwargs=request.chat_template_kwargs or {},
    )


def sources_of(
    items: Sequence[tuple[str, Item | ReferenceItem]], recalled: Recalled
) -> list[Source]:
    """The media of a request and of all that it continues, in their order. Of stored items only
    those are parsed that may have some.
    """
    param = PREVIOUS if recalled.conversation is None else CONVERSATION_PARAM
    found = [source for item in recalled.earlier for source in _stored_sources(item, param)]
    for path, item in items:
        if isinstance(item, MessageItem | ResultItem):
            found += item.sources(path)
        elif isinstance(item, ReferenceItem) and (known := recalled.known.get(item.id)):
            found += _stored_sources(known, path)
    return found


def _stored_sources(stored: StoredItem, path: str) -> list[Source]:
    if not any(name.encode() in stored.body for name in MEDIA_PARTS):
        return []
    item = KEPT.validate_json(stored.body)
    return item.sources(path) if isinstance(item, MessageItem | ResultItem) else []


def _answer(request: ResponsesRequest) -> str:
    match request.format:
        case ResponsesJsonObjectFormat():
            return any_json_object("text.format")
        case ResponsesJsonSchemaFormat(json_schema=schema, strict=strict):
            write = from_json_schema if strict else lenient_json_schema
            return write(schema, "text.format.schema")
    return ""


def _thinking(request: ResponsesRequest) -> Thinking:
    effort = request.reasoning.effort if request.reasoning is not None else None
    if effort == "none":
        return Thinking(enabled=False, param=EFFORT)
    # None for "minimal": models that do not think accept it, too.
    enabled = None if effort in (None, "minimal") else True
    return Thinking(enabled=enabled, effort=effort, param=EFFORT)


def _check_logprobs(request: ResponsesRequest, prompt: ChatPrompt) -> None:
    """Refuses logprobs of thoughts: they are assigned to a message, which must be the only item."""
    if request.wants_logprobs and prompt.thinks and _thinking(request).enabled is not False:
        message = f'Log-probabilities in `include` need `{EFFORT}`: "none" of a model that thinks'
        raise refused(message, "include")


def _prompt_that_fits(
    request: ResponsesRequest, talk: Conversation, card: ModelCard, tokenizer: TextTokenizer
) -> ChatPrompt:
    """The prompt. With truncation it has as many of the last turns as fit the context and leave
    room for an answer.
    """
    prompt = prepare_prompt(talk, card, tokenizer)
    wanted = request.max_output_tokens or card.context_length // ANSWER_PART
    longest = card.context_length - min(wanted, card.context_length // 2)
    if request.truncation != "auto" or len(prompt.ids) <= longest:
        return prompt
    cuts = _cuts(talk.messages)
    low, high = 0, len(cuts) - 1  # the last is used even if it does not fit
    while low < high:
        middle = (low + high) // 2
        prompt = prepare_prompt(_cut(talk, cuts[middle]), card, tokenizer)
        low, high = (low, middle) if len(prompt.ids) <= longest else (middle + 1, high)
    return prepare_prompt(_cut(talk, cuts[low]), card, tokenizer) if cuts else prompt


def _cuts(messages: Sequence[Mapping[str, object]]) -> list[int]:
    """Positions of user messages at which a shorter conversation may begin."""
    removable = [
        index for index, message in enumerate(messages) if message["role"] not in KEPT_ROLES
    ]
    users = [index for index in removable if messages[index]["role"] == "user"]
    return [index for index in users if index > removable[0]]


def _cut(talk: Conversation, start: int) -> Conversation:
    """The conversation from there on, with all instructions."""
    kept = [message for message in talk.messages[:start] if message["role"] in KEPT_ROLES]
    return replace(talk, messages=[*kept, *talk.messages[start:]])
