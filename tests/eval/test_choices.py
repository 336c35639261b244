"""The prefix tree over choices, by hand on a tokenizer of letters and on a real one."""

from typing import Any

import pytest

from seedbench.errors import SeedBenchError
from seedbench.policies.choices import ChoiceTree
from tests.tiny_model import tokenizer

END = 0


class Letters:
    """One token a character: its place in the alphabet, from 1."""

    eos_token_id = END

    def __call__(self, texts: list[str], add_special_tokens: bool) -> dict[str, Any]:
        assert not add_special_tokens
        return {"input_ids": [[ord(letter) - 96 for letter in text] for text in texts]}


def tree(*choices: str) -> ChoiceTree:
    return ChoiceTree(Letters(), choices)


def test_what_may_follow_is_sorted_and_ends_with_the_end_token() -> None:
    both = tree("cab", "ca", "dad")
    assert both.allowed([]) == (3, 4)
    assert both.allowed([3]) == (1,)
    assert both.allowed([3, 1]) == (END, 2)  # "ca" may end here, "cab" goes on
    assert both.allowed([3, 1, END]) == ()
    assert both.allowed([4, 1, 4]) == (END,)


def test_a_run_is_forced_while_one_token_is_allowed() -> None:
    both = tree("cab", "ca", "dad")
    assert both.forced([]) == []
    assert both.forced([3]) == [1]
    assert both.forced([3, 1, 2]) == [END]
    assert both.forced([4]) == [1, 4, END]
    assert both.forced([4, 1, 4, END]) == []


def test_one_choice_is_all_forced_and_repeats_count_once() -> None:
    assert tree("look").forced([]) == [12, 15, 15, 11, END]
    assert tree("ab", "ab", "ab").forced([]) == [1, 2, END]
    assert tree("").forced([]) == [END]


def test_paths_and_texts_belong_together() -> None:
    both = tree("ca", "cab")
    assert both.path("cab") == (3, 1, 2, END)
    assert both.text([3, 1, END]) == "ca"
    assert both.text([3, 1]) is None
    with pytest.raises(KeyError):
        both.path("c")


def test_what_was_allowed_along_a_path() -> None:
    both = tree("cab", "ca", "dad")
    assert both.allowed_along([3, 1, 2, END]) == ((3, 4), (1,), (END, 2), (END,))
    assert both.allowed_along([3]) == ((3, 4),)
    with pytest.raises(KeyError):
        both.allowed_along([3, 9])


def test_a_choice_that_holds_the_end_token_goes_on_behind_it() -> None:
    words = tokenizer()
    odd = ChoiceTree(words, ["look<|im_end|> more", "go"])
    path = odd.path("look<|im_end|> more")
    inner = path.index(words.eos_token_id)
    assert inner < len(path) - 1
    assert odd.allowed(path[: inner + 1]) == (path[inner + 1],)
    assert odd.allowed(path) == ()


def test_a_real_tokenizers_paths_decode_to_their_choices() -> None:
    words = tokenizer()
    choices = ["go to desk 1", "go to desk 10", "go to drawer 2", "look"]
    real = ChoiceTree(words, choices)
    for choice in choices:
        path = real.path(choice)
        assert path[-1] == words.eos_token_id
        assert words.decode(path[:-1]) == choice == real.text(path)
        for length, allowed in enumerate(real.allowed_along(path)):
            assert path[length] in allowed
            assert allowed == real.allowed(path[:length])
            assert (len(allowed) == 1) == bool(real.forced(path[:length]))


def test_nothing_to_choose_from_and_no_end_token_are_refused() -> None:
    with pytest.raises(SeedBenchError, match="offers no choice"):
        tree()
    endless = Letters()
    endless.eos_token_id = None  # type: ignore[assignment]
    with pytest.raises(SeedBenchError, match="no end-of-sequence token"):
        ChoiceTree(endless, ["a"])
    assert ChoiceTree(endless, ["a"], end=7).path("a") == (1, 7)
