"""Days, months, seasons and clocks: order, number, length."""

from serve_app.demo.training.corpus.chat import Exchange, Talk
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.texts import Texts, capital, joined

CALENDAR = Texts("calendar")
DAYS, MONTHS, SEASONS, ORDER = map(CALENDAR.listed, ("days", "months", "seasons", "order"))
LENGTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
FIXED = CALENDAR.topics("fixed")
AWAY = {when: int(days) for when, days in CALENDAR.table("away")}


def calendar(draw: SeededDraw) -> Talk:
    kinds = (_fixed, _fixed, _fixed, _step, _step, _today, _length, _nth, _season, _clock)
    return Talk([draw.choice(kinds)(draw)])


def _fixed(draw: SeededDraw) -> Exchange:
    return draw.choice(FIXED).exchange(draw)


def _step(draw: SeededDraw) -> Exchange:
    kind, ring = draw.choice((("day", DAYS), ("day", DAYS), ("month", MONTHS), ("season", SEASONS)))
    at, after = draw.randrange(len(ring)), draw.chance(0.6)
    where, result = ("after", ring[(at + 1) % len(ring)]) if after else ("before", ring[at - 1])
    verb = "follows" if after else "comes before"
    fill = {"k": kind, "w": where, "x": ring[at], "v": verb, "r": result, "c": capital(result)}
    return CALENDAR.said(draw, "step", **fill)


def _today(draw: SeededDraw) -> Exchange:
    at, when = draw.randrange(7), draw.choice(list(AWAY))
    then = DAYS[(at + AWAY[when]) % 7]
    way = ", ".join(DAYS[(at + step) % 7] for step in range(1, AWAY[when]))
    way = f"After {DAYS[at]} {'come' if AWAY[when] > 2 else 'comes'} {way}. " if way else ""
    return CALENDAR.said(draw, "today", d=DAYS[at], t=when, way=way, c=capital(when), then=then)


def _length(draw: SeededDraw) -> Exchange:
    at = draw.randrange(12)
    leap = ", and 29 in a leap year" if at == 1 else ""
    return CALENDAR.said(draw, "long", m=MONTHS[at], n=LENGTHS[at], leap=leap)


def _nth(draw: SeededDraw) -> Exchange:
    single, unit, ring = draw.choice((("day", "week", DAYS), ("month", "year", MONTHS)))
    at = draw.randrange(len(ring))
    if single == "month" and draw.chance(0.3):
        return CALENDAR.said(draw, "number", m=ring[at], n=ORDER[at], number=at + 1)
    fill = {"n": ORDER[at], "k": f"{single} of the {unit}", "s": single, "u": unit, "r": ring[at]}
    return CALENDAR.said(draw, "nth", **fill)


def _season(draw: SeededDraw) -> Exchange:
    at = draw.randrange(4)
    a, b, c = parts = [MONTHS[(2 + 3 * at + step) % 12] for step in range(3)]
    return CALENDAR.said(draw, "season", s=SEASONS[at], parts=joined(parts), a=a, b=b, c=c)


def _clock(draw: SeededDraw) -> Exchange:
    hour, minute = draw.randint(0, 20), draw.choice((0, 0, 15, 30, 45, draw.randint(1, 59)))
    more = draw.randint(1, 3)
    length = ("one hour", "two hours", "three hours")[more - 1]
    later = f"{hour + more}:{minute:02}"
    return CALENDAR.said(draw, "clock", t=f"{hour}:{minute:02}", h=length, later=later)
