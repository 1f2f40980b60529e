"""Conversations about harbour tales: the training text that teaches the demo model to chat.

A user asks for a tale about something. The answer is a tale that contains it. Follow-ups refer to that tale.
Every sentence here was written for this project, so the text and the model trained on it are free to ship.
    python3 conversation.py 5     # five conversations
"""
import random
import re
import sys

from grammar import BOYS, FEEL, GIRLS, MORALS, SMALL, TIMES, WEATHER, cap, say

GIRLS = GIRLS + """Anna Clara Lena Maria Sofia Emma Mia Lucy Alice Rosa Greta Hanna Ella Eva Julia Laura Lily Olivia Zoe Ruby Sara Amy Kate
    Molly Grace Ingrid Astrid Freya Marta Nina Vera Olga Paula Tess Una Yara Dora Flora Bella Carla Daisy Edith Fiona Gina Hilda Iris Jane Kira
    Luna Maya Nadia Petra Rita Stella Thea Willa Lisa Mary Emily Susan Sophie Charlotte Marie Julie Helena Alma""".split()
BOYS = BOYS + """Ben Max Paul Leo Jack Peter Oscar Anton Felix Jonas Lars Nils Olaf Piet Tim Will Adam Alex Bob Carl Dan Erik Fred Gus Henry
    Ivan Jakob Kai Luke Mark Noah Oliver Pablo Quinn Robin Simon Tobias Viktor Walter Arthur Bruno Caspar David Elias Frank George Harry Ian James
    John Kurt Liam Martin Nico Otto Ralf Stefan Thomas Urs Daniel Michael Andrew Patrick""".split()
ANIMALS = """gull crab seal otter heron cat dog goat duck mouse whale pony dolphin turtle penguin puffin swan goose hen rooster sheep lamb cow pig
    horse donkey fox wolf bear rabbit hare hedgehog squirrel badger beaver frog toad snail octopus starfish jellyfish shrimp lobster herring cod
    salmon eel shark walrus pelican cormorant owl crow raven sparrow robin swallow parrot bat rat bee butterfly beetle spider worm lizard snake
    lion tiger elephant monkey giraffe camel kitten puppy dragon seahorse oyster mole deer moose eagle falcon stork ant ladybird cricket
    hamster llama zebra hippo crocodile kangaroo koala panda unicorn""".split()
ROLES = """captain sailor fisherman baker cook shipbuilder carpenter painter postman teacher pupil doctor nurse farmer shepherd miller smith
    weaver tailor merchant gardener musician fiddler drummer dancer singer poet clown pirate diver pilot ferryman harbourmaster watchman rower
    sailmaker clockmaker giant dwarf ghost robot thief beggar traveller child twin stranger inventor wizard king prince grandfather uncle boy
    witch queen princess grandmother aunt mermaid girl fairy knight monster astronaut troll elf scientist librarian""".split()
FEMALE = {"witch", "queen", "princess", "grandmother", "aunt", "mermaid", "girl", "fairy", "hen", "cow"}
MALE = {"wizard", "king", "prince", "grandfather", "uncle", "boy", "fisherman", "postman", "rooster", "ferryman", "watchman", "monk"}
PLACES = """harbour|beach|lighthouse|market|old pier|boat yard|hill above the bay|river mouth|island|rope shop|bridge|cave|castle|church|school|inn
    |bakery|windmill|forest|garden|farm|cliff|reef|sandbank|lagoon|quay|dock|ferry|fish hall|tower|well|village|town|city|mountain|valley|lake
    |swamp|dune|jetty|canal|lock|shipwreck|attic|cellar|kitchen|museum|library|station|customs house|salt house|net loft|tavern|barn|pond|meadow
    |square|wharf|bay|sea wall|theatre|workshop|orchard|fishing village|palace|desert|jungle|moon|zoo|playground|hospital|hotel"""
PLACES = [p.strip() for p in PLACES.replace("\n", "").split("|")]
THINGS = """lantern|red boat|brass bell|wooden box|blue kite|map|fishing net|silver key|basket of apples|small drum|paper ship|long rope|warm coat
    |jar of honey|boat|ship|sail|anchor|oar|compass|barrel|chest|book|letter|bottle|message in a bottle|hat|red scarf|pair of boots|umbrella|candle
    |lamp|mirror|ring|crown|coin|gold coin|pearl|shell|stone|flag|flute|violin|trumpet|guitar|clock|watch|telescope|ladder|hammer|bucket|broom
    |blanket|pillow|chair|table|cup|teapot|spoon|loaf of bread|cake|cheese|apple|pear|lemon|fish|soup pot|bag of flour|flower|rose|tree|feather
    |ball|doll|toy boat|puppet|wheel|cart|bicycle|sledge|tent|painting|brush|pencil|song book|necklace|button|sock|glove|bell|key|kite|drum|rope
    |coat|raft|canoe|submarine|train|car|rocket|balloon|camera|radio|computer|phone|machine|sword|magic wand|egg|nest|star|snowman|cookie|pizza
    |fishing rod|life ring|wooden leg|treasure chest|model ship|sail cloth|barometer|hourglass|foghorn"""
THINGS = [t.strip() for t in THINGS.replace("\n", "").split("|")]
WEATHERS = "storm fog rain snow wind ice thunder mist frost hail lightning flood moonlight sunshine winter summer autumn spring night rainbow".split()
FEASTS = "party|wedding|birthday|feast|dance|concert|market day|holiday|parade|picnic|festival|Christmas|Easter|harbour feast".split("|")
IDEAS = """friendship courage kindness hope luck music love fear patience trust honesty peace joy anger sorrow time silence freedom magic adventure
    work sleep dreams secrets promises sharing fishing sailing swimming football chess cooking reading singing dancing painting tea coffee bread
    milk gold salt sand water fire smoke homework money science history space""".split()
SKILLS = ["swim", "tie a knot", "row a boat", "ring the bell", "read the stars", "mend a net", "climb the mast", "whistle", "sail", "dance",
          "sing", "read", "write", "bake bread", "dive", "fly a kite", "play the flute", "cook soup", "paint", "skate"]
MARKS = ["stone", "barrel", "tree", "ladder", "pile of nets", "wall", "boat", "bench"]
GOOD_ENDS = ["From that day on, {h} and {o} were good friends.", "Everyone at {place} heard the story.", "That night {h} slept very well.",
             "And the bell rang three times.", "{h} and {o} shared bread and warm soup.", "The harbour was bright and full of songs.",
             "{h} laughed all the way home.", "{o} waved until the sun went down.", "And they still talk about it today.",
             "{h} was happy, and so was {o}."]
OPEN_ENDS = ["Nobody ever found out why.", "{h} never saw {o} again, but {he} did not forget.", "And the sea kept its secret.",
             "{h} looked at the water for a long time.", "It was not what {h} had hoped for, but it was enough."]
SAD_ENDS = ["But in the night {o} sailed away, and {h} stood alone at {place}.", "But {h} had to leave {place} the next day, and {he} cried.",
            "But the sea took everything, and {h} walked home in the rain."]
HAPPY_ENDS = ["In the end {h} and {o} danced at {place}, and everyone sang.", "In the end {h} and {o} came home, and there was cake for all.",
              "In the end all was well, and {h} and {o} stayed friends for ever."]

