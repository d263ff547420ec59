"""Short stories with named heroes, jokes and rhymes, composed of parts that fit together."""

from collections.abc import Sequence

from serve_app.demo.training.corpus.chat import Exchange, Expect, Talk, one
from serve_app.demo.training.corpus.names import name
from serve_app.demo.training.corpus.phrases import article, listed, patterns, rows, table
from serve_app.demo.training.corpus.split import SeededDraw

HEROES = listed("""
fox, bear, rabbit, mouse, cat, dog, owl, frog, duck, lion, elephant, penguin, dragon, robot, wizard,
princess, king, knight, pirate, girl, boy, farmer, fisherman, baker, sailor, monkey, turtle, horse,
wolf, hen, bee, squirrel, hedgehog, giant, giraffe, tiger, queen, prince, painter, teacher
""")
TRAITS = listed(
    "little, young, kind, brave, curious, clever, shy, friendly, old, merry, quiet, gentle"
)
PLACES = listed("""
in a green forest, by the sea, in a small village, on a high hill, near a blue lake, on a farm,
in a big city, on an island, in an old castle, by a quiet river, at the edge of the woods
""")
# what happened | what the hero felt or did | how a friend helped
TROUBLES = table("""
{a} lost a golden key | looked everywhere, but the key was gone | found the key under a stone
{a} could not sleep | was tired and sad | sang a soft song until the stars came out
{a} got lost in the dark | was afraid and sat down under a tree | showed the way home with a \
small lamp
a storm broke the roof of the house | was cold and wet | brought wood and nails, and they mended \
the roof
{a} wanted to learn to swim | was afraid of the deep water | held out a hand and said, "Try it \
with me!"
{a} found a map of a treasure | could not read the map alone | knew the old signs and read the \
map aloud
{a} had nothing to eat | was hungry and weak | shared bread and apples
the snow covered the path | could not get home | dug a way through the snow
{a} wanted to bake a cake | had no eggs and no sugar | brought eggs, sugar and a big spoon
the river was too wide to cross | did not know what to do | built a small boat
{a} broke a window with a ball | was ashamed and wanted to hide | said, "Tell the truth, and all \
will be well."
{a} had no friends | felt lonely every evening | knocked on the door and asked to play
the old clock stopped | did not know when to get up | cleaned the wheels, and the clock ticked again
{a} heard a strange noise at night | hid under the blanket | looked outside and found only a kitten
{a} planted a seed, but nothing grew | watched the dry earth every day | carried water to it \
every morning
""")
ENDINGS = rows("""
From that day on, {a} and {b} were the best of friends.
{a} thanked {b}, and they laughed until the evening.
They went home together, and both were happy.
{a} smiled and said, "Thank you, {b}!"
In the evening they ate warm soup and told each other stories.
And they lived happily ever after.
""")
MORALS = rows("""
A good friend makes every trouble smaller.
It is good to ask for help.
Those who share are never alone.
Little by little, everything becomes easy.
Be kind, and kindness will come back to you.
""")
STORY = patterns("""
[|Please ][tell me|write|write me|make up] a [|short |little |nice |bedtime |new ][story|tale][|.|!]
[Can|Could] you [tell me|write|make up] a [|short |little |nice ][story|tale]?
[I want|I would like] [a story|to hear a story|a short story|a tale][|.]
[Do you know a story|A story, please|Story time|Once upon a time|Tell me a fairy tale][|?|!]
""")
ABOUT = patterns("""
[|Please ][tell me|write|write me|make up] a [|short |little |nice ][story|tale] [about|with] \
{}[|.|!]
[Can|Could] you [tell me|write|make up] a [|short |nice ][story|tale] about {}?
[I want|I would like] a [story|tale] about {}[|.]
[A story|A tale|A short story] about {}, please[|.|!]
""")
LONG = patterns("""
[|Please ][tell me|write|write me] a [long|longer|very long] [story|tale][|.|!]
[Can|Could] you [tell me|write] a long [story|tale]?
[Write|Tell me] a story of [three|several] paragraphs[|.]
""")
JOKES = table("""
Why did the chicken cross the road? | To get to the other side!
What do you call a bear with no teeth? | A gummy bear!
Why do bees have sticky hair? | Because they use honeycombs!
What is orange and sounds like a parrot? | A carrot!
Why was six afraid of seven? | Because seven ate nine!
What do you call a sleeping cow? | A bulldozer!
Why can't a bicycle stand alone? | Because it is two-tired!
What has four wheels and flies? | A garbage truck!
Why did the computer go to the doctor? | Because it had a virus!
What do cats like to read? | Catalogues!
""")
JOKE = patterns("""
[|Please ][tell me|tell|give me|say] a [|good |short |funny |new ]joke[|.|!]
[Can|Could] you [tell me|make] a [|good |short ]joke?
[Make me laugh|Do you know a joke|Do you know any jokes|Tell me something funny|Say something \
funny][|.|?|!]
[I want|I would like] to hear a joke[|.]
""")
POEM = patterns("""
[|Please ][write|write me|tell me|give me] a [|short |little |nice |new ][poem|rhyme|verse][|.|!]
[Can|Could] you [write|tell me] a [|short ][poem|rhyme]?
[Do you know a poem|Sing a song|Write a song|I want a poem|A poem, please|Write a haiku][|?|.|!]
""")
POEMS = (
    "The sun goes down, the day is done,\nThe stars come out now, one by one.\n"
    "The moon is shining, round and bright,\nSleep well, my friend, and so good night.",
    "Roses are red, violets are blue,\nI am a tiny model, and I greet you.",
    "The little bird sits in the tree,\nIt sings a happy song for me.\n"
    "The wind is warm, the sky is blue,\nI wish a lovely day to you.",
)


