"""Which skills there are, how often each is drawn for training, and which the evaluation scores."""

from serve_app.demo.training.corpus.chat import Skill
from serve_app.demo.training.corpus.subjects.calendar import calendar
from serve_app.demo.training.corpus.subjects.knowledge import (
    animals,
    capitals,
    colours,
    facts,
    lists,
    opposites,
    places,
)
from serve_app.demo.training.corpus.subjects.manners import (
    languages,
    off_topic,
    small_talk,
    unknown,
)
from serve_app.demo.training.corpus.subjects.memory import at_once, memory, not_told
from serve_app.demo.training.corpus.subjects.numbers import comparing, counting, letters
from serve_app.demo.training.corpus.subjects.rewriting import echo, rewriting
from serve_app.demo.training.corpus.subjects.roles import following, personas, shaped, styled
from serve_app.demo.training.corpus.subjects.stories import fun, stories
from serve_app.demo.training.corpus.subjects.sums import arithmetic, reasoning, thoughtful
from serve_app.demo.training.corpus.texts import Texts, closed
from serve_app.demo.training.corpus.tools.calls import (
    beside,
    calling,
    missing,
    parallel,
    session,
    thought_over,
    without,
)
from serve_app.demo.training.corpus.tools.choice import choosing
from serve_app.demo.training.corpus.tools.held_out import written_calling, written_without

identity = closed(Texts("identity"), "about_itself")
manta = closed(Texts("manta"), "about_manta")
# what has answers of one word
SHORT: list[Skill] = [
    capitals, calendar, opposites, colours, animals, comparing, arithmetic, places,
]  # fmt: skip
KNOWN: list[Skill] = [
    small_talk, identity, manta, capitals, calendar, opposites, colours, animals, facts, counting,
    echo, lists, memory, fun, rewriting,
]  # fmt: skip
shaped_answer = shaped(SHORT)
styled_answer = styled(SHORT)
thoughtful_answer = thoughtful([*KNOWN, arithmetic, comparing, places])
plain_beside_tools = beside(KNOWN)
tool_session = session([*KNOWN, arithmetic, comparing])

# name: the skill and how often it is drawn, in parts, in the first half of a run and in the second:
# calls of tools take longest to learn, and what has short answers then needs more of them
TRAINING: dict[str, tuple[Skill, float, float]] = {
    "small talk": (small_talk, 11, 14),
    "identity": (identity, 6, 10),
    "Manta": (manta, 9, 10),
    "arithmetic": (arithmetic, 32, 90),
    "counting and sorting": (counting, 8, 12),
    "comparing": (comparing, 4, 12),
    "letters": (letters, 6, 4),
    "days and clocks": (calendar, 16, 30),
    "capitals": (capitals, 5, 8),
    "places": (places, 3, 6),
    "animals": (animals, 5, 10),
    "colours": (colours, 2, 3),
    "opposites": (opposites, 3, 12),
    "facts": (facts, 4, 6),
    "lists": (lists, 3, 3),
    "repeating": (echo, 9, 10),
    "stories": (stories, 2, 2),
    "jokes and poems": (fun, 2, 2),
    "rewriting": (rewriting, 9, 14),
    "length and form": (following, 12, 30),
    "one word, first and last words": (shaped_answer, 14, 40),
    "system prompts": (personas, 10, 24),
    "styles": (styled_answer, 14, 32),
    "languages": (languages, 7, 9),
    "memory": (memory, 10, 11),
    "told at once": (at_once, 5, 6),
    "not told": (not_told, 3, 4),
    "not knowing": (unknown, 4, 5),
    "off its topics": (off_topic, 5, 7),
    "reasoning": (reasoning, 6, 8),
    "thoughts": (thoughtful_answer, 3, 4),
    "conversations with tools": (tool_session, 33, 24),
    "calls": (calling, 12, 22),
    "choices": (choosing, 16, 3),
    "several calls": (parallel, 9, 13),
    "no tool fits": (without, 5, 2),
    "an argument is missing": (missing, 2, 2),
    "no call needed": (plain_beside_tools, 5, 6),
    "thoughts and calls": (thought_over, 2, 2),
}
EARLY = {name: early for name, (_, early, _) in TRAINING.items()}
LATE = {name: late for name, (_, _, late) in TRAINING.items()}
# groups of the evaluation: what is scored together
EVALUATED: dict[str, tuple[Skill, ...]] = {
    "Manta": (manta,),
    "identity": (identity,),
    "small talk": (small_talk,),
    "days and clocks": (calendar,),
    "capitals": (capitals,),
    "arithmetic": (arithmetic,),
    "memory": (memory, memory, at_once, not_told),
    "instructions": (following, shaped_answer, styled_answer, personas),
    "rewriting": (rewriting, echo),
    "counting and sorting": (counting, comparing),
    "letters": (letters,),
    "places, animals, colours": (places, animals, colours, opposites),
    "facts and lists": (facts, lists),
    "stories and jokes": (stories, fun),
    "languages": (languages,),
    "not knowing": (unknown, off_topic),
    "reasoning": (reasoning, thoughtful_answer),
    "tools": (calling, parallel, calling, written_calling, written_calling),
    "no tools": (without, missing, plain_beside_tools, written_without, plain_beside_tools),
}
