"""Values in arguments and results of calls: they can only be read, never guessed."""

from collections.abc import Callable
from dataclasses import dataclass

from serve_app.demo.training.corpus.chat import Value
from serve_app.demo.training.corpus.names import code, name, town, word
from serve_app.demo.training.corpus.phrases import capital, listed
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.subjects.calendar import DAYS, MONTHS
from serve_app.demo.training.corpus.subjects.numbers import ITEMS

ROOMS = listed("""
kitchen, bedroom, bathroom, office, garage, hall, cellar, attic, garden, studio, library, lobby
""")
UNITS = listed("""
metres, feet, miles, kilometres, grams, pounds, ounces, litres, gallons, inches, yards, hours,
minutes, seconds, euros, dollars, yen, francs, pesos, rupees, kelvin, celsius, fahrenheit, bars
""")


@dataclass(frozen=True)
class ValueSlot:
    """A parameter: what it may be called, its JSON type, and how its value is made."""

    names: tuple[str, ...]
    make: Callable[[SeededDraw], Value]
    type: str = "string"
    about: str = ""


def number(least: int, most: int) -> Callable[[SeededDraw], int]:
    """Returns a maker of numbers in a range. In a small range none is held out."""
    if most - least < 30:
        return lambda draw: draw.randint(least, most)
    return lambda draw: draw.new(lambda rng: rng.randint(least, most))


def day(draw: SeededDraw) -> str:
    if draw.chance(0.4):
        return draw.choice((*DAYS, "today", "tomorrow"))
    if draw.chance(0.5):
        return f"{draw.randint(1, 28)} {draw.choice(MONTHS)}"
    return f"{draw.randint(2020, 2032)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"


def clock(draw: SeededDraw) -> str:
    return f"{draw.randint(0, 23)}:{draw.choice((0, 15, 30, 45, draw.randint(1, 59))):02}"


def mail(draw: SeededDraw) -> str:
    ending = draw.choice(("com", "org", "net", "de", "io"))
    return f"{draw.choice((name, word))(draw).lower()}@{word(draw)}.{ending}"


def phrase(draw: SeededDraw) -> str:
    """A few words of which some mean nothing."""
    words = [draw.choice(ITEMS) if draw.chance(0.6) else word(draw)]
    words += [draw.choice(ITEMS) for _ in range(draw.randint(0, 2))]
    return " ".join(words)


def item(draw: SeededDraw) -> str:
    return draw.choice(ITEMS) if draw.chance(0.5) else word(draw)


def title(draw: SeededDraw) -> str:
    return " ".join(capital(item(draw)) for _ in range(draw.randint(1, 2)))


def company(draw: SeededDraw) -> str:
    return capital(word(draw))


def path(draw: SeededDraw) -> str:
    return f"{item(draw)}/{word(draw)}.{draw.choice(('txt', 'md', 'py', 'csv', 'json'))}"


def room(draw: SeededDraw) -> str:
    return draw.one(ROOMS) if draw.chance(0.7) else word(draw)


def unit(draw: SeededDraw) -> str:
    return draw.choice(UNITS) if draw.chance(0.7) else word(draw)


def found(draw: SeededDraw) -> Value:
    """Draws what a tool may find."""
    makers: tuple[Callable[[SeededDraw], Value], ...] = (
        number(1, 9999),
        number(1, 99),
        lambda each: f"{each.randint(1, 999)} {unit(each)}",
        item,
        name,
        clock,
        lambda each: f"{each.randint(1, 99)}.{each.randint(1, 9)}",
        code,
    )
    return draw.choice(makers)(draw)


# what a tool is about: how the parameter may be called, and what its values are
ENTITIES: dict[str, ValueSlot] = {
    "city": ValueSlot(("city", "location", "place", "city_name"), town),
    "town": ValueSlot(("town", "where", "location", "place"), town),
    "person": ValueSlot(("person", "name", "who", "full_name"), name),
    "customer": ValueSlot(("customer", "customer_name", "client", "name"), name),
    "employee": ValueSlot(("employee", "employee_name", "worker", "staff"), name),
    "user": ValueSlot(("user", "user_name", "username", "account"), name),
    "product": ValueSlot(("product", "product_name", "article", "item"), item),
    "order": ValueSlot(("order", "order_id", "order_number", "id"), code),
    "flight": ValueSlot(("flight", "flight_number", "flight_id", "number"), code),
    "parcel": ValueSlot(("parcel", "parcel_id", "tracking_id", "code"), code),
    "company": ValueSlot(("company", "company_name", "firm", "business"), company),
    "shop": ValueSlot(("shop", "store", "shop_name", "store_name"), company),
    "hotel": ValueSlot(("hotel", "hotel_name", "house", "name"), company),
    "river": ValueSlot(("river", "river_name", "water", "name"), company),
    "team": ValueSlot(("team", "team_name", "club", "side"), company),
    "book": ValueSlot(("book", "title", "book_title", "name"), title),
    "song": ValueSlot(("song", "title", "song_title", "track"), title),
    "machine": ValueSlot(("machine", "machine_id", "device", "device_id"), code),
    "room": ValueSlot(("room", "room_name", "area", "zone"), room),
    "account": ValueSlot(
        ("account", "account_id", "account_number", "iban"), number(1000, 99999), "integer"
    ),
}