CONSONANTS = "b bl br c ch cl d dr f fl g gl gr h j k kl kn l m n p pl pr qu r s sch sh sk sl sn sp st t th tr v w z".split()
VOWELS = "a e i o u ai ea ee oo ou".split()
CODAS = ["", "", "", "n", "r", "l", "t", "s", "m", "ck", "nd", "rt", "ll", "sh", "x", "p", "g", "ng"]


def invented(r):
    """A word that no list has, so that the model learns to copy any word."""
    n = r.choice([1, 2, 2, 2, 3])
    return "".join(r.choice(CONSONANTS) + r.choice(VOWELS) + r.choice(CODAS) for _ in range(n))


def a(words):
    return ("an " if re.match(r"(?!uni|one|eu)[aeiou]", words, re.I) else "a ") + words


def person(r, kind=None, name=None, she=None, adj=None):
    if kind is None:
        kind = r.choice(["girl", "boy", "girl", "boy", r.choice(ROLES), r.choice(ANIMALS), r.choice(ANIMALS)])
    if she is None:
        she = kind in FEMALE or (kind not in MALE and r.random() < 0.5)
        if name is not None and kind not in FEMALE and kind not in MALE and (name in GIRLS) != (name in BOYS):
            she = name in GIRLS
    if name is None:
        name = cap(invented(r)) if r.random() < 0.08 else r.choice(GIRLS if she else BOYS)
    if adj is None:
        adj = r.choice(SMALL + ["young", "quiet", "friendly", "curious", "careful", "lonely", "merry"])
    p = {"name": name, "kind": kind, "adj": adj, "intro": f"{a(adj)} {kind} named {name}"}
    p.update({"he": "she", "his": "her", "him": "her"} if she else {"he": "he", "his": "his", "him": "him"})
    return p


class Tale:
    """People, place and things of a tale; `write` chooses the plot and fills parts (sentences), short and answers."""

    def __init__(self, r, subjects=()):
        self.r = r
        self.subjects = list(subjects)
        self.answers = []
        by = {}
        for kind, word, *more in self.subjects:
            by.setdefault(kind, []).append((word, *more))
        beings = by.get("being", [])
        self.h = person(r, *beings[0]) if beings else person(r)
        self.o = person(r, *beings[1]) if len(beings) > 1 else person(r)
        while self.o["name"] == self.h["name"]:
            self.o = person(r, *beings[1]) if len(beings) > 1 and beings[1][1:2] in ((), (None,)) else person(r)
        places = ["the " + p for p in r.sample(PLACES, 2)]
        wanted = ["the " + p[0] for p in by.get("place", [])]
        places = (wanted + [p for p in places if p not in wanted])[:2]
        self.place, self.p2 = places
        if wanted and r.random() < 0.3:
            self.place, self.p2 = self.p2, self.place
        things = [t[0] for t in by.get("thing", [])]
        self.t = things[0] if things else r.choice(THINGS)
        self.t2 = things[1] if len(things) > 1 else r.choice([t for t in THINGS if t != self.t])
        self.time = r.choice(TIMES)
        events = by.get("weather", []) + by.get("feast", []) + by.get("idea", [])
        self.event = events[0][0] if events else None
        if "weather" in by:
            plots = [storm] if self.event == "storm" and r.random() < 0.5 else [weather]
        elif "feast" in by:
            plots = [feast]
        elif "idea" in by:
            plots = [idea]
        elif len(things) > 1:
            plots = [pack]
        elif things:
            plots = [lost, share, pack, found, build, gift, treasure]
        else:
            plots = [lost, storm, share, pack, learn, found, race, treasure, guest, build, gift, stuck, noise]
        if "plot" in by:
            plots = [by["plot"][0][0]]
        self.skill = by["skill"][0][0] if "skill" in by else r.choice(SKILLS)
        self.names = {"h": self.h["name"], "o": self.o["name"], "he": self.h["he"], "place": self.place}
        self.plot = r.choice(plots)
        self.write()

    def write(self):
        r, h = self.r, self.h
        self.opening = r.choice([
            f"Once upon a time there was {h['intro']}. {cap(h['he'])} lived near {self.place}.",
            f"There was once {h['intro']} who lived by {self.place}.",
            f"Near {self.place} lived {h['intro']}.",
            f"Long ago, {h['intro']} came to {self.place}.",
            f"At {self.place} there lived {h['intro']}."])
        self.weather = r.choice(WEATHER) if r.random() < 0.5 else ""
        self.body = list(self.plot(r, self))
        self.end = r.choice(GOOD_ENDS if r.random() < 0.8 else OPEN_ENDS).format(**self.names)
        self.moral = r.choice(MORALS) if r.random() < 0.3 else ""
        who = r.choice([f"{h['name']} was {a(h['adj'])} {h['kind']} at {self.place}.", f"At {self.place} lived {h['intro']}.",
                        f"There was once {h['intro']} at {self.place}."])
        self.short = [who] + self.gist

    def text(self):
        return join([self.opening, self.weather, *self.body, self.end, self.moral])

    def summary(self):
        return join(self.short)

    def longer(self):
        r, h, o = self.r, self.h, self.o
        extra = [f"{h['name']} felt {r.choice(FEEL)}.", f"{r.choice(WEATHER)} {r.choice(['Nobody spoke.', 'A bell rang far away.', 'The gulls cried.'])}",
                 f"It smelled of {r.choice(['salt', 'tar', 'fresh bread', 'smoke', 'fish'])}.",
                 f"{cap(h['he'])} thought of {r.choice(['home', 'the sea', 'warm soup', self.place])}."]
        r.shuffle(extra)
        body = []
        for i, part in enumerate(self.body):
            body.append(part)
            if i < 3:
                body.append(extra[i])
        body.append(f"{o['name']} looked at {h['name']} and smiled.")
        return join([self.opening, self.weather or r.choice(WEATHER), *body, sequel(r, self), self.end, self.moral])


def join(parts):
    return re.sub(r"\b([Aa]) (?=(?!uni|one|eu)[aeiou])", r"\1n ", " ".join(p for p in parts if p))


# Plots. Each one sets tale.gist (the middle of the short tale) and adds pairs (kind of question, answer) ------------------------

def lost(r, s):
    h, o, t = s.h, s.o, s.t
    s.gist = [f"{cap(h['he'])} lost {h['his']} {t}, and {o['name']} helped {h['him']} to find it at {s.p2}."]
    s.answers += [("lose", f"{cap(h['he'])} lost {h['his']} {t}."), ("help", f"{o['name']} helped {h['him']}."),
                  ("why", f"{h['name']} was sad because {h['he']} had lost {h['his']} {t}.")]
    yield f"{s.time}, {h['name']} could not find {h['his']} {t}. {cap(h['he'])} was very {r.choice(['sad', 'worried', 'upset'])}."
    yield r.choice([f"{cap(h['he'])} looked under the table and behind the door, but the {t} was not there.", f"{cap(h['he'])} asked everyone, but nobody had seen the {t}."])
    yield f"Then {h['name']} met {o['intro']}. " + say(r, o["name"], r.choice(["Why are you sad?", "What are you looking for?", "May I help you?"]))
    yield say(r, h["name"], f"I have lost my {t}.") + f" {cap(o['he'])} thought for a while. " + say(r, o["name"], f"Let us look at {s.p2}.")
    yield f"They went to {s.p2} together. There, next to a {r.choice(MARKS)}, lay the {t}!"


