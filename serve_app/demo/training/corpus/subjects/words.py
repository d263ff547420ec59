"""Words: opposites, lists of things, repeating what was said."""

from serve_app.demo.training.corpus.chat import Exchange, Expect, Talk, one, verbatim
from serve_app.demo.training.corpus.names import name, town, word
from serve_app.demo.training.corpus.phrases import (
    bullets,
    capital,
    joined,
    listed,
    numbered,
    patterns,
    table,
)
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.subjects.numbers import ITEMS

OPPOSITES = table("""
hot | cold
big | small
tall | short
long | short
fast | slow
good | bad
happy | sad
light | dark
day | night
up | down
left | right
in | out
open | closed
new | old
young | old
rich | poor
strong | weak
hard | soft
heavy | light
wet | dry
full | empty
early | late
high | low
near | far
loud | quiet
clean | dirty
easy | difficult
thick | thin
wide | narrow
true | false
yes | no
black | white
first | last
begin | end
start | stop
buy | sell
give | take
push | pull
love | hate
win | lose
come | go
always | never
many | few
more | less
before | after
above | below
inside | outside
north | south
east | west
summer | winter
friend | enemy
beautiful | ugly
brave | afraid
safe | dangerous
cheap | expensive
warm | cool
sweet | sour
sharp | blunt
deep | shallow
alive | dead
asleep | awake
right | wrong
war | peace
laugh | cry
question | answer
""")
FIRSTS = {first for first, _ in OPPOSITES}
SECONDS = [second for _, second in OPPOSITES]
OPPOSITE = patterns("""
[What is|What's|Tell me|Name|Give me] the opposite of {}[?|.|]
[Which|What] word is the opposite of {}?
[Do you know|Can you tell me|Could you tell me] the opposite of {}?
[Opposite of|The opposite of] {}[?|, please.]
[What is the opposite of the word|Find the opposite of|Say the opposite of] "{}"[?|.]
""")
GROUPS: dict[str, list[str]] = {
    "fruits": listed(
        "apples, bananas, cherries, grapes, pears, oranges, lemons, plums, peaches, melons"
    ),
    "vegetables": listed(
        "carrots, potatoes, onions, tomatoes, peas, beans, cabbage, spinach, corn, leeks"
    ),
    "animals": listed("dogs, cats, horses, cows, lions, foxes, bears, wolves, rabbits, elephants"),
    "farm animals": listed("cows, pigs, sheep, goats, horses, hens, ducks, donkeys"),
    "birds": listed("owls, ducks, penguins, eagles, swans, parrots, robins, sparrows"),
    "colours": listed("red, blue, green, yellow, white, black, orange, purple, pink, brown"),
    "countries": listed(
        "France, Germany, Italy, Spain, Japan, China, India, Brazil, Canada, Egypt"
    ),
    "cities": listed("Paris, London, Berlin, Rome, Madrid, Tokyo, Vienna, Cairo, Oslo, Moscow"),
    "capitals": listed("Paris, London, Berlin, Rome, Madrid, Tokyo, Vienna, Cairo, Oslo, Moscow"),
    "days": listed("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"),
    "months": listed("January, February, March, April, May, June, July, August, September"),
    "sports": listed("football, tennis, swimming, running, golf, hockey, rugby, chess, cycling"),
    "drinks": listed("water, tea, coffee, milk, juice, lemonade, cocoa"),
    "foods": listed("bread, cheese, rice, soup, pasta, eggs, fish, salad, pizza"),
    "flowers": listed("roses, tulips, daisies, lilies, violets, sunflowers, poppies"),
    "trees": listed("oaks, pines, birches, maples, willows, palms, firs"),
    "instruments": listed("pianos, guitars, violins, flutes, drums, trumpets, harps, horns"),
    "planets": listed("Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus, Neptune"),
    "jobs": listed("teachers, doctors, farmers, bakers, pilots, nurses, cooks, painters, drivers"),
    "garments": listed("shirts, shoes, socks, hats, coats, gloves, scarves, trousers"),
    "kitchen things": listed("pans, pots, knives, spoons, plates, cups, bowls, forks"),
    "shapes": listed("circles, squares, triangles, rectangles, stars, ovals"),
    "programming languages": listed("Python, Rust, Java, Go, C, Ruby, Kotlin, Swift"),
}
COUNTS = {"two": 2, "three": 3, "3": 3, "four": 4, "4": 4, "five": 5, "5": 5, "2": 2}
LISTS = patterns("""
[Name|List|Tell me|Give me|Write down] {n} {g}[|.|, please.]
[Can|Could] you [name|list|give me|tell me] {n} {g}?
[I need|I want|I would like] {n} {g}[|.]
[Make|Give me|Write] a list of {n} {g}[|.]
What are {n} {g}?
""")
NUMBERED = patterns("""
[Make|Write|Give me] a numbered list of {n} {g}[|.]
[List|Name|Write] {n} {g} [as a numbered list|in a numbered list|with numbers][|.]
""")
BULLETS = patterns("""
[Make|Write|Give me] a [bullet|bulleted] list of {n} {g}[|.]
[List|Name|Write] {n} {g} [as bullet points|as a bullet list|with bullets][|.]
""")
ONE_OF = patterns("""
[Name|Tell me|Give me] [one|just one] {s}[|.]
[Name|Tell me|Give me] [one|just one] of the {g}[|.]
""")
ECHO = patterns("""
[Say|Repeat|Echo|Write|Just say|Only say|Please say|Please repeat|Say exactly|Repeat exactly][:|] {}
[Repeat after me|Reply with|Answer with|Respond with|Reply with exactly|Say this|Repeat \
this|Reply only with|Answer only with]: {}
[Say|Repeat|Echo|Reply with|Write|Print] "{}"[|.]
[Can|Could|Will] you [say|repeat] "{}"?
[Reply with the text|Say the text|Repeat the text|Write the text] {}
""")
SAYINGS = listed("""
good morning, thank you, the end, I am here, nice work, good night, well done, see you, all is well,
we are ready, it works, hello world, time to go, come back soon, let us begin, this is a test
""")


