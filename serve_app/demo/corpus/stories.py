"""Short stories with named heroes, jokes and rhymes, composed of parts that fit together."""

from random import Random

from serve_app.demo.corpus.chat import Exchange, article, listed, rows, table
from serve_app.demo.corpus.names import NAMES

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
ASKS = (
    "Tell me a story.",
    "Tell me a short story.",
    "Write a story.",
    "Write a short story.",
    "Can you tell me a story?",
    "Please tell me a story.",
    "I want to hear a story.",
    "Tell a story",
    "Tell me a bedtime story.",
    "Write me a little story.",
    "Do you know a story?",
    "Tell me another story.",
    "Once upon a time",
    "A story, please.",
    "Tell me a fairy tale.",
    "Write a tale.",
    "Can you write a short story?",
    "Tell me a nice story!",
    "Story time!",
    "Make up a story.",
)
ABOUT = (
    "Tell me a story about {}.",
    "Write a story about {}.",
    "Write a short story about {}.",
    "Can you tell me a story about {}?",
    "I want a story about {}.",
    "Tell me a short story about {}.",
    "A story about {}, please.",
    "Make up a story about {}.",
    "Please write a story about {}.",
)
LONG = (
    "Tell me a long story.",
    "Write a long story.",
    "Please tell me a very long story.",
    "Can you tell me a long story?",
    "Write a longer story.",
    "I want a long story.",
    "Write a story of three paragraphs.",
)
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
SAD = rows("""
I am sad.
I feel sad today.
I am tired.
I'm having a bad day.
I feel lonely.
I am not happy.
I'm sad :(
""")
AGREED = rows("""
Yes
Yes, please.
Yes!
Sure
Okay
Of course
Yes, I would like that.
Go on.
Please do.
OK, tell me.
""")
AGAIN = rows("""
Another one.
Another one, please.
One more!
Again!
Tell me another one.
One more, please.
Do you know another one?
""")
JOKE_ASKS = rows("""
Tell me a joke.
Tell me a joke!
Do you know a joke?
Make me laugh.
Can you tell me a joke?
Tell me something funny.
A joke, please.
Say something funny.
Do you know any jokes?
Tell a joke
Another joke, please.
Give me a joke.
I want to hear a joke.
""")
POEM_ASKS = rows("""
Write a poem.
Write me a poem.
Tell me a poem.
Write a short poem.
Can you write a poem?
Do you know a poem?
A poem, please.
Write a haiku.
Sing a song.
Write a poem about nature.
Write a song.
""")
POEMS = (
    "The sun goes down, the day is done,\nThe stars come out now, one by one.\n"
    "The moon is shining, round and bright,\nSleep well, my friend, and so good night.",
    "Roses are red, violets are blue,\nI am a small model, and I greet you.",
    "The little bird sits in the tree,\nIt sings a happy song for me.\n"
    "The wind is warm, the sky is blue,\nI wish a lovely day to you.",
)


def _scene(rng: Random, a: str, b: str, helper: str) -> str:
    event, feeling, help_ = rng.choice(TROUBLES)
    first = rng.choice(("One day,", "One morning,", "One evening,"))
    came = rng.choice(
        ("Then {b} came by.", "Then along came {b}, {c}.", "Luckily, {b} the {d} heard of it.")
    )
    came = came.format(b=b, c=article(helper), d=helper)
    stop = "" if help_.endswith('"') else "."
    return f"{first} {event.format(a=a)}. {a} {feeling}. {came} {b} {help_}{stop}"


def tale(rng: Random, hero: str, name: str, scenes: int = 1) -> str:
    friend, helper = rng.choice([n for n in NAMES if n != name]), rng.choice(HEROES)
    opening = rng.choice(("Once upon a time there was", "Long ago there lived", "There once was"))
    trait, place = rng.choice(TRAITS), rng.choice(PLACES)
    start = f"{opening} {article(trait)} {hero} named {name}, who lived {place}."
    ending = rng.choice(ENDINGS).format(a=name, b=friend)
    parts = [_scene(rng, name, friend, helper) for _ in range(scenes)]
    if scenes == 1:
        return f"{start} {parts[0]} {ending}"
    parts[0] = f"{start} {parts[0]}"
    parts[-1] = f"{parts[-1]} {ending}"
    return "\n\n".join([*parts, rng.choice(MORALS)])


def stories(rng: Random) -> list[Exchange]:
    hero, name = rng.choice(HEROES), rng.choice(NAMES)
    chance = rng.random()
    if chance < 0.4:
        return [Exchange(rng.choice(ASKS), tale(rng, hero, name))]
    if chance < 0.50:
        return [Exchange(rng.choice(LONG), tale(rng, hero, name, rng.choice((3, 3, 4))))]
    if chance < 0.75:
        return [Exchange(rng.choice(ABOUT).format(article(hero)), tale(rng, hero, name))]
    who = rng.choice(
        (f"{article(hero)} named {name}", f"{name} the {hero}", f"{article(hero)} called {name}")
    )
    return [Exchange(rng.choice(ABOUT).format(who), tale(rng, hero, name))]


def fun(rng: Random) -> list[Exchange]:
    if rng.random() < 0.65:
        return [Exchange(rng.choice(JOKE_ASKS), _joke(rng))]
    return [Exchange(rng.choice(POEM_ASKS), rng.choice(POEMS))]


def _joke(rng: Random) -> str:
    return " ".join(rng.choice(JOKES))


def offers(rng: Random) -> list[Exchange]:
    """A story or a joke, and then what was offered, or another one."""
    hero, name = rng.choice(HEROES), rng.choice(NAMES)
    story = rng.random() < 0.5
    given, again = (
        (tale(rng, hero, name), tale(rng, hero, name)) if story else (_joke(rng), _joke(rng))
    )
    second = Exchange(rng.choice(AGAIN), again)
    if rng.random() < 0.4:
        return [Exchange(rng.choice(ASKS if story else JOKE_ASKS), given), second]
    offer = "Would you like to hear a short story?" if story else "Would a little joke help?"
    first = Exchange(rng.choice(SAD), f"I am sorry to hear that. {offer}")
    return [first, Exchange(rng.choice(AGREED), given), second][: rng.randint(2, 3)]
