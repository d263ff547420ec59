"""Animals and colours: what they say, how they look, what they eat."""

from serve_app.demo.training.corpus.chat import Exchange, Talk, one, said
from serve_app.demo.training.corpus.phrases import article, capital, joined, patterns, table
from serve_app.demo.training.corpus.split import SeededDraw

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
gold | yellow
silver | grey
a plum | purple
an eggplant | purple
a sunflower | yellow
wood | brown
a cloud | white
a raven | black
""")
MIXES = table("""
blue | yellow | green
red | yellow | orange
red | blue | purple
red | white | pink
black | white | grey
""")
SOUND = patterns("""
[What|Which] sound does {} make?
[What|How] does {} [say|sound|go]?
[Tell me|Do you know] [the sound of {}|what {} says|what sound {} makes][|.|?]
""")
YOUNG = patterns("""
What do you call a [baby|young|little] {}?
What is a [baby|young|little] {} called?
[Tell me|Do you know|What is] the [name|word] for a [baby|young] {}[?|]
""")
LEGS = patterns("""
How many legs [does {} have|has {}|are on {}]?
[Number of legs of|Count the legs of|Tell me the number of legs of] {}[|.]
[Do you know|Can you say|Tell me] how many legs {} has[|.|?]
""")
FOOD = patterns("""
What [does {} eat|do I feed {}|is the food of {}|does {} like to eat]?
[Tell me|Do you know|Can you tell me] what {} eats[|.|?]
""")
HOME = patterns("""
Where [does {} live|is the home of {}|can I find {}|do I find {}]?
[Tell me|Do you know|Can you tell me] where {} lives[|.|?]
""")
KIND = patterns("""
[What|Which] kind of animal is {}?
[Tell me|Do you know] what kind of animal {} is[|.|?]
[Is {} a mammal, a bird or something else|To which animals does {} belong]?
""")
ABOUT = patterns("""
[Tell me|What do you know|Tell me something|Can you tell me something] about {}[|.|?]
[What is|Describe|Explain what is] {}[|.|?]
""")
WHO = patterns("""
[Which|What] animal [says|goes|makes the sound] {}?
[Who|What] says {}?
[Name|Tell me] the animal that says {}[|.]
""")
COLOUR_OF = patterns("""
[What|Which] [colour|color] [is {}|does {} have|has {}]?
[What is|Tell me|Name|Say] the [colour|color] of {}[|.|?]
[Do you know|Can you tell me] [what|which] [colour|color] {} is[|?]
""")
IS_IT = patterns("""
Is {} {}?
[Is it true that|Is it right that] {} is {}?
[Tell me whether|Do you know whether|Can you say whether] {} is {}[|.|?]
""")
MIX = patterns("""
What do [you|I|we] get when [you|I|we] mix {} and {}?
[What|Which] [colour|color] do {} and {} make?
[Mix|Combine|Blend] {} and {}[|.]
[What is the mix of|What comes out of] {} and {}?
""")
RAINBOW = patterns("""
[What are|Name|List|Tell me|Which are] the [colours|colors] of [the|a] rainbow[|.|?]
[Which|What] [colours|colors] [are in|has] a rainbow?
""")
LEG_WORDS = {"0": "no", "2": "two", "4": "four", "6": "six", "8": "eight"}
COLOURS = sorted({colour for _, colour in THINGS})


def animals(draw: SeededDraw) -> Talk:
    kinds = (_sound, _sound, _young, _legs, _legs, _food, _home, _kind, _about, _who)
    return one(draw.choice(kinds)(draw))


def colours(draw: SeededDraw) -> Talk:
    kinds = (_colour_of, _colour_of, _colour_of, _is_it, _mixed, _rainbow)
    return one(draw.choice(kinds)(draw))


def _sound(draw: SeededDraw) -> Exchange:
    name, _, sound, *_ = draw.choice(ANIMALS)
    question, who = draw.ask(SOUND).format(article(name)), capital(article(name))
    if sound == "-":
        return said(question, f"{who} is a quiet animal.", "quiet")
    return said(question, f"{who} says {sound}.", short=sound)


def _young(draw: SeededDraw) -> Exchange:
    name, young, *_ = draw.choice(ANIMALS)
    answer = f"A baby {name} is called {article(young)}."
    return said(draw.ask(YOUNG).format(name), answer, short=young)


def _legs(draw: SeededDraw) -> Exchange:
    name, _, _, legs, *_ = draw.choice(ANIMALS)
    count = LEG_WORDS[legs]
    question, who = draw.ask(LEGS).format(article(name)), capital(article(name))
    return said(question, f"{who} has {count} legs.", f"{count} legs", short=count)


def _food(draw: SeededDraw) -> Exchange:
    name, _, _, _, food, *_ = draw.choice(ANIMALS)
    question, who = draw.ask(FOOD).format(article(name)), capital(article(name))
    return said(question, f"{who} eats {food}.", food)


def _place(home: str) -> str:
    return f"on {home}" if home == "a farm" else f"in {home}"


def _home(draw: SeededDraw) -> Exchange:
    name, *_, home, _ = draw.choice(ANIMALS)
    question, who = draw.ask(HOME).format(article(name)), capital(article(name))
    return said(question, f"{who} lives {_place(home)}.", home)


def _kind(draw: SeededDraw) -> Exchange:
    name, *_, kind = draw.choice([row for row in ANIMALS if row[0] != row[-1]])
    question, who = draw.ask(KIND).format(article(name)), capital(article(name))
    return said(question, f"{who} is {article(kind)}.", kind, short=kind)


def _about(draw: SeededDraw) -> Exchange:
    name, young, _, _, food, home, kind = draw.choice(ANIMALS)
    what = "animal" if name == kind else kind
    answer = (
        f"{capital(article(name))} is {article(what)}. It lives {_place(home)} and eats {food}. "
        f"A baby {name} is called {article(young)}."
    )
    return said(draw.ask(ABOUT).format(article(name)), answer, food, young)


def _who(draw: SeededDraw) -> Exchange:
    name, _, sound, *_ = draw.choice([row for row in ANIMALS if row[2] not in ("-", "roar")])
    answer = f"{capital(article(name))} says {sound}."
    return said(draw.ask(WHO).format(sound), answer, name, short=name)


def _colour_of(draw: SeededDraw) -> Exchange:
    thing, colour = draw.choice(THINGS)
    return said(draw.ask(COLOUR_OF).format(thing), f"{capital(thing)} is {colour}.", short=colour)


def _is_it(draw: SeededDraw) -> Exchange:
    thing, colour = draw.choice(THINGS)
    guess = colour if draw.chance(0.5) else draw.choice(COLOURS)
    yes = "Yes" if guess == colour else "No"
    answer = f"{yes}, {thing} is {colour}."
    return said(draw.ask(IS_IT).format(thing, guess), answer, yes, colour, short=yes)


def _mixed(draw: SeededDraw) -> Exchange:
    first, second, result = draw.choice(MIXES)
    if draw.chance(0.5):
        first, second = second, first
    answer = f"{capital(first)} and {second} make {result}."
    return said(draw.ask(MIX).format(first, second), answer, short=result)


def _rainbow(draw: SeededDraw) -> Exchange:
    shades = ["red", "orange", "yellow", "green", "blue", "indigo", "violet"]
    return said(draw.ask(RAINBOW), f"The colours of the rainbow are {joined(shades)}.", *shades)
