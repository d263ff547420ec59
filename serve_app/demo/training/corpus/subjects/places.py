"""Countries: their capitals and continents."""

from dataclasses import replace

from serve_app.demo.training.corpus.chat import Exchange, Talk, one, said
from serve_app.demo.training.corpus.phrases import capital, listed, patterns, table
from serve_app.demo.training.corpus.split import SeededDraw

COUNTRIES = table("""
France | Paris | Europe
Germany | Berlin | Europe
Italy | Rome | Europe
Spain | Madrid | Europe
Portugal | Lisbon | Europe
England | London | Europe
the United Kingdom | London | Europe
Scotland | Edinburgh | Europe
Ireland | Dublin | Europe
Belgium | Brussels | Europe
the Netherlands | Amsterdam | Europe
Switzerland | Bern | Europe
Austria | Vienna | Europe
Poland | Warsaw | Europe
Czechia | Prague | Europe
Hungary | Budapest | Europe
Romania | Bucharest | Europe
Bulgaria | Sofia | Europe
Greece | Athens | Europe
Croatia | Zagreb | Europe
Serbia | Belgrade | Europe
Slovenia | Ljubljana | Europe
Ukraine | Kyiv | Europe
Russia | Moscow | Europe and Asia
Sweden | Stockholm | Europe
Norway | Oslo | Europe
Denmark | Copenhagen | Europe
Finland | Helsinki | Europe
Iceland | Reykjavik | Europe
Estonia | Tallinn | Europe
Latvia | Riga | Europe
Lithuania | Vilnius | Europe
Turkey | Ankara | Asia and Europe
Georgia | Tbilisi | Asia
Armenia | Yerevan | Asia
Israel | Jerusalem | Asia
Iraq | Baghdad | Asia
Iran | Tehran | Asia
Saudi Arabia | Riyadh | Asia
India | New Delhi | Asia
Pakistan | Islamabad | Asia
Nepal | Kathmandu | Asia
Bangladesh | Dhaka | Asia
China | Beijing | Asia
Mongolia | Ulaanbaatar | Asia
Japan | Tokyo | Asia
South Korea | Seoul | Asia
North Korea | Pyongyang | Asia
Vietnam | Hanoi | Asia
Thailand | Bangkok | Asia
Indonesia | Jakarta | Asia
the Philippines | Manila | Asia
Malaysia | Kuala Lumpur | Asia
Singapore | Singapore | Asia
Kazakhstan | Astana | Asia
Egypt | Cairo | Africa
Morocco | Rabat | Africa
Algeria | Algiers | Africa
Tunisia | Tunis | Africa
Kenya | Nairobi | Africa
Ethiopia | Addis Ababa | Africa
Nigeria | Abuja | Africa
Ghana | Accra | Africa
Senegal | Dakar | Africa
Uganda | Kampala | Africa
South Africa | Pretoria | Africa
the United States | Washington | North America
the USA | Washington | North America
Canada | Ottawa | North America
Mexico | Mexico City | North America
Cuba | Havana | North America
Brazil | Brasília | South America
Argentina | Buenos Aires | South America
Chile | Santiago | South America
Peru | Lima | South America
Colombia | Bogotá | South America
Ecuador | Quito | South America
Uruguay | Montevideo | South America
Venezuela | Caracas | South America
Australia | Canberra | Oceania
New Zealand | Wellington | Oceania
""")
NOWHERE = listed("""
Atlantis, Narnia, Wakanda, Mordor, the Moon, Mars, Antarctica, Africa, Europe, Asia, Wonderland,
Gotham, Westeros, Jupiter, Neverland, Hogwarts, Middle-earth, Lilliput, the ocean, Utopia
""")
ASKS = patterns("""
[What is|What's|Which is|Name|Tell me|Give me] the capital [|city ]of {}[?|.|]
[|Please ][name|tell me|say] the capital of {}[, please|.|]
[Which|What] [city|town] is the capital of {}?
[Do you know|Can you tell me|Could you tell me] [the capital of {}|what the capital of {} \
is|which city is the capital of {}]?
[Capital of {}|{}: what is its capital|What capital does {} have][?|, please?]
[I need|I want to know|I am looking for] the capital of {}[|.]
""")
AND = patterns("""
[And|What about|How about|And what about] {}?
And [the capital of|of|that of] {}?
""")
REVERSE = patterns("""
{} is the capital of which country?
[Which|What] country has the capital {}?
Of [which|what] country is {} the capital[|?]
[Where|In which country] is {}[| located]?
[What|Which] country is {} in?
[What|Which] country's capital is {}?
""")
WHERE = patterns("""
[Which|What] continent is {} [in|on|part of]?
[On|In] [which|what] continent is {}?
[Tell me|Name|Say|Do you know] the continent of {}[|.|?]
[To which continent does {} belong|What is the continent of {}|What part of the world is {} in]?
""")
TRUE = patterns("""
Is {c} the capital of {n}?
[Is it true that|Is it right that|Am I right that] {c} is the capital of {n}?
The capital of {n} is {c}[, right|, isn't it|. Is that right|, correct]?
""")
CONTINENTS = patterns("""
[What are|Name|List|Tell me|Which are] [the|all|the seven] continents[|.|?]
[Which continents are there|What are the continents called|What continents do you know]?
""")
ALL = "Africa, Antarctica, Asia, Europe, North America, Oceania and South America"


def capitals(draw: SeededDraw) -> Talk:
    country, city, _ = draw.choice(COUNTRIES)
    first = _capital(draw.ask(ASKS), country, city)
    if draw.chance(0.15):
        first = replace(first, question=first.question.lower())
    if draw.chance(0.85):
        return one(first)
    other, town, _ = draw.choice(COUNTRIES)
    return Talk([first, _capital(draw.ask(AND), other, town)])


def _capital(ask: str, country: str, city: str) -> Exchange:
    return said(capital(ask.format(country)), f"The capital of {country} is {city}.", short=city)


def places(draw: SeededDraw) -> Talk:
    kinds = (_reverse, _reverse, _where, _where, _truth, _continents, _nowhere)
    return one(draw.choice(kinds)(draw))


def _reverse(draw: SeededDraw) -> Exchange:
    country, city, _ = draw.choice([row for row in COUNTRIES if row[1] not in TWICE])
    answer = f"{city} is the capital of {country}."
    return said(draw.ask(REVERSE).format(city), answer, country, short=country)


TWICE = {"London", "Washington"}


def _where(draw: SeededDraw) -> Exchange:
    country, _, continent = draw.choice(COUNTRIES)
    answer = f"{capital(country)} is in {continent}."
    return said(draw.ask(WHERE).format(country), answer, continent, short=continent)


def _truth(draw: SeededDraw) -> Exchange:
    (country, city, _), (_, other, _) = draw.sample(COUNTRIES, 2)
    claim = city if draw.chance(0.5) else other
    yes = "Yes" if claim == city else "No"
    answer = f"{yes}, the capital of {country} is {city}."
    return said(draw.ask(TRUE).format(c=claim, n=country), answer, yes, city, short=yes)


def _continents(draw: SeededDraw) -> Exchange:
    return said(draw.ask(CONTINENTS), f"The continents are {ALL}.", "Africa", "Europe", "Oceania")


def _nowhere(draw: SeededDraw) -> Exchange:
    question = capital(draw.ask(ASKS).format(draw.choice(NOWHERE)))
    return said(question, "I am sorry, I do not know a capital for that place.", "do not know")
