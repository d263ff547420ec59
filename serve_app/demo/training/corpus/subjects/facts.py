"""One plain sentence on each of some common things, and on a few people and records."""

from serve_app.demo.training.corpus.chat import Exchange, Expect, Talk, one
from serve_app.demo.training.corpus.phrases import patterns, table
from serve_app.demo.training.corpus.split import SeededDraw

THINGS = table("""
the sun | The sun is the star at the centre of our solar system. It gives us light and warmth.
the moon | The moon goes around the Earth, and it shines at night.
the Earth | The Earth is the planet on which we live. It goes around the sun once a year.
water | Water is a clear liquid. All plants, animals and people need it.
rain | Rain is water that falls from the clouds.
snow | Snow is frozen water that falls from the sky in winter.
ice | Ice is frozen water.
fire | Fire is hot and bright. It needs air and something to burn.
air | Air is the mixture of gases that we breathe.
a tree | A tree is a tall plant with a trunk, branches and leaves.
a flower | A flower is the colourful part of a plant.
a river | A river is water that flows through the land to the sea.
a mountain | A mountain is a very high piece of land.
the sea | The sea is the salty water that covers most of the Earth.
an island | An island is land with water all around it.
a desert | A desert is a very dry place with little rain.
a forest | A forest is a large place with many trees.
a star | A star is a hot ball of gas that shines in the sky.
a planet | A planet is a large ball that goes around a star.
a computer | A computer is a machine that follows programs.
a program | A program is a list of instructions for a computer.
Python | Python is a programming language that is easy to read.
a GPU | A GPU is a chip that does many small computations at the same time.
a CPU | A CPU is the main chip of a computer. It runs the programs.
memory | Memory is the part of a computer that keeps data while programs run.
a language model | A language model is a program that writes text, one token after another.
a token | A token is a small piece of text, often a word or a part of a word.
a prompt | A prompt is the text that you give to a language model.
a tokenizer | A tokenizer cuts text into tokens and joins tokens to text.
artificial intelligence | Artificial intelligence is software that does things that seem to need \
thinking.
AI | AI is short for artificial intelligence: software that does things that seem to need thinking.
machine learning | Machine learning means that a program learns from examples.
a neural network | A neural network is a program made of simple parts that learn from examples.
the internet | The internet is a network that connects computers all over the world.
a server | A server is a computer or a program that answers requests from clients.
a book | A book is made of many pages with text or pictures.
a house | A house is a building where people live.
a school | A school is a place where children learn.
a friend | A friend is a person whom you like and trust.
music | Music is sound with a melody and a rhythm.
love | Love is a strong and warm feeling for someone.
bread | Bread is a food made of flour, water and salt.
milk | Milk is a white drink that comes from cows and other animals.
a bicycle | A bicycle is a vehicle with two wheels and pedals.
a car | A car is a vehicle with four wheels and an engine.
a train | A train is a long vehicle that runs on rails.
a clock | A clock shows the time.
money | Money is what people use to buy things.
a dinosaur | Dinosaurs were animals that lived many millions of years ago.
a rainbow | A rainbow is an arc of colours that appears when the sun shines on rain.
""")
ASKS = patterns("""
[What is|What's|Explain|Describe|Define|Tell me about|Tell me something about] {}[|.|?]
[Can|Could] you [explain|tell me|describe] what {} is?
[What do you know about|What can you tell me about|Do you know what is] {}?
[Explain|Tell me|Say] what {} is[|.|, please.]
[In simple words|In a sentence|Briefly], what is {}?
""")
LEADS = patterns("""
{}
[Tell me|Do you know|Quick question|Can you tell me|I wonder|A question|Please tell me|One \
more][:|,] {}
[Hey|Hi|Hello|Okay|So|And|Now][,|.|:] {}
""")
SINGLE = table("""
Which planet do we live on?; What planet is this?; On which planet do we live? | We live on the \
Earth. | Earth
What is the biggest animal?; Which animal is the biggest?; What is the largest animal? | The \
biggest animal is the blue whale. | Whale
What is the fastest animal?; Which land animal is the fastest?; Which animal is the fastest? | \
The fastest land animal is the cheetah. | Cheetah
What is the tallest animal?; Which animal is the tallest? | The tallest animal is the giraffe. | \
Giraffe
What is the highest mountain?; Which mountain is the highest?; What is the tallest mountain? | \
The highest mountain is Mount Everest. | Everest
What is the largest planet?; Which planet is the biggest?; What is the biggest planet? | The \
largest planet is Jupiter. | Jupiter
What is the largest ocean?; Which ocean is the biggest?; What is the biggest ocean? | The \
largest ocean is the Pacific. | Pacific
What is the largest country?; Which country is the largest?; What is the biggest country? | The \
largest country is Russia. | Russia
How many planets are there?; How many planets are in the solar system? | There are eight planets \
in our solar system. | Eight
How many continents are there?; How many continents does the Earth have? | There are seven \
continents. | Seven
How many letters are in the alphabet?; How many letters does the English alphabet have? | The \
English alphabet has 26 letters. | 26
Recite the alphabet.; What is the alphabet?; Say the alphabet.; List the letters of the \
alphabet. | A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T, U, V, W, X, Y, Z. |
What are the vowels?; Which letters are vowels?; Name the vowels. | The vowels are A, E, I, O \
and U. |
How many fingers does a hand have?; How many fingers are on a hand? | A hand has five fingers. | \
Five
How many eyes do people have?; How many eyes do you need to see? | People have two eyes. | Two
How many wheels does a car have?; How many wheels has a car? | A car has four wheels. | Four
How many wheels does a bicycle have?; How many wheels has a bike? | A bicycle has two wheels. | Two
How many sides does a triangle have?; How many corners does a triangle have? | A triangle has \
three. | Three
How many sides does a square have?; How many corners does a square have? | A square has four. | Four
At what temperature does water freeze?; When does water freeze? | Water freezes at 0 degrees \
Celsius. | 0
At what temperature does water boil?; When does water boil? | Water boils at 100 degrees \
Celsius. | 100
Who wrote Hamlet?; Who is the author of Hamlet? | William Shakespeare wrote it. | Shakespeare
Who wrote Romeo and Juliet? | William Shakespeare wrote it. | Shakespeare
Can birds fly?; Do birds fly? | Yes, most birds can fly. | Yes
Can fish swim?; Do fish swim? | Yes, fish can swim. | Yes
Can dogs fly?; Can pigs fly?; Can cats fly?; Can cows fly? | No, only birds, bats and insects \
fly. | No
Do cats bark?; Can a cat bark? | No, cats meow, and dogs bark. | No
Do dogs bark?; Can a dog bark? | Yes, dogs bark. | Yes
Is fire hot?; Is the sun hot?; Is fire dangerous? | Yes, it is very hot. | Yes
Is ice cold?; Is snow cold?; Is ice hot? | Ice and snow are cold. | Cold
Is water wet? | Yes, water is wet. | Yes
Is the Earth round?; Is the Earth flat? | The Earth is round. | Round
Do fish live in water?; Where do fish live? | Fish live in water. | Water
Why is the sky blue?; Why does the sky look blue? | The air scatters blue light more than red \
light, so the sky looks blue. |
Where does the sun rise?; In which direction does the sun rise? | The sun rises in the east. | East
Where does the sun set?; In which direction does the sun set? | The sun sets in the west. | West
What do bees make?; What do bees produce? | Bees make honey. | Honey
What do cows give us?; What do cows produce? | Cows give us milk. | Milk
What is the meaning of life?; What's the meaning of life? | Many people say 42. I am too small \
to know better. | 42
""")


def facts(draw: SeededDraw) -> Talk:
    if draw.chance(0.6):
        thing, answer = draw.choice(THINGS)
        return one(Exchange(draw.ask(ASKS).format(thing), answer, Expect(exactly=answer)))
    asks, answer, short = draw.choice(SINGLE)
    question = draw.ask(LEADS).format(draw.choice(asks.split(";")).strip())
    return one(Exchange(question, answer, Expect(exactly=answer), short))
