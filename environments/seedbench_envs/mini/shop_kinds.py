"""What the generated shop sells: sixty kinds of products in WebShop's five categories, and what may be said of them.

Data only, written for this project; no text of a real shop is used. A kind is a row

    head | query | path after the department | lowest-highest price | option axes | materials | own features

where a feature is `phrase` (said before the noun), `+phrase` (said after "with") or `@phrase` (said after "for").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Place = Literal["before", "with", "for"]


@dataclass(frozen=True, slots=True)
class Feature:
    """A quality that goals ask for: lower-case words and where a sentence has them."""

    phrase: str
    place: Place


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of product."""

    category: str
    head: str
    """What titles call it."""
    query: str
    """What a shopper types for the whole kind; shared by all its products."""
    path: str
    """Category nodes joined by ` › `."""
    price: tuple[int, int]
    """Whole dollars."""
    axes: tuple[str, ...]
    """Keys of shop_words.AXES."""
    materials: tuple[str, ...]
    features: tuple[Feature, ...]
    """Its own and its category's."""


def _feature(text: str) -> Feature:
    places: dict[str, Place] = {"+": "with", "@": "for"}
    return Feature(text.lstrip("+@"), places.get(text[0], "before"))


def _list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(","))


def _kinds(category: str, department: str, shared: str, rows: str) -> list[Kind]:
    common = tuple(map(_feature, _list(" ".join(shared.split()))))
    kinds = []
    for row in rows.strip().replace("|\n", "|").splitlines():  # a row goes on after a bar at its end
        head, query, path, price, axes, materials, own = (part.strip() for part in row.split("|"))
        low, _, high = price.partition("-")
        features = (*map(_feature, _list(own)), *common)
        kinds.append(
            Kind(
                category, head, query, f"{department} › {path}", (int(low), int(high)),
                tuple(axes.split()), _list(materials), features,
            )
        )  # fmt: skip
    return kinds


_BEAUTY = """
face cream | face moisturizers | Skin Care › Face › Creams | 9-44 | volume scent |
    oat, squalane, clay | overnight repair, non greasy, +vitamin c, +ceramide blend, +glass jar, @dry skin, @mature skin
lip balm | lip care | Skin Care › Lips › Balms | 3-15 | sweet pack |
    beeswax, cocoa butter, castor oil | high shine, tinted sheer, +shea butter, +twist tube, +wild honey, @chapped lips
shampoo bar | shampoos | Hair Care › Washing › Bars | 6-22 | scent pack |
    charcoal, coconut, nettle | sulfate free, color safe, +tin box, +green tea, +rosemary oil, @curly hair, @fine hair
hair serum | hair treatments | Hair Care › Styling › Serums | 8-39 | volume scent |
    argan, keratin, camellia | heat protecting, frizz taming, +dropper cap, +aloe vera, @damaged hair, @long hair
body scrub | body scrubs | Skin Care › Body › Scrubs | 7-29 | scent volume |
    sugar, coffee, walnut | deep cleansing, coarse grained, +wooden spoon, +shea butter, +almond oil, @rough elbows
nail polish | nail color | Makeup › Nails › Polish | 4-17 | shade |
    gel, acrylic, mineral | chip resistant, high gloss, +wide brush, @short nails, @salon manicures
makeup brush set | makeup brushes | Tools › Brushes › Sets | 8-48 | shade count |
    bamboo, nylon, birch | soft bristled, easy rinsing, +zip case, +tapered tips, @powder blending
perfume oil | fragrance oils | Fragrance › Oils | 11-58 | scent volume |
    jasmine, cedar, amber | alcohol free, slow fading, +roll ball, +velvet pouch, @evening wear
bath salt | bath soaks | Bath › Soaks | 6-27 | scent weight |
    epsom, magnesium, seaweed | slow dissolving, fine grained, +dried petals, +rose water, +cork jar, @sore muscles
sunscreen stick | sun care | Skin Care › Sun › Sticks | 8-31 | count style |
    zinc, mineral, rice | reef friendly, non greasy, sweat proof, +push cap, @beach days, @ski trips
beard oil | beard care | Shaving › Beards › Oils | 7-33 | scent volume |
    hemp, grapeseed, sandalwood | itch calming, +bristle comb, +jojoba wax, +amber glass, @coarse beards, @barber visits
hair clip set | hair accessories | Hair Care › Accessories › Clips | 4-19 | colour count |
    acetate, velvet, resin | snag free, strong holding, +storage card, +pearl trim, @thick hair
"""
_BEAUTY_SHARED = """
cruelty free, fragrance free, paraben free, plant derived, travel sized, water resistant, hand made,
dermatologist tested, hand filled, quick shipping, +gift ribbon, +travel pouch, +paper wrap, +spare cap,
@sensitive skin, @daily use, @gift boxes
"""

