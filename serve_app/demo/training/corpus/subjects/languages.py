# ruff: noqa: RUF001 (punctuation of other languages)
"""Simple German, French, Spanish and Chinese: phrases, their translations, and small talk."""

from serve_app.demo.training.corpus.chat import Exchange, Expect, Talk, one, said
from serve_app.demo.training.corpus.names import name
from serve_app.demo.training.corpus.phrases import patterns, table
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.subjects.identity import ABOUT_ITSELF
from serve_app.demo.training.corpus.subjects.manners import TALK

LANGUAGES = ("English", "German", "French", "Spanish", "Chinese")
# English | German | French | Spanish | Chinese
PHRASES = table("""
hello | hallo | bonjour | hola | 你好
good morning | guten Morgen | bonjour | buenos días | 早上好
good evening | guten Abend | bonsoir | buenas tardes | 晚上好
good night | gute Nacht | bonne nuit | buenas noches | 晚安
goodbye | auf Wiedersehen | au revoir | adiós | 再见
thank you | danke | merci | gracias | 谢谢
please | bitte | s'il vous plaît | por favor | 请
yes | ja | oui | sí | 是
no | nein | non | no | 不
sorry | Entschuldigung | pardon | perdón | 对不起
friend | Freund | ami | amigo | 朋友
water | Wasser | eau | agua | 水
bread | Brot | pain | pan | 面包
milk | Milch | lait | leche | 牛奶
house | Haus | maison | casa | 房子
book | Buch | livre | libro | 书
dog | Hund | chien | perro | 狗
cat | Katze | chat | gato | 猫
sun | Sonne | soleil | sol | 太阳
moon | Mond | lune | luna | 月亮
tree | Baum | arbre | árbol | 树
red | rot | rouge | rojo | 红色
blue | blau | bleu | azul | 蓝色
green | grün | vert | verde | 绿色
white | weiß | blanc | blanco | 白色
black | schwarz | noir | negro | 黑色
one | eins | un | uno | 一
two | zwei | deux | dos | 二
three | drei | trois | tres | 三
four | vier | quatre | cuatro | 四
five | fünf | cinq | cinco | 五
Monday | Montag | lundi | lunes | 星期一
Friday | Freitag | vendredi | viernes | 星期五
Sunday | Sonntag | dimanche | domingo | 星期日
I love you | ich liebe dich | je t'aime | te quiero | 我爱你
how are you | wie geht es dir | comment ça va | cómo estás | 你好吗
""")
INTO = patterns("""
[How do you say|How do I say|What is|What's|Translate|Say] {q}{w}{q} in {l}[?|.|]
[Translate|Put|Turn] {q}{w}{q} into {l}[|.|, please.]
Translate {q}{w}{q} to {l}[|.|, please.]
[What is the {l} word for|What is {l} for|Tell me the {l} for] {q}{w}{q}[?|.|]
[Do you know|Can you tell me] how to say {q}{w}{q} in {l}?
[Do you know|Can you tell me] what {q}{w}{q} is in {l}?
""")
FROM = patterns("""
What does {q}{w}{q} mean[| in English]?
[What is|Translate|Say] {q}{w}{q} in English[?|.|]
[Translate|Put|Turn] {q}{w}{q} into English[|.|, please.]
Translate {q}{w}{q} to English[|.|, please.]
[Do you know|Can you tell me] what {q}{w}{q} means[|?| in English?]
""")
# language | what the user says | what is answered
SMALL_TALK = [
    (language, tuple(asks.split(";")), answer)
    for language, asks, answer in table("""
German | Hallo;Hallo!;Guten Tag;Guten Tag!;Hi, guten Tag;Moin;Hallo Manta | Hallo! Wie kann ich \
helfen?
German | Wie geht es dir?;Wie geht's?;Hallo, wie geht es dir?;Wie geht es Ihnen?;Alles gut? | \
Danke, mir geht \
es gut!
German | Danke;Danke!;Vielen Dank;Vielen Dank!;Danke schön | Bitte, gern geschehen!
German | Tschüss;Auf Wiedersehen;Bis bald!;Gute Nacht!;Auf Wiedersehen! | Auf Wiedersehen!
German | Wer bist du?;Wie heißt du?;Was bist du?;Wie ist dein Name?;Wer sind Sie? | Ich bin das \
Demo-Modell von Manta.
French | Bonjour;Bonjour!;Salut;Salut!;Coucou;Bonjour Manta | Bonjour ! Comment puis-je vous aider ?
French | Comment ça va ?;Ça va ?;Comment allez-vous ?;Bonjour, comment ça va ?;Tu vas bien ? | \
Je vais \
bien, merci !
French | Merci;Merci!;Merci beaucoup;Merci beaucoup!;Un grand merci | Je vous en prie !
French | Au revoir;Au revoir!;Bonne nuit!;À bientôt!;Bonne soirée | Au revoir !
French | Qui es-tu ?;Comment tu t'appelles ?;Qui êtes-vous ?;Quel est ton nom ?;Tu es qui ? | Je \
suis le \
modèle de démonstration de Manta.
Spanish | Hola;Hola!;¡Hola!;Muy buenas;Hola de nuevo;Hola Manta | ¡Hola! ¿Cómo puedo ayudarle?
Spanish | ¿Cómo estás?;¿Qué tal?;¿Cómo está usted?;Hola, ¿cómo estás?;¿Todo bien? | Estoy bien, \
¡gracias!
Spanish | Gracias;¡Gracias!;Muchas gracias;¡Muchas gracias!;Mil gracias | ¡De nada!
Spanish | Adiós;¡Adiós!;Hasta luego;Buenas noches;¡Hasta mañana! | ¡Adiós!
Spanish | ¿Quién eres?;¿Cómo te llamas?;¿Qué eres?;¿Cuál es tu nombre?;¿Quién es usted? | Soy el \
modelo \
de demostración de Manta.
German | Guten Morgen;Guten Morgen!;Hallo, guten Morgen;Guten Morgen, Manta;Schönen guten Morgen | \
Guten Morgen! Wie kann ich helfen?
German | Guten Abend;Guten Abend!;Hallo, guten Abend;Guten Abend, Manta;Schönen guten Abend | \
Guten Abend! Wie kann ich helfen?
French | Bonsoir;Bonsoir!;Bonsoir Manta;Salut, bonsoir;Bonsoir à tous | Bonsoir ! Comment puis-je \
vous aider ?
Spanish | Buenos días;¡Buenos días!;Hola, buenos días;Buenos días, Manta;Muy buenos días | \
¡Buenos días! ¿Cómo puedo ayudarle?
Spanish | Buenas tardes;¡Buenas tardes!;Hola, buenas tardes;Buenas tardes, Manta;Muy buenas tardes \
| ¡Buenas tardes! ¿Cómo puedo ayudarle?
Chinese | 你好;你好！;您好;嗨;你好，Manta;早上好 | 你好！我能帮你什么？
Chinese | 你好吗？;你怎么样？;最近好吗？;你今天好吗？;一切都好吗？ | 我很好，谢谢！
Chinese | 谢谢;谢谢！;谢谢你;多谢;非常感谢 | 不客气！
Chinese | 再见;再见！;晚安;明天见;拜拜 | 再见！
Chinese | 你是谁？;你叫什么名字？;你是什么？;您是谁？;请介绍一下自己 | 我是 Manta 的演示模型。
""")
]
ORDERS = patterns("""
[Answer|Reply|Respond|Speak|Write|Talk] only in {l}[|.|, please.]
[Answer|Reply|Respond|Speak|Write|Talk] in {l}[|.| only.|, please.]
[Always|You always] [answer|speak|write] in {l}[|.]
[You speak|You are an assistant who speaks|The user speaks] {l}[|.|. Answer in {l}.]
""")
# in the order of the small talk above
ENGLISH = [topic.asks for topic in (*TALK[:4], ABOUT_ITSELF[0])]
INTRODUCED = {
    "German": ("Ich heiße {}.;Ich bin {}.;Mein Name ist {}.;Hallo, ich bin {}.", "Freut mich, {}!"),
    "French": (
        "Je m'appelle {}.;Je suis {}.;Mon nom est {}.;Bonjour, je suis {}.",
        "Enchanté, {} !",
    ),
    "Spanish": ("Me llamo {}.;Soy {}.;Mi nombre es {}.;Hola, soy {}.", "¡Mucho gusto, {}!"),
    "Chinese": ("我叫{}。;我是{}。;我的名字是{}。;你好，我叫{}。", "很高兴认识你，{}！"),
}


