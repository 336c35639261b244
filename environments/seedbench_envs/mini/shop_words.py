"""The words of the generated shop: brands, option values, sentences of products and of shoppers.

Data only, written for this project. In sentences, `{head}` is the product, `{material}` what it is made of,
`{phrase}` a feature and `{use}` a purpose.
"""

from __future__ import annotations

BRAND_STARTS = (
    "Vel", "Tor", "Kas", "Bri", "Oma", "Lun", "Fen", "Zar", "Ela", "Pim", "Ruk", "Sol", "Nib", "Dov", "Hul", "Wex",
    "Yar", "Quo", "Mir", "Jas", "Cal", "Tam", "Ivo", "Gra", "Osk", "Ulm", "Pel", "Ber", "Syl", "Ket",
)  # fmt: skip
BRAND_ENDS = (
    "mora", "dane", "tiva", "wick", "nello", "rova", "quist", "bury", "lane", "zeno", "fara", "lund", "mitt", "vanta",
    "sters", "poli", "grove", "kuna", "dell", "brisk", "hollow", "nori", "tarn", "vea", "marsh",
)  # fmt: skip

_COLOURS = (
    "black, white, navy, forest green, dusty rose, sand, charcoal, sky blue, mustard, burgundy, ivory, slate, plum,"
    " olive, coral, teal, lilac, copper, black/white, navy/sand, green/ivory, brick, mint, cocoa brown"
)

_AXES = f"""
colour = Color = {_COLOURS}
finish = Color = natural oak, walnut brown, matte black, chalk white, weathered gray, honey pine, cherry, espresso
shade = Color = 01 bare beige, 02 pink clay, 03 red velvet, 04 deep plum, 05 ocean blue, 06 soft lilac, 07 smoke gray
pattern = Color = polka dots, wide stripes, small leaves, checked navy, plain ivory, moon print, plain burgundy
apparel = Size = x-small, small, medium, large, x-large, xx-large, 3x-large
shoe = Size = 5.5, 6, 6.5, 7, 7.5, 8, 8.5, 9, 9.5, 10, 11, 12
sock = Size = shoe size 4-6, shoe size 7-9, shoe size 10-12, kids
waist = Size = 28 inch, 30 inch, 32 inch, 34 inch, 36 inch, 38 inch, 42 inch
head = Size = 21.5 inch head, 22 inch head, 22.5 inch head, 23 inch head
volume = Size = 0.5 fl oz, 1 fl oz, 1.7 fl oz, 3.4 fl oz, 6 fl oz, 8.5 fl oz
weight = Size = 4 ounce, 8 ounce, 12 ounce, 1 pound, 2 pound, 5 pound
pack = Unit Count = pack of 1, pack of 2, pack of 3, pack of 6, pack of 12
count = Item Package Quantity = 1, 2, 3, 4, 6, 8, 10, 24
length = Size = 1.5 feet, 3 feet, 6 feet, 10 feet, 16 feet, 25 feet, 50 feet
area = Size = 12" x 18", 16" x 24", 18" x 18", 20" x 20", 24" x 36", 27" x 45"
inch = Size = 6 inch, 9 inch, 12 inch, 16 inch, 20 inch, 24 inch, 30 inch, 36 inch, 48 inch
drop = Size = 42w x 63l, 42w x 84l, 52w x 63l, 52w x 84l, 52w x 95l, 52w x 108l
tier = Style = two shelves, three shelves, four shelves, five shelves, corner piece
width = Style = thin, medium, wide, extra wide, broken pieces
bottle = Style = tall bottle, square bottle, squeeze bottle, refill pouch
plug = Style = us plug, uk plug, eu plug, au plug
switch = Style = clicky switches, linear switches, tactile switches, silent switches
hand = Style = for the left hand, for the right hand, for both hands
style = Style = basic, deluxe, family, limited edition, second generation, gift ready
capacity = Capacity = 5000 mah, 10000 mah, 15000 mah, 20000 mah, 26000 mah
fit = Fit Type = regular, slim, tall, big and tall, petite
scent = Scent = lavender, cedar and moss, orange peel, unscented, wild fig, sea breeze, vanilla bean, eucalyptus
sweet = Flavor Name = cinnamon apple, salted caramel, maple pecan, lemon ginger, mixed berry, plain, double cocoa
savory = Flavor Name = thyme garlic, smoked paprika, sea salt, lime chili, four herbs, roasted onion
tea = Flavor Name = ginger lemon, quiet evening, apple spice, hibiscus, fennel, honey blossom
roast = Flavor Name = light roast, medium roast, dark roast, hazelnut, half decaf
berry = Flavor Name = red currant, apricot, wild bilberry, sour cherry, fig and lemon, raspberry
"""


