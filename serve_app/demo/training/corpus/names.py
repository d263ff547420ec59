"""Names and words without end: first names, places, and words that nobody has ever read.

Invented ones make the model copy what it is told; remembering does not help it.
"""

from random import Random

from serve_app.demo.training.corpus.phrases import capital, listed
from serve_app.demo.training.corpus.split import SeededDraw

THINGS = listed("""
hammer, window, garden, market, silver, yellow, thunder, basket, corner, engine, forest, ginger,
island, jacket, kitchen, ladder, mirror, number, orange, pepper, quarter, ribbon, shadow, tunnel,
umbrella, village, winter, anchor, button, candle, dragon, eagle, feather, glacier, harbour, iron,
jungle, kettle, lemon, magnet, needle, onion, planet, queen, rocket, saddle, tiger, velvet, whistle,
bottle, carpet, desert, elbow, finger, guitar, helmet, insect, jewel, knight, lantern, monkey,
napkin, ocean, pillow, rabbit, spider, teapot, urchin, violin, walnut, zebra, blossom, cottage,
diamond, factory, gallery, history, journey, library, machine, nothing, officer, picture, railway,
station, teacher, uniform, weather, morning, evening, company, project, message, account,
payment, service, product, article, student, doctor, driver, farmer, lawyer, nurse, pilot, sailor,
board, stamp, plant, chair, table, house, mouse, bread, cheese, fruit, juice, water, stone, glass,
paper, metal, cloud, storm, light, night, sound, voice, dream, heart, brain, blood, skin, hand
""")
NAMES = listed("""
Anna, Ben, Clara, David, Emma, Felix, Grace, Henry, Ida, Jack, Kate, Leo, Mia, Noah, Olivia, Paul,
Rosa, Sam, Tina, Victor, Wendy, Yara, Zoe, Adam, Bella, Carl, Daisy, Eric, Fiona, George, Hannah,
Ivan, Julia, Kevin, Laura, Max, Nina, Oscar, Peter, Ruth, Simon, Tom, Uma, Vera, Will, Alice, Bob,
Charlie, Diana, Ethan, Frank, Gina, Hugo, Iris, James, Karen, Liam, Maria, Nora, Omar, Pia, Robert,
Sarah, Thomas, Ursula, Vincent, Walter, Amir, Bruno, Cora, Dan, Elena, Farid, Greta, Hiro, Inga,
Jonas, Klara, Lena, Mark, Nadia, Otto, Priya, Quinn, Rita, Stefan, Theo, Viktor, Yuki, Zara, Alex,
John, Jane, Mary, Michael, Linda, Susan, Lisa, Kim, Chris, Sophie, Lucas, Lily, Ella, Jan, Ali,
Fatima, Chen, Wei, Ravi, Anita, Marco, Lucia, Pedro, Carmen, Igor, Olga, Sven, Astrid, Pierre,
Marie, Luigi, Kofi, Amara, Tariq, Leila, Jin, Mei, Andy, Steve, Bill, Joe, Mike, Nick, Tim, Amy,
Aaron, Abby, Alma, Arthur, Beatrice, Boris, Camille, Cedric, Chloe, Dora, Edgar, Edith, Elias, \
Esther,
Finn, Gloria, Harold, Helen, Ingrid, Isaac, Ivy, Jasper, Joan, Judith, Kamal, Keiko, Lars, Leon,
Louis, Mabel, Marta, Matteo, Naomi, Nils, Oliver, Pablo, Petra, Ralph, Rania, Rosie, Rufus, Sasha,
Silvia, Sonia, Tara, Tessa, Tobias, Valerie, Vivian, Wanda, Xavier, Yusuf, Zelda, Bianca, Dmitri
""")
TOWNS = listed("""
Paris, London, Berlin, Rome, Madrid, Vienna, Oslo, Tokyo, Warsaw, Lisbon, Athens, Cairo, Dublin,
Prague, Munich, Hamburg, Lyon, Milan, Naples, Seville, Porto, Geneva, Zurich, Basel, Bern, Boston,
Chicago, Denver, Dallas, Seattle, Miami, Austin, Toronto, Montreal, Lima, Quito, Bogota, Delhi,
Mumbai, Seoul, Osaka, Kyoto, Beijing, Shanghai, Sydney, Perth, Nairobi, Lagos, Accra, Tunis,
Helsinki, Stockholm, Bergen, Riga, Vilnius, Krakow, Gdansk, Sofia, Bucharest, Budapest, Leeds,
Glasgow, Bristol, Cardiff, Ghent, Bruges, Utrecht, Leiden, Turin, Bologna, Verona, Granada, Malaga
""")
PARTS = [word.lower() for word in (*NAMES, *TOWNS, *THINGS)]
STARTS = listed("""
b, br, c, ch, d, dr, f, fl, g, gl, gr, h, j, k, kr, l, m, n, p, pl, pr, qu, r, s, sh, sk, sl, sn,
st, t, th, tr, v, w, y, z
""")
MIDDLES = listed("a, e, i, o, u, ai, ea, ee, oo, ou, ia")
ENDS = listed("b, ck, d, f, g, l, ll, m, n, nd, ng, nk, p, r, rk, rn, s, sh, st, t, th, x, z")
BETWEEN = listed("b, d, g, l, ll, m, n, nd, p, r, rr, s, st, t, tt, v, z")


def _invented(rng: Random) -> str:
    while True:
        made = _glued(rng) if rng.random() < 0.5 else _syllables(rng)
        if 3 < len(made) < 13:
            return made


def _glued(rng: Random) -> str:
    """Glues parts of known words, so that whatever tokens words have, all of them get copied."""
    first, last = rng.choice(PARTS), rng.choice(PARTS)
    return first[: rng.randint(2, len(first))] + last[rng.randint(0, len(last) - 2) :]


def _syllables(rng: Random) -> str:
    word = rng.choice(STARTS) + rng.choice(MIDDLES[:8])
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        word += rng.choice(BETWEEN) + rng.choice(MIDDLES[:5])
    return word + rng.choice(ENDS if rng.random() < 0.7 else ["", "o", "a", "i"])


def word(draw: SeededDraw) -> str:
    """One that means nothing."""
    return draw.new(_invented)


def name(draw: SeededDraw) -> str:
    return draw.one(NAMES) if draw.chance(0.6) else capital(word(draw))


def town(draw: SeededDraw) -> str:
    return draw.one(TOWNS) if draw.chance(0.55) else capital(word(draw))


def code(draw: SeededDraw) -> str:
    """An identifier, as orders, flights and rooms have."""
    return draw.new(_code)


def _code(rng: Random) -> str:
    letters = "".join(rng.choice("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(rng.randint(1, 3)))
    digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(2, 5)))
    return f"{letters}{rng.choice(('', '-'))}{digits}"