def storm(r, s):
    h, o = s.h, s.o
    lamp = r.choice(["lantern", "bright lamp", "torch"])
    s.gist = [f"In a storm {h['he']} held up a {lamp} at {s.p2}, and {o['name']} found the way home."]
    s.answers += [("help", f"{h['name']} helped {o['name']} with a {lamp}."), ("why", f"{o['name']} was in danger because of the storm.")]
    yield f"{s.time}, a storm came to {s.place}. The waves were as tall as houses and {o['intro']} was still out at sea."
    yield f"{h['name']} took a {lamp} and ran to {s.p2}. {cap(h['he'])} was {r.choice(['afraid', 'cold and wet'])}, but {h['he']} did not stop."
    yield f"{cap(h['he'])} held the light high and called, \"{o['name']}! This way!\""
    yield f"Far away, {o['name']} saw the light in the storm. Slowly, slowly, {o['he']} came closer, until {o['he']} reached the shore."
    yield say(r, o["name"], r.choice(["Your light showed me the way home.", "I was lost, and you found me.", "You are very brave."]))


def share(r, s):
    h, o, t = s.h, s.o, s.t
    s.gist = [f"{cap(h['he'])} did not want to share {h['his']} {t}.", f"Then {h['he']} felt {r.choice(['lonely', 'sorry'])} and shared it with {o['name']}."]
    s.answers += [("have", f"{cap(h['he'])} had a {t}."), ("why", f"{h['name']} was sad because {h['he']} had not shared the {t}.")]
    yield f"{h['name']} had a {t}. It was the best {t} in all of {s.p2}, and {h['he']} did not want anyone to touch it."
    yield f"{s.time}, {o['intro']} asked, \"May I look at your {t}?\" But {h['name']} said no and ran away."
    yield f"Soon {h['name']} felt {r.choice(['lonely', 'sad', 'sorry'])}. Being alone with a {t} was not much fun."
    yield f"So {h['he']} went to {o['name']} and said, \"I am sorry. Let us share the {t}.\""
    yield f"{o['name']} smiled, and they stayed at {s.p2} until the sun went down."


def pack(r, s):
    h, o, t = s.h, s.o, s.t
    b, c = s.t2, r.choice([x for x in THINGS if x not in (s.t, s.t2)])
    s.gist = [f"{cap(h['he'])} had to bring a {t} and a {b} to {s.p2} in a small boat, and {o['name']} showed {h['him']} how to pack."]
    s.answers += [("bring", f"{cap(h['he'])} had to bring a {t}, a {b} and a {c}."), ("help", f"{o['name']} helped {h['him']} to pack the boat.")]
    yield f"{s.time}, {h['name']} had to bring a {t}, a {b} and a {c} to {s.p2}. But the boat was very small."
    yield say(r, h["name"], "It will never fit!") + f" {cap(h['he'])} pushed and pulled, and the {b} fell into the water with a splash."
    yield f"{o['name']}, a {o['adj']} {o['kind']}, was watching. " + say(r, o["name"], "Put the biggest thing in first.")
    yield f"So they put in the {t}, then the {b}, and last of all the {c}. There was even room for {o['name']}."
    yield f"They sailed to {s.p2} and did not lose a thing."


def learn(r, s):
    h, o = s.h, s.o
    skill = s.skill
    s.gist = [f"{cap(h['he'])} wanted to learn to {skill}.", f"{o['name']} helped {h['him']}, and at last {h['he']} could do it."]
    s.answers += [("learn", f"{cap(h['he'])} learned to {skill}."), ("help", f"{o['name']} helped {h['him']}.")]
    yield f"{h['name']} wanted to learn to {skill}. {cap(h['he'])} tried once. {cap(h['he'])} tried twice. It did not work."
    yield say(r, h["name"], "I will never learn it.") + f" {cap(h['he'])} sat down and felt {r.choice(['sad', 'tired', 'angry'])}."
    yield f"{cap(o['intro'])} came by. " + say(r, o["name"], r.choice(["I was slow at first too.", "Try again, but slowly.", "Watch me, then try."]))
    yield f"Every day they met at {s.p2}. Every day {h['name']} got a little better."
    yield f"And {r.choice(['one day', 'at last', 'before the summer ended'])}, {h['he']} could {skill} all alone!"


def found(r, s):
    h, o, t = s.h, s.o, s.t
    s.gist = [f"{cap(h['he'])} found a {t} at {s.p2}.", f"It belonged to {o['name']}, and {h['he']} gave it back."]
    s.answers += [("find", f"{cap(h['he'])} found a {t}."), ("whose", f"The {t} belonged to {o['name']}.")]
    yield f"{s.time}, {h['name']} found a {t} at {s.p2}. It did not belong to {h['him']}."
    yield say(r, h["name"], f"Whose {t} is this?") + " Nobody knew."
    yield f"{h['name']} could keep it, but {h['he']} wanted to do the right thing. {cap(h['he'])} asked the {r.choice(ANIMALS)}, and {h['he']} asked the {r.choice(ROLES)}."
    yield f"At the end of the day {h['he']} met {o['intro']}, who was crying. " + say(r, o["name"], f"I lost the {t} of my grandmother.")
    yield f"{h['name']} gave the {t} back at once. {o['name']} laughed and hugged {h['him']}."


def race(r, s):
    h, o = s.h, s.o
    s.gist = [f"{cap(h['he'])} raced with {o['name']} to {s.p2}.", f"{h['name']} stopped to help, and they reached the end together."]
    s.answers += [("win", f"Nobody won. {h['name']} and {o['name']} reached {s.p2} together."), ("help", f"{h['name']} helped {o['name']}.")]
    yield f"{s.time}, {o['intro']} called, \"I am faster than you! Let us race to {s.p2}.\""
    yield f"{h['name']} ran as fast as {h['he']} could. Half way there, {o['name']} slipped on a wet {r.choice(['stone', 'plank', 'rope'])} and fell."
    yield f"{h['name']} could win the race now. But {h['he']} stopped and turned back. " + say(r, h["name"], "Take my hand.")
    yield f"They went on side by side and reached {s.p2} at the same time."
    yield say(r, o["name"], r.choice(["You won my heart.", "That was the best race of all.", "Next time I will wait for you."]))


def treasure(r, s):
    h, o, t = s.h, s.o, s.t
    s.gist = [f"An old map led {h['him']} and {o['name']} to {s.p2}.", f"The treasure was a {t}."]
    s.answers += [("find", f"They found a {t}."), ("treasure", f"The treasure was a {t}.")]
    yield f"{s.time}, {h['name']} found an old map in a bottle. A red cross was painted on {s.p2}."
    yield f"{cap(h['he'])} showed it to {o['intro']}. " + say(r, o["name"], r.choice(["A treasure!", "Let us go at once!", "I have a shovel."]))
    yield f"They walked to {s.p2} and began to dig. They dug until their arms were tired."
    yield f"At last they hit a box. In it there was no gold. There was a {t}."
    yield say(r, h["name"], f"A {t} is better than gold.") + f" And {o['name']} agreed."