_ELECTRONICS = """
wireless earbuds | earbud headphones | Audio › Headphones › Earbuds | 18-129 | colour style |
    silicone, ceramic, graphene | noise cancelling, sweat proof, +ear hooks, +charging case, @running outdoors
desk speaker | computer speakers | Audio › Speakers › Desktop | 19-140 | colour plug |
    walnut, fabric, alloy | deep bass, +volume dial, +rear jack, @music rooms, @home theater
phone charger | cell phone chargers | Phones › Accessories › Chargers | 8-46 | plug length |
    nylon, polymer, aluminum | fast charging, heat safe, +folding prongs, +spare cable, @night stands
power bank | portable chargers | Phones › Accessories › Batteries | 15-79 | capacity colour |
    graphite, rubber, titanium | quick refilling, pocket sized, +battery gauge, +flash light, @long flights
video cable | video cables | Video › Cables | 6-38 | length pack |
    copper, braided, gold | high bandwidth, tangle free, +locking plugs, @wide monitors, @game consoles
web camera | webcams | Computers › Peripherals › Cameras | 21-120 | colour plug |
    glass, carbon, alloy | low light, auto focusing, +privacy cover, +ring light, @video calls
mechanical keyboard | computer keyboards | Computers › Peripherals › Keyboards | 29-149 | switch colour |
    aluminum, resin, bamboo | hot swappable, spill resistant, +wrist rest, +number pad, @fast typing
computer mouse | computer mice | Computers › Peripherals › Mice | 9-75 | colour hand |
    rubber, magnesium, cork | silent clicking, +thumb wheel, +side buttons, @left handers, @photo editing
smart plug | smart outlets | Home Control › Outlets | 9-44 | plug count |
    polymer, ceramic, brass | voice controlled, schedule ready, +power meter, +night light, @holiday lights
tablet stand | tablet mounts | Tablets › Accessories › Stands | 11-64 | colour inch |
    steel, beech, acrylic | fold flat, tilt adjustable, +rubber pads, +pen tray, @kitchen counters
card reader | memory card readers | Computers › Storage › Readers | 8-41 | style pack |
    zinc, polymer, alloy | high speed, +dual slots, +captive cap, @photo backups, @drone footage
action camera | sports cameras | Cameras › Video › Action | 49-260 | style count |
    tempered glass, carbon, polymer | shock proof, wide angle, +chest strap, +spare battery, @diving trips
"""
_ELECTRONICS_SHARED = """
plug and play, splash proof, long lasting, energy saving, light weight, child safe, easy setup, scratch resistant,
+magnetic clasp, +status light, +carry pouch, +metal shell, +printed guide, @home office, @road trips, @small desks,
@class rooms
"""

