"""Words: opposites, lists of things, repeating what was said."""

from random import Random

from serve_app.demo.corpus.chat import Exchange, capital, joined, listed, table

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
OPPOSITE_ASKS = (
    "What is the opposite of {}?",
    "What's the opposite of {}?",
    "Opposite of {}?",
    "opposite of {}",
    "Tell me the opposite of {}.",
    "Which word is the opposite of {}?",
    "Give me the opposite of {}.",
    "What is the opposite of the word {}?",
    'What is the opposite of "{}"?',
    "Do you know the opposite of {}?",
    "Name the opposite of {}.",
)
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
    "colors": listed("red, blue, green, yellow, white, black, orange, purple, pink, brown"),
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
    "instruments": listed("the piano, the guitar, the violin, the flute, the drums, the trumpet"),
    "planets": listed("Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus, Neptune"),
    "jobs": listed("teacher, doctor, farmer, baker, pilot, nurse, cook, painter, driver"),
    "names": listed("Anna, Ben, Clara, David, Emma, Felix, Grace, Henry, Olivia, Paul"),
    "clothes": listed("shirts, shoes, socks, hats, coats, gloves, scarves, trousers"),
    "things in a kitchen": listed("a table, a pan, a pot, a knife, a spoon, a plate, a cup"),
    "shapes": listed("circle, square, triangle, rectangle, star, oval"),
    "programming languages": listed("Python, Rust, Java, Go, C, Ruby, Kotlin, Swift"),
}
MEMBERS = {"farm animals": "farm animal", "countries": "country", "cities": "city"}
COUNTS = {"two": 2, "three": 3, "3": 3, "four": 4, "4": 4, "five": 5, "5": 5, "2": 2, "some": 3}
LIST_ASKS = (
    "Name {} {}.",
    "List {} {}.",
    "Give me {} {}.",
    "Tell me {} {}.",
    "Can you name {} {}?",
    "Can you list {} {}?",
    "I need {} {}.",
    "Please list {} {}.",
    "Write down {} {}.",
    "Give me a list of {} {}.",
    "Name {} {}, please.",
    "What are {} {}?",
    "Make a list of {} {}.",
)
ECHO_WORDS = listed("""
apple, river, moon, seven, yellow, house, music, window, garden, stone, paper, happy, ocean, tiger,
bread, cloud, pong, hello, banana, silver, forest, candle, winter, bridge, lemon, rocket, pencil,
robot, castle, dragon, mirror, orange, purple, monday, coffee, ticket, yes, no, okay, test, cat, \
dog,
blue, red, green, one, two, three, done, ready, manta, ray, start, finish, north, light, water, \
fire,
sun, star, tree, bird, fish, book, door, key, ring, song, train, ship, plane, road, snow, rain, \
wind,
good morning, thank you, the end, I am here, nice work, good night, well done, see you, all is well
""")
ECHO_ASKS = (
    "Say {}",
    "Say {}.",
    "Say: {}",
    "Repeat: {}",
    "Repeat after me: {}",
    "Please say {}.",
    "Just say {}.",
    "Repeat this: {}",
    "Can you say {}?",
    "Say the word {}.",
    "Only say {}.",
    "Reply with {}.",
    "Reply with the word {}.",
    "Answer with {}.",
    "Say '{}'",
    'Say "{}".',
    "Echo {}",
    "Say exactly: {}",
    "Respond with: {}",
    "Write {}",
    "Please repeat: {}",
    "Reply with exactly: {}",
)


def opposites(rng: Random) -> list[Exchange]:
    word, other = rng.choice(OPPOSITES)
    if rng.random() < 0.4 and other not in FIRSTS and SECONDS.count(other) == 1:
        word, other = other, word
    question = capital(rng.choice(OPPOSITE_ASKS).format(word))
    return [Exchange(question, f"The opposite of {word} is {other}.", other)]


def _numbered(items: list[str]) -> str:
    return "\n".join(f"{at}. {capital(item)}" for at, item in enumerate(items, 1))


def lists(rng: Random) -> list[Exchange]:
    group = rng.choice(list(GROUPS))
    word = rng.choice(list(COUNTS))
    items = rng.sample(GROUPS[group], COUNTS[word])
    question = rng.choice(LIST_ASKS).format(word, group)
    chance = rng.random()
    if chance < 0.2:
        ask = rng.choice(("Make a numbered list of {} {}.", "Write a numbered list of {} {}."))
        return [Exchange(ask.format(word, group), _numbered(items))]
    if chance < 0.3:
        bullets = "\n".join(f"- {capital(item)}" for item in items)
        return [Exchange(f"Make a bullet list of {word} {group}.", bullets)]
    if chance < 0.4:
        question = f"Name one of the {group}."
        return [Exchange(question, f"{capital(items[0])}.", items[0])]
    return [Exchange(question, f"{capital(joined(items))}.")]


def echo(rng: Random) -> list[Exchange]:
    words = rng.sample(ECHO_WORDS, rng.choice((1, 1, 1, 2, 3)))
    text = " ".join(words)
    if rng.random() < 0.4:
        text = rng.choice((capital(text), capital(text), text.upper()))
    return [Exchange(rng.choice(ECHO_ASKS).format(text), text, exact=True)]
