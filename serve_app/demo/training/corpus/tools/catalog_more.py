"""More tools for training, with fewer ways to ask for each: what counts is that they are many."""

TABLE = """
tire_pressure | Pressure of a car's tires | car string code | Do the tires of {a} need air?; \
Pressure of {a}, please.; Check the tires on {a}.
book_haircut | Appointment with a barber | customer string name, hour string clock | {a} wants a \
haircut at {b}.; Barber for {a} at {b}, please.; My hair is too long, get me in at {b} as {a}. | \
{a} goes to the barber at {b}.
report_pothole | Tell the city about a hole in a street | street string company | There is a hole \
in {a}.; I nearly fell on {a}, report it.; Report a pothole on {a}. | It is reported.
convert_units | Convert metres into another unit | metres integer many, unit string item | How \
much is {a} metres in {b}?; Convert {a} metres to {b}.; {a} metres in {b}, please.
lend_book | Lend a library book to a reader | book string title, reader string name | {b} takes \
{a} home.; Lend {a} to {b}.; The reader {b} wants {a}. | {b} has {a} now.
return_book | Take back a library book | book string title | Here is {a} back.; I return {a}.; I \
am done reading {a}. | {a} is back.
show_menu | Dishes of a restaurant | restaurant string company | What can I eat at {a}?; Show me \
the menu of {a}.; What does {a} cook today?
reserve_court | Reserve a tennis court | club string company, hour string clock | We play tennis \
at {a} at {b}.; A court at {a}, {b}, please.; Reserve a court of {a} for {b}. | The court at {a} \
is yours at {b}.
donate_blood | Sign somebody up to give blood | donor string name, on string day | {a} wants to \
give blood on {b}.; Sign {a} up to donate on {b}.; {a} gives blood {b}. | {a} gives blood on {b}.
adopt_pet | Adopt an animal from a shelter | animal string item, shelter string company | I would \
like to take a {a} home from {b}.; Adopt a {a} at {b}.; Has {b} a {a} for me? I want it. | The {a} \
is yours.
mow_lawn | Mow the lawn of a garden | garden string room, height integer few | The grass in the \
{a} is too high, cut it to {b}.; Mow the {a} at {b}.; Cut the lawn of the {a}, {b} high. | The \
lawn is cut.
find_recipe | Recipes with an ingredient | ingredient string item | What can I cook with {a}?; I \
have {a} in the fridge, any ideas?; A recipe with {a}, please.
plan_route | Way from a place to another on foot | start string company, goal string company | \
How do I walk from {a} to {b}?; Show the way from {a} to {b}.; I am at {a} and want to get to {b}.
elevator_call | Call the elevator to a floor | floor integer few | I am waiting on floor {a}.; \
Send the elevator to floor {a}.; Elevator to {a}, please. | It comes to floor {a}.
check_allergy | Whether a patient is allergic to something | patient string name, thing string \
item | Can {a} eat {b}?; Is {b} bad for {a}?; Does {a} have an allergy to {b}?
start_dishwasher | Start the dishwasher | minutes integer many | Wash the dishes for {a} minutes.; \
The plates are dirty, run the machine {a} minutes.; Dishwasher, {a} minutes. | It runs for {a} \
minutes.
vacuum_room | Vacuum a room | area string room | The floor of the {a} is dirty.; Vacuum the {a}.; \
Clean up the crumbs in the {a}. | The {a} is clean.
raise_flag | Raise a flag | flag string item, pole string code | Let the {a} flag fly on {b}.; \
Raise the {a} on {b}.; Put the flag with the {a} up at {b}. | The flag is up.
wrap_gift | Wrap a gift for somebody | gift string item, person string name | Wrap the {a} for \
{b}.; The {a} is a present for {b}, wrap it.; Make a gift of the {a} for {b}. | It is wrapped.
compose_tune | Compose a tune | mood string item, bars integer many | Write me a tune of {b} bars \
about {a}.; Compose {b} bars like {a}.; I need music about {a}, {b} bars. | The tune has {b} bars.
photo_of | Photos that show something | what string item | Show me pictures of {a}.; Any photo \
with a {a}?; I want to see a {a}.
pay_parking | Pay for a parked car | plate string code, hours integer few | My car {a} stands \
there for {b} hours, pay that.; Parking for {a}, {b} hours.; Pay {b} hours for the plate {a}. | \
{a} may stand for {b} hours.
find_tutor | Find somebody who teaches a subject | subject string item | Who can teach me {a}?; I \
am bad at {a}, find me a tutor.; A teacher for {a}, please.
hold_mail | Keep the letters of a house at the post | house string company, weeks integer few | \
We are away from {a} for {b} weeks, keep our letters.; Hold the mail of {a} for {b} weeks.; No \
post to {a} for {b} weeks, please. | The post keeps it.
share_screen | Share the screen with somebody | with string name | Let {a} see my screen.; Share \
my screen with {a}.; I want to show {a} something. | {a} sees your screen.
call_plumber | Call a plumber | where string room | Water is dripping in the {a}.; The pipe in \
the {a} is broken.; I need a plumber for the {a}. | The plumber comes to the {a}.
harvest_field | Harvest a field | field string room, crop string item | The {b} in the {a} is \
ripe, bring it in.; Harvest the {b} of the {a}.; Get the {b} from the {a}. | The {b} is in.
dive_depth | Greatest depth of a dive | diver string name | How deep did {a} go?; Depth of the \
dive by {a}?; How far down was {a}?
rank_team | Place of a team in the league | team string company | Which place is {a} in?; Where \
does {a} stand in the table?; How good is {a} this season?
order_flowers | Send flowers to somebody | flowers string item, to string name | Send {a} to {b}, \
it is a birthday.; {b} likes {a}, order some.; Flowers for {b}: {a}. | {b} gets {a}.
pollen_level | Pollen in the air of a town | town string town | Will I sneeze in {a}?; Pollen in \
{a}, please.; How much pollen flies in {a}?
tow_car | Tow a broken car | car string code, garage string company | {a} does not start, bring \
it to {b}.; Tow {a} to {b}.; My car {a} broke down, take it to {b}. | {a} is towed to {b}.
paint_wall | Paint a wall | wall string room, colour string item | I want the {a} in {b}.; Paint \
the {a} wall {b}.; Make the wall of the {a} look like {b}. | The {a} is {b} now.
divide_bill | Split a bill among people | cents integer many, people integer few | We are {b} and \
have to pay {a}.; Split {a} among {b}.; {a} cents for {b} people, who pays what?
train_delay | Delay of a train | train string code | Is {a} late?; How long do I have to wait \
for {a}?; When does {a} really come?
check_oven | Heat of the oven | dish string item | Is the {a} in the oven hot enough?; How warm \
is the oven with the {a}?; Look at the {a} in the oven.
tell_joke_about | Joke about a topic | topic string item | Make me laugh about a {a}.; Do you know \
a joke with a {a}?; Something funny about {a}, please.
sort_laundry | Sort the laundry by colour | basket string code, colours integer few | Sort \
basket {a} into {b} colours.; The clothes in {a} are mixed, make {b} heaps.; {b} heaps of {a}. | \
There are {b} heaps.
send_postcard | Send a postcard | to string name, from string town | Write {a} a card from {b}.; A \
postcard from {b} to {a}, please.; Greet {a} from {b} with a card. | {a} gets a card from {b}.
rent_costume | Rent a costume | costume string item, nights integer few | I want to go as a {a} \
for {b} nights.; Rent the {a} costume, {b} nights.; A {a} costume for {b} nights, please. | The \
{a} is yours for {b} nights.
fix_bug | Assign a bug to a sprint | bug string code, sprint integer few | {a} has to be mended \
in sprint {b}.; Put bug {a} into sprint {b}.; Plan {a} for sprint {b}. | {a} is in sprint {b}.
deploy_build | Deploy a build to a stage | build string code, stage string company | Roll {a} out \
to {b}.; Deploy {a} on {b}.; {b} shall run {a}. | {b} runs {a}.
rotate_key | Make a new secret key for a service | service string company | The key of {a} got \
out.; New key for {a}, please.; Rotate the secret of {a}. | {a} has a new key.
list_commits | Latest commits of an author | author string name | What has {a} changed?; Commits \
by {a}?; What did {a} push last?
measure_noise | Loudness of a machine | machine string item | How loud is the {a}?; Measure the \
noise of the {a}.; Is the {a} too loud?
drain_pool | Let the water out of a pool | pool string room | Empty the pool in the {a}.; No more \
water in the {a} pool, please.; Drain the {a}. | The pool is empty.
count_calories | Calories of a meal | meal string item, grams integer many | How many calories do \
{b} grams of {a} have?; I ate {b} grams of {a}, was it much?; Calories of {a}, {b} grams.
spot_satellite | When a satellite passes over a place | satellite string code, over string town | \
When can I see {a} from {b}?; Does {a} fly over {b} tonight?; Next pass of {a} over {b}.
set_thermos | Keep a drink warm | drink string item, hours integer few | Keep my {a} warm for {b} \
hours.; {a} shall stay hot {b} hours.; {b} hours of warm {a}, please. | It stays warm.
teach_trick | Teach a pet a trick | pet string name, trick string item | {a} should learn {b}.; \
Teach {a} the {b} trick.; Can {a} learn to do a {b}? | {a} can do it.
hire_guide | Hire a guide for a tour | tour string title, people integer few | We are {b} and \
want to see {a} with a guide.; A guide for {a}, {b} of us.; Hire somebody to show {b} people {a}. \
| The guide waits.
find_sponsor | Firms that may pay for an event | event string title | Who could pay for {a}?; Find \
money for {a}.; We need a sponsor for {a}.
launch_rocket | Launch a rocket | rocket string title, hour string clock | Let {a} fly at {b}.; \
Start {a} at {b} into space.; Lift off for {a}, {b}. | {a} flies.
brew_coffee | Make coffee | cups integer few, roast string item | I am tired, {a} cups of {b}.; \
Make {a} cups of {b} coffee.; {a} times {b} coffee, please. | {a} cups are ready.
check_credit_card | Limit of a credit card | card string code | How much can I still spend with \
{a}?; What is left on {a}?; Limit of the card {a}?
cast_vote | Vote for a proposal | proposal string code, voter string name | {b} is for {a}.; Vote \
{a} as {b}.; Put down that {b} wants {a}. | {b} voted for {a}.
sew_button | Sew a button on a piece of clothing | clothing string item | A button of my {a} came \
off.; Sew the button on the {a}.; My {a} does not close any more. | It is on again.
bird_call | Call of a bird | bird string item | What does a {a} sound like?; Let me hear a {a}.; \
Play the call of the {a}.
cut_video | Cut a video to some seconds | video string title, seconds integer many | Make {a} \
only {b} seconds long.; Cut {a} at {b} seconds.; I need {b} seconds of {a}. | {a} has {b} seconds.
add_subtitle | Add a subtitle to a film | film string title, text string phrase | Write "{b}" \
under {a}.; {a} needs the subtitle "{b}".; Put "{b}" below the picture in {a}. | It is there.
track_runner | Where a runner is | runner string code | How far has {a} come?; Where is runner \
{a} now?; Has {a} reached the goal?
renew_lease | Renew the lease of a flat | flat string code, years integer few | I want to stay in \
{a} for {b} years.; Renew the lease on {a}, {b} years.; {b} more years in flat {a}. | {a} is yours \
for {b} years.
find_twin | Cities that are twins of a city | city string town | Which city is the twin of {a}?; \
Is there a twin town of {a}?; Twins of {a}, please.
check_ice | Whether the ice on a lake is thick enough | lake string title | Can I skate on {a}?; \
Is the ice of {a} thick?; Is it safe to walk on {a} now?
sound_alarm | Sound an alarm | zone string room, minutes integer few | Fire in the {a}, {b} \
minutes of alarm!; Make noise in the {a} for {b} minutes.; Alarm for the {a}, {b} minutes. | The \
alarm sounds.
quiz_me | Ask questions about a subject | subject string item, questions integer few | Test me on \
{a} with {b} questions.; {b} questions about {a}, please.; Do I know {a}? Ask {b} times.
name_star | Give a star a name | star string code, called string name | Call the star {a} {b}.; \
{a} shall be named {b}.; Name {a} after {b}. | {a} is called {b}.
warm_seat | Heat a seat | seat string code, degrees integer few | My seat {a} is cold, {b} \
degrees more.; Heat {a} by {b}.; Make {a} warmer, {b} degrees. | {a} gets warm.
find_meaning_of_name | Meaning of a first name | first_name string name | What does {a} mean?; \
Why is somebody called {a}?; Meaning of the name {a}, please.
store_luggage | Store luggage at a station | bags integer few, station string town | Keep my {a} \
bags in {b}.; Where do I leave {a} bags in {b}? Store them.; {a} suitcases at {b} station, \
please. | Your bags are safe.
cure_plant | What to do for a sick plant | plant string item | My {a} has yellow leaves.; The {a} \
is dying, help.; What is wrong with my {a}?
write_contract | Write a contract between two parties | first string name, second string company \
| {a} starts to work for {b}, write that down.; Make a contract of {a} and {b}.; {a} and {b} want \
to sign. | The contract is written.
cancel_meeting | Cancel a meeting | meeting string title | {a} does not take place.; Cancel {a}.; \
I can't come to {a}, call it off. | {a} is off.
find_noise | What makes a noise in a room | heard string room | I hear something in the {a}.; \
What is that sound in the {a}?; Listen to what is in the {a}.
balance_sheet | Balance of a firm in a year | firm string company, year string code | Did {a} earn \
money in {b}?; Balance of {a}, {b}.; How rich was {a} in {b}?
print_label | Print a label | text string phrase, copies integer few | I need {b} labels that say \
"{a}".; Print "{a}" {b} times.; {b} stickers with "{a}", please. | {b} labels are printed.
shine_light | Point a light at something | at string item, seconds integer many | Make the {a} \
bright for {b} seconds.; Light on the {a}, {b} seconds.; I can't see the {a}, shine there for {b} \
seconds. | There is light.
hatch_egg | Keep an egg warm until it hatches | egg string code, days integer few | {a} needs {b} \
days to hatch.; Keep {a} warm for {b} days.; Hatch {a}, it takes {b} days. | {a} is warm.
ring_bell | Ring the bell of a church | church string company, times integer few | Let {a} ring \
{b} times.; {b} strokes of the bell at {a}.; Ring {a}, {b} times. | The bell rings.
find_ferry | Ferries to an island | island string town | How do I get over to {a}?; Is there a \
ship to {a}?; Ferries to {a}, please.
open_shop | Open a shop in the morning | shop string company, at string clock | {a} starts at {b} \
today.; Open {a} at {b}.; Customers may come into {a} from {b}. | {a} opens at {b}.
weigh_baby | Write down the weight of a baby | baby string name, grams integer many | {a} has {b} \
grams today.; Note {b} grams for {a}.; The scales say {b} for {a}. | {b} grams are noted.
judge_dog | Points of a dog in a show | dog string name | How many points does {a} get?; Judge \
{a}.; Was {a} a good dog at the show?
steer_ship | Steer a ship by some degrees | ship string title, degrees integer many | Turn {a} by \
{b} degrees.; {b} degrees to the right, {a}!; Steer {a}, {b}. | {a} turns.
mix_paint | Mix two paints | first string item, second string item | What comes out of {a} and \
{b}?; Mix {a} with {b}.; Put {a} and {b} together. | They are mixed.
tip_waiter | Give a tip to a waiter | waiter string name, cents integer many | {a} was kind, give \
{b} cents.; Tip {a} {b} cents.; {b} cents for {a}, who served us. | {a} says thank you.
weld_part | Weld a part to another | part string code, to string code | {a} has to hold on {b}.; \
Weld {a} to {b}.; Join {a} and {b} with heat. | They hold.
score_goal | Write down a goal in a match | player string name, minute integer few | {a} shot a \
goal in minute {b}!; Goal by {a}, minute {b}.; Note that {a} scored after {b} minutes. | It is \
noted.
locate_phone | Where a phone is | phone string code | I can't find my phone {a}.; Where did I \
leave {a}?; Let me know where {a} is.
filter_water | Filter water of a tank | tank string room, litres integer few | The water in the \
{a} is dirty, clean {b} litres.; Filter {b} litres in the {a}.; {b} clean litres from the {a}. | \
The water is clean.
crop_image | Crop an image | image string title, width integer many | Cut {a} to {b} pixels.; {a} \
is too wide, {b} will do.; Crop {a} at {b}. | {a} is cropped.
rebook_flight | Move a flight to another day | flight string code, to_day string day | I can't fly \
with {a}, take me on {b}.; {a} on {b} instead, please.; Change {a} to {b}. | You fly on {b}.
"""
