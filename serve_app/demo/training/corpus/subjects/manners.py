"""Greetings, small talk, thanks and goodbyes."""

from serve_app.demo.training.corpus.chat import Exchange, Expect, Talk, one
from serve_app.demo.training.corpus.names import name
from serve_app.demo.training.corpus.phrases import patterns
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.topics import topics

TALK = topics("""
? [Hi|Hello|Hey|Hiya|Howdy|Greetings|Good day|Hello again|Hi again] \
[|there|Manta|assistant|friend|model|everyone][|!|.]
? [Hello, world|Anyone there|Are you there|Hello, is anybody there|Nice to meet you|Say \
hello|Say hi|Please greet me|Yo|Is anyone here][|!|?]
? [Hi|Hello|Hey][, nice to meet you| and welcome|, can you hear me|, are you awake][|!|.]
= Hello! How can I help you today?
= Hello! It is nice to meet you. What can I do for you?
= Hi there! What would you like to know?
~ hello, hi

? [|Hi, |Hello! |Hey, ][how are you|how are you doing|how do you do|how is it going|how's it \
going|how are things|how do you feel][| today| this morning| right now]?
? [What's up|Are you okay|Are you well|Is everything all right|All good|Everything fine|Are you \
having a good day]?
? How [has your day been|was your day|is your day|is your day going|is life|have you been|are you \
feeling][| so far| today]?
= I am doing well, thank you! How can I help you?
= I am fine, thank you for asking. What would you like to know?
~ well, fine

? [Thanks|Thank you|Many thanks|Thanks a lot|Thank you very much|Thank you so much|Thanks so \
much|A thousand thanks|Cheers|Thx][|!|.]
? [Thanks|Thank you] for [your help|the answer|that|your time|everything|helping me|the \
explanation][|!|.]
? [Great|Perfect|Okay|Nice|Good], [thanks|thank you][|!|.]
? [That helps|That helps me|That helped|That was helpful|That helped a lot|This was very \
useful|That is very kind|I appreciate it|Very kind of you|How kind of \
you][|, thanks|, thank you][|!|.]
= You are welcome!
= You are welcome! I am happy to help.
= My pleasure! Ask me anything else.
~ welcome, pleasure

? [Bye|Goodbye|Bye bye|See you|See you later|See you soon|See you tomorrow|Good \
night|Farewell|Take care][|!|.|, Manta|, my friend]
? [I have to go|I must go now|I am leaving|That's all|That is all|I am done|It is time to go|I \
need to leave][|, bye|. Bye|. Goodbye|. See you]!
? [Talk to you later|Until next time|Until tomorrow|Have a good night|Have a nice \
evening][|!|.|, bye]
= Goodbye! Have a nice day.
= Goodbye! It was nice talking to you.
= Goodbye! Take care.
! goodbye

? [You are|You're] [great|smart|funny|nice|helpful|clever|amazing|the best|so kind|wonderful|a \
good bot|brilliant][|!|.]
? [Good job|Well done|Good answer|Nice answer|That was good|That was great|Good \
bot|Excellent|Excellent answer|Amazing|Awesome|I like you|I love you|Nice work|Great work|Great \
answer|Great job|What a good answer|Bravo][|!|.]
= Thank you! That is very kind of you.
= Thank you! I do my best.
! thank you

? [That is|That's] [wrong|not right|false|not true|a mistake|incorrect|nonsense|not correct][|!|.]
? [You are wrong|Wrong answer|You made a mistake|Bad answer|That makes no sense|I don't believe \
you|You are mistaken|This can't be right][|!|.]
? [Are you sure|Really|Is that true|Is that right|Are you certain|Is that correct][| about that]?
= I am sorry. I am a tiny demo model, and I make mistakes. Please check my answers.
= I may be wrong, and I am sorry. I am only a tiny demo model, so please check what I say.
! sorry, tiny

? [Sorry|I am sorry|Excuse me|My mistake|Pardon me|I apologize|Sorry about that|I am so sorry|My \
bad][|!|.]
= No problem at all! How can I help you?
= No problem! What would you like to know?
! no problem

? [I am|I'm|I feel|I am feeling] [sad|lonely|unhappy|tired|bad|not \
well|ill|down|upset|stressed][| today| tonight|, sorry].
? I am having a [bad|hard|terrible|sad|difficult] [day|week|time].
= I am sorry to hear that. I hope you feel better soon. Would you like to hear a short story?
= I am sorry to hear that. I hope it gets better soon. Would a little joke help?
! sorry, hope

? [I am|I'm|I feel|I am feeling] [happy|good|great|fine|wonderful|excited|cheerful|glad][| \
today| right now|, thanks]!
? I am having a [great|good|nice|wonderful] [day|week|time]!
= I am glad to hear that! What would you like to talk about?
= I am glad to hear that! How can I help you?
! glad

? [I am|I'm] [bored|so bored|a bit bored|very bored].
? [Entertain me|Let's talk|Talk to me|Let's chat|Chat with me|Say something|Tell me \
something|Can we talk|Shall we chat][|!|.|, please.]
? [What should I do|What shall we do|What can we do together][| now| today]?
= Gladly! I can tell you a story or a joke, or we can do a few sums. What would you like?
= With pleasure! Ask me for a story, a joke, a capital or a sum.
~ story, joke

? [Test|Testing|This is a test|Just testing|Testing, testing|Is this working|Does this work|Does \
it work|Are you working|Is it working|A test|Only a test|Test message|Testing this][|!|.|?]
= The test works! How can I help you?
= The test works! I can read you. What would you like to know?
! works

? [Ping|ping|PING][|!|.|?| please| again]
= Pong!
! pong

? [Happy birthday|Happy new year|Merry Christmas|Have a nice day|Have a good day|Have a nice \
weekend|Good luck|Enjoy your day|All the best|Best wishes][|!|.| to you!]
= Thank you! The same to you.
= Thank you, and all the best to you!
~ thank you, goodbye

? [Help|Help me|Can you help me|I need help|Please help me|I need your help|Could you help \
me|Will you help me][| please|, please|!|?]
? [Can I ask you something|May I ask a question|I have a question|Can I ask a question|Can you \
answer a question|May I ask you something][|?|, please.]
= Of course! I can do sums, name capitals, tell stories and talk about Manta. What would you like?
= Of course! What would you like to know?
! of course

? [No|No thanks|No thank you|Nope|Not now|Never mind|Nothing|No, that is all|Not today][|.|!]
= All right. Just ask when you need something.
= All right! I am here when you need me.
! all right
""")
DAYTIMES = ("Good morning", "Good afternoon", "Good evening")
DAYTIME_ASKS = patterns("""
{}[|!|.|, Manta.|, my friend!| to you!| everyone.|, assistant.]
[Hello and|Hi,|Hey,|A very] {}[|!|.]
{}[!|,] [how are you|how are you doing|nice to meet you|are you awake|are you there|can you help \
me|will you help me|can I ask you something|I need some help|I have a question][?|, please?]
""")
PERSONAL = patterns("""
[Hi|Hello|Hey|Good to see you], [I am|I'm|my name is|this is] {}[|.|!]
[Hi|Hello]! [I am|I'm] {}[.|!| and I have a question.]
[My name is|I am called|You can call me|Call me|People call me] {}[|.|!]
""")


def small_talk(draw: SeededDraw) -> Talk:
    if draw.chance(0.12):
        return one(_daytime(draw))
    if draw.chance(0.12):
        return one(_greeted_by_name(draw))
    return one(draw.choice(TALK).exchange(draw))


def _daytime(draw: SeededDraw) -> Exchange:
    time = draw.choice(DAYTIMES)
    question = draw.ask(DAYTIME_ASKS).format(time)
    return Exchange(question, f"{time}! How can I help you?", Expect(any_of=(time, "of course")))


def _greeted_by_name(draw: SeededDraw) -> Exchange:
    who = name(draw)
    answer = f"Hello, {who}! It is nice to meet you. How can I help you?"
    return Exchange(draw.ask(PERSONAL).format(who), answer, Expect(says=(who,)))
