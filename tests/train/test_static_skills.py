"""Static skills: a text for every family of every suite, and clear errors."""

from pathlib import Path

import pytest

from seedbench.errors import SeedBenchError, UsageError
from seedbench.registry import get_suite
from seedbench_trainers.skills.static import static_names, static_skill

SUITES = ("alfworld", "webshop", "searchqa", "mini-alfworld", "mini-webshop", "mini-searchqa")


@pytest.mark.parametrize("suite", SUITES)
def test_every_family_has_a_text_of_its_own(suite: str) -> None:
    texts = {family: static_skill(suite, family) for family in get_suite(suite).families}
    assert len(set(texts.values())) == len(texts) >= 2
    for text in texts.values():
        assert 25 <= len(text.split()) <= 80
        assert text == " ".join(text.split())
        assert text.endswith(".")


def test_mini_editions_share_the_texts() -> None:
    assert static_names() == ["alfworld", "searchqa", "webshop"]
    assert static_skill("mini-alfworld", "heat") == static_skill("alfworld", "heat")
    assert "microwave" in static_skill("alfworld", "heat")
    assert "fridge" in static_skill("alfworld", "cool")


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('general = "First\\nthis."\n[families]\npick = "Then that."\nlook = " "\n')
    assert static_skill("alfworld", "pick", str(file)) == "First this. Then that."
    for family in ("heat", "look"):
        with pytest.raises(
            SeedBenchError, match=rf"mine.toml lack the family '{family}' \(there are: pick, look\): add"
        ):
            static_skill("alfworld", family, str(file))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("general = 3", "is no file of static skills: general: Input should be a valid string"),
        ('[families]\npick = "x"\n[famliies]\n', "famliies: Extra inputs are not permitted; expected 'general' and"),
        ('general = "x"', "families: Field required"),
        ("general = ", "is not a TOML file"),
        ("\xff", "is not a TOML file"),
    ],
)
def test_bad_files_are_explained(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(UsageError, match=message):
        static_skill("alfworld", "pick", str(file))


def test_unknown_names_are_explained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'webshop'"):
        static_skill("webshp", "beauty")
    with pytest.raises(SeedBenchError, match=r"the file for alfworld lack the family 'heta' \(there are: pick, look"):
        static_skill("alfworld", "heta")
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        static_skill("alfworld", "pick", str(tmp_path / "none.toml"))
