"""Turns a conversation into a prompt, the grammar of its reply and the parser of its reply.

Every protocol with messages translates them to `Conversation`; all the rest is the same for all.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Literal

from deployments.contract.errors import Refused, refused
from deployments.contract.model_card import ModelCard
from deployments.contract.requests import ThinkingBudget
from deployments.media.placeholders import ExpandedText
from deployments.media.prompt_media import NO_MEDIA, PromptMedia
from deployments.text.chat.arrivals import Arrivals
from deployments.text.chat.guarding import guarded_messages, guarded_tools
from deployments.text.chat.media_parts import ids_with_placeholders, in_parts, render_with_media
from deployments.text.chat.messages import (
    SYSTEM_ROLES,
    Message,
    forms,
    with_one_call_per_message,
    with_template_ids,
    with_text_arguments,
)
from deployments.text.chat.prompt import ChatPrompt
from deployments.text.chat.template_calls import chosen_template
from deployments.text.chat.templates import prints_arguments, variables
from deployments.text.chat.tool_prompting import ToolPrompt, build_tool_prompt, family_dialect
from deployments.text.dialects.call_grammar import constrainable, literal, through, without
from deployments.text.dialects.dialect import Dialect, ReplyContext, WriteMark
from deployments.text.dialects.free_text import free_text_grammar
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.text.tool import Tool

SWITCHES = frozenset({"enable_thinking", "thinking"})  # the variables' names in templates
ANSWER = "@answer"  # in Lark, the grammar of this name


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """The thinking that a request sets. None leaves it to the template.

    If it is `required`, the request is refused for a model that does not think, and the error
    names the field `param`.
    """

    enabled: bool | None = None
    effort: str | None = None  # templates that know efforts get this word
    budget: int | None = None  # tokens
    can_be_ended: bool = False  # by a later request of the client
    param: str = "thinking"
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """`messages` are as chat templates take them: the arguments of calls are objects.

    With the `choice` "required" the reply is calls of `callable` tools only; an empty `callable`
    is all tools. `answer` is llguidance's grammar of an answer that is no call, or "" for any text.
    Without `parallel_calls` a reply has at most one call. Calls fit their tools' schemas: those of
    a tool that is not strict, as far as a grammar can express its schema.
    """

    messages: Sequence[Mapping[str, object]]
    tools: tuple[Tool, ...] = ()
    choice: Literal["none", "auto", "required"] = "auto"
    callable: frozenset[str] = frozenset()
    parallel_calls: bool = True
    answer: str = ""
    answer_param: str = ""  # the field that it is of
    thinking: Thinking = Thinking()
    verbosity: str | None = None  # of the answer; templates that know of it get this word
    split_thoughts: bool = True
    template_kwargs: Mapping[str, object] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    media: PromptMedia = NO_MEDIA  # that the messages refer to


def prepare_prompt(
    conversation: Conversation, card: ModelCard, tokenizer: TextTokenizer
) -> ChatPrompt:
    """Raises Refused for what the model does not support."""
    tools = conversation.tools if conversation.choice != "none" else ()
    arrivals = Arrivals(tokenizer, chosen_template(tools, card))
    shown = arrivals.mended(conversation.messages)
    guarded = _guarded(replace(conversation, tools=tools, messages=shown), card, tokenizer)
    tool_prompt = build_tool_prompt(
        guarded.messages, guarded.tools, conversation.choice == "required", card, tokenizer
    )
    dialect = tool_prompt.dialect
    _check_thinks(conversation.thinking, tool_prompt, card)
    expanded = _render(guarded, tool_prompt, card, tokenizer)
    text = expanded.text
    context = ReplyContext(
        tools=_callable(conversation, tools),
        thinking=tool_prompt.thinks and dialect.opens_thought(text),
        split_thoughts=conversation.split_thoughts,
        marked=_marks_calls(conversation, dialect),
    )
    grammar, triggers, mark = "", None, _marks(tokenizer)
    if context.tools and conversation.choice == "auto" and not conversation.answer:
        grammar, triggers, context = free_text_grammar(
            dialect, context, conversation.parallel_calls, mark
        )
    else:
        thinks = tool_prompt.thinks and _may_think(guarded, tool_prompt, card, tokenizer, text)
        grammar = _grammar(conversation, dialect, context, thinks, mark)
    encode = partial(tokenizer.encode_hidden, limit=card.context_length)
    ids, ranges = ids_with_placeholders(expanded, encode, card, "messages")
    starts: tuple[int, ...] = ()
    if card.keeps_states and len(ids) < card.context_length:
        hide = tokenizer.control.hide
        starts = _message_starts(guarded.messages, text, len(ids), encode, hide)
    return ChatPrompt(
        text=text,
        ids=ids,
        media=expanded.media,
        placeholder_ranges=ranges,
        message_starts=starts,
        warnings=conversation.media.warnings,
        grammar=grammar,
        grammar_param=conversation.answer_param if conversation.answer else "tools",
        triggers=triggers,
        kept_specials=_kept_specials(dialect, context, tokenizer),
        thinking=_budget(conversation.thinking, card, tool_prompt, text, context, tokenizer),
        thinks=tool_prompt.thinks,
        dialect=dialect,
        context=context,
    )


def _guarded(conversation: Conversation, card: ModelCard, tokenizer: TextTokenizer) -> Conversation:
    """The conversation as a template is filled with it: nothing of it is a control token."""
    if card.parses_special:
        return conversation
    dialect, control = family_dialect(conversation.tools, card), tokenizer.control
    kwargs = {name: control.guard(value) for name, value in conversation.template_kwargs.items()}
    return replace(
        conversation,
        messages=guarded_messages(conversation.messages, dialect, tokenizer),
        tools=guarded_tools(conversation.tools, control),
        template_kwargs=kwargs,
    )


def _message_starts(
    messages: Sequence[Mapping[str, object]],
    text: str,
    n_ids: int,
    encode: Callable[[str], Sequence[int]],
    hide: Callable[[str], str],
) -> tuple[int, ...]:
    """Returns `Prompt.message_starts`.

    Each is one id earlier than where a message seems to begin: by itself its text may be encoded in
    another way.
    """
    starts = set()
    n = sum(1 for _ in takewhile(lambda message: message.get("role") in SYSTEM_ROLES, messages))
    told, first, said = (
        hide(_text(some)) for some in (messages[:n][-1:], messages[n : n + 1], messages[-1:])
    )
    behind = at + len(told) if (at := text.find(told)) >= 0 else 0
    # Some templates have the tools behind the instructions.
    at = text.find(first, behind) if first else -1
    starts.add(len(encode(text[: at if at >= 0 else behind])) - 1)
    if said and (at := text.rfind(said)) >= 0:
        starts.add(n_ids - len(encode(text[at:])) - 1)
    return tuple(sorted(start for start in starts if start > 0))


def _text(messages: Sequence[Mapping[str, object]]) -> str:
    """Returns the text of one message; "" for none, and where it has other parts than one text."""
    content = messages[0].get("content") if messages else None
    match content:
        case [{"text": str(text)}] | str(text):
            return text.strip()
    return ""


def _callable(conversation: Conversation, tools: Sequence[Tool]) -> tuple[Tool, ...]:
    names = conversation.callable
    return tuple(tool for tool in tools if not names or tool.name in names)


def _marks_calls(conversation: Conversation, dialect: Dialect) -> bool:
    """Whether calls need a mark, because an answer that fits the grammar may look like a call.

    A dialect with unmarked calls needs none as long as any call is allowed.
    """
    if not conversation.answer or conversation.choice == "required":
        return False
    return not dialect.unmarked_calls or _constrains_calls(conversation)


def _render(
    conversation: Conversation,
    tool_prompt: ToolPrompt,
    card: ModelCard,
    tokenizer: TextTokenizer,
) -> ExpandedText:
    switches = _switches(conversation, tool_prompt.template)

    def render(messages: Sequence[Message]) -> str:
        rendered = tokenizer.render_chat(
            messages,
            tools=tool_prompt.tools,
            add_generation_prompt=conversation.add_generation_prompt,
            continue_final_message=conversation.continue_final_message,
            template_kwargs={**switches, **conversation.template_kwargs},
            template=tool_prompt.template,
        )
        return tokenizer.control.hide(rendered)

    messages = with_template_ids(tool_prompt.messages, tool_prompt.dialect)
    if tool_prompt.dialect.one_call_per_message:
        messages = with_one_call_per_message(messages)
    if prints_arguments(tool_prompt.template):
        messages = with_text_arguments(messages)
    if card.media is None and Arrivals(tokenizer, tool_prompt.template).in_parts():
        messages = [in_parts(message, NO_MEDIA) for message in messages]
    refusals: list[Refused] = []
    for form in forms(messages):
        try:
            if card.media is None:
                return ExpandedText(render(form))
            return render_with_media(form, conversation.media, card.media, render)
        except Refused as refusal:
            refusals.append(refusal)
    raise refusals[0]  # later ones may be about another form only


def _switches(conversation: Conversation, template: str) -> dict[str, object]:
    """The template's own variables for thinking and for the length of answers."""
    thinking, known = conversation.thinking, variables(template)
    switches: dict[str, object] = {}
    if thinking.effort is not None and "reasoning_effort" in known:
        switches["reasoning_effort"] = thinking.effort
    if thinking.enabled is not None:
        switches |= dict.fromkeys(SWITCHES & known, thinking.enabled)
    if conversation.verbosity is not None and "verbosity" in known:
        switches["verbosity"] = conversation.verbosity
    return switches


