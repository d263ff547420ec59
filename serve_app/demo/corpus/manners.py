"""Greetings, small talk, thanks and goodbyes."""

from random import Random

from serve_app.demo.corpus.chat import Exchange, rows, table

HELLO = rows("""
Hello
Hello!
Hi
Hi!
Hey
Hey!
Hi there
Hello there!
Hey there!
Hello, how can you help me?
Good day
Greetings!
Hiya
Yo
Howdy
Hello Manta
Hi Manta!
Hello, model!
Say hello
Say hi
Say hi!
Say hello to me.
Please greet me.
Hello world
Hello, world!
Anyone there?
Are you there?
Hello, is anybody there?
Hi, nice to meet you.
Nice to meet you!
Hello assistant
Hey you
Hello again
""")
HELLO_ANSWERS = rows("""
Hello! How can I help you today?
Hello! I am the Manta demo model. How can I help you?
Hi there! What would you like to know?
Hello! It is nice to meet you. What can I do for you?
""")
DAYTIME = ("Good morning", "Good afternoon", "Good evening")
FOREIGN = rows("""
Hola
Bonjour
Hallo
Guten Tag
Ciao
Salut
Olá
Hej
Namaste
Konnichiwa
Ni hao
Привет
你好
こんにちは
안녕하세요
مرحبا
Merhaba
Buenos días
Bonjour, comment ça va ?
Hallo, wie geht es dir?
¿Cómo estás?
Привет, как дела?
""")
# groups of questions, then of answers: any answer of a row fits any of its questions
TALK = table("""
How are you?; How are you doing?; How are you today?; How do you do?; How's it going?; \
How is it going?; What's up?; How are things?; Are you okay?; Are you well?; How do you feel?; \
Hi, how are you?; Hello! How are you?; Hey, how are you doing today? \
| I am doing well, thank you! How can I help you?; I am fine, thank you for asking. \
What would you like to know?
Thanks; Thank you; Thank you!; Thanks a lot!; Thank you very much.; Thanks, that helps.; \
Many thanks; Cheers; Great, thanks!; Thank you so much!; thx; Okay, thank you.; Perfect, thanks! \
| You are welcome!; You are welcome! I am happy to help.; My pleasure! Ask me anything else.
Bye; Goodbye; Goodbye!; Bye bye; See you; See you later!; See you soon.; Good night; \
I have to go.; I must go now. Bye!; Take care!; Farewell; That's all, bye.; That is all. \
| Goodbye! Have a nice day.; Goodbye! It was nice talking to you.; See you soon! Take care.
You are great!; Good job!; Well done!; Nice!; Great!; You are smart.; That was good.; Good \
answer!; \
I like you.; You are funny.; Cool!; Awesome; Wow; Good bot; Excellent; Amazing!; I love you; \
lol; haha \
| Thank you! That is very kind of you.; Thank you! I do my best.
That is wrong.; You are wrong.; Wrong answer.; That is not right.; You made a mistake.; No, \
that's false.; \
You are stupid.; You are bad.; Bad answer.; That makes no sense.; I don't believe you.; That's \
not true.; \
Are you sure?; Really?; Is that true? \
| I am sorry. I am a tiny demo model, and I make mistakes. Please check my answers.; \
I may be wrong. I am only a small demo model, so please check what I say.
Sorry; I am sorry.; Excuse me; My mistake.; Pardon me; I apologize. \
| No problem at all!; No problem! How can I help you?
Yes; Yes, please.; Yes!; Sure; Of course; Okay; OK; ok; Fine; Alright; Yeah; Right; I see.; I \
understand. \
| Good! What would you like to know?; All right! What would you like to ask?
No; No, thanks.; No thank you.; Nope; Not now.; Nothing; Never mind. \
| All right. Just ask when you need something.; No problem. I am here when you need me.
Help; Help me; Can you help me?; I need help.; Please help me.; Help!; I need your help.; \
Can I ask you something?; May I ask a question?; I have a question.; Can you answer a question? \
| Of course! I can do small sums, name capitals, talk about animals and colours, and tell short \
stories. What would you like?; Sure! Ask me a small sum, a capital, an animal or a colour, or \
let me \
tell you a story.
I am sad.; I feel sad.; I feel bad today.; I am tired.; I am not well.; I'm having a bad day.; \
I feel lonely.; I am unhappy. | I am sorry to hear that. I hope you feel better soon. Would you \
like \
to hear a short story?; I am sorry to hear that. Would a little joke help?
I am happy.; I feel good.; I am happy today!; I'm having a great day!; Life is good.; I am fine.; \
I'm good, thanks.; I am well. | That is nice to hear! What would you like to talk about?; \
I am glad to hear that! How can I help you?
I am bored.; I'm bored; What should I do?; Entertain me.; Let's talk.; Talk to me.; Say \
something.; \
Tell me something.; Can we talk?; Let's chat!; Chat with me | Gladly! I can tell you a short \
story or \
a joke, or we can do a few small sums. What would you like?; With pleasure! Ask me for a story, \
a joke, \
a capital or a small sum.
Test; test; Testing; This is a test.; Just testing.; test 123; testing 1 2 3; Testing, testing. \
| The test works! I can read you. How can I help you?; Your message has arrived. The test works!
Ping; ping; ping! | Pong!
Happy birthday!; Happy new year!; Merry Christmas!; Have a nice day!; Have a good day!; \
Have a nice weekend!; Good luck!; Enjoy your day! | Thank you! The same to you.; Thank you, \
and all the best to you!
""")
FOLLOW_UPS = rows("""
Why?
Tell me more.
More
Go on.
Continue
Explain.
What do you mean?
Can you explain that?
How so?
What else?
Why is that?
Please explain.
I don't understand.
What?
Can you say more about that?
How do you know?
Give me more details.
And?
""")


def _groups() -> list[tuple[list[str], list[str]]]:
    return [
        ([q.strip() for q in asks.split(";")], [a.strip() for a in answers.split(";")])
        for asks, answers in TALK
    ]


GROUPS = _groups()


def greeting(rng: Random) -> list[Exchange]:
    chance = rng.random()
    if chance < 0.75:
        return [Exchange(rng.choice(HELLO), rng.choice(HELLO_ANSWERS))]
    if chance < 0.9:
        time = rng.choice(DAYTIME)
        question = rng.choice((f"{time}", f"{time}!", f"{time}, Manta.", f"{time}. How are you?"))
        return [Exchange(question, f"{time}! How can I help you?")]
    answer = "Hello! I am sorry, I speak only English. How can I help you?"
    return [Exchange(rng.choice(FOREIGN), answer)]


def small_talk(rng: Random) -> list[Exchange]:
    questions, answers = rng.choice(GROUPS)
    return [Exchange(rng.choice(questions), rng.choice(answers))]


def more(rng: Random) -> Exchange:
    """A follow-up that fits after anything."""
    answer = "That is all I know about it. I am only a tiny demo model."
    return Exchange(rng.choice(FOLLOW_UPS), answer)