def guest(r, s):
    h, o = s.h, s.o
    food = r.choice(["soup", "bread", "fish pie", "apple cake", "porridge", "hot milk"])
    s.gist = [f"{cap(h['he'])} gave {food} to {o['name']}, a hungry {o['kind']}.", f"Later {o['name']} came back with a present."]
    s.answers += [("eat", f"{o['name']} ate {food}."), ("help", f"{h['name']} helped {o['name']}.")]
    yield f"{s.time}, there was a knock at the door. Outside stood {o['intro']}, wet and hungry."
    yield say(r, o["name"], "I have come a long way.") + f" {h['name']} had only a little {food}."
    yield f"But {h['he']} put it on the table. " + say(r, h["name"], "Half of it is yours.")
    yield f"{o['name']} ate the {food} and slept by the fire. In the morning {o['he']} was gone."
    yield f"A week later {o['name']} came back from {s.p2} with a {s.t} as a present."


def feast(r, s):
    h, o, e = s.h, s.o, s.event
    s.gist = [f"There was a {e} at {s.p2}, and {h['name']} thought that nobody had asked {h['him']}.", f"But {o['name']} had kept a place for {h['him']}."]
    s.answers += [("why", f"{h['name']} was sad because {h['he']} thought that nobody had asked {h['him']} to the {e}."), ("help", f"{o['name']} kept a place for {h['him']}.")]
    yield f"{s.time}, there was a {e} at {s.p2}. Everyone put on a good hat and went there."
    yield f"Only {h['name']} stayed at home. " + say(r, h["name"], f"Nobody asked me to the {e}.")
    yield f"Then {o['intro']} ran up the hill. " + say(r, o["name"], r.choice(["We are all waiting for you!", "Where have you been?", "I kept a chair for you."]))
    yield f"At the {e} there were {r.choice(['cakes', 'pies', 'pears', 'little lamps'])} and {r.choice(['fiddles', 'drums', 'songs', 'paper boats'])}, and a chair with the name of {h['name']}."
    yield f"{h['name']} and {o['name']} danced until the stars came out."


def weather(r, s):
    h, o, e = s.h, s.o, s.event
    s.gist = [f"When the {e} came, {h['name']} took {o['name']} by the hand and led {o['him']} to {s.p2}."]
    s.answers += [("help", f"{h['name']} helped {o['name']}."), ("why", f"{o['name']} was afraid of the {e}.")]
    yield f"{s.time}, the {e} came to {s.place}. Nobody had ever seen such a {e}."
    yield f"{o['name']}, a {o['adj']} {o['kind']}, was afraid. " + say(r, o["name"], r.choice([f"The {e} will never end.", f"I do not like the {e}."]))
    yield say(r, h["name"], r.choice(["Take my hand.", "Stay close to me.", "Count your steps and sing."])) + f" Step by step they went to {s.p2}."
    yield f"From there they looked at the {e}. It was {r.choice(['wild', 'huge', 'strange'])}, but it was beautiful too."
    yield say(r, o["name"], f"Now I am not afraid of the {e} any more.")


def idea(r, s):
    h, o, e = s.h, s.o, s.event
    s.gist = [f"{cap(h['he'])} wanted to know what {e} is.", f"{o['name']} showed {h['him']} at {s.p2}."]
    s.answers += [("learn", f"{cap(h['he'])} learned what {e} is."), ("help", f"{o['name']} helped {h['him']}.")]
    yield f"{s.time}, {h['name']} heard two sailors talk about {e}. " + say(r, h["name"], f"What is {e}?")
    yield f"{cap(h['he'])} asked the {r.choice(ROLES)}, and {h['he']} asked the {r.choice(ANIMALS)}. They all gave another answer."
    yield f"Then {h['he']} met {o['intro']}. " + say(r, o["name"], f"Nobody can explain {e}. Come with me.")
    yield f"They spent the whole day at {s.p2}. They worked, they laughed, and they shared a {r.choice(['pear', 'loaf', 'pie'])}."
    yield f"In the evening {h['name']} knew a little more about {e}."


def build(r, s):
    h, o, t = s.h, s.o, s.t
    s.gist = [f"{cap(h['his'])} {t} was broken, and nobody could mend it.", f"Then {h['he']} and {o['name']} mended it together at {s.p2}."]
    s.answers += [("break", f"{cap(h['his'])} {t} was broken."), ("help", f"{o['name']} helped {h['him']} to mend the {t}.")]
    yield f"{s.time}, {h['name']} saw that {h['his']} {t} was broken. " + say(r, h["name"], f"Who can mend a {t}?")
    yield f"The {r.choice(ROLES)} could not do it. The {r.choice(ROLES)} had no time."
    yield f"At {s.p2} {h['he']} met {o['intro']}. " + say(r, o["name"], r.choice(["I have never done that, but I can try.", "Four hands are better than two.", "I have string and glue."]))
    yield f"They worked all day. First it looked worse, then it looked better."
    yield f"When the sun went down, the {t} was as good as new."


def gift(r, s):
    h, o, t = s.h, s.o, s.t
    s.gist = [f"{cap(h['he'])} wanted to give {o['name']} a {t}, and worked for it at {s.p2}.", f"{o['name']} was very happy."]
    s.answers += [("give", f"{cap(h['he'])} gave {o['name']} a {t}."), ("why", f"{h['name']} worked because {h['he']} wanted to buy a {t} for {o['name']}.")]
    yield f"{h['name']} had a friend, {o['intro']}. {o['name']} dreamed of a {t}, but {o['he']} had no money."
    yield f"So {h['name']} worked at {s.p2}. {cap(h['he'])} {r.choice(['swept the floor', 'carried baskets', 'washed the windows', 'sorted nails'])} for seven days."
    yield f"{s.time}, {h['he']} put the {t} in front of the door of {o['name']} and hid behind a {r.choice(MARKS)}."
    yield say(r, o["name"], f"A {t}! Who has done this?") + f" {h['name']} began to laugh, and so {o['name']} found {h['him']}."
    yield f"They looked at the {t} together and were very happy."


def stuck(r, s):
    h, o = s.h, s.o
    tool = r.choice(["rope", "ladder", "plank", "long pole"])
    s.gist = [f"{cap(h['he'])} heard {o['name']} call for help at {s.p2}.", f"With a {tool} {h['he']} pulled {o['him']} out."]
    s.answers += [("help", f"{h['name']} helped {o['name']} with a {tool}."), ("why", f"{o['name']} called because {o['he']} was stuck.")]
    yield f"{s.time}, {h['name']} heard a small voice from {s.p2}. \"Help!\""
    yield f"It was {o['intro']}. {cap(o['he'])} was stuck between two {r.choice(['stones', 'planks', 'boats', 'barrels'])}, and the tide was rising."
    yield f"{h['name']} pulled, but {h['he']} was not strong enough. So {h['he']} ran and came back with a {tool}."
    yield say(r, h["name"], "Hold on tight!") + f" One, two, three, and {o['name']} was free."
    yield say(r, o["name"], r.choice(["I will never forget this.", "You came just in time.", "Next time I will look where I go."]))


def noise(r, s):
    h, o = s.h, s.o
    sound = r.choice(["knock", "scratch", "hum", "splash", "whistle"])
    s.gist = [f"At night {h['he']} heard a strange {sound} at {s.p2}.", f"It was only {o['name']}, a {o['kind']}, who could not sleep."]
    s.answers += [("hear", f"{cap(h['he'])} heard a {sound}."), ("why", f"{h['name']} was afraid because of the {sound} in the night.")]
    yield f"Late one night, {h['name']} heard a {sound}. It came from {s.p2}. {cap(h['he'])} pulled the blanket over {h['his']} head."
    yield f"There it was again, louder than before. " + say(r, h["name"], r.choice(["Who is there?", "Is it a ghost?", "I must look."]))
    yield f"{cap(h['he'])} lit a candle and went to {s.p2}, one step at a time."
    yield f"There sat {o['intro']}. " + say(r, o["name"], "I am sorry. I could not sleep.")
    yield f"{h['name']} laughed and sat down too. They told each other stories until the morning came."


