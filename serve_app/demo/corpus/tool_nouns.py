"""What tools are about: things to look up, make, send, set, end, search, book and do."""

from serve_app.demo.corpus.phrases import listed

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