def _may_think(
    conversation: Conversation,
    tool_prompt: ToolPrompt,
    card: ModelCard,
    tokenizer: TextTokenizer,
    text: str,
) -> bool:
    """Whether a reply to the prompt `text` may begin with a thought, where a grammar could make
    the model think. A template with a switch for it says by its prompt whether it is on.
    """
    dialect, template = tool_prompt.dialect, tool_prompt.template
    if dialect.opens_thought(text) or dialect.closes_thought(text):
        return dialect.opens_thought(text)
    told = _told_to_think(conversation)
    if told is not None or not SWITCHES & variables(template):
        return told is not False
    off = replace(conversation, thinking=replace(conversation.thinking, enabled=False))
    return _render(off, tool_prompt, card, tokenizer).text != text


def _told_to_think(conversation: Conversation) -> bool | None:
    """Whether the request turns thoughts on; None leaves it to the template."""
    thinking, template_kwargs = conversation.thinking, conversation.template_kwargs
    told = [template_kwargs[name] for name in sorted(SWITCHES & template_kwargs.keys())]
    if told:
        return any(told)
    if thinking.enabled is None and thinking.budget is not None:
        return thinking.budget > 0
    return thinking.enabled


def _check_thinks(thinking: Thinking, tool_prompt: ToolPrompt, card: ModelCard) -> None:
    is_set = thinking.enabled or thinking.budget is not None
    if is_set and thinking.required and not tool_prompt.thinks:
        raise refused(f"`{thinking.param}`: the model {card.name!r} does not think", thinking.param)


