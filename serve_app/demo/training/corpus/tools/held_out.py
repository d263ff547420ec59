"""Tools for evaluation alone: written by hand, and never shown in training."""

from dataclasses import dataclass

from serve_app.demo.training.corpus.chat import (
    Exchange,
    Expect,
    SampleCall,
    SampleTool,
    Talk,
    Value,
    said,
)
from serve_app.demo.training.corpus.phrases import rows
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.tools.calls import NO_TOOL
from serve_app.demo.training.corpus.tools.catalog import MAKERS

# name | description | parameters: name type maker | ways to ask, with the makers' names in braces
TABLE = """
get_stock_price | Current price of a share | ticker string code | What does {0} trade at right \
now?; \
Check the stock price for {0}.; How much is one share of {0}?
order_pizza | Order a pizza to a table | topping string item, table integer few | I would like a \
pizza \
with {0} for table {1}.; Order a {0} pizza to table {1}.; Table {1} wants a pizza with {0}.
get_horoscope | Horoscope of a person | person string name | What do the stars say for {0}?; \
Read me the \
horoscope for {0}.; Horoscope of {0}, please.
track_package | Where a package is | tracking_code string code | Where is my package {0}?; Track \
{0} for \
me.; Has package {0} arrived?
define_word | Definition of a word in the dictionary | word string item | Define the word "{0}" \
for \
me.; Look up {0} in the dictionary.; Give me the definition of "{0}".
start_countdown | Start a countdown of some minutes | minutes integer many | Start a countdown \
of {0} \
minutes.; Count down {0} minutes.; Give me a countdown of {0} minutes, please.
play_music | Play a song by an artist | song string title, artist string name | Play {0} by \
{1}.; I want to \
hear {0} by {1}.; Put on the song {0} by {1}.
hire_car | Hire a car in a city for some days | city string town, days integer few | Hire a car \
in {0} for {1} \
days.; I need a rental car in {0} for {1} days.; Get me a car in {0} for {1} days.
get_bus_departures | Next departures from a bus stop | stop string company | When do buses leave \
from {0}?; Show \
departures at the stop {0}.; Next bus from {0}, please.
transfer_money | Transfer money to someone | receiver string name, euros integer many | Transfer \
{1} euros to \
{0}.; Pay {0} {1} euros.; Move {1} euros to {0}, please.
lock_door | Lock the door of a room | door string room | Lock the {0} door.; Please lock the \
door of the \
{0}.; Make sure that the {0} door is locked.
water_plants | Water the plants in a room | room string room, litres integer few | Water the \
plants in the {0} \
with {1} litres.; Give the plants in the {0} {1} litres of water.; The plants in the {0} need \
{1} litres.
get_lyrics | Words of a song | song string title | Show me the lyrics of {0}.; What are the \
words of the \
song {0}?; Find the lyrics for {0}.
assign_ticket | Assign a ticket to a person | ticket string code, assignee string name | Assign \
{0} to \
{1}.; Give the ticket {0} to {1}.; Let {1} take care of ticket {0}.
find_pharmacy | Find a pharmacy in a city | town string town | Is there a pharmacy in {0}?; Find \
me a pharmacy \
in {0}.; I need a drugstore in {0}.
run_query | Run a query on the data base | query string phrase | Run the query "{0}".; Please \
execute "{0}" on \
the data base.; Query the data base for "{0}".
feed_pet | Feed a pet at a time | pet string name, time string clock | Feed {0} at {1}.; {0} \
needs food at \
{1}.; Give {0} something to eat at {1}.
move_piece | Move a chess piece | square string code | Move my piece to {0}.; Go to square {0}.; \
I play {0}.
rate_film | Rate a film with stars | film string title, stars integer few | Rate {0} with {1} \
stars.; I give {0} \
{1} stars.; Give {1} stars to the film {0}.
visa_rules | Visa rules of a country | country string town | Do I need a visa for {0}?; What are \
the visa rules \
of {0}?; Tell me the visa rules for {0}.
"""


@dataclass(frozen=True)
class Written:
    tool: SampleTool
    makers: tuple[str, ...]
    asks: tuple[str, ...]

    def exchange(self, draw: SeededDraw) -> Exchange:
        values: list[Value] = [MAKERS[maker](draw) for maker in self.makers]
        question = draw.choice(self.asks).format(*values)
        arguments = dict(zip(self.tool.properties, values, strict=True))
        return Exchange(question, "", Expect(), calls=(SampleCall(self.tool.name, arguments),))


def _written(row: str) -> Written:
    called, about, parameters, asks = (cell.strip() for cell in row.split("|"))
    slots = [slot.split() for slot in parameters.split(",")]
    properties = {field: {"type": kind} for field, kind, _ in slots}
    tool = SampleTool(called, about, properties, tuple(properties))
    ways = tuple(ask.strip() for ask in asks.split(";"))
    return Written(tool, tuple(maker for *_, maker in slots), ways)


WRITTEN = [_written(row) for row in rows(TABLE)]


def written_calling(draw: SeededDraw) -> Talk:
    written = draw.choice(WRITTEN)
    others = [each.tool for each in draw.sample(WRITTEN, 3) if each is not written]
    tools = [written.tool, *others[: draw.randint(0, 2)]]
    draw.shuffle(tools)
    return Talk([written.exchange(draw)], tools=tuple(tools))


def written_without(draw: SeededDraw) -> Talk:
    """Asks some tools for what only another one can do."""
    wanted, *others = draw.sample(WRITTEN, draw.randint(2, 4))
    question = wanted.exchange(draw).question
    return Talk([said(question, NO_TOOL, "no tool")], tools=tuple(each.tool for each in others))
