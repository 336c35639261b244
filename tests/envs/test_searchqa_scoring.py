"""Search-QA's scores: SQuAD's normal form, exact match, F1 and sub-EM, and answers out of transcripts."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedbench_envs.searchqa.scoring import (
    NO_ANSWER,
    Scores,
    exact_match,
    extract_answer,
    f1,
    normalize,
    score,
    sub_exact_match,
)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Cat's-eye!", "catseye"),
        ("a  man,\tan ant and the theatre", "man ant and theatre"),
        ("U.S.A.", "usa"),
        ("A", ""),
        ("The !", ""),
        ("“Été” — 3%", "“été” — 3"),  # only ASCII punctuation goes
        ("a.n", ""),  # punctuation goes before articles, so one can come about
    ],
)
def test_normal_form(text: str, normal: str) -> None:
    assert normalize(text) == normal


@given(st.text())
def test_normal_form_is_final_for_words_and_spaces(text: str) -> None:
    once = normalize(text)
    assert not set(once) & set(string.punctuation)
    assert " ".join(once.split()) == once


def test_exact_match_is_of_normal_forms() -> None:
    assert exact_match("the Beatles.", "Beatles")
    assert not exact_match("Beatles band", "Beatles")


@pytest.mark.parametrize("gold", ["A", "The", "---", "*"])
def test_a_gold_without_normal_form_is_compared_as_written(gold: str) -> None:
    assert score(gold, [gold]) == Scores(1.0, 1.0, 1.0)
    assert score(f" {gold}\n", [gold]) == Scores(1.0, 1.0, 1.0)
    assert score("an !?", [gold]) == NO_ANSWER
    assert score("anything at all", [gold]) == NO_ANSWER


def test_an_answer_without_normal_form_matches_no_gold_that_has_one() -> None:
    assert score("the", ["Paris", "The"]).em == 1.0
    assert score("the", ["Paris"]) == NO_ANSWER
    assert score("!?", ["Paris"]) == NO_ANSWER


def test_f1_counts_words_with_multiplicity() -> None:
    # 2 shared words (new, york) of 3 predicted and 2 accepted ones: P 2/3, R 1, F1 4/5.
    assert f1("new york city", "New York") == pytest.approx(0.8)
    # "new" is shared once: P 1/2, R 1/2.
    assert f1("new new", "new york") == pytest.approx(0.5)
    assert f1("paris", "london") == 0.0


def test_f1_of_yes_and_no_is_all_or_nothing() -> None:
    assert f1("yes it is", "yes") == 0.0
    assert f1("no", "no way") == 0.0
    assert f1("Yes.", "yes") == 1.0


def test_sub_exact_match_looks_for_the_gold_inside() -> None:
    assert sub_exact_match("It was Ada Lovelace, in 1843", "ada lovelace")
    assert not sub_exact_match("ada", "Ada Lovelace")


def test_the_best_accepted_answer_counts_for_each_score_alone() -> None:
    found = score("new york city", ["Boston", "New York", "york city hall"])
    assert (found.em, found.sub_em) == (0.0, 1.0)
    assert found.f1 == pytest.approx(0.8)


@pytest.mark.parametrize("blank", ["", "  ", "\n"])
def test_no_answer_scores_nothing(blank: str) -> None:
    assert score(blank, ["x"]) == NO_ANSWER


def test_a_question_without_answers_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one accepted answer"):
        score("x", [])


@given(st.text(), st.lists(st.text(min_size=1), min_size=1, max_size=4))
def test_scores_are_shares_and_exact_match_implies_the_others(prediction: str, answers: list[str]) -> None:
    found = score(prediction, answers)
    assert found.em in (0.0, 1.0)
    assert 0.0 <= found.f1 <= 1.0
    if found.em:
        assert (found.f1, found.sub_em) == (1.0, 1.0)


@given(st.text(min_size=1).filter(str.strip))
def test_every_answer_matches_itself(answer: str) -> None:
    assert score(answer, [answer]) == Scores(1.0, 1.0, 1.0)


# ---- answers out of transcripts ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("x <answer> Oslo </answer> y", "Oslo"),
        ("<answer>a</answer><answer>b</answer>", "b"),
        ("<answer>a\nb</answer>", "a\nb"),
        ("<answer>a</answer> <answer>unclosed", "a"),
        ("<answer>a <answer>b</answer>", "a <answer>b"),
        ("</answer> first <answer>c</answer>", "c"),
        ("no tags", None),
        ("<answer>unclosed", None),
        ("<answer></answer>", ""),
    ],
)
def test_the_last_pair_is_the_answer(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


def test_search_r1_needs_a_second_pair_because_its_prompt_shows_one() -> None:
    prompt = "Answer like this: <answer> Beijing </answer>. Question: ..."
    assert extract_answer(prompt, least=2) is None  # the example in the prompt is no answer
    assert extract_answer(f"{prompt} <answer>Oslo</answer>", least=2) == "Oslo"


def test_many_unclosed_tags_take_linear_time() -> None:
    assert extract_answer("<answer>" * 200_000) is None