def opposites(draw: SeededDraw) -> Talk:
    first, other = draw.choice(OPPOSITES)
    if draw.chance(0.4) and other not in FIRSTS and SECONDS.count(other) == 1:
        first, other = other, first
    question = capital(draw.ask(OPPOSITE).format(first))
    right = tuple(b if a == first else a for a, b in OPPOSITES if first in (a, b))
    answer = f"The opposite of {first} is {other}."
    return one(Exchange(question, answer, Expect(any_of=right), short=other))


def lists(draw: SeededDraw) -> Talk:
    group, count = draw.choice(list(GROUPS)), draw.choice(list(COUNTS))
    items = draw.sample(GROUPS[group], COUNTS[count])
    style = draw.choice(("plain", "plain", "numbered", "bullets", "one"))
    if style == "one":
        question = draw.ask(ONE_OF).format(g=group, s=_singular(group))
        return one(Exchange(question, f"{capital(items[0])}.", Expect(any_of=tuple(GROUPS[group]))))
    asks, answer = {
        "plain": (LISTS, f"{capital(joined(items))}."),
        "numbered": (NUMBERED, numbered([capital(item) for item in items])),
        "bullets": (BULLETS, bullets([capital(item) for item in items])),
    }[style]
    last = (f"{len(items)}.",) if style == "numbered" else ()
    expect = Expect(says=last, any_of=tuple(GROUPS[group]), least=len(items))
    return one(Exchange(draw.ask(asks).format(n=count, g=group), answer, expect))


def _singular(group: str) -> str:
    return f"{group[:-3]}y" if group.endswith("ies") else group[:-1]


def _echoed(draw: SeededDraw) -> str:
    if draw.chance(0.15):
        return draw.one(SAYINGS)
    kinds = (name, town, word, word, lambda rng: rng.choice(ITEMS), _number)
    words = [draw.choice(kinds)(draw) for _ in range(draw.choice((1, 1, 2, 3, 4)))]
    return " ".join(words)


def _number(draw: SeededDraw) -> str:
    return str(draw.randint(0, 9999))


def echo(draw: SeededDraw) -> Talk:
    text = draw.new(lambda _: _echoed(draw))
    if draw.chance(0.3):
        text = draw.choice((capital(text), text.upper()))
    return one(verbatim(draw.ask(ECHO).format(text), text))
