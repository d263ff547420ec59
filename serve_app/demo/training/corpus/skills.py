"""Which skills there are, how often each is drawn for training, and which the evaluation scores."""

from serve_app.demo.training.corpus.chat import Skill
from serve_app.demo.training.corpus.subjects import (
    calendar,
    knowledge,
    manners,
    memory,
    numbers,
    rewriting,
    roles,
    stories,
    sums,
)
from serve_app.demo.training.corpus.texts import Texts, closed
from serve_app.demo.training.corpus.tools import calls, choice

TABLES = Texts("skills")
SKILLS: dict[str, Skill] = {
    "small talk": manners.small_talk,
    "identity": closed(Texts("identity"), "about_itself"),
    "Manta": closed(Texts("manta"), "about_manta"),
    "arithmetic": sums.arithmetic,
    "counting and sorting": numbers.counting,
    "comparing": numbers.comparing,
    "letters": numbers.letters,
    "days and clocks": calendar.calendar,
    "capitals": knowledge.capitals,
    "places": knowledge.places,
    "animals": knowledge.animals,
    "colours": knowledge.colours,
    "opposites": knowledge.opposites,
    "facts": knowledge.facts,
    "lists": knowledge.lists,
    "repeating": rewriting.echo,
    "stories": stories.stories,
    "jokes and poems": stories.fun,
    "rewriting": rewriting.rewriting,
    "length and form": roles.following,
    "system prompts": roles.personas,
    "languages": manners.languages,
    "memory": memory.memory,
    "told at once": memory.at_once,
    "not told": memory.not_told,
    "not knowing": manners.unknown,
    "off its topics": manners.off_topic,
    "reasoning": sums.reasoning,
    "calls": calls.calling,
    "choices": choice.choosing,
    "several calls": calls.parallel,
    "no tool fits": calls.without,
    "an argument is missing": calls.missing,
    "thoughts and calls": calls.thought_over,
    # for evaluation alone
    "written tools": calls.written_calling,
    "no written tool fits": calls.written_without,
}
SHORT, KNOWN = ([SKILLS[name] for name in TABLES.listed(group)] for group in ("short", "known"))
SUMS = [SKILLS["arithmetic"], SKILLS["comparing"]]
# those that do what others do, in another form
SKILLS |= {
    "one word, first and last words": roles.shaped(SHORT),
    "styles": roles.styled(SHORT),
    "thoughts": sums.thoughtful([*KNOWN, *SUMS, SKILLS["places"]]),
    "conversations with tools": calls.session([*KNOWN, *SUMS]),
    "no call needed": calls.beside(KNOWN),
}
# Calls of tools take longest to learn, and what has short answers then needs more of them.
EARLY, LATE = (
    {name: int(shares[half]) for name, *shares in TABLES.table("shares")} for half in (0, 1)
)
EVALUATED = {
    group: tuple(SKILLS[name] for name in names) for group, *names in TABLES.table("evaluated")
}
