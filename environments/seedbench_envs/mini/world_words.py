"""Words of the invented world: parts of its names, trades and goods, and the sentences of its encyclopedia.

Names are put together from syllables, so that nothing about them can be known from elsewhere.
"""

from __future__ import annotations

GIVEN = (
    "Abrel", "Adeno", "Almis", "Anvira", "Arbane", "Bellit", "Berun", "Calmo", "Cevrin", "Corada", "Dalvi", "Demora",
    "Edrun", "Elvane", "Emzo", "Falune", "Fenrit", "Gavrel", "Gemina", "Halvo", "Hesper", "Idrane", "Ilvo", "Imeza",
    "Jadrel", "Jorune", "Kaldi", "Kemra", "Laviro", "Lunet", "Mabrel", "Mirvo", "Nadine", "Nelvo", "Odrina", "Olmet",
    "Pavrin", "Pelune", "Quilda", "Radelo", "Rezine", "Sabrun", "Silvo", "Tamire", "Tevrel", "Ulmira", "Umbro",
    "Valdine", "Vesmo", "Wendrel", "Wilvane", "Xandre", "Yelmo", "Yvrine", "Zamelo", "Zelvin",
)  # fmt: skip
FAMILY_STARTS = (
    "Ar", "Bal", "Bren", "Cor", "Dav", "Dor", "El", "Fal", "Gar", "Hal", "Is", "Jor", "Kel", "Lor", "Mal", "Mor",
    "Nar", "Or", "Pel", "Quin", "Ros", "Sal", "Tor", "Ul", "Var", "Wes", "Yar", "Zel",
)  # fmt: skip
FAMILY_ENDS = ("bek", "dane", "dell", "ford", "gast", "lund", "mund", "nack", "rick", "send", "tarn", "vey", "wick")
PLACE_STARTS = (
    "Alder", "Amber", "Barrow", "Black", "Brack", "Cald", "Carn", "Copper", "Drov", "Elm", "Fern", "Flint", "Glen",
    "Gorse", "Grim", "Harrow", "Hazel", "Heron", "Iron", "Kest", "Lang", "Lark", "Mill", "Moor", "North", "Oster",
    "Pine", "Quarr", "Raven", "Rush", "Salt", "Sedge", "Silver", "Stan", "Swan", "Tarn", "Thorn", "Umber", "West",
    "Wether", "Whit", "Yar",
)  # fmt: skip
PLACE_ENDS = (
    "bourne", "bury", "combe", "dale", "fell", "field", "gate", "haven", "hollow", "mere", "mouth", "stead", "stow",
    "strand", "thorpe", "wharf",
)  # fmt: skip
PLACE_VARIANTS = ("Upper {}", "Little {}", "New {}", "{} Bridge", "{} Saint Orla")
WATER_STARTS = (
    "Ab", "Cas", "Del", "Ev", "Fir", "Gol", "Hes", "Ild", "Jass", "Kor", "Lim", "Mer", "Nov", "Oss", "Pir", "Ran",
    "Sev", "Tir", "Und", "Vol", "Wen", "Yss", "Zar",
)  # fmt: skip
WATER_ENDS = ("a", "ane", "el", "en", "ia", "is", "onde", "une")
REGION_NAMES = (
    "Ostmarra", "Velinth", "Cordane", "Halvoria", "Nemmark", "Sarrowind", "Tolvane", "Ulverra", "Brissand", "Iskeld",
    "Quenmoor", "Zandrel",
)  # fmt: skip
WORK_ADJECTIVES = (
    "Amber", "Borrowed", "Broken", "Copper", "Crooked", "Distant", "Drowned", "Empty", "Feathered", "Frozen", "Glass",
    "Hollow", "Hungry", "Last", "Lonely", "Paper", "Patient", "Quiet", "Red", "Salted", "Second", "Silent", "Silver",
    "Sleeping", "Stolen", "Tin", "Velvet", "Wandering", "Winter", "Wooden",
)  # fmt: skip
WORK_NOUNS = (
    "Almanac", "Anchor", "Bell", "Bridge", "Clock", "Coast", "Compass", "Crown", "Daughter", "Door", "Ferryman",
    "Garden", "Harbour", "Heron", "House", "Island", "Kettle", "Lantern", "Ledger", "Letter", "Mirror", "Orchard",
    "Passage", "River", "Shepherd", "Staircase", "Stranger", "Tide", "Violin", "Window",
)  # fmt: skip
GOODS = (
    "barometers", "bicycles", "boots", "brass bells", "candles", "carpets", "cider", "clocks", "cutlery", "felt hats",
    "fishing nets", "gloves", "honey", "ink", "lamps", "linen", "locks", "marmalade", "mustard", "organ pipes",
    "paper", "pianos", "porcelain", "rope", "sails", "salted fish", "sewing machines", "soap", "spectacles",
    "telescopes", "tiles", "toys", "typewriters", "umbrellas", "vinegar", "wallpaper",
)  # fmt: skip
COMPANY_FORMS = ("{} & Sons", "{} & Daughters", "{} Works", "{} Brothers", "{} Trading Company", "House of {}")
BUILDINGS = ("Concert Hall", "Lighthouse", "Library", "Market Hall", "Museum", "Observatory", "Railway Station")
CLUB_FORMS = ("{} Rovers", "{} Rowing Club", "{} Wanderers", "{} Athletic", "{} United")
SCHOOL_FORMS = ("{} College", "{} Academy", "{} School of Arts", "{} Institute")

ROLES = {
    "founder": ("manufacturer", "merchant", "inventor", "engineer"),
    "writer": ("novelist", "poet", "journalist", "playwright"),
    "director": ("film director",),
    "composer": ("composer", "organist"),
    "painter": ("painter", "engraver"),
    "architect": ("architect",),
    "coach": ("rower", "footballer"),
    "climber": ("mountaineer", "cartographer", "geologist"),
    "scholar": ("scholar", "bishop", "physician"),
}
"""Role in the world -> occupations."""

FILLERS = {
    "person": (
        "Friends remembered a patient listener with a great fondness for chess.",
        "Letters and notebooks are kept by the provincial archive.",
        "Contemporaries disagreed about the value of this work.",
        "A small asteroid and two streets bear the family's name.",
        "Little is known about the early years.",
        "An illness made travelling difficult in later life.",
    ),
    "town": (
        "A weekly market is held on Thursdays.", "Most houses are built of grey sandstone.",
        "The narrow streets of the old quarter are closed to traffic.", "Part of the medieval wall still stands.",
        "A fire destroyed much of the centre and it was rebuilt in brick.", "The harvest fair draws many visitors.",
    ),
    "work": (
        "Critics praised its restraint and complained about its length.", "It was slow to find an audience.",
        "It has been revived many times since.", "Early versions differ in several scenes.",
        "The original manuscript is lost.", "It won no prize, but it is still taught in schools.",
    ),
    "thing": (
        "It was damaged by a flood and repaired within two years.", "It is open to visitors in the summer months.",
        "It employs several hundred people.", "It has moved twice within the same street.",
        "Its archive was given to the province.", "It appears on the local coat of arms.",
    ),
    "nature": (
        "Its banks and slopes are home to herons and otters.", "Old maps show it under several spellings.",
        "It freezes over in hard winters.", "A footpath follows it for most of its length.",
        "It gave its name to a popular folk song.", "It is protected as a nature reserve.",
    ),
}  # fmt: skip