def _axes() -> dict[str, tuple[str, tuple[str, ...]]]:
    rows = (map(str.strip, row.split(" = ")) for row in _AXES.strip().splitlines())
    return {key: (name, tuple(value.strip() for value in values.split(", "))) for key, name, values in rows}


AXES = _axes()
"""Key -> (option name, values)."""

QUALIFIERS = (
    "Classic", "Modern", "Little", "Grand", "Everyday", "Premium", "Original", "Compact", "Essential", "Signature",
    "Simple", "New", "Improved", "Genuine", "Upgraded", "Traditional",
)  # fmt: skip

SERIES = (
    "Harbor", "Meadow", "Comet", "Cabin", "Orbit", "Lantern", "Willow", "Summit", "Cobalt", "Pebble", "Drift", "Ember",
    "Maple", "Aurora", "Canyon", "Breeze",
)  # fmt: skip

OPENINGS = (
    "Drawn up by a small team that uses {head} of its own make every day.",
    "Our {material} {head}: one thing, done well.",
    "We make {head} in short runs and check each by hand.",
    "The {series} line grew out of a simple wish: {head} to last.",
    "Here is {head} with nothing you do not need.",
    "We revised the {head} four times after letters from customers.",
    "You will find our {series} {head} in many homes, and not by chance.",
    "Good {material} is half of the work; patience is the other half.",
)
"""First sentences of descriptions. They suit one thing and many: "coffee table" as well as "ankle boots"."""

CLOSINGS = (
    "Write to us within sixty days if anything is wrong and we will put it right.",
    "Please measure before you order, because photographs mislead.",
    "Colors may look a little different on your screen.",
    "It arrives in a plain box without plastic.",
    "What you see in the pictures is what is in the parcel.",
    "Keep it away from open fire and from small children.",
)

SENTENCES = {
    "before": (
        "Really {phrase}, which matters more than it sounds.",
        "Being {phrase}, it asks little of you.",
        "We kept it {phrase} from the first sample on.",
        "If you want something {phrase}, this is made for you.",
        "Guaranteed {phrase}, first day and last.",
    ),
    "with": (
        "Comes with {phrase} as you would expect at twice the price.",
        "The difference in daily life: {phrase}.",
        "Thanks to {phrase} it works where others give up.",
        "You get {phrase} without paying extra.",
        "We added {phrase} after long trials.",
    ),
    "for": (
        "Made for {phrase}, and it shows.",
        "A good choice for {phrase}.",
        "People buy our {head} for {phrase} and keep it for everything else.",
        "Perfect for {phrase} or as a present.",
        "Think of {phrase}; it will not let you down.",
    ),
}
"""Feature place -> sentences about it."""

LABELS = {
    "before": ("Promise", "Quality", "Made right", "Material"),
    "with": ("In the box", "Details", "Well equipped", "Design"),
    "for": ("Use", "Occasions", "Good to know", "Where it belongs"),
}
"""Feature place -> what a bullet begins with."""

FILLERS = (
    "Service: questions are answered by the people who make the {head}",
    "Measures: see the drawing among the pictures of the {head}",
    "Care: treat the {material} gently and it will outlive the fashion",
    "Origin: designed in one place, put together in another, tested in both",
    "Gift: comes in a box that needs no wrapping",
    "Guarantee: two years on the {head}, five on the {material}",
)
"""Bullets that say nothing a goal asks for."""

ASKS = (
    "i need {a} {item}{options}",
    "i am looking for {a} {item}{options}",
    "find me {a} {item}{options}, please",
    "can you get me {a} {item}{options}?",
    "my sister wants {a} {item}{options}",
    "where can i buy {a} {item}{options}",
    "i would like to order {a} {item}{options}",
    "show me {a} {item}{options}",
    "we are out of luck so far, we need {a} {item}{options}",
    "i want to replace my old stuff with {a} {item}{options}",
    "hello, i'm after {a} {item}{options}. nothing too fancy",
    "it is for a birthday: {a} {item}{options}",
)
"""How shoppers ask. `{item}` names the product with its features, `{options}` the wanted option values."""

OPTION_WORDS = {
    "Color": (" in {}", ". the color should be {}", ", {} if possible"),
    "Size": (" in size {}", ", {}", ". my size is {}"),
    "Flavor Name": (", {} flavor", " that tastes of {}", ". get the {} one"),
    "Scent": (" with {} scent", ", {} please"),
    "Style": (", {}", ". i want the {} version"),
    "Fit Type": (", {} fit", " with a {} cut"),
    "Unit Count": (", {}", " in a {}"),
    "Item Package Quantity": (", {} of them", " in a set of {}"),
    "Capacity": (" with {}", ", at least {}"),
}
"""Option name -> how a shopper mentions a value."""
