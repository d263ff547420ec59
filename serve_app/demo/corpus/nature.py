"""Animals and colours: what they say, how they look, what they eat."""

from collections.abc import Callable
from random import Random

from serve_app.demo.corpus.chat import Exchange, article, capital, joined, table

# animal | young | sound | legs | food | home | kind
ANIMALS = table("""
dog | puppy | woof | 4 | meat | a house | mammal
cat | kitten | meow | 4 | fish and mice | a house | mammal
cow | calf | moo | 4 | grass | a farm | mammal
horse | foal | neigh | 4 | grass and hay | a stable | mammal
sheep | lamb | baa | 4 | grass | a farm | mammal
pig | piglet | oink | 4 | nearly everything | a farm | mammal
goat | kid | maa | 4 | grass and leaves | a farm | mammal
duck | duckling | quack | 2 | water plants | a pond | bird
hen | chick | cluck | 2 | grain | a farm | bird
lion | cub | roar | 4 | meat | the savanna | mammal
tiger | cub | roar | 4 | meat | the jungle | mammal
bear | cub | growl | 4 | berries and fish | the forest | mammal
wolf | pup | howl | 4 | meat | the forest | mammal
fox | cub | yap | 4 | mice and berries | the forest | mammal
mouse | pup | squeak | 4 | grain and cheese | a small hole | mammal
frog | tadpole | croak | 4 | insects | a pond | amphibian
owl | owlet | hoot | 2 | mice | a tree | bird
bee | larva | buzz | 6 | nectar | a hive | insect
snake | snakelet | hiss | 0 | mice and eggs | the grass | reptile
elephant | calf | trumpet | 4 | leaves and grass | the savanna | mammal
monkey | infant | chatter | 2 | fruit | the jungle | mammal
bird | chick | tweet | 2 | seeds and worms | a nest | bird
donkey | foal | hee-haw | 4 | grass and hay | a farm | mammal
spider | spiderling | - | 8 | insects | a web | arachnid
ant | larva | - | 6 | seeds and sugar | an anthill | insect
fish | fry | - | 0 | small water animals | the water | fish
rabbit | kit | - | 4 | grass and carrots | a burrow | mammal
penguin | chick | - | 2 | fish | the cold south | bird
kangaroo | joey | - | 2 | grass | Australia | mammal
giraffe | calf | - | 4 | leaves | the savanna | mammal
""")
THINGS = table("""
the sky | blue
grass | green
the sun | yellow
snow | white
blood | red
a banana | yellow
a lemon | yellow
a tomato | red
a strawberry | red
a cherry | red
milk | white
coal | black
the night | black
chocolate | brown
an orange | orange
a carrot | orange
a pumpkin | orange
the sea | blue
a leaf | green
a frog | green
a cucumber | green
a flamingo | pink
a pig | pink
an elephant | grey
a mouse | grey
a polar bear | white
a fire engine | red
coffee | brown
gold | golden
silver | silver
a plum | purple
an eggplant | purple
a sunflower | yellow
wood | brown
a cloud | white
a raven | black
""")
COLOURS = [
    "red",
    "blue",
    "green",
    "yellow",
    "white",
    "black",
    "brown",
    "orange",
    "pink",
    "grey",
    "purple",
]
MIXES = table("""
blue | yellow | green
red | yellow | orange
red | blue | purple
red | white | pink
black | white | grey
""")


def _pick(rng: Random) -> list[str]:
    return rng.choice(ANIMALS)


def _sound(rng: Random) -> Exchange:
    name, _, sound, *_ = _pick(rng)
    question = rng.choice(
        (
            "What sound does {} make?",
            "What does {} say?",
            "Which sound does {} make?",
            "How does {} sound?",
        )
    ).format(article(name))
    if sound == "-":
        return Exchange(question, f"{capital(article(name))} is a quiet animal.", "None")
    return Exchange(question, f"{capital(article(name))} says {sound}.", sound)


def _young(rng: Random) -> Exchange:
    name, young, *_ = _pick(rng)
    question = rng.choice(
        ("What is a baby {} called?", "What do you call a young {}?", "What is a young {} called?")
    )
    return Exchange(question.format(name), f"A baby {name} is called {article(young)}.", young)


def _legs(rng: Random) -> Exchange:
    name, _, _, legs, *_ = _pick(rng)
    count = {"0": "no", "2": "two", "4": "four", "6": "six", "8": "eight"}[legs]
    question = rng.choice(
        (
            "How many legs does {} have?",
            "How many legs has {}?",
            "Number of legs of {}?",
            "{}: how many legs?",
        )
    )
    return Exchange(
        capital(question.format(article(name))), f"{capital(article(name))} has {count} legs.", legs
    )