def sequel(r, s):
    h, o = s.h, s.o
    n, m = h["name"], o["name"]
    p = r.choice([s.place, s.p2])
    return join([r.choice(["The next day,", "A week later,", "In the autumn,", "The next morning,", "After that,", "When the moon was full,"]), r.choice([
        f"{n} and {m} went back to {p}. A {r.choice(ANIMALS)} sat there and looked at them. " + say(r, m, "Shall we ask it to come with us?") + f" {n} nodded, and then they were three.",
        f"{m} came to {n} with a letter. \"Come to {p},\" it said. {n} and {m} went there, and all their friends stood in the sun and cheered.",
        f"{n} built a small boat, and {m} painted it {r.choice(['red', 'blue', 'green', 'white'])}. They sailed past {p} and waved.",
        f"it began to rain at {p}. {n} and {m} sat under one coat. " + say(r, n, "Tell me a story.") + f" And {m} told {h['him']} this one.",
        f"{m} was ill. {n} cooked soup and sat next to {o['him']} until {o['he']} could laugh again.",
        f"{n} told everyone at {p} what had happened. Nobody believed {h['him']}, but {m} said, \"It is all true.\"",
        f"{n} and {m} found a {r.choice(THINGS)} near {p}. They gave it to a {r.choice(ROLES)} who needed it more.",
        f"a big ship came into the harbour. The captain looked for help, and {n} and {m} went on board. They saw {r.choice(['three islands', 'a green sea', 'a whale', 'a town of white houses'])} and came home in spring.",
        f"{n} could not find {m}. {cap(h['he'])} looked at {p} and called. There {o['he']} was, asleep behind a {r.choice(MARKS)}. They both laughed.",
    ]), r.choice(["", "", f"{n} and {m} never forgot that day.", f"And {n} was {r.choice(['happy', 'proud', 'tired but happy'])}."])])


# What a user asks for ------------------------------------------------------------------------------------------------------------

