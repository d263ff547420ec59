"""Questions about a picture, and the answer that its scene makes right.

The law: an answer follows from the scene alone, and a question has one right answer.
"""

from collections import Counter
from collections.abc import Callable

from serve_app.demo.training.corpus.chat import Exchange, Expect, said
from serve_app.demo.training.corpus.phrases import article, joined, patterns, plural
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.vision.scenes import (
    SHAPES,
    Bars,
    Item,
    Shapes,
    Writing,
    visible,
)

COUNTS = ("no", "one", "two", "three", "four", "five")
ORDINALS = ("first", "second", "third", "fourth", "fifth")
APART = 0.18  # between two middles, of the picture's side: what is left of what is plain to see

COLOUR = patterns("""
[What|Which] colour [is|has] the {s}[?|? Please tell me.| in the picture?| that you see?]
[What|Which] color is the {s}[?| in the picture?]
[What's|Tell me|Say|Name] the colour of the {s}[.|, please.| in the picture.]
What is the [colour|color] of the {s}[?| in this picture?]
The {s}: [which|what] colour [is it|does it have]?
[In which|In what] colour is the {s} [drawn|painted|shown]?
""")
SHAPE_OF = patterns("""
[What|Which] [shape|form] is {c}[?| in the picture?| here?]
[What|Which] is the {c} [shape|thing|object|figure][?| in the picture?]
[What|Which] [shape|form] [is|has] the {c} [one|thing|object|figure]?
[Name|Tell me|Say] the [shape|form] that is {c}[.|, please.]
[What|Which] {c} shape [is there|do you see|can you see|is in the picture]?
""")
SHAPE = patterns("""
[What|Which] shape [is this|is it|is that|do you see|is shown|is in the picture|can you see]?
[What|Which] [form|figure] [is this|do you see|is in the picture]?
[Name|Tell me|Say] the shape[.|, please.| in the picture.| that you see.]
What [kind|sort] of shape is [this|it|in the picture]?
""")
HOW_MANY = patterns("""
How many {p} [are there|do you see|can you see|are in the picture|are shown|are here]?
[Count|Please count] the {p}[.| in the picture.| that you see.]
How many {p} [are|do you see|can you count] in [this|the] picture?
[What is|What's|Tell me] the number of {p}[?| in the picture?]
{p}: how many [are there|do you see]?
""")
WHERE = patterns("""
Where is the {s}[?| in the picture?| placed?| located?]
[In which|In what|In which] part of the picture is the {s}?
Where [do|can] you see the {s}[?| in the picture?]
[Tell me|Say|Describe] where the {s} is[.|, please.]
[What|Which] is the [position|place] of the {s}[?| in the picture?]
At [what|which] place is the {s}?
""")
RELATION = patterns("""
[What|Which shape] is {r} the {s}[?| in the picture?]
[What|Which shape] [do|can] you see {r} the {s}?
[Tell me|Say|Name] what is {r} the {s}[.|, please.]
[There is something|Something is] {r} the {s}. What is it?
""")
IS_RELATED = patterns("""
Is the {a} {r} the {b}[?| in the picture?| or not?]
[Do|Can] you see the {a} {r} the {b}?
[Is it true|Is it right|Would you say] that the {a} is {r} the {b}?
[Yes or no:|Tell me,|Please say:] is the {a} {r} the {b}?
""")
IS_THERE = patterns("""
Is there {a} [in the picture?|here?|in this picture?|to be seen?]
[Do|Can] you see {a}[?| in the picture?| here?]
[Does the picture show|Does this picture show|Does the picture have] {a}?
[Yes or no:|Tell me,|Please say:] is there {a}?
""")
DESCRIBE = patterns("""
What is in [the|this|my] picture?
What [do|can] you see[?| in the picture?| in this picture?| here?| in my picture?]
[Describe|Please describe] [the picture|this picture|what you see|my picture][.|]
What [is shown|is there to see] [here|in the picture|in this picture]?
What does [the|this|my] picture show?
[Tell me|Say] what [is in the picture|you see|the picture shows][.|, please.]
[Which|What] shapes [are|do you see|can you see] in [the|this|my] picture?
[Which|What] shapes and colours [are in this picture|do you see|are there|does it show]?
[Which|What] shapes are [there|in the picture], and [which|what] colours [are they|do they have]?
[Name|List|Tell me] the shapes and [their|the] colours[.|, please.| in the picture.]
What is [this|that|it]?
What's in [this|the|my] picture?
""")
READ_NUMBER = patterns("""
[What|Which] number [is this|is it|is that|do you see|is shown|is written here|is in the picture]?
[Read|Please read|Tell me|Say] the number[.| in the picture.| here.]
[Which|What] number [can you read|can you see|is written there|does the picture show]?
[Which|What] digits [do you see|are these|are in the picture]?
[Read|Tell me] the digits[.|, please.| in the picture.]
""")
READ_WORD = patterns("""
[What|Which] word [is this|is it|is that|do you see|is shown|is written here|is in the picture]?
[Read|Please read|Tell me|Say] the word[.| in the picture.| here.]
[Which|What] word [can you read|can you see|is written there|does the picture show]?
""")
READ = patterns("""
What [does it say|does the picture say|is written here|is written in the picture]?
[Read|Please read] [this|it|the text|what is written|the picture][.| to me.]
What [can|do] you read[?| here?| in the picture?]
[What|Which] text [do you see|is this|is in the picture]?
""")
GROUND = patterns("""
[What|Which] colour is the background[?| of the picture?]
[What|Which] color is the background?
[What's|Tell me|Say|Name] the colour of the background[.|, please.]
On [what|which] [colour|background] is it [drawn|painted|shown]?
""")
EXTREME = patterns("""
[What|Which] bar is [the|] {e}[?| in the chart?| of all?]
[What|Which] is the {e} bar[?| in the chart?| here?]
[Name|Tell me|Say] the {e} bar[.|, please.| in the chart.]
[What|Which] colour [is|has] the {e} bar?
""")
BAR_AT = patterns("""
[What|Which] colour [is|has] the {o} bar[?| from the left?]
[What's|Tell me|Say|Name] the colour of the {o} bar[.|, please.| from the left.]
From the left, [what|which] colour is the {o} bar?
""")
TALLER = patterns("""
Is the {a} bar {r} than the {b} [bar|one]?
[Yes or no:|Tell me,|Please say:] is the {a} bar {r} than the {b} [bar|one]?
[Is it true|Is it right|Would you say] that the {a} bar is {r} than the {b} [bar|one]?
""")
SIDES = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}


