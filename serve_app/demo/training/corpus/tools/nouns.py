"""Subjects of tools: things to look up, make, send, set, end, search, book and do."""

from serve_app.demo.training.corpus.phrases import listed, table

ATTRIBUTES = listed("""
weather, temperature, population, price, balance, status, address, phone number, opening hours, \
schedule,
score, timetable, forecast, height, age, size, owner, rating, distance, wind speed, air quality, \
humidity,
rainfall, sunrise, sunset, exchange rate, stock level, calories, menu, length, weight, speed, \
history,
author, publisher, release date, email address, salary, budget, deadline, position, altitude, \
tide, rent,
water level, traffic, parking fee, tax rate, fuel price, ticket price, queue length, battery \
level, tempo,
room number, serial number, warranty, delivery date, time zone, postcode, mayor, capacity, \
value, rank,
birthday, pulse, debt, discount, origin, language, currency, visitors, noise level, power use, \
mileage
""")
MADE = listed("""
task, note, event, reminder, contact, account, invoice, ticket, folder, project, recipe, \
playlist, alarm,
meeting, poll, label, group, report, template, page, form, job, backup, channel, shipment, badge,
coupon, offer, contract, survey, diary, bookmark, vote, lesson, menu, tour, wishlist, card, post
""")
SENT = listed("""
message, email, letter, text, parcel, invoice, invitation, postcard, note, reminder, report, answer,
warning, greeting, alert, memo, receipt, complaint, fax, telegram, thank-you note
""")
SET = listed("""
temperature, brightness, volume, alarm, timer, speed, level, price, limit, budget, lamp, \
heating, fan,
humidity, pressure, goal, thermostat, oven, radio, sprinkler, quota, threshold, screen, boiler, \
music, heater, cooler, curtain
""")
ENDED = listed("""
order, booking, meeting, subscription, job, task, timer, alarm, ticket, payment, account, delivery,
appointment, reservation, process, shipment, game, session, lease, policy, visit, trial, course
""")
SEARCHED = listed("""
book, recipe, web page, article, photo, song, film, hotel, restaurant, document, product, job, \
video,
news, podcast, flat, paper, map, contact, email, museum, course, game, doctor, forum, patent, law
""")
BOOKED = listed("flight, train, bus, ferry, taxi, ticket, trip, coach, shuttle, cruise, ride, seat")
VERBS = listed("""
wash, clean, repair, count, move, fill, pack, paint, weigh, dry, lift, heat, cool, cut, fold, sort,
scan, polish, test, rinse, shake, press, stamp, label, wrap, seal, drop, turn, store, charge,
pause, archive, mop, sweep, stack, trim, grill, dust, brush, hang, mend, spray, chop, slice, drain
""")
TABLES = listed("table, room, hall, court, boat, tent, bench, cabin, lounge, studio, pitch, sauna")
MEASURES = listed(
    "units, amount, measure, quantity, value, number, money, length, mass, size, volume"
)
# how people ask for something without its name
IDIOMS = {
    noun: tuple(ask.strip() for ask in asks.split(";"))
    for noun, asks in table("""
weather | Will it rain in {a}?; Do I need an umbrella in {a}?; Is it sunny in {a}?
temperature | How warm is it in {a}?; How cold is it in {a}?; Is it hot in {a}?
population | How many people live in {a}?; How many inhabitants does {a} have?
price | How much is {a}?; What does {a} cost?; How much does {a} cost?; How expensive is {a}?
balance | How much money is in {a}?; How much is left in {a}?
status | How is {a} doing?; What is going on with {a}?; Is {a} done?
address | Where is {a}?; Where can I find {a}?; Where does {a} live?
phone number | How can I call {a}?; I want to call {a}.; How do I ring {a}?
email address | How do I write to {a}?; Where can I mail {a}?
opening hours | When does {a} open?; Is {a} open today?; When is {a} closed?
height | How tall is {a}?; How high is {a}?
age | How old is {a}?; How many years old is {a}?
size | How big is {a}?; How large is {a}?
owner | Who owns {a}?; Whose is {a}?; Who does {a} belong to?
rating | How good is {a}?; Is {a} any good?; Do people like {a}?
distance | How far is {a}?; How far away is {a}?
length | How long is {a}?
weight | How heavy is {a}?; How much does {a} weigh?
speed | How fast is {a}?; How quick is {a}?
author | Who wrote {a}?; Who is {a} by?
release date | When did {a} come out?; When was {a} published?
salary | What does {a} earn?; How much does {a} earn?; How much do they pay {a}?
deadline | When is {a} due?; By when must {a} be done?
position | Where is {a} now?; Where is {a} right now?
altitude | How high up is {a}?
traffic | Are the roads full in {a}?; Is there a jam in {a}?
time zone | What time is it in {a}?; How late is it in {a}?
mayor | Who runs {a}?; Who governs {a}?
capacity | How many fit in {a}?; How much fits in {a}?
value | What is {a} worth?; How much is {a} worth?
birthday | When was {a} born?; When does {a} turn a year older?
language | What do they speak in {a}?; What does {a} speak?
currency | What do they pay with in {a}?
visitors | How many people come to {a}?; How many guests does {a} have?
noise level | How loud is it in {a}?; Is it quiet in {a}?
stock level | How many {a} are left?; Is {a} sold out?; Do we still have {a}?
delivery date | When will {a} come?; When does {a} arrive?
battery level | Does {a} need charging?; How full is {a}?
air quality | How clean is the air in {a}?; Can one breathe in {a}?
wind speed | Is it windy in {a}?; How windy is it in {a}?
rainfall | How much rain fell in {a}?
sunrise | When does the sun rise in {a}?
sunset | When does the sun set in {a}?; When does it get dark in {a}?
menu | What can I eat at {a}?; What do they serve at {a}?
timetable | When does {a} leave?; When does {a} go?
schedule | What are the plans of {a}?; What does {a} have to do?
calories | Does {a} make fat?
parking fee | What does it cost to park in {a}?
queue length | How long do I have to wait at {a}?
score | How many points has {a}?; Is {a} winning?
rank | Is {a} first?; Which place has {a}?
debt | How much does {a} owe?
origin | Where does {a} come from?; Where is {a} from?
rent | What does it cost to live in {a}?
""")
}
