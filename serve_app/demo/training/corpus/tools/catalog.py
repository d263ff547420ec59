"""Tools for training that were written by hand, and what people say when they want them.

Few of these questions are made of the words of a definition alone: some share a verb with it, some
a noun or a parameter, some hardly anything.
"""

from collections.abc import Callable

from serve_app.demo.training.corpus.chat import Value
from serve_app.demo.training.corpus.names import code, name, town
from serve_app.demo.training.corpus.phrases import rows
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.tools.catalog_home import TABLE as HOME
from serve_app.demo.training.corpus.tools.catalog_more import TABLE as MORE
from serve_app.demo.training.corpus.tools.catalog_work import TABLE as WORK
from serve_app.demo.training.corpus.tools.kinds import ToolKind
from serve_app.demo.training.corpus.tools.values import (
    ENTITIES,
    ValueSlot,
    clock,
    company,
    day,
    number,
    phrase,
    room,
    title,
)

MAKERS: dict[str, Callable[[SeededDraw], Value]] = {
    "town": town, "name": name, "code": code, "day": day, "clock": clock, "company": company,
    "title": title, "phrase": phrase, "room": room, "item": ENTITIES["product"].make,
    "few": number(2, 12), "many": number(20, 900),
}  # fmt: skip
# name | description | parameters: name type maker | ways to ask | what is said when it is done
TABLE = """
book_dentist | Make an appointment at the dentist | patient string name, date string day | {a} \
has to see the dentist on {b}.; My tooth hurts, book {a} for {b}.; Get {a} an appointment on \
{b}.; Dentist for {a}, {b}, please. | {a} sees the dentist on {b}.
call_taxi | Call a taxi to an address | address string company, seats integer few | I need a cab \
at {a} for {b} of us.; Send a taxi with {b} seats to {a}.; We are {b} at {a}, get us a taxi. | \
The taxi comes to {a}.
find_parking | Free parking places near a place | near string company | Where can I park at {a}?; \
Is there parking near {a}?; I look for a place for my car close to {a}.
open_window | Open the window of a room | window string room | It is too hot in the {a}, let some \
air in.; Open the {a} window.; Let fresh air into the {a}. | The {a} window is open.
dim_lamp | Dim a lamp | lamp string item, percent integer few | Dim the {a} lamp to {b} percent.; \
Make the {a} lamp darker, {b} percent.; The {a} lamp is too bright, {b} percent will do. | The \
{a} lamp is dim.
read_horn | Sound the horn of a ship | ship string title | Let the {a} sound its horn.; Blow the \
horn of {a}.; Honk, {a}!
shorten_link | Make a short link of a long one | link string company | Make {a} shorter.; Give me \
a short link for {a}.; The link {a} is too long.
translate_text | Translate a text into a language | text string phrase, language string company | \
How do you say "{a}" in {b}?; Translate "{a}" to {b}.; What does "{a}" mean in {b}?; Put "{a}" \
into {b}, please.
spell_check | Correct the spelling of a text | text string phrase | Is "{a}" spelled right?; \
Correct the mistakes in "{a}".; Check my spelling: {a}
count_votes | Votes that a candidate got | candidate string name | How many people voted for \
{a}?; Did {a} win the vote?; Count the votes of {a}.
rent_bike | Rent bikes in a town | where string town, bikes integer few | We want {b} bikes in \
{a}.; Rent {b} bikes in {a}.; I want to go by bike in {a}, {b} of them, please. | {b} bikes wait \
in {a}.
draw_chart | Draw a chart of a table | table string item, width integer many | Draw the {a} \
table, {b} wide.; I want to see {a} as a chart of width {b}.; Make a chart of {a}, {b} pixels. | \
The chart of {a} is drawn.
wake_up | Wake somebody at some time | sleeper string name, time string clock | Wake {a} at {b}.; \
{a} has to get up at {b}.; Do not let {a} sleep longer than {b}. | {a} is woken at {b}.
buy_fruit | Buy fruit on the market | fruit string item, pounds integer few | Buy {b} pounds of \
{a}.; We need {b} pounds of {a} from the market.; Get me {a}, {b} pounds. | {b} pounds of {a} are \
bought.
list_flights | Flights that leave an airport | airport string town | What flies from {a}?; Which \
planes leave {a}?; Show the flights of {a} airport.
weather_warning | Warnings of storms for a region | region string town | Is there a storm coming \
to {a}?; Any warning for {a}?; Is it dangerous to go out in {a}?
find_doctor | Find a doctor in a town | town string town | I am ill, who can help me in {a}?; Is \
there a doctor in {a}?; Find me a doctor in {a}.
scan_page | Scan pages of a document | document string title, pages integer few | Scan {b} pages \
of {a}.; I need {b} pages of {a} scanned.; Make a scan of {a}, {b} pages. | {b} pages of {a} are \
scanned.
grade_essay | Grade the essay of a student | student string name | What grade does {a} get?; \
Grade the essay that {a} wrote.; How good is the essay of {a}?
invite_guest | Invite a guest to a party | guest string name, party string title | Ask {a} to \
come to {b}.; Invite {a} to {b}.; I want {a} at the party {b}. | {a} is invited to {b}.
charge_phone | Charge a phone | phone string company, minutes integer many | Charge {a} for {b} \
minutes.; The battery of {a} is empty, give it {b} minutes.; Load {a} for {b} minutes. | {a} is \
charged.
land_drone | Land a drone on a place | drone string code, pad string item | Bring {a} down on the \
{b}.; Land {a} on the {b}.; The drone {a} shall come down at the {b}. | {a} is down.
sing_song | Sing a song in a voice | song string title, singer string name | Sing {a} like {b}.; \
Let {b} sing {a}.; I would love to hear {b} sing {a}. | {a} is sung.
guess_age | Guess the age of a person on a photo | photo string code | How old is the person on \
{a}?; Look at {a} and guess the age.; Guess: who is on photo {a}, and how old?
cook_soup | Cook soup with a vegetable | vegetable string item, plates integer few | Cook soup of \
{a} for {b} people.; {b} plates of soup with {a}, please.; I am hungry, make {b} plates of {a} \
soup. | The {a} soup is ready.
hide_message | Hide a message from a chat | message string code | I do not want to see {a} any \
more.; Hide {a}.; Take {a} out of my chat. | {a} is hidden.
pay_invoice | Pay an invoice | invoice string code, cents integer many | Pay {b} cents for {a}.; \
Settle {a} with {b} cents.; The invoice {a} is due, pay {b}. | {a} is paid.
translate_sign | Read a road sign in a town | sign string code, town string town | What does the \
sign {a} in {b} say?; I see {a} on a road in {b}, what is it?; Read the sign {a} in {b}.
join_club | Become a member of a club | club string company, member string name | {b} wants to be \
a member of {a}.; Let {b} join {a}.; Make {b} a member of {a}. | {b} is a member of {a}.
throw_dice | Throw dice | dice integer few | Throw {a} dice.; Roll {a} dice for me.; Let us play, \
{a} dice.
pick_winner | Draw the winner of a raffle | raffle string title | Who wins {a}?; Draw a winner \
for {a}.; Pick somebody for the raffle {a}.
freeze_card | Block a bank card | card string code | I lost my card {a}.; Block {a}, it was \
stolen.; Freeze the card {a}. | {a} is blocked.
sell_shares | Sell shares of a firm | firm string company, shares integer many | Sell {b} of my \
shares in {a}.; Get rid of {b} {a} shares.; I do not want my {b} shares of {a} any more. | {b} \
shares of {a} are sold.
shovel_snow | Send a robot to shovel snow | path string room, metres integer many | There is snow \
at the {a}, shovel {b} metres.; Clear {b} metres of the {a} of snow.; Shovel {b} metres at the \
{a}. | The {a} is free of snow.
bake_cake | Bake a cake for a person | flavour string item, person string name | Bake a cake of \
{a} for {b}.; {b} has birthday and likes {a}, bake something.; A {a} cake for {b}, please. | The \
{a} cake for {b} is ready.
measure_room | Size of a room in square metres | of string room | How big is the {a}?; Measure \
the {a}.; How many square metres has the {a}?
tune_radio | Tune the radio to a station | station string company | Put on {a} on the radio.; I \
want to listen to the station {a}.; Tune to {a}. | The radio is on {a}.
sail_boat | Sail a boat to a harbour | boat string title, harbour string town | Sail {a} to {b}.; \
Bring the boat {a} to {b} harbour.; {a} shall go to {b} by sea. | {a} is on its way to {b}.
renew_passport | Renew a passport | number string code, years integer few | My passport {a} is \
old, renew it for {b} years.; Renew {a} for {b} years.; {b} more years for the passport {a}, \
please. | {a} is renewed.
check_homework | Check the homework of a pupil | pupil string name, subject string item | Did {a} \
do the {b} homework?; Check what {a} did for {b}.; Look at the {b} homework of {a}.
empty_bin | Empty a bin | bin string room | The bin in the {a} is full.; Empty the {a} bin.; Take \
the rubbish out of the {a}. | The {a} bin is empty.
walk_dog | Walk a dog for some minutes | dog string name, minutes integer many | Go out with {a} \
for {b} minutes.; {a} needs a walk of {b} minutes.; Walk {a}, {b} minutes. | {a} had a walk.
find_lost | Look for a lost thing | lost string item, seen string room | I lost my {a} in the \
{b}.; Where is my {a}? I saw it in the {b}.; Look for the {a}, it was in the {b}.
solve_riddle | Solve a riddle | riddle string phrase | What is the answer to the riddle "{a}"?; \
Solve "{a}".; I have a riddle for you: {a}
ski_report | Snow on the mountains of a resort | resort string town | Can we ski in {a}?; How \
much snow is there in {a}?; Ski report of {a}, please.
poll_friends | Ask friends a question | question string phrase, friends integer few | Ask {b} \
friends "{a}".; What do {b} friends say to "{a}"?; Poll {b} of my friends: {a}
hang_picture | Hang a picture on a wall | picture string title, wall string room | Hang {a} in \
the {b}.; {a} looks nice on the {b} wall, put it there.; I want the picture {a} in the {b}. | {a} \
hangs in the {b}.
mute_person | Mute a person in a call | who string name | {a} is too loud.; Mute {a}.; I do not \
want to hear {a} now. | {a} is muted.
save_recipe | Keep a recipe | dish string item, minutes integer many | Keep the recipe of {a}, it \
takes {b} minutes.; Save how to make {a} in {b} minutes.; {a} takes {b} minutes, write that \
recipe down. | The recipe of {a} is kept.
fly_kite | Fly a kite above a place | kite string item, above string town | Let the {a} kite fly \
over {b}.; Fly the {a} above {b}.; I want to see the {a} kite in the sky of {b}. | It flies.
blood_test | Results of a blood test | patient string name, test string code | What came out of \
{b} for {a}?; Is the blood of {a} fine? The test is {b}.; Show the blood test {b} of {a}.
feed_fish | Give food to the fish of a tank | tank string room, grams integer few | The fish in \
the {a} want {b} grams.; Give the fish in the {a} {b} grams of food.; {b} grams for the fish in \
the {a}. | The fish in the {a} are fed.
merge_branches | Merge a branch into another | branch string item, into string company | Merge \
{a} into {b}.; Bring {a} into the branch {b}.; I am done with {a}, put it into {b}. | {a} is \
merged.
restart_server | Restart a server | server string code | {a} hangs, start it again.; Restart \
{a}.; The server {a} does not answer, do something. | {a} starts again.
ban_player | Ban a player from a game | player string name, hours integer many | {a} cheats, keep \
that player out for {b} hours.; Ban {a} for {b} hours.; No game for {a} for {b} hours. | {a} is \
banned.
light_fire | Light a fire in a fireplace | fireplace string room, logs integer few | It is cold \
in the {a}, burn {b} logs.; Light a fire of {b} logs in the {a}.; Make it warm in the {a} with \
{b} logs. | The fire in the {a} burns.
museum_guide | What a guide says about a work of art | work string title | Tell me about the work \
{a}.; What is {a}? I stand before it.; What does the guide say on {a}?
pitch_tent | Pitch a tent at a camp | camp string company, nights integer few | We sleep at {a} \
for {b} nights.; A tent at {a}, {b} nights, please.; Pitch our tent at {a} for {b} nights. | The \
tent stands at {a}.
sharpen_knife | Sharpen a knife | knife string item | The {a} knife is blunt.; Sharpen the {a}.; \
My {a} does not cut any more. | It is sharp.
swap_seats | Let two people swap seats | first string name, second string name | {a} wants to sit \
where {b} sits.; Swap {a} and {b}.; Let {a} and {b} change seats. | {a} and {b} swap seats.
"""


def _kind(row: str) -> ToolKind:
    called, about, parameters, asks, *done = (cell.strip() for cell in row.split("|"))
    slots = [slot.split() for slot in parameters.split(",")]
    return ToolKind(
        nouns=(called.replace("_", " "),),
        names=(called,),
        about=(about,),
        asks=tuple(ask.strip() for ask in asks.split(";")),
        slots=tuple(ValueSlot((field,), MAKERS[maker], type_) for field, type_, maker in slots),
        done="".join(done),
        drawn=True,
    )


WRITTEN_KINDS = tuple(_kind(row) for text in (TABLE, MORE, HOME, WORK) for row in rows(text))
