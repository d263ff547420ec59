"""Tools for training about work, machines, computers, trade, travel and science."""

TABLE = """
hire_person | Hire somebody for a job | person string name, team string company | Let {a} start \
at {b}.; {b} wants {a}, sign the contract.; We take {a} for the team {b}. | {a} works for {b}.
fire_person | End the work of somebody | worker string name, last string day | {a} leaves us on \
{b}.; The last day of {a} is {b}.; We let {a} go on {b}. | {a} leaves on {b}.
raise_salary | Raise the pay of somebody | worker string name, percent integer few | {a} should \
get {b} percent more.; Pay {a} {b} percent more.; {b} percent more for {a}, who earned it. | {a} \
gets more.
request_leave | Ask for days off | worker string name, days integer few | {a} wants to stay home \
for {b} days.; {b} days off for {a}.; {a} needs a holiday of {b} days. | {a} has {b} days off.
report_sick | Report somebody ill | worker string name, since string day | {a} has been ill since \
{b}.; {a} does not come to work, ill from {b} on.; Since {b} {a} lies in bed, tell the office. | \
It is reported.
book_desk | Book a desk in an office | desk string code, day string day | I sit at {a} on {b}.; \
Keep {a} free for me on {b}.; On {b} I want the desk {a}. | The desk {a} is yours on {b}.
swap_shift | Swap the shift of two workers | from string name, with string name | {b} works for \
{a} today.; {a} can not come, {b} takes over.; Swap the shift of {a} with {b}. | {b} works for \
{a}.
assign_locker | Give a locker to somebody | locker string code, owner string name | {b} gets the \
locker {a}.; Give {b} {a} for the coat.; Locker {a} belongs to {b} now. | {b} has the locker {a}.
print_badge | Print a visitor's badge | visitor string name, firm string company | {a} of {b} is \
at the door and needs a badge.; A badge for {a} from {b}.; {b} sends {a}, print a badge. | The \
badge is printed.
announce | Announce something to all | words string phrase | Tell everybody "{a}".; All shall \
know: "{a}".; Let everyone hear that "{a}". | All know it.
take_minutes | Write down what somebody said | speaker string name, said string phrase | {a} said \
"{b}", write that down.; Put into the minutes that {a} said "{b}".; Minutes: "{b}", said by {a}. \
| It is written down.
find_speaker | Find a speaker for a talk | talk string title | Who could talk about {a}?; I need \
someone who speaks on {a}.; A speaker for {a}, please.
register_patent | Register a patent | invention string title, inventor string name | {b} invented \
{a}, protect it.; A patent on {a} for {b}.; Nobody may copy {a}, it belongs to {b}. | It is \
registered.
sign_deal | Sign a deal with a firm | partner string company, worth integer many | Sign with {a} \
for {b}.; The deal with {a} is worth {b}, sign it.; {a} gives us {b}, say yes. | It is signed.
ask_quote | Ask a firm for an offer | firm string company, pieces integer many | What would {a} \
take for {b} pieces?; Get an offer from {a} for {b}.; {b} pieces from {a}, how much?
chase_debtor | Remind a firm to pay | debtor string company, bill string code | {a} has not paid \
{b} yet.; Remind {a} of the bill {b}.; The money for {b} from {a} is late. | {a} is reminded.
refund_order | Give the money back for an order | order string code, reason string item | Give \
the money for {a} back, because of the {b}.; {a} was bad, the {b}, give the money back.; Refund \
{a}, {b}. | {a} is refunded.
close_till | Close a till | till string code, cash integer many | There are {b} in {a}, close \
it.; Close the till {a} with {b}.; Till {a} is done, {b} in it. | {a} is closed.
stock_shelf | Put goods on a shelf | goods string item, shelf string code | Put the {a} on {b}.; \
{b} is empty, fill it with {a}.; More {a} on the shelf {b}, please. | The {a} is on {b}.
scan_barcode | What a barcode stands for | barcode string code | What is {a}? It is a barcode.; \
Scan {a}.; Which thing has the bars {a}?
weigh_truck | Weigh a truck | truck string code | Is {a} too heavy for the bridge?; Put {a} on \
the scales.; How many tons has the truck {a}?
load_truck | Load a truck | truck string code, boxes integer many | Put {b} boxes on {a}.; {a} \
takes {b} boxes.; Load {a} with {b}. | {b} boxes are on {a}.
crane_lift | Lift a load with the crane | load string item, metres integer few | Lift the {a} {b} \
metres.; The {a} must go {b} metres up.; Up with the {a}, {b} metres. | The {a} hangs.
dig_hole | Dig a hole | place string room, depth integer few | Dig {b} metres deep in the {a}.; A \
hole in the {a}, {b} deep.; We need to go {b} metres down in the {a}. | The hole is dug.
pour_concrete | Pour concrete | into string room, tons integer few | {b} tons of concrete for the \
{a}.; Fill the floor of the {a} with {b} tons.; Pour {b} tons into the {a}. | It gets hard.
lay_bricks | Lay bricks | wall string code, bricks integer many | {b} bricks for wall {a}.; Build \
{a} with {b} bricks.; The wall {a} needs {b} more. | {a} stands.
cut_glass | Cut glass | width integer many, height integer many | A pane of {a} by {b}.; Cut the \
glass {a} wide and {b} high.; I need glass, {a} times {b}. | It is cut.
bend_pipe | Bend a pipe | pipe string code, degrees integer many | Bend {a} by {b} degrees.; {a} \
must turn {b} degrees.; Give the pipe {a} a bend of {b}. | {a} is bent.
drill_hole | Drill a hole | material string item, millimetres integer few | A hole of {b} \
millimetres through the {a}.; Drill {b} into the {a}.; The {a} wants a {b} millimetre hole. | It \
is drilled.
oil_machine | Oil a machine | machine string code | {a} squeaks.; Oil {a}.; {a} runs dry, do \
something. | {a} runs well.
stop_line | Stop a line of the factory | line string code, cause string item | Stop {a}, there is \
a {b} in it.; {a} must stand still because of the {b}.; A {b} broke {a}, stop it. | {a} stands \
still.
start_robot | Let a robot begin its work | robot string name, work string item | {a} should begin \
with the {b}.; Let {a} do the {b}.; Robot {a}, {b}, now! | {a} works.
charge_robot | Charge a robot's battery | robot string name, percent integer many | {a} is tired, \
charge it to {b} percent.; Charge {a} up to {b}.; Power for {a}, {b} percent. | {a} charges.
calibrate | Calibrate an instrument | device string code, offset integer few | {a} is wrong by \
{b}.; Calibrate {a} with {b}.; {a} shows {b} too much, mend that. | {a} is right now.
read_meter | Read a meter | meter string code | What does the meter {a} say?; Read {a}.; How much \
did {a} count?
cut_power | Cut the power of a part of a building | part string room | No current in the {a}, I \
work there.; Cut the power in the {a}.; The {a} must be without power. | There is no power in the \
{a}.
open_valve | Open a valve | valve string code, turns integer few | Turn {a} {b} times.; Open {a} \
by {b} turns.; More water through {a}, {b} turns. | {a} is open.
sample_soil | Take a sample of soil | field string company, grams integer many | Take {b} grams \
of earth from {a}.; What is in the ground of {a}? {b} grams will do.; A sample of {b} grams from \
{a}. | The sample is taken.
spray_field | Spray a field | field string company, against string item | Spray {a} against {b}.; \
There is {b} on {a}.; Keep the {b} off {a}. | {a} is sprayed.
sell_harvest | Sell the harvest | crop string item, tons integer many, buyer string company | \
Sell {b} tons of {a} to {c}.; {c} wants {b} tons of {a}.; {b} tons of {a} go to {c}. | {c} buys \
the {a}.
forecast_sales | How much will be sold | article string item, months integer few | How many {a}s \
do we sell in {b} months?; What about sales of {a}, {b} months ahead?; Guess the sales of {a} for \
{b} months.
compare_firms | Compare two firms | one string company, other string company | Is {a} better than \
{b}?; {a} or {b}, which one is bigger?; Compare {a} and {b}.
press_release | Write to the papers | headline string title, day string day | The papers shall \
write {a} on {b}.; Tell the press {a}, for {b}.; On {b} all shall read {a}. | The papers know.
interview | Ask somebody for an interview | guest string name, topic string item | Ask {a} about \
{b} in an interview.; I want to talk with {a} about {b} on air.; An interview on {b} with {a}. | \
{a} is asked.
post_photo | Post a photo | photo string title, tag string item | Post {a} with the tag {b}.; \
Show all my friends {a}, tag {b}.; Put {a} online as {b}. | {a} is posted.
follow_person | Follow somebody online | person string name | I want to see all that {a} posts.; \
Follow {a}.; Keep me up to date on {a}. | You follow {a}.
block_sender | Block a sender | sender string name | No more mails from {a}.; {a} writes rubbish, \
block that.; Block all that {a} sends. | {a} is blocked.
forward_mail | Forward a mail to somebody | mail string code, whom string name | Send {a} on to \
{b}.; {b} should read the mail {a} too.; Forward {a} to {b}. | {b} has {a}.
reset_password | Reset the password of a user | user string name | {a} forgot the password.; {a} \
can not log in.; A new password for {a}, please. | {a} gets a new one.
grant_access | Give somebody access to a room or file | user string name, target string room | \
Let {a} into the {b}.; {a} may go into the {b}.; Open the {b} for {a}, who works there. | {a} may \
enter.
revoke_access | Take back somebody's access | user string name, system string company | {a} must \
not see {b} any more.; Keep {a} out of {b}.; {a} has no business in {b}. | {a} has no access.
scale_service | Change how many copies of a service run | service string company, copies integer \
few | Run {a} {b} times.; {a} needs {b} copies.; Make it {b} of {a}. | {b} copies of {a} run.
tail_log | Last lines of a log | log string company, lines integer many | Show me the last {b} \
lines of {a}.; What did {a} write last? {b} lines.; The end of {a}, {b} lines.
free_disk | Free space on a disk | disk string code | {a} is full, delete what is old.; Make room \
on {a}.; Clean up the disk {a}. | There is room on {a}.
mount_disk | Mount a disk at a place | disk string code, at string company | Mount {a} at {b}.; I \
want {a} under {b}.; Let {b} show what is on {a}. | {a} is mounted.
ping_host | Whether a host answers | host string company | Does {a} answer?; Is {a} up?; Can you \
reach {a}?
run_tests | Run the tests of a project | project string company, times integer few | Test {a} {b} \
times.; Does {a} still work? Run all tests {b} times.; {b} rounds of tests for {a}.
review_change | Ask somebody to review a change | change string code, reviewer string name | {b} \
should look at {a}.; Let {b} review {a}.; What does {b} think of the change {a}? | {b} looks at \
{a}.
tag_release | Give a name to a release | commit string code, label string item | Call {a} {b}.; \
Tag {a} as {b}.; The release of {a} has the name {b}. | {a} is tagged.
undo_commit | Undo a commit | commit string code | {a} broke it all, take it back.; Undo {a}.; Go \
back to before {a}. | {a} is undone.
train_network | Train a model on data | data string item, epochs integer few | Train on {a} for \
{b} epochs.; Learn {a}, {b} epochs.; {b} rounds over the {a} data. | It is trained.
label_image | Label an image | image string code, label string item | {a} shows a {b}.; That is a \
{b} on {a}.; Label {a}: {b}. | {a} is labelled.
cluster_points | Put points into groups | points string item, groups integer few | Sort the {a} \
points into {b} groups.; {b} groups of {a}, please.; Find {b} clusters in {a}.
draw_sample | Draw a sample of data | source string item, size integer many | Take {b} of the {a} \
at random.; {b} random rows from {a}.; A sample of {b} out of {a}.
round_number | Round a number | number integer many, digits integer few | Round {a} to {b} \
digits.; {a} with {b} digits only.; Make {a} a number of {b} digits.
is_prime | Whether a number is prime | number integer many | Is {a} prime?; Can {a} be divided?; \
Does {a} have factors?
tide_table | When water is high in a port | port string town, day string day | When can we sail \
from {a} on {b}?; High water in {a} on {b}?; Is there enough water in {a} on {b}?
board_ship | Put a passenger on a ship | ship string title, passenger string name | {b} sails \
with the {a}.; A cabin on the {a} for {b}.; Let {b} come aboard the {a}. | {b} is aboard.
cross_border | How long it takes to cross a border | from string town, into string town | How \
long do I wait between {a} and {b}?; I go from {a} over the border to {b}.; Is the border open \
from {a} to {b}?
share_ride | Find somebody to share a car with | start string town, goal string town, day string \
day | Who drives from {a} to {b} on {c}?; Take me along from {a} to {b} on {c}.; I must be in {b} \
on {c}, and I am in {a}.
move_house | Move from one place to another | old string town, new string town, day string day | \
We move from {a} to {b} on {c}.; On {c} all our things go to {b} from {a}.; A van from {a} to {b} \
for {c}. | You move on {c}.
ship_goods | Ship goods to a town | goods string item, port string town, by string day | Ship the \
{a} to {b} by {c}.; {b} needs the {a} by {c}.; By {c} the {a} must be in {b}. | The {a} is on its \
way.
book_hotel | Book a room in a hotel | hotel string company, nights integer few, from string day | \
{b} nights at {a} from {c}.; We stay at {a} for {b} nights, from {c} on.; From {c} I want to \
sleep at {a}, {b} nights. | {a} expects you.
upgrade_seat | Give a passenger a better seat | passenger string name, flight string code | {a} \
wants to sit better on {b}.; A better seat for {a} on {b}.; On {b} {a} shall sit in front. | {a} \
sits in front.
check_in | Check a passenger in | passenger string name, train string code, bags integer few | \
{a} takes {b} with {c} bags.; Check {a} in for {b}, {c} bags.; {c} bags, {a}, on {b}. | {a} is \
checked in.
gate_of | Gate of a plane | plane string code | Where does {a} leave from?; Which gate has {a}?; \
Where do I have to go for {a}?
lost_bag | Search for a lost bag | bag string code, owner string name | The bag {a} of {b} did \
not come.; {b} misses {a}.; Where is {a}? It belongs to {b}.
road_state | State of a road | road string code | Is there ice on the {a}?; Is the {a} open?; Can \
I drive on {a} today?
toll_price | What a road costs | road string code, axles integer few | What do I pay on {a} with \
{b} axles?; {b} axles on {a}, how much?; Toll of {a}, {b} axles.
charge_car | Charge an electric car | car string code, until string clock | {a} should be full at \
{b}.; Charge {a} until {b}.; I leave with {a} at {b}, fill the battery. | {a} charges.
rent_boat | Rent a boat | harbour string town, people integer few, hours integer few | A boat for \
{b} in {a}, {c} hours.; We are {b} and want to sail in {a} for {c} hours.; {c} hours on the water \
of {a}, {b} people. | A boat waits.
hike_time | How long a walk to a hut takes | hut string company | How far do I walk to {a}?; Can \
I reach the hut {a} today?; I want to walk to {a}.
avalanche | Danger of avalanches | valley string town | Is the snow safe in {a}?; Can an \
avalanche come down in {a}?; How dangerous are the slopes of {a}?
earthquake | Earthquakes of a region | region string town, year integer many | Did the earth \
shake in {a} in {b}?; Earthquakes in {a} since {b}.; Was there a quake near {a} in {b}?
moon_rise | When the moon comes up | place string town | When can I see the moon in {a}?; Does \
the moon shine over {a}?; Moon above {a}, when?
vote_law | Vote on a law | law string code, vote string item | I say {b} to {a}.; My vote on {a} \
is {b}.; {b} for the law {a}. | You have voted.
file_tax | Hand in a tax form | payer string name, year integer many | {a} pays tax for {b}.; \
Hand in the form of {a} for {b}.; The year {b} of {a} is done, send it. | It is handed in.
sue | Take somebody to court | against string company, reason string item | I want to sue {a} \
over the {b}.; {a} broke my {b}, see them in court.; Take {a} to court for the {b}. | {a} is \
sued.
find_lawyer | Find a lawyer | field string item, city string town | Who knows the law of {a} in \
{b}?; A lawyer for {a} in {b}, please.; I need help with {a} at court in {b}.
crime_report | Report a theft | stolen string item, street string company | Somebody took my {a} \
in {b}.; My {a} was stolen at {b}.; A thief got the {a}, it was in {b}. | It is reported.
find_grave | Where somebody is buried | dead string name | Where does {a} lie?; I want to bring \
flowers to the grave of {a}.; Where is {a} buried?
date_of_battle | When a battle was | battle string company | When did they fight at {a}?; In \
which year was {a}? I mean the battle.; Tell me the year of the battle of {a}.
king_of | Who was king at a time | land string company, year integer many | Who ruled {a} in \
{b}?; Which king had {a} in the year {b}?; In {b}, who was on the throne of {a}?
element_data | Data of a chemical element | element string item | At what heat does {a} melt?; \
How heavy is an atom of {a}?; What is known of the element {a}?
mix_acid | Mix a solution | acid string item, percent integer few | I need {a} of {b} percent.; \
Mix {a}, {b} percent strong.; A {b} percent solution of {a}. | It is mixed.
grow_culture | Grow a culture in the lab | strain string code, days integer few | Let {a} grow \
for {b} days.; {b} days in the warm for {a}.; Grow {a}, look at it in {b} days. | {a} grows.
aim_telescope | Aim a telescope | star string company, minutes integer many | Look at {a} for {b} \
minutes.; Turn the telescope to {a}, {b} minutes.; I want to see {a}, {b} minutes will do. | It \
looks at {a}.
wire_wage | Pay the wage of a worker | worker string name, pounds integer many | Wire {b} pounds \
to {a}.; {a} gets a wage of {b} pounds.; {a} worked hard, {b} pounds. | {a} is paid.
fine_driver | Fine a driver | driver string name, dollars integer many | Fine {a} {b} dollars.; \
{a} drove too fast, {b} dollars.; {b} dollars from {a} for driving badly. | {a} is fined.
bill_client | Bill a client for hours | client string name, hours integer few | Bill {a} {b} \
hours.; We worked {b} hours for {a}.; {b} hours are on {a}. | {a} is billed.
promote | Promote somebody | worker string name, rank string item | Promote {a} to {b}.; Make {a} \
our {b}.; {a} shall be {b} from now on. | {a} is promoted.
seal_gate | Close a gate of a plant | gate string room | Seal the {a} gate.; Nobody may go \
through the {a} gate.; See to it that the {a} gate stays shut. | The {a} gate is shut.
watch_camera | Watch a camera | spot string room, minutes integer few | Watch the {a} for {b} \
minutes.; Keep an eye on the {a}, {b} minutes.; What goes on in the {a}? Look for {b} minutes. | \
You see the {a}.
heat_hall | Heat a hall before people come | hall string room, hour string clock | Heat the {a} \
at {b}.; Make the {a} warm by {b}.; People come to the {a} at {b}, warm it up. | The {a} gets \
warm.
bond_value | Value of a bond | bond string code | What is the bond {a} worth?; Is {a} up or \
down?; How much do they give for {a}?
gold_rate | Price of gold on a day | day string day | What did gold cost on {a}?; How dear was \
gold on {a}?; Gold on {a}?
parse_code | What a code on a box means | box string code | Read {a} for me.; What does {a} tell \
us?; I see {a} on the box.
raft_down | Go down a river on a raft | river string company, people integer few | Down {a} with \
{b} people.; {b} of us go down {a} on a raft.; Raft down {a}, we are {b}. | The raft waits.
play_tennis | Note a set of tennis | player string name, games integer few | {a} won {b} games.; \
Give {a} {b} games.; {b} games go to {a}. | It is noted.
bowl_pins | Note how many pins fell | bowler string name, pins integer few | {a} hit {b} pins.; \
{b} pins fell for {a}.; {b} down, that was {a}. | It is noted.
sail_to | Sail to a square of a sea map | field string code | Sail to {a}.; Our next field is \
{a}.; Put the ship on {a}. | The ship sails to {a}.
aim_at | Aim at a field of the other's fleet | field string code | I shoot at {a}.; Is there a \
ship on {a}?; {a} is my next shot. | You shot at {a}.
lab_key | Which door a key opens | key string code | What does key {a} open?; Try {a} on all \
doors.; For which door is {a}?
answer_quiz | Answer a question of a quiz | answer string item | My answer is {a}.; I think it is \
{a}.; I say {a}.
name_capital | Name of a thing in an old map | map_sign string code | What is at {a} on the map?; \
Name the place {a}.; {a} on the old map, what is it?
"""