_GARDEN = """
desk lamp | desk lamps | Lighting › Lamps › Desk | 16-110 | colour plug |
    brass, oak, steel | fully dimmable, eye friendly, +swing arm, +usb port, @late reading
floor lamp | floor lamps | Lighting › Lamps › Floor | 34-210 | colour inch |
    rattan, marble, steel | three way, slim profile, +linen shade, +foot switch, @reading corners
throw pillow cover | decorative pillows | Bedding › Pillows › Covers | 7-39 | area colour |
    velvet, linen, jute | double sided, soft touch, +hidden zipper, +fringe trim, @couch corners
coffee table | coffee tables | Furniture › Tables › Coffee | 59-390 | finish inch |
    acacia, glass, pine | round edged, +storage shelf, +lift top, @small apartments
book shelf | bookcases | Furniture › Shelves › Books | 45-320 | finish tier |
    walnut, metal, bamboo | open backed, wall anchored, +steel frame, +cable holes, @study rooms
wall mirror | wall mirrors | Decor › Mirrors | 22-180 | finish inch |
    teak, brass, resin | shatter safe, ready hanging, +beveled edge, +rope strap, @entry halls
bath mat | bath rugs | Bath › Mats | 9-49 | area colour |
    chenille, cotton, cork | anti slip, quick drying, +rubber backing, +scalloped edge, @shower rooms
planter pot | plant pots | Outdoor › Planting › Pots | 8-85 | colour inch |
    terracotta, fiber, ceramic | frost proof, self watering, +drain hole, +saucer tray, @herb growing
storage basket | storage baskets | Storage › Baskets | 11-62 | colour count |
    seagrass, felt, wicker | fold flat, hand woven, +leather handles, +cotton liner, @toy rooms
curtain panel | window curtains | Windows › Curtains › Panels | 14-95 | drop colour |
    linen, chiffon, canvas | light blocking, fully lined, +metal grommets, +rod pocket, @tall windows
garden hose | garden hoses | Outdoor › Watering › Hoses | 18-92 | length style |
    rubber, latex, vinyl | kink free, leak proof, +brass fittings, +spray nozzle, @car washing
bar stool | bar stools | Furniture › Seating › Stools | 42-260 | finish count |
    beech, leather, iron | height adjustable, swivel seat, +foot rail, +low back, @breakfast bars
"""
_GARDEN_SHARED = """
stain resistant, space saving, easy cleaning, fade resistant, tool free, hand finished, heavy duty, weather proof,
odor free, +matte finish, +care kit, +ribbed texture, +woven label, @living room, @dining room, @guest room,
@small balconies
"""

_FASHION = """
women's cardigan | women's cardigans | Women › Clothing › Sweaters | 18-88 | apparel colour |
    merino, cotton, mohair | open front, chunky knit, +button closure, +balloon sleeves, @cool evenings
men's hoodie | men's hoodies | Men › Clothing › Hoodies | 21-79 | apparel colour |
    fleece, cotton, terry | full zip, brushed inside, +drawstring hood, +pouch pocket, @gym training
rain jacket | rain jackets | Outdoor › Jackets › Rain | 34-160 | apparel colour |
    nylon, polyester, canvas | water repellent, wind proof, +taped seams, +storm flap, @city cycling
running shorts | running shorts | Sport › Clothing › Shorts | 12-52 | apparel colour |
    mesh, spandex, jersey | moisture wicking, mid rise, +inner liner, +zip pocket, @marathon training
linen shirt | casual shirts | Men › Clothing › Shirts | 22-92 | apparel fit |
    linen, hemp, chambray | roll sleeve, band collar, +chest pocket, +shell buttons, @beach weddings
wool scarf | scarves & wraps | Accessories › Scarves | 12-69 | colour style |
    lambswool, alpaca, cashmere | extra long, reversible print, +fringed ends, @winter walks
ankle boots | ankle boots | Shoes › Boots › Ankle | 39-170 | shoe colour |
    suede, leather, rubber | pull on, side zip, +block heel, +lug sole, @autumn outings
canvas sneakers | casual sneakers | Shoes › Sneakers | 24-96 | shoe colour |
    canvas, hemp, denim | low top, lace free, +rubber sole, +padded collar, @long walks
leather belt | belts | Accessories › Belts | 11-66 | waist colour |
    leather, vegan, webbing | one piece, hand stitched, +brass buckle, +keeper loop, @formal suits
pajama set | sleepwear sets | Women › Clothing › Sleepwear | 19-84 | apparel pattern |
    bamboo, satin, flannel | two piece, short sleeved, +piped trim, +side pockets, @hot sleepers
sun hat | sun hats | Accessories › Hats | 10-49 | head colour |
    straw, raffia, cotton | wide brim, pack flat, +chin cord, +sweat band, @beach days
hiking socks | outdoor socks | Outdoor › Socks | 8-36 | sock count |
    wool, nylon, coolmax | blister free, seam free, +cushioned heel, +arch support, @trail walks
"""
_FASHION_SHARED = """
machine washable, wrinkle resistant, loose fitting, light weight, stretch woven, fade resistant, hand finished,
skin friendly, quick drying, +reflective trim, +flat seams, +soft lining, +gift wrap, @daily wear, @summer travel,
@office days, @weekend trips
"""

