"""Skills in prompts: after the task line of every shipped protocol, or at the end."""

import pytest

from seedbench.errors import SeedBenchError
from seedbench.protocol import Past, Protocol, load_protocol, shipped_protocols
from seedbench.types import Message
from seedbench_trainers.skills.insertion import fit_skill, holds_skill, insert_skill, skill_block

SKILL = "Open the\nfridge 1 first."
BLOCK = "Episode-Level Skill\nConsult this before you choose an action:\n[Open the fridge 1 first.]"
TASK = "put a clean mug in coffeemachine"
ADMISSIBLE = ("go to desk 1", "help")


def prompts(protocol: Protocol) -> list[tuple[Message, ...]]:
    """The prompts of the first and of the third turn; the first observation says the task again, as ALFWorld's does."""
    first = Past(f"Welcome.\n\nYou see a desk 1.\n\nYour task is to: {TASK}.", ADMISSIBLE, "<a>go</a>", "go to desk 1")
    second = Past("You arrive at desk 1.", ADMISSIBLE, "<a>look</a>", "look")
    now = Past("Question: what is it? Your task is to: nothing.", ADMISSIBLE)
    return [protocol.messages(TASK, [], first), protocol.messages(TASK, [first, second], now)]


def test_the_block_is_three_lines() -> None:
    assert skill_block(SKILL) == BLOCK


@pytest.mark.parametrize("name", shipped_protocols())
@pytest.mark.parametrize("told", [TASK, ""])
def test_the_block_follows_the_task_line_of_every_shipped_protocol(name: str, told: str) -> None:
    for plain in prompts(load_protocol(name)):
        inserted = insert_skill(plain, SKILL, instruction=told, protocol=name)
        assert [m.role for m in inserted] == [m.role for m in plain]
        changed = [(a.content, b.content) for a, b in zip(plain, inserted, strict=True) if a != b]
        ((before, after),) = changed
        assert after.replace(f"\n{BLOCK}", "", 1) == before
        line = after[: after.index(f"\n{BLOCK}")].rpartition("\n")[2]
        assert line.removesuffix(".").endswith(TASK)
        assert not after[after.index(BLOCK) + len(BLOCK) :].strip(" ").startswith(tuple("abcABC"))
        assert holds_skill(inserted)
        assert not holds_skill(plain)


@pytest.mark.parametrize("name", shipped_protocols())
def test_at_the_end_all_of_the_prompt_stays_a_prefix(name: str) -> None:
    for plain in prompts(load_protocol(name)):
        inserted = insert_skill(plain, SKILL, "end")
        place = max(n for n, message in enumerate(plain) if message.role == "user")
        assert inserted[place].content == f"{plain[place].content}\n{BLOCK}"
        assert inserted[:place] == plain[:place]
        assert inserted[place + 1 :] == plain[place + 1 :]


def test_worked_examples_keep_their_task_lines() -> None:
    plain = prompts(load_protocol("alfworld/quick"))[0]
    inserted = insert_skill(plain, SKILL)
    assert plain[1].content.startswith("Your task is to: put a pear")
    assert inserted[:-1] == plain[:-1]
    assert inserted[-1].content.startswith(f"Your task is to: {TASK}\n{BLOCK}\n")


def test_in_a_conversation_the_first_message_is_changed() -> None:
    plain = prompts(load_protocol("alfworld/choose"))[1]
    inserted = insert_skill(plain, SKILL, instruction=TASK)
    assert inserted[0].content.startswith(f"Your task is to: {TASK}\n{BLOCK}\n")
    assert inserted[1:] == plain[1:]


def test_any_line_that_holds_the_instruction_will_do() -> None:
    plain = (Message("system", f"never: {TASK}"), Message("user", f"Hello.\nGoal = {TASK}; go!\nNow."))
    assert insert_skill(plain, SKILL, instruction=TASK)[1].content == f"Hello.\nGoal = {TASK}; go!\n{BLOCK}\nNow."


def test_an_instruction_of_many_lines_is_not_torn() -> None:
    plain = (Message("user", "Your task is to: one\ntwo\nthree"),)
    assert insert_skill(plain, SKILL, instruction="one\ntwo")[0].content == f"Your task is to: one\ntwo\n{BLOCK}\nthree"


def test_a_prompt_without_a_task_line_is_an_error_that_names_the_protocol() -> None:
    plain = (Message("system", "Your task is to: x"), Message("user", "Do it."))
    with pytest.raises(
        SeedBenchError, match="protocol 'mine/odd@1' has a line that holds the task or begins with 'Your"
    ):
        insert_skill(plain, SKILL, instruction="put x", protocol="mine/odd@1")
    with pytest.raises(SeedBenchError, match="skill_position = 'end'"):
        insert_skill((Message("assistant", "x"),), SKILL, "end")
    with pytest.raises(ValueError, match="blank"):
        insert_skill(plain, " \n")


@pytest.mark.parametrize(
    ("budget", "kept"), [(99, "Open the fridge 1 first."), (17, "Open the fridge 1"), (3, ""), (4, "Open")]
)
def test_skills_fit_into_a_budget_of_characters(budget: int, kept: str) -> None:
    assert fit_skill(SKILL, budget) == kept


def test_skills_fit_into_a_budget_of_tokens() -> None:
    assert fit_skill("a b c d", 3, lambda text: len(text.split())) == "a b c"
    assert fit_skill("", 3) == ""
