"""Days, months, seasons and clocks: order, number, length."""

from serve_app.demo.training.corpus.chat import Exchange, Talk, one, said
from serve_app.demo.training.corpus.phrases import capital, joined, listed, patterns
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.topics import topics

DAYS = listed("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday")
MONTHS = listed("""
January, February, March, April, May, June, July, August, September, October, November, December
""")
SEASONS = listed("spring, summer, autumn, winter")
LENGTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
ORDER = listed("""
first, second, third, fourth, fifth, sixth, seventh, eighth, ninth, tenth, eleventh, twelfth
""")
FIXED = topics("""
? How many days [are in a week|does a week have|are there in a week|make a week|has a week]?
? [How long is a week|Number of days in a week|Tell me how many days a week has]?
= A week has seven days.
! seven

? How many months [are in a year|does a year have|are there in a year|make a year|has a year]?
? [Number of months in a year|Tell me how many months a year has|Months in a year]?
= A year has twelve months.
! twelve

? How many days [are in a year|does a year have|are there in a year|make a year|has a year]?
? [How long is a year in days|Number of days in a year|Tell me how many days a year has]?
= A year has 365 days, and a leap year has 366.
! 365

? How many hours [are in a day|does a day have|are there in a day|make a day|has a day]?
? [How long is a day|Number of hours in a day|Tell me how many hours a day has]?
= A day has 24 hours.
! 24

? How many minutes [are in an hour|does an hour have|are there in an hour|make an hour|has an hour]?
? [How long is an hour|Number of minutes in an hour|Tell me how many minutes an hour has]?
= An hour has 60 minutes.
! 60 minutes

? How many seconds [are in a minute|does a minute have|are there in a minute|make a minute|has a \
minute]?
? [How long is a minute|Number of seconds in a minute|Tell me how many seconds a minute has]?
= A minute has 60 seconds.
! 60 seconds

? How many weeks [are in a year|does a year have|are there in a year|make a year|has a year]?
? [Number of weeks in a year|Tell me how many weeks a year has|Weeks in a year]?
= A year has 52 weeks.
! 52

? How many years [are in|make|are there in|has] a century?
? [How long is a century|What is a century|Explain what a century is|Tell me what a century is]?
= A century is 100 years.
! 100 years

? [What are|Name|List|Tell me|Say|Which are] the [days of the week|seven days|days in a \
week|weekdays and weekend days].
? [Name all days|List all days of the week|Which days does a week have|What days are there]?
= Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday.
! Monday, Thursday, Sunday

? [What are|Name|List|Tell me|Say|Which are] the [months of the year|twelve months|months in a \
year|months].
? [Name all months|List all months|Which months are there|What months does a year have]?
= January, February, March, April, May, June, July, August, September, October, November and \
December.
! January, June, December

? [What are|Name|List|Tell me|Which are] the [four seasons|seasons|seasons of the year].
? [How many seasons are there|Which seasons are there|What seasons does a year have|Seasons of \
the year]?
= There are four seasons: spring, summer, autumn and winter.
! spring, winter

? [Which|What] days are [the weekend|on the weekend|weekend days|in the weekend]?
? [What is the weekend|Name the weekend days|When is the weekend|List the days of the weekend]?
= The weekend is Saturday and Sunday.
! Saturday, Sunday

? [When is|In which month is|What month is|In what month is] [Christmas|Christmas Day]?
? [Which month has Christmas|Tell me when Christmas is|On which date is Christmas]?
= Christmas is in December, on the 25th.
! December

? [Which|What] is the shortest month[| of the year]?
? [Which month is the shortest|Which month has the fewest days|What month is shortest|Name the \
shortest month]?
= February is the shortest month.
! February

? [When is|On which day is|What date is|What is the date of] New Year's Day?
? [When does the year begin|When does a new year start|What is the first day of the year|On \
which day does a year begin]?
= The year begins on the first of January.
! January
""")
STEP = patterns("""
[What|Which] {k} [comes|is] [right |directly |just |]{w} {x}?
[What|Which|Which {k}] comes {w} {x}?
[Tell me|Name|Give me|Say] the {k} [right |directly |just |]{w} {x}[|.]
[Do you know|Can you tell me|Could you tell me] [which|what] {k} [comes|is] {w} {x}?
If [it is|this is] {x}, what {k} [comes|is] {w} it?
""")
TODAY = patterns("""
[Today is|It is|Suppose it is] {d}. [What|Which] day [is it|will it be] {t}?
If [today|it] is {d}, [what|which] day [is it|will it be] {t}?
[Today is|It is|Suppose it is] {d}. [Tell me what|Do you know what|Say which] day it is {t}[.|?]
""")
AWAY = {
    "tomorrow": 1,
    "in two days": 2,
    "in three days": 3,
    "the day after tomorrow": 2,
    "in a week": 7,
    "in four days": 4,
}
LONG = patterns("""
How many days [does {m} have|are in {m}|has {m}|are there in {m}|do we have in {m}]?
[How long is|What is the length of] {m}[| in days]?
[Number of days of|Days in] {m}[?|, please?]
[Tell me|Say|Do you know] how many days {m} has[|.|?]
""")
NTH = patterns("""
[What|Which] is the {n} {k}?
[Name|Tell me|Give me|Say] the {n} {k}[|.]
[What|Which] {s} is the {n} [one |]of the {u}?
""")
NUMBER = patterns("""
[What|Which] number [is|has] [the month |]{m}[| in the year]?
[Which month of the year is|What place has|What is the number of] {m}[| in the year]?
""")
SEASON = patterns("""
[Which|What] months are [in|part of] {s}?
[What are|Name|Tell me|List] the {s} months[|.|?]
When is {s}?
""")
CLOCK = patterns("""
[It is|The clock says|It's|Now it is] {t}. What time [is it|will it be] in {h}?
[If|When] it is {t}, what time [is it|will it be] in {h}?
[What time is|What is] {h} after {t}?
""")