def colour(draw: SeededDraw, scene: Shapes) -> Exchange:
    item = draw.choice(scene.items)
    name = draw.choice((item.shape, "shape")) if len(scene.items) == 1 else item.shape
    question = draw.ask(COLOUR).format(s=name)
    return said(question, f"The {item.shape} is {item.colour}.", item.colour, short=item.colour)


def shape(draw: SeededDraw, scene: Shapes) -> Exchange:
    item = draw.choice(scene.items)
    if len(scene.items) == 1 and draw.chance(0.5):
        question = draw.ask(SHAPE)
    else:
        question = draw.ask(SHAPE_OF).format(c=item.colour)
    return said(question, f"It is {article(item.name)}.", item.shape, short=item.shape)


def count(draw: SeededDraw, scene: Shapes) -> Exchange:
    """Asks how many shapes there are, of all, a kind or a colour; rarely of what is not there."""
    by_shape = Counter(item.shape for item in scene.items)
    by_colour = Counter(item.colour for item in scene.items)
    kind = draw.random()
    if kind < 0.4:
        many, one, found = "shapes", "shape", len(scene.items)
    elif kind < 0.75:
        one = draw.choice(SHAPES if draw.chance(0.12) else tuple(by_shape))
        many, found = plural(one), by_shape[one]
    else:
        shade = draw.choice(visible(scene.background) if draw.chance(0.12) else tuple(by_colour))
        one, many, found = f"{shade} shape", f"{shade} shapes", by_colour[shade]
    question = draw.ask(HOW_MANY).format(p=many)
    answer = f"There is one {one}." if found == 1 else f"There are {COUNTS[found]} {many}."
    return said(question, answer, COUNTS[found])


def where(draw: SeededDraw, scene: Shapes) -> Exchange | None:
    placed = [item for item in scene.items if item.place]
    if not placed:
        return None
    item = draw.choice(placed)
    names = [item.shape, item.shape, item.name, f"{item.colour} shape"]
    question = draw.ask(WHERE).format(s=draw.choice(names))
    answer = f"The {item.shape} is in the {item.place}."
    return Exchange(question, answer, Expect(exactly=answer))


def _relations(item: Item, other: Item) -> list[str]:
    """How the first lies to the second, where that is plain."""
    across, down = item.x - other.x, item.y - other.y
    found = ["right of" if across > 0 else "left of"] if abs(across) > APART else []
    return found + (["below" if down > 0 else "above"] if abs(down) > APART else [])


def relation(draw: SeededDraw, scene: Shapes) -> Exchange | None:
    """Asks what lies next to one of two shapes. With three it may be either of two: None then."""
    if len(scene.items) != 2:
        return None
    item, other = draw.sample(scene.items, 2)
    found = _relations(item, other)
    if not found:
        return None
    side = draw.choice(found)
    question = draw.ask(RELATION).format(r=side, s=other.shape)
    answer = f"{article(item.name).capitalize()} is {side} the {other.shape}."
    return said(question, answer, item.shape, short=item.shape)


def is_related(draw: SeededDraw, scene: Shapes) -> Exchange | None:
    if len(scene.items) < 2:
        return None
    item, other = draw.sample(scene.items, 2)
    found = _relations(item, other)
    if not found:
        return None
    side = draw.choice(found)
    true = draw.chance(0.5)
    question = draw.ask(IS_RELATED).format(
        a=item.shape, b=other.shape, r=side if true else SIDES[side]
    )
    word = "Yes" if true else "No"
    answer = f"{word}, the {item.shape} is {side} the {other.shape}."
    return said(question, answer, word.lower(), short=word)


