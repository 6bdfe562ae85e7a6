# SPDX-License-Identifier: Apache-2.0
"""The random part of every dialogue: names, paths, numbers, phrases.

A small model can learn to *copy* only if it cannot get by with remembering, so
most values are drawn from spaces far too large to be memorised.  Every open
value falls into one of two halves by a checksum of its text:

    crc32(value) % 8 == 0    held out: seen in evaluation only
    crc32(value) % 8 != 0    seen in training only

Maker.fill() expands a template: [a|b|c] picks one, {slot} is replaced by a
value.  Slots are replaced last, so a value may hold any character.
"""
import random
import re
import zlib

CONS = ("b c d f g h j k l m n p r s t v w z br ch cl cr dr fl gr kr ph pl pr qu sh sk sl sn st "
        "str th tr tw").split()
VOWEL = "a e i o u a e i o u ai ea ee oa oo y".split()
TAIL = ["", "", "", "n", "r", "l", "s", "t", "m", "k", "x", "nd", "rk", "ll", "sh", "p"]

NAMES = """Ada Alan Alice Amir Ana Anton Arun Astrid Ben Bela Boris Carla Chen Clara Dana David Diego Dora
Elena Eli Emil Emma Erik Esther Eva Farid Felix Fiona Freya Georg Grace Hana Hugo Ida Igor Ines Ines Ivan
Jack James Jana Jin John Jonas Julia Kai Karim Kate Kofi Lars Laura Lea Leo Lina Liu Luca Lucy Maja Marco
Maria Mark Marta Mary Max Maya Mei Mia Mika Milan Mina Mohamed Nadia Nina Noah Noor Olga Oliver Omar Oscar
Otto Pablo Paul Pavel Peter Petra Pia Priya Ravi Rita Robert Rosa Ruth Sam Sara Sasha Simon Sofia Sven Tara
Theo Tim Tina Tom Uma Vera Victor Viola Wei Will Yara Yuki Yusuf Zara Zoe""".split()
CITIES = """Paris London Berlin Madrid Rome Vienna Prague Warsaw Oslo Helsinki Lisbon Athens Dublin Cairo
Nairobi Lagos Tokyo Osaka Seoul Delhi Mumbai Sydney Toronto Boston Chicago Denver Austin Seattle Lima Quito
Bogota Havana Geneva Zurich Munich Hamburg Milan Turin Lyon Porto Bergen Tallinn Riga Vilnius Krakow
Budapest Sofia Istanbul Dubai Singapore Hanoi Manila Jakarta Perth Auckland""".split()
COLOURS = """red blue green yellow orange purple pink brown black white grey teal violet indigo silver gold
crimson turquoise olive amber""".split()
ANIMALS = """fox owl cat dog bear wolf rabbit mouse duck goose otter badger hedgehog heron sparrow crow frog
tortoise horse donkey goat sheep lion tiger elephant whale dolphin seal penguin squirrel beaver hare deer
robin snail""".split()
PLACES = """forest village harbour valley lighthouse castle mill garden cave meadow swamp city town
wood house palace""".split()
FOODS = """pizza soup bread rice noodles curry salad pancakes dumplings cheese apples mangoes tacos lasagne
porridge waffles sushi falafel chocolate plums""".split()
THINGS = """server job task ticket order room pump valve sensor printer camera door robot account invoice
parcel train flight user device channel playlist recipe project branch queue table cluster node report
backup alarm lamp battery contract customer document folder""".split()
NOUNS = """retry timeout buffer cache queue worker session token block batch limit window port host path
user config option header frame packet chunk stream index table lease grant score rate depth width size
count level mode flag key value name state clock timer budget pool ring page layer head router link rail
step peer probe quota seed shard slot span trace""".split()
VERBS = """get set load save open close read write send recv parse render push pop init free reset start
stop check find count merge split pack unpack encode decode hash copy move drain flush poll wait take give
seal join apply build clear""".split()
EXTS = "c h py yaml conf txt md json sh ini".split()
DIRS = "src lib app core net util tests docs conf tools cmd pkg server client data engine proto".split()


