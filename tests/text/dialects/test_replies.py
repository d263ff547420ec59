"""A reply with tools says what it likes until a call opens, and then a call that fits its tool."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import takewhile

import jsonschema
import numpy as np
import pytest
from llguidance import LLMatcher
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from tokenizers import AddedToken, Tokenizer

from deployments.contract.errors import Refused
from deployments.text.chat.conversation import Conversation, prepare_prompt
from deployments.text.chat.prompt import ChatPrompt
from deployments.text.dialects.layouts.marked_blocks import MarkedBlocks
from deployments.text.dialects.registry import DIALECTS
from deployments.text.grammar.grammar import from_json_schema
from deployments.text.reply import Reply, fold_reply
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.text.tool import Tool
from tests.effort import tries
from tests.text.cards import CHAT_TEMPLATE, byte_level, card
from tests.text.constrained import ConstrainedReply
from tests.text.dialects.test_call_grammar import LIMIT, SHORT, reader
from tests.text.dialects.test_transcripts import BY_DIALECT, TABLES
from tests.text.dialects.transcripts import PLAIN, Calls, Table

LONG = 400  # tokens, behind which a reply ends as soon as it may
WANDERS = 0.05  # the part of all tokens that are drawn evenly
STOPS = 0.2  # of all baits
SPELLS = 0.2  # of all tokens, shorter ones than there are
FRAME = ("<|START_RESPONSE|>", "<|END_RESPONSE|>")  # of Command's text
# The names of the transcripts' tools, with schemas that the transcripts do not fit.
TOOLS = (
    Tool(
        "get_weather",
        "",
        {
            "type": "object",
            "properties": {"city": SHORT, "days": {"type": "integer", "maximum": 1}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
        strict=True,
    ),
    Tool("search", "", {"properties": {"exact": {"const": 1}}, "additionalProperties": False}),
    Tool("ping", "", {"properties": {"at": {"type": "null"}}, "required": ["at"]}),
)
SCHEMAS = {tool.name: {**tool.parameters, "type": "object"} for tool in TOOLS}
# An answer that looks like a call to models that know them without a mark, or quotes one.
LOOKALIKE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 80},
        "parameters": {"const": {"at": 5}},
        "arguments": {"const": {"at": 5}},
    },
    "required": ["name"],
    "additionalProperties": False,
}
MARKS = pytest.mark.parametrize("marks", ["text", "tokens"])


@cache
def marked(dialect: str, marks: str) -> Tokenizer:
    if marks == "text":
        return byte_level()
    tokenizer = Tokenizer.from_str(byte_level().to_str())
    specials = [*DIALECTS[dialect].marks, *(FRAME if dialect == "command" else ())]
    tokenizer.add_special_tokens([AddedToken(mark) for mark in specials])
    return tokenizer


@dataclass(frozen=True)
class Talk:
    prompt: ChatPrompt
    tokenizer: Tokenizer

    def heard(self, ids: list[int]) -> Reply:
        parser, kept = self.prompt.parser(), self.prompt.kept_specials
        _, reads, _ = reader(self.tokenizer)
        text = b"".join(reads.text_bytes(token_id, token_id not in kept) for token_id in ids)
        return fold_reply([*parser.push(text.decode("utf-8", "replace")), *parser.finish()])

    def says(
        self, text: str, tokenizer: Tokenizer | None = None
    ) -> tuple[ConstrainedReply, list[int]]:
        """The tokens of the text, as far as the reply may go on with them."""
        reply = ConstrainedReply(self.prompt, self.tokenizer)
        ids = (tokenizer or self.tokenizer).encode(text, add_special_tokens=False).ids
        return reply, [*takewhile(reply.say, ids)]

    def written(self, text: str) -> list[int]:
        """Tokens that come to the text, each of which may be said."""
        _, reads, _ = reader(self.tokenizer)
        reply, ids, left = ConstrainedReply(self.prompt, self.tokenizer), list[int](), text.encode()
        while left:
            possible = tempted(self.tokenizer, left, [*reply.allowed()])
            assert possible, left
            ids.append(next(token_id for token_id in possible if reply.say(token_id)))
            left = left[len(reads.token_bytes(ids[-1])) :]
        return ids


def talk(
    table: Table,
    marks: str,
    *,
    thinking: bool = False,
    opened: bool = False,
    parallel: bool = True,
    tools: tuple[Tool, ...] = TOOLS,
    answer: str = "",
) -> Talk:
    dialect, tokenizer = DIALECTS[table.dialect], marked(table.dialect, marks)
    mark = "" if dialect.thought_marks is None else dialect.thought_marks[0]
    template = (
        "{% if tools %}{% endif %}"
        + CHAT_TEMPLATE
        + (mark if opened else f"{{# {mark} #}}" if thinking else "")
    )
    model = replace(card(tokenizer), chat_template=template, dialect=table.dialect)
    conversation = Conversation(
        messages=[{"role": "user", "content": "x"}],
        tools=tools,
        parallel_calls=parallel,
        answer=answer,
    )
    prompt = prepare_prompt(conversation, model, TextTokenizer(model))
    if prompt.triggers is not None:
        triggers = replace(prompt.triggers, kept_specials=prompt.kept_specials)
        prompt = replace(prompt, triggers=triggers)
    return Talk(prompt, tokenizer)


@cache
def spellings(tokenizer: Tokenizer) -> dict[bytes, list[int]]:
    """The tokens of each text."""
    found: dict[bytes, list[int]] = {}
    _, reads, end = reader(tokenizer)
    for token_id in range(tokenizer.get_vocab_size()):
        if token_id != end and reads.token_bytes(token_id):
            found.setdefault(reads.token_bytes(token_id), []).append(token_id)
    return found


def tempted(tokenizer: Tokenizer, bait: bytes, allowed: Sequence[int]) -> list[int]:
    """The tokens that may follow and that the bait goes on with, the longest first."""
    known = spellings(tokenizer)
    longest = min(max(map(len, known)), len(bait))
    texts = [bait[:length] for length in range(longest, 0, -1)]
    return [token_id for text in texts for token_id in known.get(text, []) if token_id in allowed]


class Liar:
    """Does all it can to say the baits, one after the other; in the end, only to come to one."""

    def __init__(self, tokenizer: Tokenizer, baits: list[str], ends: Sequence[str], seed: int):
        self._tokenizer, self._rng = tokenizer, np.random.default_rng(seed)
        self._baits, self._ends = baits, ends
        self._bait = b""
        self._said = 0

    def choose(self, allowed: list[int], end: int) -> int:
        self._said += 1
        late = self._said > LONG
        if end in allowed and (late or (not self._bait and self._rng.random() < STOPS)):
            return end
        if not self._bait:
            baits = [*self._baits, *self._ends] if late else self._baits
            self._bait = baits[self._rng.integers(len(baits))].encode()
        wanted = tempted(self._tokenizer, self._bait, allowed)
        if not wanted or (self._rng.random() < WANDERS and not late):
            self._bait = self._bait[1:]
            others = [token_id for token_id in allowed if token_id != end]
            return int(self._rng.choice(others or [end]))
        chosen = wanted[-1 if self._rng.random() < SPELLS else 0]
        _, reads, _ = reader(self._tokenizer)
        self._bait = self._bait[len(reads.token_bytes(chosen)) :]
        return chosen


def drawn(talk: Talk, baits: list[str], seed: int) -> list[int]:
    if talk.prompt.triggers is None:
        return drawn_by_mask(talk, baits, seed)
    reply = ConstrainedReply(talk.prompt, talk.tokenizer)
    liar = Liar(talk.tokenizer, baits, talk.prompt.dialect.marks, seed)
    ids: list[int] = []
    while len(ids) < LIMIT and not reply.grammar.is_over:
        chosen = liar.choose([*reply.allowed()], reply.end)
        if chosen == reply.end:
            return ids
        if reply.say(chosen):
            ids.append(chosen)
        assert not reply.grammar.failure, reply.grammar.failure
    assert reply.grammar.is_over, "no end"
    return ids


def drawn_by_mask(talk: Talk, baits: list[str], seed: int) -> list[int]:
    lean, reads, end = reader(talk.tokenizer)
    matcher = LLMatcher(lean, talk.prompt.grammar)
    assert not matcher.is_error(), matcher.get_error()
    liar = Liar(talk.tokenizer, baits, talk.prompt.dialect.marks, seed)
    bits, ids = allocate_token_bitmask(1, lean.vocab_size), list[int]()
    while len(ids) < LIMIT:
        fill_next_token_bitmask(matcher, bits)
        mask = np.unpackbits(bits[0].view(np.uint8), bitorder="little")
        chosen = liar.choose(np.flatnonzero(mask).tolist(), end)
        if chosen == end:
            return ids
        assert matcher.consume_token(chosen), matcher.get_error()
        ids.append(chosen)
        if matcher.is_stopped():
            return ids
    raise AssertionError(f"no end: {reads.decode(ids)}")


def check(reply: Reply, said: str) -> None:
    for call in reply.calls:
        try:
            jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])
        except ValueError as failure:
            raise AssertionError(said) from failure


def replies(talk: Talk, baits: list[str], count: int) -> Iterator[tuple[Reply, str]]:
    _, reads, _ = reader(talk.tokenizer)
    for seed in range(count):
        ids = drawn(talk, baits, seed)
        said = reads.decode(ids, skip_special_tokens=False)
        yield talk.heard(ids), said


def baits_of(table: Table) -> list[str]:
    return [row.text for row in table.transcripts if row.text]


@BY_DIALECT
@MARKS
@pytest.mark.parametrize("parallel", [True, False], ids=["several", "one"])
@pytest.mark.parametrize(("thinking", "opened"), [(False, False), (True, False), (True, True)])
def test_every_call_fits_whatever_the_model_tries(
    table: Table, marks: str, parallel: bool, thinking: bool, opened: bool
) -> None:
    constrained = talk(table, marks, thinking=thinking, opened=opened, parallel=parallel)
    for reply, said in replies(constrained, baits_of(table), tries(1, 6)):
        check(reply, said)
        assert parallel or len(reply.calls) <= 1, said


@BY_DIALECT
@MARKS
def test_a_reply_is_text_or_calls_or_both(table: Table, marks: str) -> None:
    constrained = talk(table, marks)
    call = table.write([("ping", {"at": None})])
    baits = [call, table.text("Yes. "), table.text("So:\n") + call]
    kinds = set()
    wanted = {(True, False), (False, True)} | (set() if table.starts_only else {(True, True)})
    for number, (reply, said) in enumerate(replies(constrained, baits, 24)):
        check(reply, said)
        kinds.add((bool(reply.content.strip()), bool(reply.calls)))
        if number >= tries(2, 23) and wanted <= kinds:
            break
    assert wanted <= kinds


@BY_DIALECT
@MARKS
def test_text_of_many_kinds_can_be_said(table: Table, marks: str) -> None:
    constrained = talk(table, marks)
    dialect = DIALECTS[table.dialect]
    cut = [mark[:-1] for mark in dialect.marks]
    texts = ["x", PLAIN, "1 < 2 and <b>", "a\n\n\n", *(f"So {mark} is it" for mark in cut), *cut]
    texts += [
        '{"name": "Ann"}',
        '{"name": "ping',
        '["ping"]',
        "[ping]",
        "{",
        "[",
        "import functools",
    ]
    for text in texts:
        reply, said = constrained.says(table.text(text))
        assert not reply.grammar.has_begun, text
        assert constrained.heard(said) == Reply(text, "", ()), text


@BY_DIALECT
@MARKS
def test_a_mark_that_is_spelled_out_is_no_way_around(table: Table, marks: str) -> None:
    constrained = talk(table, marks)
    calls: list[Calls] = [[("ping", {"at": 5})], [("search", {"exact": True})]]
    for call in calls:
        text = ("" if table.starts_only else "So: ") + table.write(call)
        reply, said = constrained.says(text, byte_level())
        assert len(said) < len(byte_level().encode(text, add_special_tokens=False).ids)
        assert reply.grammar.has_begun


def test_text_may_stand_in_the_frame_that_its_model_has_for_it() -> None:
    [table] = [candidate for candidate in TABLES if candidate.dialect == "command"]
    constrained = talk(table, "tokens")
    reply, said = constrained.says(f"{FRAME[0]}Yes.{FRAME[1]}")
    assert len(said) < len("Yes.") + 3
    assert not reply.grammar.has_begun
    assert constrained.heard(said) == Reply("Yes.", "", ())


@BY_DIALECT
@MARKS
def test_a_call_within_a_thought_is_a_thought(table: Table, marks: str) -> None:
    dialect, constrained = DIALECTS[table.dialect], talk(table, marks)
    starts = [dialect.thought_marks[0]] if dialect.thought_marks is not None else []
    starts += list(dialect.thought_ends()) if isinstance(dialect, MarkedBlocks) else []
    for start in starts if not dialect.thought_breaks else []:
        text = f"{start}Hm.\n{table.write([('ping', {'at': 5})])}"
        reply, said = constrained.says(text)
        assert not reply.grammar.has_begun
        assert constrained.heard(said).calls == ()


@BY_DIALECT
@MARKS
@pytest.mark.parametrize("parallel", [True, False], ids=["several", "one"])
def test_an_answer_in_a_form_is_told_from_a_call(table: Table, marks: str, parallel: bool) -> None:
    answer = from_json_schema(LOOKALIKE, "p")
    constrained = talk(table, marks, parallel=parallel, answer=answer)
    call = table.write([("ping", {"at": None})])
    marked = [mark + call for mark in DIALECTS[table.dialect].marks]
    answers = [
        '{"name": "ping", "parameters": {"at": 5}}',
        json.dumps({"name": f"See {call}"}, ensure_ascii=False),
        '{"name": "<function=ping></function>"}',
        '{"name": "[TOOL_CALLS]ping[ARGS]{}"}',
    ]
    kinds = set()
    for number, (reply, said) in enumerate(replies(constrained, [call, *marked, *answers], 24)):
        check(reply, said)
        assert parallel or len(reply.calls) <= 1, said
        assert bool(reply.content) != bool(reply.calls), said
        kinds.add(bool(reply.calls))
        if reply.content:
            jsonschema.validate(json.loads(reply.content), LOOKALIKE)
        if number >= tries(2, 23) and len(kinds) == 2:
            break
    assert kinds == {True, False}


def test_calls_fit_their_tools_whether_these_are_strict_or_not() -> None:
    for table in TABLES:
        lax = talk(table, "text", tools=tuple(replace(tool, strict=False) for tool in TOOLS)).prompt
        strict = talk(table, "text").prompt
        assert (lax.grammar, lax.triggers) == (strict.grammar, strict.triggers)


# Calls with the parameter that is required, and what of them is the parameter.
REQUIRED = {
    "hermes": ('<tool_call>\n{"name": "ping", "arguments": {@}}\n</tool_call>', '"at": 1'),
    "qwen3_coder": (
        "<tool_call>\n<function=ping>\n@</function>\n</tool_call>",
        "<parameter=at>\n1\n</parameter>\n",
    ),
    "pythonic": ('{"name": "ping", "parameters": {@}}', '"at": 1'),
    "gemma": ("<start_function_call>call:ping{@}<end_function_call>", "at:1"),
}


@pytest.mark.parametrize("name", REQUIRED)
def test_a_schema_that_no_grammar_holds_matters_to_strict_tools_alone(name: str) -> None:
    [table] = [candidate for candidate in TABLES if candidate.dialect == name]
    odd = Tool("ping", "", {"properties": {"at": {"uniqueItems": True}}, "required": ["at"]})
    constrained = talk(table, "text", tools=(odd,), parallel=False)
    call_text, parameter = REQUIRED[name]
    reply, said = constrained.says(call_text.replace("@", parameter))
    assert reply.can_end()
    [call] = constrained.heard(said).calls
    assert json.loads(call.arguments) == {"at": 1}
    reply, _ = constrained.says(call_text.replace("@", ""))
    assert not reply.can_end()
    with pytest.raises(Refused) as refusal:
        talk(table, "text", tools=(replace(odd, strict=True),))
    assert refusal.value.error.param == "tools"