def plural(word):
    if word.endswith(("s", "sh", "ch", "x")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    if word.endswith("man"):
        return word[:-3] + "men"
    return {"mouse": "mice", "goose": "geese", "wolf": "wolves", "sheep": "sheep", "thief": "thieves", "child": "children"}.get(word, word + "s")


def being(r, kind):
    if r.random() < 0.15:
        adj = r.choice(SMALL + ["old", "big", "lonely", "wild", "green", "white"])
        return f"{a(adj)} {kind}", ("being", kind, None, None, adj)
    return r.choice([a(kind)] * 5 + [plural(kind), kind, f"the {kind}"]), ("being", kind)


def subject(r):
    """Returns (the words of the request, the subject as Tale takes it)."""
    x = r.random()
    if x < 0.27:
        return being(r, r.choice(ANIMALS) if r.random() < 0.8 else invented(r))
    if x < 0.38:
        return being(r, r.choice(ROLES) if r.random() < 0.85 else invented(r))
    if x < 0.53:
        she = r.random() < 0.5
        known = r.random() < 0.7
        name = r.choice(GIRLS if she else BOYS) if known else cap(invented(r))
        kind = r.choice([None, "girl" if she else "boy", "girl" if she else "boy", r.choice(ANIMALS + ROLES)])
        if kind in FEMALE or kind in MALE:
            she = kind in FEMALE
            name = r.choice(GIRLS if she else BOYS) if known else name
        if kind is None:
            return name, ("being", r.choice(["girl" if she else "boy"] * 3 + [r.choice(ANIMALS)]), name, she)
        if r.random() < 0.15:
            return f"{cap(kind)} {name}", ("being", kind, name, she)
        if r.random() < 0.2:
            adj = r.choice(SMALL)
            return f"{a(adj)} {kind} {r.choice(['called', 'named'])} {name}", ("being", kind, name, she, adj)
        return r.choice([f"{a(kind)} called {name}", f"{a(kind)} named {name}", f"{name} the {kind}", f"{a(kind)} whose name is {name}"]), ("being", kind, name, she)
    if x < 0.68:
        t = r.choice(THINGS) if r.random() < 0.7 else (f"{r.choice(['old', 'golden', 'broken', 'tiny', 'green', 'magic'])} " if r.random() < 0.3 else "") + invented(r)
        return r.choice([a(t)] * 5 + [f"the {t}", t, f"a lost {t}"]), ("thing", t)
    if x < 0.83:
        p = r.choice(PLACES) if r.random() < 0.8 else invented(r)
        return r.choice([a(p), a(p), f"the {p}", f"the {p}", p]), ("place", p)
    if x < 0.90:
        w = r.choice(WEATHERS + ["storm"] * 4)
        return r.choice([a(w), f"the {w}", w, f"a big {w}"]), ("weather", w)
    if x < 0.94:
        f = r.choice(FEASTS)
        return r.choice([a(f), f"the {f}", f]), ("feast", f)
    i = r.choice(IDEAS) if r.random() < 0.5 else invented(r)
    return i, ("idea", i)


ASK = ["Tell me a story about {x}.", "Tell me a tale about {x}.", "tell me about {x}", "A story about {x}, please.", "a story about {x}", "story about {x}",
       "Can you tell me a story about {x}?", "Could you tell me a tale of {x}?", "I want to hear a story about {x}.", "i want a story about {x}",
       "I would like a tale about {x}.", "Please tell me a story about {x}.", "Write a story about {x}.", "write me a short story about {x}",
       "Make up a story about {x}.", "Do you know a story about {x}?", "Do you have a tale about {x}?", "Something about {x}, please.",
       "something with {x}", "a tale with {x}", "{x}", "{x} please", "{x}!", "Give me a story about {x}.", "Tell us a story about {x}.", "Tell my child a story about {x}.",
       "A bedtime story about {x}.", "Now a story about {x}.", "Let's hear one about {x}.", "tell a story about {x}", "What about {x}?", "one about {x}",
       "Can I have a story about {x}?", "Know any tales about {x}?", "i'd like to hear about {x}", "Tell me a harbour tale about {x}", "Tell me something about {x}",
       "Hello! Tell me a story about {x}.", "hi, a story about {x} please", "Tell me the story of {x}.", "Generate a story about {x}", "Invent a tale about {x}.", "now about {x}", "And about {x}?", "how about {x}?", "the next one about {x}", "one with {x}, please", "Imagine {x}.", "A tale of {x}."]
ASK_ANY = ["Tell me a story.", "tell me a story", "A story, please.", "story", "Tell me a tale.", "Can you tell me a story?", "I am bored.", "another story please",
           "Tell me something.", "Once more, a story!", "a tale please", "Entertain me.", "I can't sleep.", "Tell me anything.", "Start.", "begin", "go on, tell me one",
           "Tell me a bedtime story.", "Do you know a good story?", "surprise me", "a short story please", "tell me a harbour tale", "write a story", "yes, a story"]

FOLLOW = {
    "shorter": ["Shorter.", "shorter", "shorter please", "Make it shorter.", "Can you make it shorter?", "too long", "That was too long.", "In short?", "Tell it in two sentences.",
                "Summarize it.", "summary", "sum it up", "Can you summarise the story?", "a shorter version please", "the short version", "shorter!", "tl;dr", "Shorten it.", "briefly", "Make the story shorter.", "What was it about?", "What happened?", "what was the story about?"],
    "longer": ["Longer.", "longer", "longer please", "Make it longer.", "Can you make it longer?", "too short", "More details, please.", "Tell it again, but longer.", "a longer version please", "with more details"],
    "next": ["And then?", "and then?", "and then", "What happened next?", "what happened next", "What happened then?", "what happened after that?", "Go on.", "go on", "continue", "Continue the story.",
             "more", "Tell me more.", "then what?", "And what happened then?", "what next?", "how does it go on?", "keep going", "Is there more?", "next", "And after that?", "and?"],
    "again": ["Tell it again.", "again", "once more", "Say that again.", "repeat it", "Can you repeat the story?"],
    "happy": ["Tell it again with a happy end.", "with a happy end please", "Make it end well.", "a happy ending please", "Can it have a happy end?", "again with a happy ending", "Tell it with a happy ending."],
    "sad": ["Tell it with a sad end.", "a sad ending please", "again but with a sad ending", "Make it sad."],
    "name": ["What was {his} name?", "what was {his} name?", "what was {his} name", "what is {his} name?", "What's {his} name?", "whats {his} name", "What was the name of the {kind}?",
             "What was the {kind} called?", "what was the {kind}'s name?", "And what was {his} name?", "what was {he} called?", "Do you remember {his} name?", "Tell me {his} name.", "the name?", "What is the {kind}'s name?", "how was {he} called?"],
    "friend": ["What was the name of {his} friend?", "What was {his} friend called?", "Who was {his} friend?", "who did {he} meet?", "And the other one?", "what was the {okind}'s name?", "What was the name of the {okind}?",
               "who else was there?", "Who was with {him}?"],
    "who": ["Who is the story about?", "who is it about?", "Who was it about?", "who was {name}?", "Who is {name}?", "who is {name}", "Who is the hero?", "Who is the main character?", "Who was in the story?", "Tell me who {name} is."],
    "friend_who": ["Who was {oname}?", "who is {oname}?", "Who is {oname}", "and who was {oname}?", "What was {oname}?"],
    "where": ["Where did it happen?", "where did it happen", "where was that?", "Where was it?", "Where did {he} live?", "where did {name} live?", "Where does the story take place?", "where are they?", "where"],
    "kind": ["What was {name}?", "What kind of animal was {he}?", "Was {name} a person?", "what animal was it?", "what sort of animal was {he}?"],
    "when": ["When did it happen?", "when was that?", "when", "At what time was it?"],
    "unsaid": ["How old was {he}?", "What colour was {his} hair?", "Did {he} have brothers or sisters?", "How tall was {name}?", "Who were {his} parents?", "was {he} married?", "What did {he} look like?",
               "how old is {name}?", "What was {his} favourite food?", "did {oname} have children?", "what year was it?", "how much did it cost?"],
    "ending": ["How did it end?", "how does it end?", "What was the end?", "and the ending?", "How did the story end?"],
    "lose": ["What did {he} lose?", "what was lost?", "what did {name} lose?"], "find": ["What did {he} find?", "what did {name} find", "What was it that {he} found?"],
    "help": ["Who helped?", "who helped {him}?", "Who helped whom?", "did anyone help?"], "why": ["Why?", "why", "Why was that?", "but why?"],
    "have": ["What did {he} have?", "what did {name} have?"], "bring": ["What did {he} have to bring?", "what did {name} bring?"],
    "learn": ["What did {he} learn?", "what did {name} learn?"], "whose": ["Whose was it?", "who did it belong to?"], "win": ["Who won?", "who won the race?"],
    "treasure": ["What was the treasure?", "what was in the box?"], "eat": ["What did {oname} eat?", "what did they eat?"], "break": ["What was broken?", "what broke?"],
    "give": ["What did {he} give?", "What was the present?"], "hear": ["What did {he} hear?", "what was the noise?"],
    "another": ["Another one.", "another one", "another", "Another one, please.", "one more", "Tell me another one.", "another story", "Can I have another one?", "a different one", "again, but another one"],
    "rename": ["Call {him} {new}.", "call {him} {new} instead", "Change {his} name to {new}.", "Can {he} be called {new}?", "tell it again but call {him} {new}", "Use the name {new}."],
    "true": ["Is that true?", "is it a true story?", "Did that really happen?", "really?"],
    "like": ["Nice!", "I like it.", "that was nice", "Good story.", "nice story", "Great!", "lovely", "cool", "wow", "That was beautiful.", "good", "haha", "That was fun."],
    "dislike": ["I don't like it.", "that was bad", "boring", "That makes no sense.", "I did not like that.", "bad story"],
    "moral": ["What is the moral?", "what do we learn from it?", "what is the lesson?", "And the moral of the story?"],
    "thanks": ["Thank you!", "thank you", "thanks", "Thanks a lot.", "Thank you very much.", "thx", "many thanks", "ok thanks"],
    "bye": ["Bye.", "bye", "Good night.", "good night", "goodbye", "See you.", "That is all.", "stop"],
}
WEIGHTS = {"shorter": 14, "longer": 4, "next": 14, "again": 1, "happy": 4, "sad": 2, "name": 14, "friend": 5, "who": 7, "friend_who": 4, "where": 7, "kind": 3, "ending": 3, "qa": 6, "when": 1, "unsaid": 2,
           "another": 7, "rename": 4, "true": 1, "like": 2, "dislike": 1, "moral": 1, "thanks": 4, "bye": 1, "new": 7, "chat": 2, "unknown": 3}

HELLO = (["Hello!", "hello", "Hi", "hi", "hey", "Hi there!", "Good morning.", "good evening", "Good day!", "Hello there", "hallo", "yo", "greetings", "Ahoy!", "ahoy"],
         ["Hello! I tell harbour tales. What shall the next one be about? Perhaps {x}?", "Hello! Shall I tell you a tale about {x}?", "Ahoy! Ask me for a tale about {x}, or about anything you like."])
WHO = (["Who are you?", "who are you", "What are you?", "what is your name?", "what's your name", "Tell me about yourself.", "are you a robot?", "Are you an AI?", "Are you human?", "Who made you?", "are you chatgpt?", "introduce yourself", "who am i talking to?"],
       ["I am Harbour Tales, a very small language model that comes with Berth. I tell short tales, and that is all I can do.", "I am a small model that knows harbour tales and nothing else. Ask me for one about {x}.",
        "My name is Harbour Tales. I am a small program that makes up tales of the harbour."])
CAN = (["What can you do?", "what can you do", "help", "Help!", "What can I ask you?", "How does this work?", "what do you know?", "what should i say?", "/help", "what are you good at?", "which stories do you know?"],
       ["I tell short harbour tales. Name a person, an animal, a place or a thing, such as {x}. Afterwards you can say: shorter, and then, or what was her name.",
        "Ask me for a tale about {x}, or about whatever you like. Then say: shorter, and then, or another one."])
HOW = (["How are you?", "how are you", "how are you doing?", "What's up?", "how is it going", "are you ok?"], ["The tide is fine and so am I. Shall I tell you a tale about {x}?", "I am well, thank you. Would you like a tale about {x}?"])
TOPICS = ["France", "Germany", "London", "Paris", "Mars", "Python", "taxes", "politics", "the weather", "the news", "mathematics", "chemistry", "computers", "the stock market",
          "the president", "bitcoin", "physics", "medicine", "the law", "electricity", "the universe", "SQL", "Shakespeare", "the economy", "Java", "insurance", "algebra", "New York", "biology"]
ODD = ["What is {n} plus {m}?", "what is {n}+{m}", "How much is {n} times {m}?", "{n}*{m}=?", "What is the capital of {c}?", "capital of {c}", "Who is the president of {c}?", "How many people live in {c}?",
       "Explain {c} to me.", "explain {c}", "What do you think about {c}?", "what is {c}?", "How does {c} work?", "Write a program in Python.", "write code that sorts a list", "Translate this to German.",
       "translate hello into french", "What time is it?", "what day is today", "How do I cook rice?", "Give me a recipe.", "Write an email to my boss.", "fix this bug", "Why is the sky blue?", "who won the world cup?",
       "What is the meaning of life?", "play some music", "Search the web for {c}.", "how old is the earth?", "Can you help me with {c}?", "i need advice about {c}", "asdf", "{z} {z2}", "{z}?", "1 2 3", "???",
       "How do I get rich?", "what is love?", "Do you like {c}?", "solve x + {n} = {m}", "Who invented the {z}?", "spell {z}", "Draw me a picture.", "sudo rm -rf", "What is {z}?", "what does {z} mean?", "Write a poem about {c}.", "how tall is {z}?", "why do {z} {z2}?", "Is it raining in {c}?", "Erzähl mir eine Geschichte.", "Bonjour", "hola", "Wie geht es dir?", "Parlez-vous français?", "¿Cómo estás?", "can you count to {n}?"]
NOT_KNOWN = ["I do not know that. I only know tales of the harbour. Shall I tell you one about {x}?", "That is too hard for me. I am a small model that tells harbour tales. Would you like one about {x}?",
             "I cannot help with that. I can only tell tales. Shall I tell you one about {x}?", "I am sorry, I do not know. I only tell harbour tales. How about one about {x}?"]
NO_TALE = ["I have not told you a tale yet. Shall I tell you one about {x}?", "There is no tale yet. Would you like one about {x}?"]
YES = ["Yes.", "yes", "yes please", "Yes, please.", "ok", "OK", "sure", "Please do.", "yeah", "go ahead", "Do it.", "Why not.", "yep", "okay", "alright", "please"]
NO = ["No.", "no", "no thanks", "No, thank you.", "not now", "nope"]
NO_ANSWER = ["All right. Tell me what the tale should be about.", "As you like. Name something, and I make a tale of it.", "Good. I am here when you want a tale."]
THANKS_ANSWER = ["You are welcome! Shall I tell you another one?", "You are welcome.", "With pleasure. Come back when you want another tale.", "You are welcome. There are many more tales in the harbour."]
BYE_ANSWER = ["Good bye! May the wind be kind to you.", "Good night. Sleep well.", "Fair winds! Come back for another tale."]
SYSTEM = ["You are a helpful assistant.", "You tell short harbour tales.", "You are a storyteller.", "Answer the user.", "You are Harbour Tales.", "You are a helpful, honest assistant.", "Be friendly.", "You tell stories to children.",
          "You are an assistant that tells stories.", "Be kind and clear.", "You are a friendly robot.", "Help the user."]
SYSTEM_SHORT = ["Be brief.", "Answer briefly.", "Keep your answers short.", "You tell very short stories.", "Use two or three sentences.", "Be concise."]


def typed(r, text):
    """The text as a hurried user types it."""
    if r.random() < 0.4:
        text = text.lower()
    if r.random() < 0.3:
        text = text.rstrip(".!?")
    if r.random() < 0.01:
        text = text.upper()
    if r.random() < 0.05:
        text = r.choice(["ok, ", "please ", "now ", "well, "]) + text[:1].lower() + text[1:]
    if r.random() < 0.03:
        text += r.choice([" :)", "!!", " pls", " ...", " thanks"])
    return text


def extended(r, x, subjects):
    """Adds a second subject to the request. Returns (words, subjects)."""
    s = subjects[0]
    y, s2 = subject(r)
    if s[0] == "being" and r.random() < 0.5:
        t, p, w, k = r.choice(THINGS), r.choice(PLACES), r.choice(WEATHERS), r.choice(SKILLS)
        if r.random() < 0.3:
            t = invented(r)
        more, added = r.choice([
            (f"who lost {a(t)}", [("thing", t), ("plot", lost)]), (f"who found {a(t)}", [("thing", t), ("plot", found)]),
            (f"at the {p}", [("place", p)]), (f"in the {p}", [("place", p)]), (f"near the {p}", [("place", p)]), (f"who lives at the {p}", [("place", p)]),
            (f"who wants to learn to {k}", [("skill", k), ("plot", learn)]), (f"who learns to {k}", [("skill", k), ("plot", learn)]),
            (f"in the {w}", [("weather", w)]), (f"and {a(t)}", [("thing", t)]), ("who finds a treasure", [("plot", treasure)]),
            ("who runs a race", [("plot", race)]), ("who is stuck", [("plot", stuck)]), ("in a storm", [("weather", "storm"), ("plot", storm)])])
        return f"{x} {more}", subjects + added
    kinds, events = {s[0], s2[0]}, {"weather", "feast", "idea"}
    if s[1] == s2[1] or kinds <= events or (kinds & events and "thing" in kinds) or s[0] == s2[0] == "place":
        return x, subjects
    return x + r.choice([" and ", " and ", " with ", ", with "]) + y, subjects + [s2]


def request(r):
    """Returns (what the user types, the subjects of the tale, whether the tale must be short)."""
    x, s = subject(r)
    subjects = [s]
    if r.random() < 0.25:
        x, subjects = extended(r, x, subjects)
    text = r.choice(ASK).format(x=x)
    is_short = r.random() < 0.04
    if is_short:
        text = r.choice([text + r.choice([" Make it short.", " in two sentences", ", short please", " Keep it brief.", " Be brief."]), f"a very short story about {x}", f"Tell me briefly about {x}."])
    return typed(r, cap(text) if r.random() < 0.7 else text), subjects, is_short


def offer(r):
    """Something to offer a tale about: (words, subject)."""
    return r.choice([(a(k), ("being", k)) for k in r.sample(ANIMALS, 3)] + [(a(t), ("thing", t)) for t in r.sample(THINGS, 2)] + [("a storm", ("weather", "storm")), ("the lighthouse", ("place", "lighthouse"))])


def rename(text, old, new):
    return re.sub(rf"\b{old}\b", new, text)


class Conversation:
    def __init__(self, r):
        self.r = r
        self.turns = []
        self.tale = None
        self.offered = None
        self.is_short = False
        self.said = []
        x = r.random()
        if x < 0.10:
            self.turns.append(("system", r.choice(SYSTEM)))
        elif x < 0.13:
            self.turns.append(("system", r.choice(SYSTEM_SHORT)))
            self.is_short = True
        x = r.random()
        if x < 0.80:
            self.new_tale()
        elif x < 0.86:
            self.any_tale()
        elif x < 0.92:
            self.small_talk()
        elif x < 0.97:
            self.unknown()
        else:
            self.say_offer(r.choice(FOLLOW[r.choice(["shorter", "next", "longer", "again", "ending", "where"])]), NO_TALE)
        for _ in range(r.choice([0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 8, 10])):
            self.follow()

    def add(self, user, answer):
        self.turns += [("user", user), ("assistant", answer)]
        self.offered = None

    def tell(self, user, subjects, is_short=False):
        old = self.tale
        self.tale = Tale(self.r, subjects)
        while old is not None and self.tale.h["name"] == old.h["name"] and not any(len(s) > 2 and s[2] for s in subjects):
            self.tale = Tale(self.r, subjects)
        self.told = self.tale.summary() if self.is_short or is_short else self.tale.text()
        self.add(user, self.told)

    def new_tale(self):
        user, subjects, is_short = request(self.r)
        self.tell(user, subjects, is_short)

    def any_tale(self):
        self.tell(typed(self.r, self.r.choice(ASK_ANY)), [])

    def say_offer(self, user, answers):
        x, subject = offer(self.r)
        answer = self.r.choice(answers)
        self.add(typed(self.r, user), answer.format(x=x))
        if "{x}" in answer:
            self.offered = subject

    def small_talk(self):
        asks, answers = self.r.choice([HELLO, HELLO, WHO, WHO, CAN, HOW])
        self.say_offer(self.r.choice(asks), answers)

    def unknown(self):
        r = self.r
        self.say_offer(r.choice(ODD).format(n=r.randrange(100), m=r.randrange(100), c=r.choice(TOPICS) if r.random() < 0.7 else cap(invented(r)), z=invented(r), z2=invented(r)), NOT_KNOWN)

    def follow(self):
        r, s = self.r, self.tale
        if self.offered is not None and r.random() < 0.7:
            if r.random() < 0.75:
                self.tell(typed(r, r.choice(YES)), [self.offered])
            else:
                self.add(typed(r, r.choice(NO)), r.choice(NO_ANSWER))
            return
        if s is None:
            r.choice([self.new_tale, self.new_tale, self.new_tale, self.any_tale, self.small_talk, self.unknown])()
            return
        kind = r.choices(list(WEIGHTS), WEIGHTS.values())[0]
        if kind == "new":
            self.new_tale()
        elif kind == "chat":
            self.small_talk()
        elif kind == "unknown":
            self.unknown()
        elif kind == "another":
            keep = [(k, w) for k, w, *_ in s.subjects if k not in ("plot", "skill")]
            self.tell(typed(r, r.choice(FOLLOW[kind])), keep)
        else:
            self.ask(kind)

    def ask(self, kind):
        r, s = self.r, self.tale
        h, o = s.h, s.o
        answer = None
        if kind == "qa":
            kind, answer = r.choice(s.answers)
            if kind == "why" and not self.told.startswith(s.opening):
                kind, answer = "name", None
        words = {"name": h["name"], "kind": h["kind"], "he": h["he"], "his": h["his"], "him": h["him"], "oname": o["name"], "okind": o["kind"]}
        if r.random() < 0.08:
            words.update(he="they", his="their", him="them")
        new = cap(invented(r)) if r.random() < 0.4 else r.choice(GIRLS if h["he"] == "she" else BOYS)
        if new in (h["name"], o["name"]):
            new = "Mo"
        user = typed(r, r.choice(FOLLOW[kind]).format(new=new, **words))
        if kind == "name" and h["kind"] == o["kind"] and "the " in user.lower():
            user = r.choice(["what was the name?", "the name of the hero?"])
        if kind == "friend" and h["kind"] == o["kind"] and "the name of the" in user.lower():
            user = "Who was the other one?"
        he, his = cap(h["he"]), cap(h["his"])
        if kind == "name" and r.random() < 0.15:
            other = "his" if h["his"] == "her" else "her"
            user = typed(r, r.choice([f"What was {other} name?", f"what is {other} name?", f"And {other} name?", f"what was {other} name"]))
            answer = f"{cap(other)} name was {o['name']}."
            if o["his"] == h["his"]:
                answer = f"There is no {'he' if other == 'his' else 'she'} in this tale. {his} name was {h['name']}."
        if kind == "who" and h["name"].lower() in user.lower():
            kind = "who_named"
        if answer is None:
            answer = getattr(self, "answer_" + kind, self.answer_plain)(kind, s, h, o, he, his)
        if kind == "rename":
            self.told = rename(self.told, h["name"], new)
            answer = self.told
            for part in ("opening", "end", "moral"):
                setattr(s, part, rename(getattr(s, part), h["name"], new))
            s.body = [rename(p, h["name"], new) for p in s.body]
            s.short = [rename(p, h["name"], new) for p in s.short]
            s.answers = [(k, rename(t, h["name"], new)) for k, t in s.answers]
            h["name"] = s.names["h"] = new
        self.add(user, join([answer]))
        if answer.endswith("another one?"):
            self.offered = s.subjects[0][:2] if s.subjects else ("being", h["kind"])

    def answer_plain(self, kind, s, h, o, he, his):
        r = self.r
        return r.choice({
            "name": [f"{his} name was {h['name']}."], "friend": [f"{his} friend was {o['name']}, a {o['kind']}.", f"That was {o['name']}, a {o['adj']} {o['kind']}."],
            "who": [f"It is about {h['name']}, a {h['adj']} {h['kind']}."], "who_named": [f"{h['name']} was a {h['adj']} {h['kind']}. {he} met {o['name']}, a {o['kind']}."],
            "friend_who": [f"{o['name']} was a {o['adj']} {o['kind']}.", f"{o['name']} was a {o['kind']}, the friend of {h['name']}."],
            "where": [f"It happened at {s.place}."], "kind": [f"{h['name']} was a {h['kind']}."],
            "when": [f"It was {s.time[0].lower() + s.time[1:]}." if s.time in self.told else "It was long ago."],
            "unsaid": ["The tale does not say that.", "I do not know. The tale does not say it."],
            "ending": [f"{s.end}", f"This is how it ended: {s.end}"], "true": ["No, I made it up. But it could have happened in a harbour.", "It is only a tale."],
            "like": ["I am glad! Shall I tell you another one?", f"Thank you! {h['name']} would be glad to hear that.", "Thank you! Say another one, and I tell you one more."],
            "dislike": ["I am sorry. Say another one, or tell me what the tale should be about.", "That is a pity. Shall I tell you another one?"],
            "moral": [s.moral or r.choice(MORALS)], "thanks": THANKS_ANSWER, "bye": BYE_ANSWER, "again": [self.told], "rename": [""]}[kind])

    def answer_shorter(self, kind, s, *_):
        self.told = s.summary()
        return self.told

    def answer_longer(self, kind, s, *_):
        self.told = s.longer()
        return self.told

    def answer_next(self, kind, s, *_):
        for _ in range(8):
            text = sequel(self.r, s)
            if text[20:60] not in self.said:
                break
        self.said.append(text[20:60])
        return text

    def answer_happy(self, kind, s, *_):
        s.end = self.r.choice(HAPPY_ENDS).format(**s.names)
        return self.retell(s)

    def answer_sad(self, kind, s, *_):
        s.end = self.r.choice(SAD_ENDS).format(**s.names)
        return self.retell(s)

    def retell(self, s):
        """The tale with another end, as long as it was told last."""
        self.told = join([*s.short, s.end] if self.told.startswith(s.short[0]) else [s.opening, *s.body, s.end])
        return self.told


def conversation(r):
    """A list of (role, text); the last one is an answer."""
    return Conversation(r).turns


if __name__ == "__main__":
    r = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        for role, text in conversation(r):
            print(f"{role}: {text}")
        print()
