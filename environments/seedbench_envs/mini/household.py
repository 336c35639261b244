"""What the generated ALFWorld games are made of: kinds of rooms, receptacles, objects, and what goes where.

Data only. Type names are CamelCase and become one lower-case word in the game; the type names that the
engine knows (SinkBasin, Microwave, Fridge, Knife, ButterKnife) keep their meaning. Fixtures, things and
rules were chosen for this project; no official room is reproduced.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReceptacleType:
    """A kind of furniture or appliance that holds things."""

    name: str
    preposition: str
    """`in` or `on`, for the task sentence."""
    openable: bool
    height: int
    """Centimetres above the floor; only the ids show it."""
    beside: tuple[str, ...]
    """Types whose place it may share, so that one stop serves both (they come earlier in a room's list)."""


@dataclass(frozen=True, slots=True)
class ObjectType:
    """A kind of thing that can be carried."""

    name: str
    rooms: str
    """Initials of the kinds of rooms where it is found (RoomKind.initial)."""
    abilities: tuple[str, ...]
    """Its unary PDDL predicates besides pickupable."""
    places: frozenset[str]
    """Receptacle types that can hold it (canContain)."""


@dataclass(frozen=True, slots=True)
class RoomKind:
    """A kind of room: how many of each receptacle type it has, and where its lamps stand."""

    name: str
    initial: str
    first_scene: int
    """Its rooms are numbered from here; official scene numbers end at 430."""
    core: tuple[str, ...]
    """Receptacle types that even its small rooms have, one of each."""
    receptacles: tuple[tuple[str, int, int], ...]
    """(type, fewest, most)."""


def _receptacles(preposition: str, openable: bool, rows: str) -> dict[str, ReceptacleType]:
    """Read rows of `Name height Neighbour...`."""
    table = {}
    for row in rows.strip().splitlines():
        name, height, *beside = row.split()
        table[name] = ReceptacleType(name, preposition, openable, int(height), tuple(beside))
    return table


RECEPTACLES: dict[str, ReceptacleType] = {
    **_receptacles(
        "on",
        False,
        """
        CounterTop 92
        DiningTable 76
        StoveBurner 94 StoveBurner CounterTop
        CoffeeMachine 95 CounterTop
        DishRack 96 SinkBasin CounterTop
        Shelf 140 Desk Toilet Sofa Bed
        Bookcase 120
        Desk 74
        Dresser 88
        NightStand 58 Bed
        SideTable 60 Sofa ArmChair
        CoffeeTable 45
        TvStand 52
        Bed 55
        Sofa 47
        ArmChair 46
        Ottoman 42 Sofa ArmChair
        Stool 48 BathtubBasin
        Toilet 44
        TowelRack 125 BathtubBasin TowelRack
        """,
    ),
    **_receptacles(
        "in",
        False,
        """
        SinkBasin 85 CounterTop
        BathtubBasin 35
        GarbageCan 20 Toilet Desk
        Hamper 50
        Basket 30 Sofa
        """,
    ),
    **_receptacles(
        "in",
        True,
        """
        Fridge 90
        Microwave 100 CounterTop
        Cabinet 60 CounterTop Cabinet TvStand
        Drawer 70 CounterTop Desk Dresser NightStand Drawer
        Pantry 110
        Breadbox 97 CounterTop
        Wardrobe 100
        Chest 40 Bed
        Safe 35 Desk
        """,
    ),
}
"""Every receptacle type by name. Openable ones start closed."""

ROOM_KINDS: tuple[RoomKind, ...] = (
    RoomKind(
        "kitchen",
        "K",
        1001,
        ("SinkBasin", "Fridge", "Microwave"),
        (
            ("CounterTop", 1, 2), ("SinkBasin", 1, 1), ("Fridge", 1, 1), ("Microwave", 1, 1),
            ("StoveBurner", 1, 2), ("Cabinet", 1, 3), ("Drawer", 1, 3), ("DiningTable", 0, 1),
            ("Shelf", 0, 1), ("CoffeeMachine", 0, 1), ("DishRack", 0, 1), ("Pantry", 0, 1),
            ("Breadbox", 0, 1), ("GarbageCan", 0, 1),
        ),
    ),
    RoomKind(
        "living room",
        "L",
        1201,
        ("SideTable",),
        (
            ("Sofa", 1, 1), ("CoffeeTable", 1, 1), ("SideTable", 1, 2), ("ArmChair", 0, 2),
            ("Shelf", 0, 2), ("Bookcase", 0, 1), ("Desk", 0, 1), ("TvStand", 0, 1), ("Drawer", 0, 3),
            ("Cabinet", 0, 2), ("Ottoman", 0, 1), ("Basket", 0, 1), ("Safe", 0, 1), ("GarbageCan", 0, 1),
        ),
    ),
    RoomKind(
        "bedroom",
        "B",
        1301,
        ("Bed", "NightStand"),
        (
            ("Bed", 1, 1), ("NightStand", 1, 2), ("Desk", 0, 1), ("Dresser", 0, 1), ("Drawer", 1, 4),
            ("Shelf", 0, 2), ("ArmChair", 0, 1), ("Wardrobe", 0, 1), ("Chest", 0, 1), ("Safe", 0, 1),
            ("Hamper", 0, 1), ("GarbageCan", 0, 1),
        ),
    ),
    RoomKind(
        "bathroom",
        "W",
        1401,
        ("SinkBasin",),
        (
            ("CounterTop", 1, 1), ("SinkBasin", 1, 2), ("Toilet", 1, 1), ("BathtubBasin", 0, 1),
            ("TowelRack", 1, 2), ("Cabinet", 1, 3), ("Drawer", 0, 2), ("Shelf", 0, 1), ("Stool", 0, 1),
            ("Hamper", 0, 1), ("GarbageCan", 0, 1),
        ),
    ),
)  # fmt: skip
"""The four kinds of rooms; how large a room is, is its size's word (sizes.py)."""

LAMPS: dict[str, tuple[str, ...]] = {
    "DeskLamp": ("Desk", "SideTable", "NightStand"),
    "TableLamp": ("Dresser", "SideTable", "NightStand", "TvStand"),
}
"""Lamp type -> receptacle types that it may stand on. Lamps are switched on and off, never carried."""

# Where things of a sort belong: receptacle types by name.
_FOOD = "CounterTop DiningTable SinkBasin Fridge Microwave Pantry GarbageCan"
_BAKED = "CounterTop DiningTable Fridge Microwave Pantry Breadbox GarbageCan"
_DISH = "CounterTop DiningTable SinkBasin Fridge Microwave Cabinet Shelf DishRack CoffeeTable SideTable Desk NightStand"
_COOKWARE = "CounterTop DiningTable SinkBasin Fridge Cabinet StoveBurner DishRack Shelf"
_CUTLERY = "CounterTop DiningTable SinkBasin Drawer DishRack"
_DRINK = "CounterTop DiningTable Fridge Cabinet Shelf Pantry GarbageCan CoffeeTable"
_SPICE = "CounterTop DiningTable Cabinet Drawer Shelf Pantry"
_READING = (
    "Shelf Bookcase Desk Dresser NightStand SideTable CoffeeTable TvStand Bed Sofa ArmChair Ottoman Drawer"
    " Cabinet Chest"
)
_PAPER = "SideTable CoffeeTable Desk Sofa ArmChair Ottoman TvStand Basket GarbageCan Drawer NightStand Bed"
_SMALL = "Desk Dresser NightStand SideTable CoffeeTable TvStand Shelf Drawer Safe Ottoman ArmChair Bed"
_OFFICE = "Desk Drawer Shelf NightStand SideTable CoffeeTable Dresser GarbageCan"
_GADGET = "Desk Bed Sofa CoffeeTable SideTable ArmChair Dresser NightStand Drawer TvStand"
_SOFT = "Bed Sofa ArmChair Ottoman Wardrobe Chest Basket"
_CLOTHES = "Bed ArmChair Wardrobe Chest Dresser Drawer Hamper"
_DECOR = "Shelf Bookcase SideTable CoffeeTable Desk Dresser TvStand Cabinet NightStand DiningTable CounterTop"
_TOILETRY = "CounterTop SinkBasin BathtubBasin Cabinet Drawer Shelf Toilet Stool GarbageCan"
_LINEN = "TowelRack Hamper Cabinet Shelf CounterTop BathtubBasin Stool"

_SHORT = {
    "clean": "cleanable", "heat": "heatable", "cool": "coolable", "slice": "sliceable",
    "holds": "isReceptacleObject",
}  # fmt: skip


def _object(name: str, rooms: str, abilities: str, *places: str) -> ObjectType:
    return ObjectType(
        name, rooms, tuple(_SHORT[word] for word in abilities.split()), frozenset(" ".join(places).split())
    )


OBJECTS: tuple[ObjectType, ...] = (
    _object("Apple", "K", "clean heat cool slice", _FOOD),
    _object("Potato", "K", "clean heat cool slice", _FOOD),
    _object("Tomato", "K", "clean heat cool slice", _FOOD),
    _object("Carrot", "K", "clean heat cool slice", _FOOD),
    _object("Lettuce", "K", "clean cool slice", _FOOD),
    _object("Egg", "K", "clean heat cool", _FOOD),
    _object("Bread", "K", "heat cool slice", _BAKED),
    _object("Pie", "K", "heat cool slice", _BAKED),
    _object("Muffin", "K", "heat cool", _BAKED),
    _object("Mug", "KLB", "clean heat cool holds", _DISH, "CoffeeMachine"),
    _object("Cup", "KW", "clean heat cool holds", _DISH, "CoffeeMachine"),
    _object("Bowl", "KL", "clean heat cool holds", _DISH),
    _object("Plate", "KL", "clean heat cool holds", _DISH),
    _object("Pan", "K", "clean cool holds", _COOKWARE),
    _object("Pot", "K", "clean cool holds", _COOKWARE),
    _object("Kettle", "K", "clean", _COOKWARE),
    _object("Fork", "K", "clean", _CUTLERY),
    _object("Spoon", "K", "clean", _CUTLERY),
    _object("Knife", "K", "clean", _CUTLERY),
    _object("ButterKnife", "K", "clean", _CUTLERY),
    _object("Ladle", "K", "clean", _CUTLERY),
    _object("Whisk", "K", "clean", _CUTLERY),
    _object("Juice", "K", "cool", _DRINK),
    _object("WineBottle", "KL", "cool", _DRINK),
    _object("SaltShaker", "K", "", _SPICE),
    _object("PepperMill", "K", "", _SPICE),
    _object("Sponge", "KW", "clean", "SinkBasin CounterTop Drawer Cabinet BathtubBasin Stool"),
    _object("Book", "LB", "", _READING),
    _object("Notebook", "LB", "", _READING),
    _object("Magazine", "LB", "", _READING, "GarbageCan", "Basket"),
    _object("Newspaper", "L", "", _PAPER),
    _object("TissueBox", "LB", "", _PAPER),
    _object("RemoteControl", "L", "", _GADGET, "Ottoman"),
    _object("Laptop", "LB", "", _GADGET),
    _object("Tablet", "LB", "", _GADGET),
    _object("CellPhone", "LB", "", _SMALL),
    _object("KeyChain", "LB", "", _SMALL),
    _object("CreditCard", "LB", "", _SMALL),
    _object("Watch", "LB", "", _SMALL),
    _object("Pen", "LB", "", _OFFICE),
    _object("Pencil", "LB", "", _OFFICE),
    _object("AlarmClock", "B", "", "Desk Dresser NightStand Shelf Drawer"),
    _object("Vase", "L", "", _DECOR),
    _object("Statue", "L", "", _DECOR),
    _object("Candle", "LW", "", _DECOR, "Toilet"),
    _object("Cushion", "L", "", _SOFT),
    _object("Blanket", "LB", "", _SOFT, "Hamper"),
    _object("Pillow", "B", "", _SOFT),
    _object("TeddyBear", "B", "", _SOFT, "Dresser"),
    _object("Scarf", "B", "", _CLOTHES),
    _object("Sock", "B", "", _CLOTHES),
    _object("SoapBar", "W", "clean", _TOILETRY),
    _object("Toothbrush", "W", "clean", _TOILETRY),
    _object("Comb", "W", "clean", _TOILETRY),
    _object("Razor", "W", "clean", _TOILETRY),
    _object("SprayBottle", "W", "", _TOILETRY),
    _object("ToiletRoll", "W", "", _TOILETRY),
    _object("WashCloth", "W", "clean", _LINEN, "SinkBasin"),
    _object("Towel", "W", "", _LINEN),
)
"""Every carried type."""

PHRASES: dict[str, tuple[str, ...]] = {
    "pick_and_place_simple": (
        "place {a_object} {preposition} {a_receptacle}",
        "find {a_object} and leave it {preposition} {a_receptacle}",
        "get {a_object}, then set it down {preposition} {a_receptacle}",
    ),
    "look_at_obj_in_light": (
        "inspect {a_object} by the light of {a_receptacle}",
        "hold {a_object} next to {a_receptacle} that is switched on",
        "pick up {a_object} and view it with {a_receptacle} turned on",
    ),
    "pick_clean_then_place_in_recep": (
        "place a clean {object} {preposition} {a_receptacle}",
        "wash {a_object} and then leave it {preposition} {a_receptacle}",
        "clean {a_object}, then set it down {preposition} {a_receptacle}",
    ),
    "pick_heat_then_place_in_recep": (
        "place a hot {object} {preposition} {a_receptacle}",
        "warm up {a_object} and then leave it {preposition} {a_receptacle}",
        "heat {a_object}, then set it down {preposition} {a_receptacle}",
    ),
    "pick_cool_then_place_in_recep": (
        "place a cold {object} {preposition} {a_receptacle}",
        "chill {a_object} and then leave it {preposition} {a_receptacle}",
        "cool {a_object}, then set it down {preposition} {a_receptacle}",
    ),
    "pick_two_obj_and_place": (
        "place {a_object} and another {object} {preposition} the same {receptacle}",
        "gather two of the kind {object} and leave both {preposition} one {receptacle}",
        "find {a_object} and a second {object}, then put both {preposition} one {receptacle}",
    ),
}
"""Family -> task sentences, each of which states the goal in full."""

TREATMENTS: dict[str, tuple[str, str, str]] = {
    "pick_clean_then_place_in_recep": ("cleanable", "isClean", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("heatable", "isHot", "Microwave"),
    "pick_cool_then_place_in_recep": ("coolable", "isCool", "Fridge"),
}
"""Family -> (ability that its object needs, condition that its goal asks for, appliance that does it)."""