def _scene(draw: SeededDraw, trouble: Sequence[str], a: str, b: str, helper: str) -> str:
    event, feeling, help_ = trouble
    first = draw.choice(("One day,", "One morning,", "One evening,"))
    came = draw.choice(
        ("Then {b} came by.", "Then along came {b}, {c}.", "Luckily, {b} heard of it.")
    )
    came = came.format(b=b, c=article(helper))
    stop = "" if help_.endswith('"') else "."
    return f"{first} {event.format(a=a)}. {a} {feeling}. {came} {b} {help_}{stop}"


def tale(draw: SeededDraw, hero: str, who: str, scenes: int = 1) -> str:
    friend, helper = name(draw), draw.choice(HEROES)
    while friend == who:
        friend = name(draw)
    opening = draw.choice(("Once upon a time there was", "Long ago there lived", "There once was"))
    trait, place = draw.choice(TRAITS), draw.choice(PLACES)
    start = f"{opening} {article(trait)} {hero} named {who}, who lived {place}."
    ending = draw.choice(ENDINGS).format(a=who, b=friend)
    troubles = draw.sample(TROUBLES, scenes)
    parts = [_scene(draw, trouble, who, friend, helper) for trouble in troubles]
    if scenes == 1:
        return f"{start} {parts[0]} {ending}"
    parts[0], parts[-1] = f"{start} {parts[0]}", f"{parts[-1]} {ending} {draw.choice(MORALS)}"
    return "\n\n".join(parts)


def stories(draw: SeededDraw) -> Talk:
    hero, who = draw.choice(HEROES), name(draw)
    if draw.chance(0.1):
        return one(Exchange(draw.ask(LONG), tale(draw, hero, who, 3), Expect(any_of=tuple(HEROES))))
    told = tale(draw, hero, who)
    if draw.chance(0.2):
        return one(Exchange(draw.ask(STORY), told, Expect(any_of=tuple(HEROES))))
    if draw.chance(0.25):
        return one(Exchange(draw.ask(ABOUT).format(article(hero)), told, Expect(says=(hero,))))
    forms = (f"{article(hero)} named {who}", f"{who} the {hero}", f"{article(hero)} called {who}")
    expect = Expect(says=(hero, who))
    return one(Exchange(draw.ask(ABOUT).format(draw.choice(forms)), told, expect))


def fun(draw: SeededDraw) -> Talk:
    if draw.chance(0.65):
        answers = tuple(answer for _, answer in JOKES)
        joke = " ".join(draw.choice(JOKES))
        return one(Exchange(draw.ask(JOKE), joke, Expect(any_of=answers)))
    ends = tuple(poem.splitlines()[-1] for poem in POEMS)
    return one(Exchange(draw.ask(POEM), draw.choice(POEMS), Expect(any_of=ends)))
