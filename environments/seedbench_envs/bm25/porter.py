"""The Porter stemmer (M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980), with the departures of
its author's later program: `bli` -> `ble`, `logi` -> `log`, and words of one or two letters are left alone.

The paper's notation: `m` is the number of vowel-consonant sequences of a stem, `*v*` "holds a vowel", `*d` "ends in
a double consonant", `*o` "ends consonant-vowel-consonant, the last not w, x or y". Anything but a, e, i, o, u, and y
after a consonant, is a consonant; so are digits and letters of other scripts. Input is lower case.
"""

from __future__ import annotations

_STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al",
    "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al",
    "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble",
    "logi": "log",
}  # fmt: skip
_STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_STEP_4 = (
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ion", "ism", "ate", "iti", "ous", "ive", "ize",
    "al", "er", "ic", "ou",
)  # fmt: skip


def stem(word: str) -> str:
    """The stem of a lower-case word.

    >>> [stem(word) for word in ("ponies", "relational", "hopping", "generalizations", "sky", "is")]
    ['poni', 'relat', 'hop', 'gener', 'sky', 'is']
    """
    if len(word) <= 2:
        return word
    word = _step_1c(_step_1b(_step_1a(word)))
    word = _replace(_replace(word, _STEP_2), _STEP_3)
    return _step_5(_step_4(word))


def _shape(word: str) -> str:
    """`c` or `v` for each letter."""
    shape = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(stem: str) -> int:
    return _shape(stem).count("vc")


def _has_vowel(stem: str) -> bool:
    return "v" in _shape(stem)


def _ends_double(word: str) -> bool:
    return len(word) >= 2 and word[-1] == word[-2] and _shape(word)[-1] == "c"


def _ends_cvc(word: str) -> bool:
    return len(word) >= 3 and _shape(word).endswith("cvc") and word[-1] not in "wxy"


def _step_1a(word: str) -> str:
    """Plurals."""
    if word.endswith(("sses", "ies")):
        return word[:-2]
    if word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word


def _step_1b(word: str) -> str:
    """Past participles."""
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            return _tidy(base) if _has_vowel(base) else word
    return word


def _tidy(base: str) -> str:
    """The second part of step 1b."""
    if base.endswith(("at", "bl", "iz")):
        return base + "e"
    if _ends_double(base):
        return base if base[-1] in "lsz" else base[:-1]
    if _measure(base) == 1 and _ends_cvc(base):
        return base + "e"
    return base


def _step_1c(word: str) -> str:
    """A final y after a vowel somewhere."""
    return word[:-1] + "i" if word.endswith("y") and _has_vowel(word[:-1]) else word


def _replace(word: str, endings: dict[str, str]) -> str:
    """Steps 2 and 3: (m > 0) ending -> its replacement; only the longest ending that matches is looked at."""
    for size in range(min(7, len(word)), 2, -1):
        replacement = endings.get(word[-size:])
        if replacement is not None:
            base = word[:-size]
            return base + replacement if _measure(base) > 0 else word
    return word


def _step_4(word: str) -> str:
    """(m > 1) ending -> nothing; `ion` only after s or t."""
    for suffix in _STEP_4:
        if word.endswith(suffix):
            base = word[: -len(suffix)]
            if suffix == "ion" and not base.endswith(("s", "t")):
                continue
            return base if _measure(base) > 1 else word
    return word


def _step_5(word: str) -> str:
    """A final e, and one l of a final ll."""
    whole = _measure(word)
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_cvc(word[:-1])):
            word = word[:-1]
    if word.endswith("ll") and whole > 1:
        return word[:-1]
    return word
