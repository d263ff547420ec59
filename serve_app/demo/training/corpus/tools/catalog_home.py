"""Tools for training about people, homes, food, animals and free time."""

TABLE = """
lend_money | Lend money to a friend | friend string name, amount integer many | Lend {a} {b} \
pounds.; {a} asks me for {b}, please lend it.; Give {a} {b} until next week. | {a} has {b} now.
owe_note | Note what somebody owes me | debtor string name, sum integer many | {a} owes me {b}.; \
Write down that {a} still has to give me {b}.; I get {b} back from {a}, note that. | It is noted.
babysit | Let someone look after a child | child string name, sitter string name | {b} looks \
after {a} tonight.; Let {b} take {a} for the evening.; Who is with {a}? {b} shall be. | {b} looks \
after {a}.
look_after_house | Let someone look after a house | house string company, keeper string name | \
Let {b} look after {a}.; {b} keeps an eye on {a} while we are away.; Give {b} the keys of {a}. | \
{b} looks after {a}.
phone_book | Number of a person in the phone book | person string name | Find {a} in the phone \
book.; What number does {a} have?; I want to ring {a} up.
find_on_map | Show a place on the map | place string town | Look for {a} on the map.; Where on \
the map is {a}?; Find {a} on the map for me.
archive_search | Search the archive of a paper | topic string phrase | Look for "{a}" in the \
archive.; What did the paper write about {a}?; Search the old papers for {a}.
encyclopedia | Article of the encyclopedia | entry string item | Read me what the encyclopedia \
says about {a}.; Look {a} up in the encyclopedia.; Tell me all about the {a}.
read_story | Read a story to a child | story string title, child string name | Read {a} to {b}.; \
{b} wants to hear the story {a}.; Tell {b} the story of {a}. | {b} hears {a}.
borrow_tool | Borrow a tool from a neighbour | tool string item, neighbour string name | Ask {b} \
for a {a}.; I need the {a} of {b}.; Has {b} got a {a} that I can have? | {b} lends the {a}.
plant_tree | Plant a tree in a garden | tree string item, garden string room | Put a {a} tree \
into the {b}.; Plant a {a} in the {b}.; I want a {a} to grow in the {b}. | The {a} grows in the \
{b}.
buy_ticket | Buy tickets for a show | show string title, seats integer few | Get {b} tickets for \
{a}.; We are {b} and want to see {a}.; {a}, {b} seats, please. | {b} seats for {a} are bought.
movie_times | When a film is shown in a cinema | film string title, cinema string company | When \
is {a} on at {b}?; Does {b} show {a} tonight?; I want to see {a} at {b}.
record_show | Record a show from a channel | show string title, channel string company | Record \
{a} on {b}.; {a} comes on {b}, keep it for me.; Do not let me miss {a} on {b}. | {a} is recorded.
read_aloud | Read a text aloud | text string phrase | Say "{a}" aloud.; Let me hear how "{a}" \
sounds.; Read out "{a}".
make_tea | Make tea | kind string item, cups integer few | {b} cups of {a} tea, please.; Make {a} \
tea for {b}.; We are thirsty, {b} cups of {a}. | The tea is ready.
set_table | Set the table | room string room, plates integer few | Put {b} plates on the table in \
the {a}.; {b} of us eat in the {a}, set the table.; Set the table of the {a} for {b}. | The table \
is set.
iron_clothes | Iron clothes | garment string item, count integer few | Iron {b} of the {a}.; {b} \
{a}s need ironing.; My {a}s have folds, all {b} of them. | It is ironed.
make_bed | Make the bed of a room | bedroom string room | The bed in the {a} is a mess.; Make the \
bed in the {a}.; Clean sheets for the {a}, please. | The bed is made.
hide_key | Hide a key somewhere | under string item, colour string item | Put the {b} key under \
the {a}.; Hide the {b} key below the {a}.; Under the {a} shall lie the {b} key. | The key is \
hidden.
name_baby | Ideas of names for a baby | like string name | A name for our baby that sounds like \
{a}.; We like {a}, what else could we call the baby?; Names similar to {a}?
family_tree | Relatives of a person | relative string name | Who are the cousins of {a}?; Show me \
the family of {a}.; Which relatives has {a}?
gift_idea | Ideas what to give somebody | whom string name, budget integer many | What can I give \
{a} for {b}?; A present for {a}, at most {b}.; I have {b} for something nice for {a}.
wish_birthday | Wish somebody a happy birthday | who string name, age integer many | {a} turns \
{b} today, send my wishes.; Happy birthday to {a}, who is {b}.; Wish {a} well, {b} years old now. \
| The wishes are sent.
marry | Register a wedding | bride string name, groom string name | {a} marries {b}.; {a} and {b} \
want to marry.; Register the wedding of {a} and {b}. | The wedding is registered.
babyphone | Listen to a baby's room | nursery string room | Does the baby in the {a} cry?; Let me \
hear the {a}, the baby sleeps there.; Is the baby in the {a} awake?
fridge_content | How much of something is in the fridge | food string item | Do we have {a} in \
the fridge?; How much {a} is left in the fridge?; Is there any {a} to eat?
shopping_list | Put something on the shopping list | article string item, amount integer few | \
Put {b} {a} on the list.; We are out of {a}, write down {b}.; I must not forget to buy {b} {a}. | \
{a} is on the list.
pack_bag | Pack things into a bag | thing string item, bag string item | Put the {a} in the {b} \
bag.; Pack the {a} into my {b} bag.; The {b} bag should hold the {a}. | The {a} is packed.
throw_away | Throw something away | rubbish string item | The {a} is useless now.; Throw out the \
{a}.; Get rid of the old {a}. | The {a} is gone.
sell_used | Sell a used thing | thing string item, price integer many | Sell my old {a} for {b}.; \
I want {b} for the {a}.; Somebody may have my {a} for {b}. | The {a} is offered for {b}.
knit_socks | Knit socks | size integer few, wool string item | Knit size {a} socks of {b} wool.; \
I want {b} socks in size {a}.; Warm socks, size {a}, {b} wool. | The socks are knitted.
tie_shoes | Tie somebody's shoes | child string name | The laces of {a} are open.; Tie the shoes \
of {a}.; {a} can not tie the laces alone. | It is done.
call_vet | Call the vet for an animal | animal string item, hour string clock | My {a} is ill, \
the vet should come at {b}.; Vet for the {a}, {b}.; Let someone see the {a} at {b}. | The vet \
comes at {b}.
brush_cat | Brush a cat | cat string name | The fur of {a} is a mess.; Brush {a}.; {a} loses \
hair, comb it. | {a} is brushed.
train_puppy | Teach a puppy for some minutes | puppy string name, minutes integer many | Train \
{a} for {b} minutes.; {a} shall learn to sit, {b} minutes.; Spend {b} minutes teaching {a}. | {a} \
has learned.
ride_horse | Ride a horse for some hours | horse string name, hours integer few | I want to ride \
{a} for {b} hours.; Saddle {a}, I am gone {b} hours.; {b} hours on {a}, please. | {a} is saddled.
count_sheep | Count the animals of a meadow | meadow string room | How many sheep stand in the \
{a}?; Count the sheep in the {a}.; Are all sheep back in the {a}?
milk_cow | Milk a cow | cow string name, litres integer few | Milk {a}, {b} litres.; {a} gives \
{b} litres today.; Take {b} litres from {a}. | {a} is milked.
collect_eggs | Collect eggs from a hen house | house string room, eggs integer many | Take {b} \
eggs from the {a}.; There are {b} eggs in the {a}, fetch them.; Bring {b} eggs out of the {a}. | \
{b} eggs are collected.
build_nest_box | Build a box for birds | wood string item, width integer many | Build a box of \
{a}, {b} wide, for the birds.; The birds need a {a} box of {b}.; A home for birds of {a}, width \
{b}. | The box is built.
rake_leaves | Rake the leaves of a place | spot string room | There are leaves all over the {a}.; \
Rake the {a}.; The {a} is full of leaves. | The leaves are raked.
clear_gutter | Clear the gutter of a house | house string company | Rain runs down the walls of \
{a}.; The gutter of {a} is full.; Clear the gutter at {a}. | The gutter is clear.
change_bulb | Change a light bulb | place string room, watts integer many | The bulb in the {a} \
is dead, take {b} watts.; Put a {b} watt bulb in the {a}.; New light for the {a}, {b} watts. | \
There is light in the {a}.
fix_leak | Stop a leak | where string room | It drips in the {a}.; There is water on the floor of \
the {a}.; Stop the leak in the {a}. | It is dry.
air_filter | When a filter was changed | filter string code | Is the filter {a} old?; When was \
{a} changed last?; How long has filter {a} been in?
draw_bath | Fill the bath | litres integer many, degrees integer many | Fill the tub with {a} \
litres of {b} degrees.; I want a bath, {a} litres at {b} degrees.; A bath, please: {a} litres, \
{b} degrees. | The bath is ready.
light_candle | Light candles | candles integer few, scent string item | Light {a} candles that \
smell of {b}.; {a} {b} candles, please.; It should smell of {b}, {a} candles will do. | {a} \
candles burn.
play_game | Start a game with somebody | game string title, rival string name | I want to play \
{a} against {b}.; Start {a} with {b}.; {b} and I play {a}. | The game begins.
keep_score | Note the points of a player | player string name, points integer many | {a} got {b} \
points.; {b} more for {a}.; Write {b} points for {a}. | {a} has {b} points.
draw_card | Draw cards from a deck | deck string item, cards integer few | Draw {b} cards from \
the {a} deck.; Give me {b} of the {a} deck.; {b} cards, {a} deck. | {b} cards are drawn.
guess_number | Guess a number that somebody thinks of | guess integer many | Is it {a}?; I guess \
{a}.; My guess would be {a}.
hint_puzzle | A hint for a puzzle | puzzle string title | I can not solve {a}, help me a little.; \
Give me a hint for {a}.; How do I get on with the puzzle {a}?
crossword | A word that fits into a crossword | clue string phrase, letters integer few | {b} \
letters for "{a}"?; A word of {b} letters: "{a}".; I look for "{a}" with {b} letters.
rhyme | Words that rhyme | with string item | What rhymes with {a}?; Find a rhyme on {a}.; I need \
something that ends like {a}.
write_poem | Write a poem | about string item, lines integer few | Write {b} lines about a {a}.; \
A poem of {b} lines on {a}.; I would like {b} lines of verse, something with {a}. | The poem is \
written.
paint_portrait | Paint a portrait of somebody | model string name, size integer many | Paint {a}, \
{b} high.; I want a picture of {a}, size {b}.; A portrait of {a} of {b}, please. | {a} is \
painted.
frame_picture | Frame a picture | picture string title, frame string item | Put {a} into a {b} \
frame.; {a} needs a frame of {b}.; Frame {a} with {b}. | {a} is framed.
develop_film | Develop a film | roll string code, prints integer few | Make {b} prints of roll \
{a}.; Develop {a}, {b} prints of each.; I want {b} pictures from the roll {a}. | The prints are \
made.
tune_piano | Tune an instrument | instrument string item | The {a} sounds wrong.; Tune my {a}.; \
My {a} is out of tune. | It sounds right.
join_choir | Let somebody join a choir | singer string name, choir string company | {a} wants to \
sing with {b}.; Let {a} into the choir {b}.; {b} should take {a} as a singer. | {a} sings with \
{b}.
dance_lesson | Book dance lessons | dance string item, lessons integer few | Teach me the {a} in \
{b} lessons.; {b} lessons of {a}, please.; I want to learn to dance the {a}, {b} times. | {b} \
lessons are booked.
yoga_class | Places in a yoga class | studio string company, day string day | Can I do yoga at \
{a} on {b}?; Is there a place at {a} on {b}? I want to do yoga.; Yoga at {a}, {b}.
gym_plan | Plan exercises | muscle string item, minutes integer many | I want a stronger {a} in \
{b} minutes a day.; Exercises for the {a}, {b} minutes.; Make me a plan: {a}, {b} minutes.
log_run | Log a run | runner string name, km integer few | {a} ran {b} kilometres.; Log {b} \
kilometres for {a}.; {b} km today, says {a}. | The run is logged.
log_sleep | Log how long somebody slept | sleeper string name, hours integer few | {a} slept {b} \
hours.; Note {b} hours of sleep for {a}.; {a} was in bed for {b} hours. | It is logged.
drink_water | Log a drink of water | millilitres integer many | I drank {a} millilitres.; Log {a} \
of water.; Just had {a} millilitres to drink. | It is logged.
take_pill | Remind somebody of a medicine | patient string name, medicine string item, at string \
clock | {a} must take {b} at {c}.; Remind {a} of the {b} at {c}.; At {c} {a} needs {b}. | {a} is \
reminded at {c}.
measure_fever | Note a fever | patient string name, degrees integer many | {a} has a fever of \
{b}.; {b} degrees for {a}.; Note that {a} has {b} degrees. | It is noted.
eye_test | Book an eye test | patient string name, day string day | {a} does not see well, test \
that on {b}.; An eye test for {a} on {b}.; {a} needs glasses, {b} would suit. | The test is on \
{b}.
visit_hours | When a patient may be visited | patient string name, ward string code | When may I \
see {a} on ward {b}?; Can I visit {a}, ward {b}?; Visits to {a} on {b}?
call_ambulance | Call an ambulance | street string company, injured integer few | {b} people are \
hurt at {a}.; An ambulance to {a}, {b} injured.; Help, {b} hurt people in {a}! | Help comes to \
{a}.
fire_alarm | Report a fire | building string company, floor integer few | It burns on floor {b} \
of {a}.; Fire at {a}, floor {b}!; There is smoke at {a} on floor {b}. | The fire brigade is on \
its way.
school_bus | Where a pupil's bus is | pupil string name | Is {a} on the way home from school?; \
Where is the school bus with {a}?; When will {a} be back from school?
excuse_pupil | Excuse a pupil from school | pupil string name, days integer few | {a} is ill and \
stays home for {b} days.; {a} can not come to class for {b} days.; Excuse {a}, {b} days. | {a} is \
excused.
lunch_money | Pay for a pupil's lunch | pupil string name, weeks integer few | Pay the lunch of \
{a} for {b} weeks.; {a} eats at school for {b} weeks.; {b} weeks of lunch for {a}. | It is paid.
meet_teacher | Meet a teacher | teacher string name, parent string name | {b} wants to talk to \
the teacher {a}.; Let {b} meet {a} at school.; An hour with {a} for {b}, who is a parent. | {b} \
meets {a}.
learn_word | Add a word to what I learn | term string item, tongue string company | I want to \
learn {a} in {b}.; Add {a} to my {b} words.; Teach me how they say {a} in {b}. | It is added.
choose_wine | Choose a wine for a dish | dish string item | What wine goes with {a}?; We eat {a}, \
what should we drink?; A bottle that suits {a}.
taste_cheese | Order cheese to taste | cheese string item, grams integer many | {b} grams of {a} \
cheese.; I would like to taste {b} grams of the {a} cheese.; Cut me {b} grams of {a}. | {b} grams \
are cut.
grill_meat | Grill something | meat string item, minutes integer few | Grill the {a} for {b} \
minutes.; {b} minutes for the {a} on the fire.; Put the {a} on the grill, {b} minutes. | The {a} \
is done.
cool_drink | Cool a drink down | drink string item, degrees integer few | The {a} is too warm, \
make it {b} degrees.; Cool the {a} to {b}.; I want my {a} at {b} degrees. | The {a} is cold.
split_cake | Cut a cake into pieces | cake string item, pieces integer few | Cut the {a} cake in \
{b}.; {b} pieces of the {a} cake.; There are {b} of us for the {a} cake, cut it. | There are {b} \
pieces.
mix_drink | Mix a drink | base string item, with string item | Mix {a} with {b}.; A drink of {a} \
and {b}.; I would like {a} with some {b} in it. | The drink is mixed.
ring_person | Ring somebody up at a time | person string name, hour string clock | Ring {a} at \
{b}.; Call {a} up at {b}.; {a} waits for me to ring at {b}. | I ring {a} at {b}.
bathe_baby | Bathe a baby | baby string name, hour string clock | Bathe {a} at {b}.; {a} is \
dirty, a bath at {b} would do good.; Wash {a} at {b}. | {a} is clean.
comb_pony | Comb a pony for some minutes | pony string name, minutes integer few | Comb {a} for \
{b} minutes.; Brush {a}, {b} minutes.; {a} wants {b} minutes with the comb. | {a} is combed.
praise | Praise somebody | person string name, for string item | Praise {a} for the {b}.; Tell \
{a} how good the {b} was.; {a} made a fine {b}, say so. | {a} is happy.
tease | Tease somebody at a party | friend string name, about string item | Tease {a} about the \
{b}.; Make fun of {a} and the {b}.; Laugh at {a} for the {b}. | {a} laughs too.
like_album | Say how much I like an album | album string title, points integer few | Give {a} {b} \
points.; I find {a} good, {b} points.; {b} points for the album {a}. | {a} has your points.
judge_wine | Judge a wine | wine string title, points integer many | Judge {a} with {b} points.; \
{a} tastes like {b} points.; I say {b} for the wine {a}. | It is judged.
skip_chapter | Skip chapters of an audio book | book string title, chapters integer few | Skip \
{b} chapters of {a}.; Jump {b} chapters on in {a}.; {a} is dull, leave out {b} chapters. | You \
are further on.
watch_series | Watch parts of a series | series string title, parts integer few | Show {b} parts \
of {a}.; Watch {a}, {b} parts.; We want to see {b} more of {a}. | Enjoy {a}.
sing_along | Sing a tune with somebody | tune string title, with string name | Sing {a} with \
{b}.; {b} and I sing {a}.; Let us hear {b} sing {a} with me. | We sing.
hum_tune | Which tune somebody hums | tune string title | Is that {a}?; Hum {a}.; How does {a} \
go?
buy_print | Buy a print of a painting | painting string title, painter string name | Buy {a} by \
{b}.; I would love {a} by the painter {b}.; A print of {a}, painted by {b}. | The print is yours.
quote_author | A line from a book of an author | book string title, author string name | A line \
from {a} by {b}.; Quote {a} of {b}.; What did {b} write in {a}?
stage_play | When a play is on | play string title, house string company | When is {a} on at the \
{b}?; Is {a} played at {b}?; We want to go to {b} and see {a}.
"""