_GROCERY = """
oat cookies | cookies | Snacks › Cookies | 4-19 | sweet pack |
    oat, spelt, almond | soft baked, egg free, +chocolate chunks, +dried cherries, @lunch boxes
trail mix | nuts & trail mixes | Snacks › Mixes | 6-28 | sweet weight |
    almond, cashew, pumpkin | lightly salted, raw unroasted, +dried mango, +cocoa nibs, @mountain hikes
herbal tea | herbal teas | Beverages › Tea › Herbal | 5-24 | tea count |
    chamomile, rooibos, nettle | caffeine free, loose leaf, +lemon peel, +mint leaves, @bed time
ground coffee | ground coffees | Beverages › Coffee | 8-34 | roast weight |
    arabica, robusta, chicory | stone ground, low acid, +cocoa notes, +valve bag, @drip machines
pasta sauce | pasta sauces | Pantry › Sauces › Pasta | 4-17 | savory count |
    tomato, pepper, mushroom | slow simmered, kettle cooked, +olive oil, +fresh basil, @family dinners
rice noodles | noodles | Pantry › Noodles | 3-16 | width pack |
    rice, buckwheat, millet | quick cooking, bronze cut, +broth sachet, +chili flakes, @stir fries
dark chocolate bar | chocolate bars | Candy › Chocolate | 3-21 | sweet pack |
    cocoa, carob, hazelnut | bean roasted, low sugar, +sea salt, +puffed quinoa, @cheese boards
fruit jam | jams & preserves | Pantry › Spreads › Jam | 4-18 | berry weight |
    apricot, berry, fig | slow set, pectin free, +whole pieces, +lemon juice, @scone baking
potato chips | chips & crisps | Snacks › Chips | 3-18 | savory pack |
    potato, beet, parsnip | kettle cooked, thick cut, +black pepper, +sour cream, @movie nights
honey granola | granola | Breakfast › Granola | 5-22 | sweet weight |
    oat, barley, coconut | crunchy clustered, high fiber, +toasted seeds, +maple syrup, @yogurt bowls
olive oil | cooking oils | Pantry › Oils › Olive | 9-46 | bottle volume |
    arbequina, koroneiki, picual | cold pressed, early harvest, +pour spout, +dark bottle, @salad dressings
instant soup | instant soups | Pantry › Soups | 3-20 | savory pack |
    lentil, barley, noodle | just add, vegetable based, +croutons, +herb sachet, @desk lunches
"""
_GROCERY_SHARED = """
gluten free, dairy free, non gmo, small batch, shelf stable, nut free, fair trade, low sodium, plant based,
+natural flavors, +short ingredients, +resealable bag, +paper wrapper, @school lunches, @camping trips, @gift baskets,
@office pantries
"""

KINDS: tuple[Kind, ...] = (
    *_kinds("beauty", "Beauty & Personal Care", _BEAUTY_SHARED, _BEAUTY),
    *_kinds("electronics", "Electronics", _ELECTRONICS_SHARED, _ELECTRONICS),
    *_kinds("garden", "Home & Garden", _GARDEN_SHARED, _GARDEN),
    *_kinds("fashion", "Clothing & Shoes", _FASHION_SHARED, _FASHION),
    *_kinds("grocery", "Grocery & Gourmet", _GROCERY_SHARED, _GROCERY),
)
"""All kinds, twelve a category, in a fixed order."""
