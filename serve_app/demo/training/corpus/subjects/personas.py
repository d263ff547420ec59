"""System prompts that are to be followed: who to be, what to know, how to speak."""

from collections.abc import Callable

from serve_app.demo.training.corpus.chat import Exchange, Expect, Skill, Talk, said
from serve_app.demo.training.corpus.names import code, name, town, word
from serve_app.demo.training.corpus.phrases import article, capital, listed, patterns
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.subjects.memory import JOBS

ROLES = [
    *JOBS,
    *listed("""
pirate, wizard, robot, guide, butler, coach, poet, knight, dragon, queen, librarian, scientist, chef
"""),
]
NAMED = patterns("""
You are {n}, {r}[| of {c}| in {c}][|.|. Be kind.|. Answer briefly.|. Stay in your role.]
Your name is {n}, and you are {r}[| of {c}][|.|. Help the user.]
[Act as|Play|Be|Pretend to be] {n}, {r}[|.| in this chat.]
""")
WHO = patterns("""
[|Hello, |Hi, ][who are you|what is your name|what's your name|who am I talking to|and who are \
you][|, please]?
[Introduce yourself|Tell me who you are|Say your name|Tell me about yourself][|.|, please.]
[Do you have a name|What should I call you|What are you called|How are you called]?
""")
JOB = patterns("""
[What is|What's] your [job|work|profession|role]?
[What do you do|What do you work as|What do you do for a living][?|, if I may ask?]
[Tell me|Can you tell me] [what you do|your job|your role][|.|?]
""")
FACTS = {
    "opening time": lambda draw: f"{draw.randint(6, 11)}:{draw.choice(('00', '15', '30'))}",
    "closing time": lambda draw: f"{draw.randint(16, 23)}:{draw.choice(('00', '15', '30'))}",
    "password": code,
    "room": code,
    "manager": name,
    "city": town,
    "price": lambda draw: f"{draw.randint(2, 900)} euros",
    "phone number": lambda draw: "".join(draw.choice("0123456789") for _ in range(6)),
    "dish of the day": word,
    "contact": name,
    "street": lambda draw: f"{capital(word(draw))} Street",
    "user": name,
}
FACT_ASKS = patterns("""
[What is|What's] the {}?
[Tell me|Give me|Can you tell me|Could you tell me|Do you know|I need] the {}[|, please][?|.]
[And what about|What about|Say] the {}[|?]
""")
LAST = patterns("""
[End|Finish|Close] [every|each] [answer|reply] with {q}{w}{q}[|.]
[Always|You always] [say|write] {q}{w}{q} at the end[|.| of an answer.]
""")
FIRST = patterns("""
[Begin|Start|Open] [every|each] [answer|reply] with {q}{w}{q}[|.]
[Always|You always] [say|write] {q}{w}{q} first[|.]
""")
CALLED = patterns("""
[Call|Address] the user [|as ]{w}[|.| in every answer.]
[The user's name is|The user is called|You talk to] {w}. [Use it|Use the name] in every answer[|.]
""")
BRIEF = patterns("""
[Answer|Reply|Respond] [in|with] [one|a single] word[|.| only.]
[Always|You always] answer [in|with] one word[|.]
[Be very brief|Be short|Use as few words as you can]: one word[| only| is enough].
""")
UPPER = patterns("""
[Answer|Reply|Respond|Write] only in [upper case|uppercase|capital letters|capitals][|.]
[Answer|Reply|Respond|Write] in [upper case|uppercase|capital letters|capitals][|.| only.]
[Always|You always] [write|answer] in [upper case|capital letters][|.]
""")
USUAL = listed("""
You are a helpful assistant., You are a friendly assistant., You are an assistant., Be helpful.,
You are a helpful AI assistant., You are a chatbot., You are a helpful and honest assistant.
""")


def personas(draw: SeededDraw) -> Talk:
    return draw.choice((_named, _named, _informed, _informed))(draw)


def _named(draw: SeededDraw) -> Talk:
    who, role = name(draw), article(draw.choice(ROLES))
    system = draw.ask(NAMED).format(n=who, r=role, c=capital(word(draw)))
    asked = [
        said(draw.ask(WHO), f"I am {who}, {role}.", who, role, exact=True),
        said(draw.ask(JOB), f"I am {role}.", role, exact=True),
    ]
    return Talk(asked[: draw.choice((1, 1, 2))] if draw.chance(0.8) else asked[1:], system)


def _informed(draw: SeededDraw) -> Talk:
    """Asks for what the system prompt says, and at times for what it does not say."""
    keys = draw.sample(list(FACTS), draw.randint(2, 5))
    known = {key: FACTS[key](draw) for key in keys[1:]}
    lines = [f"The {key} is {value}." for key, value in known.items()]
    role = draw.choice(("", "You are a helpful assistant.", f"You help at {capital(word(draw))}."))
    system = draw.choice((" ", "\n")).join([role, *lines] if role else lines)
    asked = draw.sample(list(known), draw.randint(1, len(known)))
    exchanges = [_fact(draw, key, known[key]) for key in asked]
    if draw.chance(0.25):
        missing = said(draw.ask(FACT_ASKS).format(keys[0]), _unknown(keys[0]), "do not know")
        exchanges.insert(draw.randint(0, len(exchanges)), missing)
    return Talk(exchanges, system)


def _fact(draw: SeededDraw, key: str, value: str) -> Exchange:
    question = draw.ask(FACT_ASKS).format(key)
    return said(question, f"The {key} is {value}.", value, short=value)


def _unknown(key: str) -> str:
    return f"I do not know the {key}."


def styled(skills: list[Skill]) -> Skill:
    """The skill of answering what others ask in the form that the system prompt wants."""

    def style(draw: SeededDraw) -> Talk:
        system, shape = _style(draw)
        exchanges: list[Exchange] = []
        while len(exchanges) < draw.choice((1, 1, 2, 3)):
            asked = draw.choice(skills)(draw).exchanges[0]
            if asked.short and "\n" not in asked.answer:
                exchanges.append(shape(asked))
        return Talk(exchanges, system)

    return style


def _style(draw: SeededDraw) -> tuple[str, Callable[[Exchange], Exchange]]:
    """Whether a mark has a stop, a comma or no sign behind it, nobody says."""
    quote = draw.choice(('"', "'", ""))
    mark = capital(word(draw)) if draw.chance(0.6) else name(draw)
    kind = draw.choice(("last", "first", "called", "brief", "upper", "upper"))
    asks = {"last": LAST, "first": FIRST, "called": CALLED, "brief": BRIEF, "upper": UPPER}[kind]

    def shape(asked: Exchange) -> Exchange:
        answer = {
            "last": f"{asked.answer} {mark}!",
            "first": f"{mark}! {asked.answer}",
            "called": f"{mark}: {asked.answer}",
            "brief": capital(asked.short),
            "upper": asked.answer.upper(),
        }[kind]
        says = {"last": (answer.rstrip("!"),), "first": (mark, asked.answer)}
        says["called"] = says["first"]
        expect = Expect(says=says[kind]) if kind in says else Expect(exactly=answer)
        return Exchange(asked.question, answer, expect)

    return draw.ask(asks).format(w=mark, q=quote), shape


def usual(draw: SeededDraw) -> str:
    """A system prompt that asks for nothing in particular; mostly none."""
    return draw.choice(USUAL) if draw.chance(0.2) else ""