def _kept_specials(
    dialect: Dialect, context: ReplyContext, tokenizer: TextTokenizer
) -> frozenset[int]:
    """Special tokens that the parser must see."""
    ids = (tokenizer.special_id(mark) for mark in dialect.kept_marks(context))
    return frozenset(token_id for token_id in ids if token_id is not None)


def _budget(
    thinking: Thinking,
    card: ModelCard,
    tool_prompt: ToolPrompt,
    text: str,
    context: ReplyContext,
    tokenizer: TextTokenizer,
) -> ThinkingBudget | None:
    dialect, tokens = tool_prompt.dialect, _budget_tokens(thinking, card, tool_prompt, text)
    if tokens is None or dialect.thought_marks is None:
        return None
    if not (thinking.required or tool_prompt.thinks):
        return None

    def ids(mark: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(mark, add_special_tokens=False))

    start, end = map(ids, dialect.thought_marks)
    breaks = dialect.thought_breaks if context.tools else ()
    return ThinkingBudget(
        tokens=tokens,
        start_ids=start,
        end_ids=end,
        break_ids=tuple(map(ids, breaks)),
        open=context.thinking,
    )


def _budget_tokens(
    thinking: Thinking, card: ModelCard, tool_prompt: ToolPrompt, text: str
) -> int | None:
    """None for no limit. A model that may not think needs none behind a thought that is closed."""
    is_closed = tool_prompt.dialect.closes_thought(text)
    if thinking.enabled is False and tool_prompt.thinks and not is_closed:
        return 0
    if thinking.budget is None and thinking.can_be_ended and tool_prompt.thinks:
        return card.context_length
    return thinking.budget


def _grammar(
    conversation: Conversation,
    dialect: Dialect,
    context: ReplyContext,
    thinks: bool,
    mark: WriteMark,
) -> str:
    """The grammar of the whole reply: a thought if the model may think, then calls, the answer, or
    either. "" for any reply.
    """
    forced = conversation.choice == "required"
    parts: list[Mapping[str, object]] = []
    if context.tools:
        tools = tuple(map(constrainable, context.tools))
        calls = dialect.calls_lark(tools, conversation.parallel_calls, mark, context.marked)
        parts.append({"name": "calls", "lark_grammar": f"start: calls\n{calls}"})
    replies = ["@calls"] if parts else []
    if conversation.answer and not forced:
        (answer,) = json.loads(conversation.answer)["grammars"]
        parts.append({**answer, "name": "answer"})
        replies.append(dialect.framed_answer(ANSWER, context, mark))
    if not parts:
        return ""
    if not thinks and replies in (["@calls"], [ANSWER]):
        return json.dumps({"grammars": parts})
    reply = f"({' | '.join(replies)})"
    main = _start(dialect, context, thinks, mark, reply)
    return json.dumps({"grammars": [{"name": "main", "lark_grammar": main}, *parts]})


def _constrains_calls(conversation: Conversation) -> bool:
    """Whether a call beside an answer that fits a grammar may not be taken for the answer."""
    strict = any(tool.strict for tool in _callable(conversation, conversation.tools))
    return strict or not conversation.parallel_calls


def _start(
    dialect: Dialect, context: ReplyContext, thinks: bool, mark: WriteMark, reply: str
) -> str:
    """The rules of a thought and of the reply after it."""
    if not thinks or dialect.thought_marks is None:
        return f"start: {reply}\n"
    start, end = dialect.thought_marks
    thought = "rest gap" if context.thinking else "(opening rest gap)?"
    lines = [
        f"start: {thought} {reply}",
        f"opening: {dialect.written(start, mark)}",
        through("rest", "THOUGHT", dialect.written(end, mark)),
        f"THOUGHT: {without(end, *dialect.thought_breaks)}",
        r"gap: /\n{0,2}/",
    ]
    return "\n".join(lines) + "\n"


def _marks(tokenizer: TextTokenizer) -> WriteMark:
    def mark(text: str) -> str:
        token_id = tokenizer.mark_id(text)
        return literal(text) if token_id is None else f"<[{token_id}]>"

    return mark