def _food(rng: Random) -> Exchange:
    name, _, _, _, food, *_ = _pick(rng)
    question = rng.choice(("What does {} eat?", "What do I feed {}?", "What is the food of {}?"))
    return Exchange(question.format(article(name)), f"{capital(article(name))} eats {food}.")


def _home(rng: Random) -> Exchange:
    name, *_, home, _ = _pick(rng)
    preposition = "on" if home == "a farm" else "in"
    question = rng.choice(
        ("Where does {} live?", "What is the home of {}?", "Where can I find {}?")
    )
    return Exchange(
        question.format(article(name)), f"{capital(article(name))} lives {preposition} {home}."
    )


def _kind(rng: Random) -> Exchange:
    name, *_, kind = _pick(rng)
    if name == kind:
        return _young(rng)
    answer = f"{capital(article(name))} is {article(kind)}."
    question = rng.choice(("What kind of animal is {}?", "Which kind of animal is {}?"))
    return Exchange(question.format(article(name)), answer, kind)


def _about(rng: Random) -> Exchange:
    name, young, _, _, food, home, kind = _pick(rng)
    preposition = "on" if home == "a farm" else "in"
    subject = capital(article(name))
    question = rng.choice(
        (
            "What is {}?",
            "Tell me about {}.",
            "Describe {}.",
            "What do you know about {}?",
            "Explain what {} is.",
        )
    ).format(article(name))
    kind = "animal" if name == kind else kind
    return Exchange(
        question,
        f"{subject} is {article(kind)}. It lives {preposition} {home} and eats {food}. "
        f"A baby {name} is called {article(young)}.",
    )


def _who_says(rng: Random) -> Exchange:
    name, _, sound, *_ = rng.choice([row for row in ANIMALS if row[2] not in ("-", "roar")])
    question = rng.choice(("Which animal says {}?", "What animal says {}?", "What says {}?"))
    return Exchange(question.format(sound), f"{capital(article(name))} says {sound}.", name)


def animals(rng: Random) -> list[Exchange]:
    kinds: tuple[Callable[[Random], Exchange], ...] = (
        _sound,
        _sound,
        _young,
        _legs,
        _legs,
        _food,
        _home,
        _kind,
        _about,
        _who_says,
    )
    return [rng.choice(kinds)(rng)]


def _colour_of(rng: Random) -> Exchange:
    thing, colour = rng.choice(THINGS)
    spelling = rng.choice(("colour", "color"))
    question = rng.choice(
        (
            "What {0} is {1}?",
            "What is the {0} of {1}?",
            "Which {0} is {1}?",
            "Which {0} does {1} have?",
        )
    )
    return Exchange(question.format(spelling, thing), f"{capital(thing)} is {colour}.", colour)


def _is_it(rng: Random) -> Exchange:
    thing, colour = rng.choice(THINGS)
    guess = colour if rng.random() < 0.5 else rng.choice(COLOURS)
    yes = "Yes" if guess == colour else "No"
    return Exchange(f"Is {thing} {guess}?", f"{yes}, {thing} is {colour}.", yes)


def _mixed(rng: Random) -> Exchange:
    first, second, result = rng.choice(MIXES)
    if rng.random() < 0.5:
        first, second = second, first
    question = rng.choice(
        (
            "What do you get when you mix {} and {}?",
            "What colour do {} and {} make?",
            "Mix {} and {}.",
        )
    )
    return Exchange(
        question.format(first, second), f"{capital(first)} and {second} make {result}.", result
    )


def _things_in(rng: Random) -> Exchange:
    colour = rng.choice(("red", "green", "white", "yellow", "blue", "black", "brown"))
    things = [thing for thing, its in THINGS if its == colour]
    question = rng.choice(
        (
            "What is {}?",
            "Name something {}.",
            "Which things are {}?",
            "Tell me something that is {}.",
        )
    )
    chosen = rng.sample(things, 2)
    verb = f"{capital(chosen[0])} is {colour}, and {chosen[1]} is {colour}, too."
    return Exchange(question.format(colour), verb)


def _rainbow(rng: Random) -> Exchange:
    question = rng.choice(
        (
            "What are the colours of the rainbow?",
            "Which colors are in a rainbow?",
            "Name the colours of the rainbow.",
        )
    )
    shades = ["red", "orange", "yellow", "green", "blue", "indigo", "violet"]
    return Exchange(question, f"The colours of the rainbow are {joined(shades)}.")


def colours(rng: Random) -> list[Exchange]:
    kinds: tuple[Callable[[Random], Exchange], ...] = (
        _colour_of,
        _colour_of,
        _colour_of,
        _is_it,
        _mixed,
        _things_in,
        _rainbow,
    )
    return [rng.choice(kinds)(rng)]