class Maker:
    """Draws values and fills templates from one random stream."""

    def __init__(self, seed, held_out=False):
        self.rng = random.Random(seed)
        self.held_out = held_out

    def pick(self, seq):
        return seq[int(self.rng.random() * len(seq))]

    def chance(self, p):
        return self.rng.random() < p

    def sample(self, seq, k):
        return self.rng.sample(list(seq), min(k, len(seq)))

    def between(self, low, high):
        return self.rng.randint(low, high)

    def fill(self, template, **slots):
        while True:
            new = re.sub(r"\[([^\[\]]*)\]", lambda m: self.pick(m.group(1).split("|")), template)
            if new == template:
                break
            template = new
        return re.sub(r"\{(\w+)\}", lambda m: str(slots[m.group(1)]), template)

    def open(self, draw):
        """A value from the half of the space this maker may use."""
        for _ in range(200):
            value = draw()
            if (zlib.crc32(str(value).encode()) % 8 == 0) == self.held_out:
                return value
        return draw()

    def syllables(self, low=2, high=3):
        return "".join(self.pick(CONS) + self.pick(VOWEL) for _ in range(self.between(low, high))) \
            + self.pick(TAIL)

    def noise(self, length=None):
        alphabet = self.pick(["abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz0123456789",
                              "0123456789abcdef", "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"])
        return "".join(self.pick(alphabet) for _ in range(length or self.between(3, 9)))

    def nonsense(self):
        """A pronounceable word nobody has seen."""
        return self.open(self.syllables)

    def name(self):
        return self.open(lambda: self.pick(NAMES) if self.chance(.4) else self.syllables(1, 3).capitalize())

    def city(self):
        return self.open(lambda: self.pick(CITIES) if self.chance(.6) else self.syllables(2, 3).capitalize())

    def colour(self):
        return self.open(lambda: self.pick(COLOURS) if self.chance(.6)
                         else self.pick(["dark ", "light ", "pale "]) + self.pick(COLOURS)
                         if self.chance(.5) else self.syllables())

    def food(self):
        return self.open(lambda: self.pick(FOODS) if self.chance(.6) else self.syllables())

    def number(self, low=1, high=6):
        def draw():
            n = self.between(low, high)
            return str(self.between(10 ** (n - 1), 10 ** n - 1))
        return self.open(draw)

    def port(self):
        return self.open(lambda: str(self.between(1024, 65535)))

    def code(self):
        def draw():
            k = self.between(0, 4)
            if k == 0:
                return self.noise()
            if k == 1:
                return "%s-%d" % (self.syllables(1, 2), self.between(1, 9999))
            if k == 2:
                return "%s-%s" % (self.noise(3).upper(), self.between(100, 99999))
            if k == 3:
                return self.syllables(1, 2) + "-" + self.syllables(1, 2)
            return self.syllables(1, 2).upper() + str(self.between(1, 999))
        return self.open(draw)

    def clock(self):
        return self.open(lambda: "%d:%02d" % (self.between(0, 23), self.between(0, 59)))

    def date(self):
        return self.open(lambda: self.pick(["%d-%02d-%02d" % (self.between(2020, 2031), self.between(1, 12),
                                                              self.between(1, 28)),
                                            "%s %d" % (self.pick("January February March April May June July "
                                                                 "August September October November "
                                                                 "December".split()), self.between(1, 28))]))

    def day(self):
        return self.pick("Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split())

    def ident(self):
        """A program identifier: two or three parts, in one of four spellings."""
        def draw():
            parts = [self.pick(VERBS) if self.chance(.4) else self.pick(NOUNS) if self.chance(.6)
                     else self.syllables(1, 2) for _ in range(self.between(2, 3))]
            k = self.between(0, 5)
            if k == 0:
                return "_".join(parts).upper()
            if k == 1:
                return parts[0] + "".join(p.capitalize() for p in parts[1:])
            return "_".join(parts)
        return self.open(draw)

    def path(self, ext=None):
        def draw():
            dirs = [self.pick(DIRS) if self.chance(.6) else self.syllables(1, 2)
                    for _ in range(self.between(0, 3))]
            stem = self.pick(NOUNS) if self.chance(.4) else self.syllables(1, 3)
            if self.chance(.3):
                stem += self.pick("_-") + (self.pick(NOUNS) if self.chance(.5) else self.syllables(1, 2))
            return "/".join(dirs + [stem + "." + (ext or self.pick(EXTS))])
        return self.open(draw)

    def folder(self):
        return self.open(lambda: "/".join(self.pick(DIRS) if self.chance(.5) else self.syllables(1, 2)
                                          for _ in range(self.between(1, 3))))

    def address(self):
        return self.open(lambda: "%d.%d.%d.%d" % tuple(self.between(1, 254) for _ in range(4)))

    def mail(self):
        return self.open(lambda: "%s@%s.%s" % (self.syllables(1, 2), self.syllables(1, 2),
                                               self.pick(["org", "net", "com", "example"])))

    def phrase(self, low=2, high=5):
        """A few ordinary and unordinary words in a row."""
        def draw():
            return " ".join(self.pick(self.pick([NOUNS, VERBS, THINGS, FOODS, ANIMALS, COLOURS, PLACES]))
                            if self.chance(.75) else self.syllables() for _ in range(self.between(low, high)))
        return self.open(draw)

    def anything(self):
        """Any value at all, for copying practice."""
        return self.pick([self.name, self.city, self.number, self.code, self.ident, self.path, self.clock,
                          self.nonsense, self.phrase, self.mail, self.address, self.date, self.colour])()