def is_there(draw: SeededDraw, scene: Shapes) -> Exchange:
    item = draw.choice(scene.items)
    there = {each.name for each in scene.items}
    if draw.chance(0.5):
        name = item.name
    else:
        shades, form = visible(scene.background), draw.choice(SHAPES)
        name = draw.choice((f"{draw.choice(shades)} {item.shape}", f"{item.colour} {form}"))
    word = "Yes" if name in there else "No"
    found = article(name) if name in there else f"no {name}"
    question = draw.ask(IS_THERE).format(a=article(name))
    return said(question, f"{word}, there is {found}.", word.lower(), short=word)


def describe(draw: SeededDraw, scene: Shapes) -> Exchange | None:
    """Asks for a description, which has the shapes from left to right."""
    if not scene.is_uniform and len({item.name for item in scene.items}) < len(scene.items):
        return None
    if len(scene.items) > 3 and not scene.is_uniform:
        return None
    question = draw.ask(DESCRIBE)
    if scene.is_uniform and len(scene.items) > 1:
        number, name = COUNTS[len(scene.items)], plural(scene.items[0].name)
        return said(question, f"There are {number} {name}.", number, name)
    names = [item.name for item in sorted(scene.items, key=lambda item: item.x)]
    return said(question, f"There is {joined([article(name) for name in names])}.", *names)


def ground(draw: SeededDraw, scene: Shapes | Writing) -> Exchange:
    name = scene.background
    return said(draw.ask(GROUND), f"The background is {name}.", name, short=name)


def read_number(draw: SeededDraw, scene: Writing) -> Exchange:
    question = draw.ask(READ_NUMBER if draw.chance(0.7) else READ)
    return said(question, f"It says {scene.text}.", scene.text, short=scene.text)


def read_word(draw: SeededDraw, scene: Writing) -> Exchange:
    """Asks for the word, which the answer has in small letters, however it is written."""
    word = scene.text.lower()
    question = draw.ask(READ_WORD if draw.chance(0.7) else READ)
    return said(question, f"It says {word}.", word, short=word)


def colour_of_writing(draw: SeededDraw, scene: Writing) -> Exchange:
    name = "number" if scene.text.isdigit() else "word"
    question = draw.ask(COLOUR).format(s=draw.choice((name, "text")))
    return said(question, f"The {name} is {scene.colour}.", scene.colour, short=scene.colour)


def describe_writing(draw: SeededDraw, scene: Writing) -> Exchange:
    name, text = "number" if scene.text.isdigit() else "word", scene.text.lower()
    answer = f"There is the {name} {text} in {scene.colour}."
    return said(draw.ask(DESCRIBE), answer, text, scene.colour)


def extreme(draw: SeededDraw, scene: Bars) -> Exchange:
    best, word = draw.choice(
        ((max, "tallest"), (max, "highest"), (min, "shortest"), (min, "lowest"))
    )
    name = scene.colours[scene.heights.index(best(scene.heights))]
    question = draw.ask(EXTREME).format(e=word)
    return said(question, f"The {name} bar is the {word}.", name, short=name)


def bar_at(draw: SeededDraw, scene: Bars) -> Exchange:
    at = draw.randrange(len(scene.colours))
    place = ORDINALS[at]
    if at == len(scene.colours) - 1 and draw.chance(0.6):
        place = "last"
    name = scene.colours[at]
    question = draw.ask(BAR_AT).format(o=place)
    return said(question, f"The {place} bar is {name}.", name, short=name)


def count_bars(draw: SeededDraw, scene: Bars) -> Exchange:
    number = COUNTS[len(scene.colours)]
    return said(draw.ask(HOW_MANY).format(p="bars"), f"There are {number} bars.", number)


def taller(draw: SeededDraw, scene: Bars) -> Exchange:
    one, other = draw.sample(range(len(scene.colours)), 2)
    is_taller, asked = scene.heights[one] > scene.heights[other], draw.choice(("taller", "shorter"))
    truth = "taller" if is_taller else "shorter"
    word = "Yes" if truth == asked else "No"
    a, b = scene.colours[one], scene.colours[other]
    question = draw.ask(TALLER).format(a=a, b=b, r=asked)
    answer = f"{word}, the {a} bar is {truth} than the {b} bar."
    return said(question, answer, word.lower(), short=word)


def describe_bars(draw: SeededDraw, scene: Bars) -> Exchange:
    number = COUNTS[len(scene.colours)]
    answer = f"It is a bar chart with {number} bars: {joined(list(scene.colours))}."
    return said(draw.ask(DESCRIBE), answer, "bar chart", number, *scene.colours)


Asker = (
    Callable[[SeededDraw, Shapes], Exchange | None]
    | Callable[[SeededDraw, Writing], Exchange]
    | Callable[[SeededDraw, Bars], Exchange]
)
