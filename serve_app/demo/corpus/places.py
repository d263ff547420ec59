"""Countries: their capitals and continents."""

from random import Random

from serve_app.demo.corpus.chat import Exchange, listed, table

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
COMMON = [
    row
    for row in COUNTRIES
    if row[0]
    in (
        "France",
        "Germany",
        "Italy",
        "Spain",
        "England",
        "Japan",
        "China",
        "India",
        "Russia",
        "the USA",
        "Canada",
        "Brazil",
        "Egypt",
        "Greece",
        "Poland",
        "Austria",
        "Portugal",
        "Sweden",
        "Norway",
    )
]
NOWHERE = listed("""
Atlantis, Narnia, Wakanda, Mordor, the Moon, Mars, Antarctica, Africa, Europe, Asia, Wonderland,
Gotham, Westeros, Jupiter, Neverland, Hogwarts, Middle-earth, Lilliput, the ocean, Utopia
""")
ASKS = (
    "What is the capital of {}?",
    "What's the capital of {}?",
    "Capital of {}?",
    "capital of {}",
    "Which city is the capital of {}?",
    "Tell me the capital of {}.",
    "Do you know the capital of {}?",
    "What is the capital city of {}?",
    "Name the capital of {}.",
    "Can you tell me the capital of {}?",
    "What city is the capital of {}?",
    "{}: what is its capital?",
    "Please name the capital of {}.",
)
CONTINENTS = "Africa, Antarctica, Asia, Europe, North America, Oceania and South America"


def capitals(rng: Random) -> list[Exchange]:
    country, city, _ = rng.choice(COMMON if rng.random() < 0.3 else COUNTRIES)
    question = rng.choice(ASKS).format(country)
    first = Exchange(question, f"The capital of {country} is {city}.", city)
    if rng.random() > 0.15:
        return [first]
    other, town, _ = rng.choice(COUNTRIES)
    ask = rng.choice(("And of {}?", "And {}?", "What about {}?", "And what is the capital of {}?"))
    return [first, Exchange(ask.format(other), f"The capital of {other} is {town}.", town)]


def _where(rng: Random) -> Exchange:
    country, city, continent = rng.choice(COUNTRIES)
    if city == "London":
        country = "the United Kingdom"
    if city == "Washington":
        country = "the United States"
    chance = rng.random()
    if chance < 0.4:
        ask = rng.choice(
            ("{} is the capital of which country?", "Which country has the capital {}?")
        )
        return Exchange(ask.format(city), f"{city} is the capital of {country}.", country)
    if chance < 0.7:
        ask = rng.choice(("Where is {}?", "In which country is {}?", "What country is {} in?"))
        return Exchange(ask.format(city), f"{city} is the capital of {country}.", country)
    ask = rng.choice(("Where is {}?", "Which continent is {} in?", "On which continent is {}?"))
    answer = f"{country[0].upper()}{country[1:]} is in {continent}."
    return Exchange(ask.format(country), answer, continent)


def _truth(rng: Random) -> Exchange:
    (country, city, _), (_, other, _) = rng.sample(COUNTRIES, 2)
    claim, yes = (city, "Yes") if rng.random() < 0.5 or other == city else (other, "No")
    ask = f"Is {claim} the capital of {country}?"
    return Exchange(ask, f"{yes}, the capital of {country} is {city}.", yes)


def places(rng: Random) -> list[Exchange]:
    chance = rng.random()
    if chance < 0.2:
        question = rng.choice(ASKS).format(rng.choice(NOWHERE))
        return [Exchange(question, "I am sorry, I do not know a capital for that place.")]
    if chance < 0.3:
        ask = rng.choice(
            ("What are the continents?", "Name the continents.", "List all continents.")
        )
        return [Exchange(ask, f"The continents are {CONTINENTS}.")]
    return [_truth(rng) if chance < 0.5 else _where(rng)]