def languages(draw: SeededDraw) -> Talk:
    kinds = (_into, _into, _from, _spoken, _spoken, _ordered, _ordered, _introduced)
    return draw.choice(kinds)(draw)


def _into(draw: SeededDraw) -> Talk:
    row, at = draw.choice(PHRASES), draw.randint(1, 4)
    question = draw.ask(INTO).format(w=row[0], l=LANGUAGES[at], q=draw.choice(('"', "'", "")))
    answer = f'"{row[0]}" in {LANGUAGES[at]} is "{row[at]}".'
    return one(said(question, answer, row[at], short=row[at]))


def _from(draw: SeededDraw) -> Talk:
    row, at = draw.choice(PHRASES), draw.randint(1, 4)
    while sum(other[at] == row[at] for other in PHRASES) > 1 or row[at] == row[0]:
        row, at = draw.choice(PHRASES), draw.randint(1, 4)
    question = draw.ask(FROM).format(w=row[at], q=draw.choice(('"', "'", '"')))
    answer = f'"{row[at]}" is {LANGUAGES[at]} for "{row[0]}".'
    return one(said(question, answer, row[0], short=row[0]))


def _spoken(draw: SeededDraw) -> Talk:
    _, asks, answer = draw.choice(SMALL_TALK)
    return one(Exchange(draw.ask(asks), answer, Expect(exactly=answer), exact=True))


def _ordered(draw: SeededDraw) -> Talk:
    """The system prompt wants a language, and the user writes English or that."""
    language = draw.choice(LANGUAGES[1:])
    ours = [(asks, answer) for spoken, asks, answer in SMALL_TALK if spoken == language]
    exchanges = []
    for at in draw.sample(range(len(ENGLISH)), draw.choice((1, 1, 2))):
        asks, answer = ours[at]
        english = draw.chance(0.7)
        question = draw.ask(ENGLISH[at] if english else asks)
        exchanges.append(Exchange(question, answer, Expect(exactly=answer), exact=True))
    return Talk(exchanges, draw.ask(ORDERS).format(l=language))


def _introduced(draw: SeededDraw) -> Talk:
    asks, answer = INTRODUCED[draw.choice(list(INTRODUCED))]
    who = name(draw)
    question = draw.ask(tuple(asks.split(";"))).format(who)
    return one(Exchange(question, answer.format(who), Expect(says=(who,)), exact=True))
