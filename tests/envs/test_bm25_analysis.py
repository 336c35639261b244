"""Words, stems and terms against what Lucene 9.5's own classes gave for the same texts (Anserini 0.22.1)."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbench_envs.bm25.analysis import STOP_WORDS, analyze, term_of
from seedbench_envs.bm25.porter import stem
from seedbench_envs.bm25.words import MAX_UNITS, split_words

# Examples of the paper, step by step; the stems are those of the whole algorithm.
STEMS = {
    "1a": "caresses caress ponies poni ties ti caress caress cats cat",
    "1b": "feed feed agreed agre plastered plaster bled bled motoring motor sing sing",
    "1b, second part": "conflated conflat troubled troubl sized size hopping hop tanned tan falling fall hissing hiss"
    " fizzed fizz failing fail filing file",
    "1c": "happy happi sky sky",
    "2": "relational relat conditional condit rational ration valenci valenc hesitanci hesit digitizer digit"
    " conformabli conform radicalli radic differentli differ vileli vile analogousli analog vietnamization vietnam"
    " predication predic operator oper feudalism feudal decisiveness decis hopefulness hope callousness callous"
    " formaliti formal sensitiviti sensit sensibiliti sensibl",
    "3": "triplicate triplic formative form formalize formal electriciti electr electrical electr hopeful hope"
    " goodness good",
    "4": "revival reviv allowance allow inference infer airliner airlin gyroscopic gyroscop adjustable adjust"
    " defensible defens irritant irrit replacement replac adjustment adjust dependent depend adoption adopt"
    " homologou homolog communism commun activate activ angulariti angular homologous homolog effective effect"
    " bowdlerize bowdler",
    "5": "probate probat rate rate cease ceas controll control roll roll",
    "the author's departures": "possibly possibl archaeology archaeolog as as by by dying dy lying ly yes ye ss ss",
    "not letters": "9.5s 9.5 b12ing b12ing o'neil o'neil éclairs éclair",
}


@pytest.mark.parametrize("step", STEMS)
def test_stems_of_the_papers_examples(step: str) -> None:
    words = STEMS[step].split()
    assert {word: stem(word) for word in words[::2]} == dict(zip(words[::2], words[1::2], strict=True))


WORDS = [
    # what joins letters, digits, both
    ("9.5 1,000 3.14.15 1,b b,1 x.y.z 1.b x:y 5:30 v2.0", "9.5|1,000|3.14.15|1|b|b|1|x.y.z|1|b|x:y|5|30|v2.0"),
    ("a_b _a_ __ 34-46 1'2 't' o'neil t·shirt", "a_b|_a_|34|46|1'2|t|o'neil|t·shirt"),
    # symbols: emoji of Unicode 12.1 are words, other signs are not
    ("½ ¼ ° ▸ ★ ♬ ☛ © ® ™ ✓ ➤ ● ✔️ ❤️", "★|♬|☛|©|®|™|✔️|❤️"),
    ("😀 👨‍👩‍👧 👍🏽 🇺🇸🇬🇧🇩 1️⃣ #️⃣ 🅰 ℹ", "😀|👨‍👩‍👧|👍🏽|🇺🇸|🇬🇧|1️⃣|#️⃣|🅰|ℹ"),
    ("😀\u200d😀 \u200d😀 a😀 😀a 😀\ufe0f\u200d😀 🅰️\u200d😀 \U0001f3fb",
     "😀\u200d😀|\u200d😀|a|😀|😀|a|😀\ufe0f\u200d😀|🅰️\u200d😀|\U0001f3fb"),
    ("🏴\U000e0067\U000e0062\U000e007f", "🏴\U000e0067\U000e0062\U000e007f"),
    # scripts; a half-width voicing mark belongs to the character before it
    ("ｶﾞｷﾞ ﾊﾟ ｰﾞ カタカナabc 漢字 ひら", "ｶﾞｷﾞ|ﾊﾟ|ｰﾞ|カタカナ|abc|漢|字|ひ|ら"),
    ("한국어 ภาษาไทย ສະບາຍ صباح قَلَم", "한국어|ภาษาไทย|ສະບາຍ|صباح|قَلَم"),
    ("שלום ש\"ס ג'ירפה אב'. a.ב' ב\"ב\"ב", "שלום|ש\"ס|ג'ירפה|אב'|a.ב|ב\"ב|ב"),
    ("a\u0301b e\u200bx soft\u00adhyphen zero\u200dwidth nb\u00a0sp tab\there",
     "a\u0301b|e|x|soft\u00adhyphen|zero\u200dwidth|nb|sp|tab|here"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WORDS)
def test_words_are_lucenes(text: str, words: str) -> None:
    assert split_words(text) == words.split("|")


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("a" * 255, [255]),
        ("a" * 256, [255, 1]),
        ("a" * 300 + " b", [255, 45, 1]),
        ("a" * 254 + "'a", [254, 1]),  # the quote joins only with the letter, which does not fit
        ("a" * 254 + "bb'a", [255, 3]),
        ("1," * 200, [255, 143]),
        ("_" * 300 + "a", [255]),  # connectors are no word of their own, so the cut falls before the letter
        ("𝐚" * 200, [127, 73]),  # two UTF-16 units each
        ("é" * 600, [255, 255, 90]),
        ("🅰" * 128 + " b", [127, 1, 1]),
    ],
)
def test_long_words_are_cut_after_255_units(text: str, lengths: list[int]) -> None:
    assert [len(word) for word in split_words(text)] == lengths


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The Women's women’s WOMEN＇S dogs' O'Neil rock'n'roll", ["women"] * 3 + ["dog", "o'neil", "rock'n'rol"]),
        ("ΟΔΟΣ İSTANBUL Straße ÉCLAIR ﬁne", ["οδοσ", "istanbul", "straße", "éclair", "ﬁne"]),
        ("Ａｂｃ１２ 𝗛𝗶𝗴𝗵", ["ａｂｃ１２", "𝗛𝗶𝗴𝗵"]),
        # a letter outside the basic plane counts twice, and never doubles
        ("𝗛s 𝐚𝐚ed", ["𝗛", "𝐚𝐚ed"]),
        ("", []),
        (" .,!?-/\\()[] \n", []),
        ("of The and to", []),
    ],
)
def test_terms_are_lucenes(text: str, terms: list[str]) -> None:
    assert analyze(text) == terms


def test_the_stop_words_are_lucenes_thirty_three() -> None:
    assert len(STOP_WORDS) == 33
    assert [word for word in ("a", "into", "then", "will") if term_of(word)] == []
    assert [term_of(word) for word in ("from", "you", "has", "were")] == ["from", "you", "ha", "were"]


@given(st.text(max_size=60))
def test_words_lie_in_the_text_in_order_and_hold_no_space(text: str) -> None:
    position = 0
    for word in split_words(text):
        assert word
        assert not any(letter.isspace() and letter != "\u202f" for letter in word)  # that one is a connector
        position = text.index(word, position) + len(word)


@given(st.text(alphabet="aA1'_.,: \u0301\u200d😀🅰ｶאม", max_size=400))
def test_long_and_mixed_texts_keep_to_the_limit(text: str) -> None:
    words = split_words(text)
    assert all(len(word.encode("utf-16-le")) <= 2 * MAX_UNITS for word in words)
    # every letter and digit of the text is in some word
    assert [c for word in words for c in word if c in "aA1"] == [c for c in text if c in "aA1"]


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_space_parts_texts(left: str, right: str) -> None:
    assert analyze(f"{left} {right}") == analyze(left) + analyze(right)


def test_nothing_heavy_is_imported() -> None:
    heavy = "[m for m in ('torch', 'transformers', 'scipy', 'pyserini', 'jnius', 'regex') if m in sys.modules]"
    script = f"import sys, seedbench_envs.bm25; print({heavy})"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
