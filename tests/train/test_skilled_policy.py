"""`skills:SPEC`: what the policy is asked, what the run says of it, and what is refused."""

import asyncio
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from seedbench import policies
from seedbench.errors import SeedBenchError, UsageError
from seedbench.evaluate import Evaluation, evaluate
from seedbench.panels import load_panel
from seedbench.policies import ModelOptions, make_policy
from seedbench.protocol import load_protocol
from seedbench.runs import read_episodes
from seedbench.ui.live import Progress
from seedbench_trainers.skills.insertion import holds_skill, skill_block
from seedbench_trainers.skills.policy import SkilledPolicy, skilled_policy
from seedbench_trainers.skills.static import static_skill
from tests.eval import helpers
from tests.eval.fake_server import FakeServer, completion
from tests.train.teaching import fed, static_file, static_text

OPTIONS = ModelOptions(device="cpu", dtype="float32")


def _skilled(policy: Any, position: Any = "end", **skills: str) -> SkilledPolicy:
    return SkilledPolicy(policy, {"one": "One.", "two": "Two.", "three": "Three."} | skills, position)


def test_every_prompt_holds_its_familys_skill(tmp_path: Path) -> None:
    script = helpers.Script("<think>so</think><action>right</action>")
    job = Evaluation(helpers.panel(), helpers.protocol(), _skilled(script), tmp_path / "run", keep_prompts=True)
    with helpers.installed("counting", helpers.CountingSuite()):
        evaluate(job, Progress())
    assert len(script.requests) == 4 * (1 + 2 + 3)
    for request in script.requests:
        assert request.messages[-1].content.endswith(f"\n{skill_block(request.task.family.title() + '.')}")
    assert script.events == ["open", "close"]
    # What the run keeps is the protocol's prompt, so that its hashes compare with a plain run's.
    assert not any(holds_skill(turn.prompt) for episode in read_episodes(tmp_path / "run") for turn in episode.turns)


def test_name_and_identity_tell_it_from_the_plain_policy() -> None:
    script = helpers.Script("x")
    identities = [
        _skilled(script).identity(),
        _skilled(script, "after_task").identity(),
        _skilled(script, one="Other.").identity(),
        script.identity(),
    ]
    assert len({repr(sorted(identity.items())) for identity in identities}) == 4
    assert identities[0] == _skilled(script).identity()
    assert identities[0]["kind"] == "script"
    assert len(identities[0]["skills_sha256"]) == 64
    assert _skilled(script).name == "script*"


def test_a_checkpoint_with_and_without_skills(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way by name: two runs of one checkpoint, told apart, and the skill in every prompt that was fed."""
    file, panel = static_file(tmp_path), load_panel("echo/test")
    found: dict[str, dict[str, Any]] = {}
    for spec in (str(model), f"skills:end:{file}:{model}"):
        policy, asked = make_policy(spec, panel, OPTIONS), fed(monkeypatch)
        out = tmp_path / str(len(found))
        summary = evaluate(Evaluation(panel, load_protocol("echo/choose-3"), policy, out), Progress())
        found[summary["policy"]["name"]] = summary["policy"]["identity"]
        assert {holds_skill(messages) for messages in asked} == {spec.startswith("skills:")}
        monkeypatch.undo()
    plain, skilled = found
    assert skilled == f"{plain}*"
    assert {k: v for k, v in found[skilled].items() if not k.startswith("skill")} == found[plain]
    assert found[skilled]["skill_position"] == "end"


def test_the_suites_own_skills_stand_after_the_task_line() -> None:
    panel = load_panel("mini-alfworld/valid_unseen-small").subset(limit=3)
    with FakeServer(lambda body, _: completion("look")) as server:
        policy = make_policy(f"skills:openai:{server.url}", panel, ModelOptions())

        async def asked() -> None:
            await policy.open()
            try:
                from seedbench.registry import get_suite
                from seedbench.rollout import run_episode

                env = get_suite(panel.suite).make(panel, "native")
                protocol = load_protocol("alfworld/quick").with_settings(steps=1)
                for task in panel.tasks:
                    await run_episode(env, task, protocol, policy, repeat=0, seed=0)
            finally:
                await policy.close()

        asyncio.run(asked())
    assert len(server.bodies) == 3
    for task, body in zip(panel.tasks, server.bodies, strict=True):
        first, *rest = body["messages"][-1]["content"].split("\n")
        assert first.startswith("Your task is to: ")
        assert "\n".join(rest).startswith(skill_block(static_skill("mini-alfworld", task.family)) + "\n")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("skills:", "needs a policy behind it"),
        ("skills:end:", "needs a policy behind it"),
        ("skills:oracle", "'oracle' reads no prompt"),
        ("skills:orcale", "unknown policy 'orcale': did you mean 'oracle'"),
        ("skills:gone.toml:smollm2-135m", "'gone.toml' cannot be read"),
        ("skils:oracle", r"unknown policy 'skils:oracle'"),
    ],
)
def test_refused(spec: str, said: str, tmp_path: Path) -> None:
    panel = load_panel("mini-alfworld/valid_unseen-small")
    (tmp_path / "smollm2-135m").mkdir()
    with pytest.raises(SeedBenchError, match=said):
        make_policy(spec.replace("smollm2-135m", str(tmp_path / "smollm2-135m")), panel, ModelOptions())


def test_a_family_without_a_skill_is_an_error(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text('[families]\npick = "x"\n')
    panel = load_panel("echo/test")
    with pytest.raises(SeedBenchError, match="lack the family 'look'"):
        skilled_policy(f"{file}:{model}", panel, OPTIONS)
    skilled = skilled_policy(f"{static_file(tmp_path)}:{model}", panel, OPTIONS)
    assert skilled._skills == {family: static_text(family) for family in panel.families()}


def test_other_packages_bring_kinds_of_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = load_panel("mini-alfworld/valid_unseen-small")
    points = EntryPoints([
        EntryPoint("echo", "tests.train.test_skilled_policy:echo_factory", policies.GROUP),
        EntryPoint("broken", "tests.no_such_module:factory", policies.GROUP),
    ])  # fmt: skip
    monkeypatch.setattr(policies, "entry_points", points.select)
    made: Any = make_policy("echo:a:b", panel, OPTIONS)
    assert (type(made).__name__, made.answers) == ("Script", ("a:b", panel.name, OPTIONS))
    with pytest.raises(SeedBenchError, match=r"kind 'broken' .* does not load: ModuleNotFoundError"):
        make_policy("broken:x", panel, OPTIONS)
    with pytest.raises(UsageError, match="unknown policy 'echo'"):
        make_policy("echo", panel, OPTIONS)


def echo_factory(rest: str, panel: Any, options: ModelOptions) -> helpers.Script:
    """What another package would register."""
    return helpers.Script(rest, panel.name, options)  # type: ignore[arg-type]