def calendar(draw: SeededDraw) -> Talk:
    kinds = (_fixed, _fixed, _fixed, _step, _step, _today, _length, _nth, _season, _clock)
    return one(draw.choice(kinds)(draw))


def _fixed(draw: SeededDraw) -> Exchange:
    return draw.choice(FIXED).exchange(draw)


def _step(draw: SeededDraw) -> Exchange:
    kind, ring = draw.choice((("day", DAYS), ("day", DAYS), ("month", MONTHS), ("season", SEASONS)))
    at, after = draw.randrange(len(ring)), draw.chance(0.6)
    where, result = ("after", ring[(at + 1) % len(ring)]) if after else ("before", ring[at - 1])
    question = draw.ask(STEP).format(k=kind, w=where, x=ring[at])
    verb = "follows" if after else "comes before"
    answer = f"{capital(result)} {verb} {ring[at]}."
    return said(question, answer, f"{result} {verb}", short=result)


def _today(draw: SeededDraw) -> Exchange:
    at, when = draw.randrange(7), draw.choice(list(AWAY))
    then = DAYS[(at + AWAY[when]) % 7]
    way = ", ".join(DAYS[(at + step) % 7] for step in range(1, AWAY[when]))
    way = f"After {DAYS[at]} {'come' if AWAY[when] > 2 else 'comes'} {way}. " if way else ""
    answer = f"{way}{capital(when)} it is {then}."
    return said(draw.ask(TODAY).format(d=DAYS[at], t=when), answer, f"it is {then}", short=then)


def _length(draw: SeededDraw) -> Exchange:
    at = draw.randrange(12)
    leap = ", and 29 in a leap year" if at == 1 else ""
    answer = f"{MONTHS[at]} has {LENGTHS[at]} days{leap}."
    return said(draw.ask(LONG).format(m=MONTHS[at]), answer, short=str(LENGTHS[at]))


def _nth(draw: SeededDraw) -> Exchange:
    single, unit, ring = draw.choice((("day", "week", DAYS), ("month", "year", MONTHS)))
    at = draw.randrange(len(ring))
    if single == "month" and draw.chance(0.3):
        answer = f"{ring[at]} is the {ORDER[at]} month, number {at + 1}."
        return said(draw.ask(NUMBER).format(m=ring[at]), answer, ORDER[at])
    kind = f"{single} of the {unit}"
    question = draw.ask(NTH).format(n=ORDER[at], k=kind, s=single, u=unit)
    return said(
        question, f"The {ORDER[at]} {kind} is {ring[at]}.", f"is {ring[at]}", short=ring[at]
    )


def _season(draw: SeededDraw) -> Exchange:
    at = draw.randrange(4)
    parts = [MONTHS[(2 + 3 * at + step) % 12] for step in range(3)]
    answer = f"In the north, {SEASONS[at]} is {joined(parts)}."
    return said(draw.ask(SEASON).format(s=SEASONS[at]), answer, *parts)


def _clock(draw: SeededDraw) -> Exchange:
    hour, minute = draw.randint(0, 20), draw.choice((0, 0, 15, 30, 45, draw.randint(1, 59)))
    more = draw.randint(1, 3)
    time, later = f"{hour}:{minute:02}", f"{hour + more}:{minute:02}"
    length = "one hour" if more == 1 else f"{('two', 'three')[more - 2]} hours"
    return said(draw.ask(CLOCK).format(t=time, h=length), f"It is {later}.", later, short=later)
