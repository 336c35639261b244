"""Recipes against the paper's table, and how overlays and `--set` change them."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from seedbench.errors import UsageError
from seedbench.panels import Panel, write_panel
from seedbench.registry import method_names
from seedbench.types import Task
from seedbench_trainers.checks import agent_protocol, make_method, most_samples
from seedbench_trainers.config import TrainConfig
from seedbench_trainers.recipes import load_recipe, resolve, shipped_recipes, to_toml
from seedbench_trainers.stage1 import Stage1, stage1_config

PAPER = {  # arXiv 2607.14777, the table of hyper-parameters
    "alfworld": {
        "tasks": 16, "group": 8, "updates": 150, "lr": 1e-6, "warmup": 0.0, "mini": 256, "micro": 32, "prompt": 2048,
        "response": 512, "history": 5, "steps": 30, "kl": 0.01, "entropy": 0.001, "penalty": 0.1,
    },
    "webshop": {
        "tasks": 16, "group": 8, "updates": 150, "lr": 1e-6, "warmup": 0.0, "mini": 64, "micro": 8, "prompt": 4096,
        "response": 512, "history": 2, "steps": 15, "kl": 0.01, "entropy": 0.001, "penalty": 0.1,
    },
    "searchqa": {
        "tasks": 128, "group": 8, "updates": 150, "lr": 1e-6, "warmup": 0.1, "mini": 512, "micro": 16, "prompt": 4096,
        "response": 512, "history": 4, "steps": 4, "kl": 0.001, "entropy": 0.0, "penalty": 0.01,
    },
}  # fmt: skip
MODELS = ["Qwen/Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-1.7B"]


@pytest.fixture
def train_questions(tmp_path: Path) -> Path:
    """A panel as the import of train questions writes it."""
    path = tmp_path / "nq-train.jsonl"
    task = Task("nq/train/0", "nq", "train", "a" * 64)
    write_panel(Panel("searchqa/nq-train@1", "searchqa", "train", False, "", (task,)), path)
    return path


def small(*changes: str, method: str = "grpo", **options: Any) -> TrainConfig:
    return resolve(method, "mini-alfworld", overrides=changes, **options)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("method", ["grpo", "gigpo", "seed"])
@pytest.mark.parametrize("suite", sorted(PAPER))
def test_the_papers_numbers(suite: str, method: str, model: str, train_questions: Path) -> None:
    needed = [f'data.panel="{train_questions}"'] if suite == "searchqa" else []
    config = resolve(method, suite, model, overrides=needed)
    protocol, table = agent_protocol(config), PAPER[suite]
    settings = protocol.settings
    assert {
        "tasks": config.rollout.tasks, "group": config.rollout.group, "updates": config.updates,
        "lr": config.optimiser.lr, "warmup": config.optimiser.warmup, "mini": config.update.mini_batch,
        "micro": config.update.tokens / (settings.limits.prompt_tokens + settings.limits.response_tokens),
        "prompt": settings.limits.prompt_tokens, "response": settings.limits.response_tokens,
        "history": settings.context.history, "steps": settings.limits.steps,
        "kl": config.options["kl_coefficient"], "entropy": config.options["entropy_coefficient"],
        "penalty": config.reward.invalid_penalty,
    } == table  # fmt: skip
    shared = config.options
    assert (shared["clip_low"], shared["clip_high"], shared["dual_clip"]) == (0.2, 0.2, 3.0)
    assert (shared["kl_estimator"], shared["advantages_over"], shared["std"]) == ("k3", "trajectories", True)
    assert (config.rollout.temperature, settings.sampling.temperature) == (1.0, 0.4)
    assert (config.optimiser.weight_decay, config.optimiser.clip, config.update.epochs) == (0.01, 1.0, 1)
    assert config.optimiser.schedule == "constant"
    assert settings.sampling.thinking == ("off" if "Qwen3" in model else "default")
    assert (config.model, config.recipe) == (model, suite)
    # Draws of the paper: 2,400 and 19,200.
    assert config.planned_updates * config.rollout.tasks == (19200 if suite == "searchqa" else 2400)


@pytest.mark.parametrize("suite", sorted(PAPER))
def test_the_papers_seed(suite: str, train_questions: Path) -> None:
    needed = [f'data.panel="{train_questions}"'] if suite == "searchqa" else []
    options = resolve("seed", suite, overrides=needed).options
    assert (options["beta"], options["weight"], options["skill"]) == (5.0, 0.01, "own")
    assert (options["teacher"], options["mask"], options["analyze"]) == ("current", "response", "all")
    assert (options["analysis_prompt_tokens"], options["analysis_tokens"]) == (16384, 4096)
    assert options["stage1"] == {
        "run": True, "tasks": 180, "repeats": 8, "temperature": 0.4, "collected": "", "analyzer": "rules",
        "style": "full", "acting": 0.0, "acting_noise": 0.3, "acting_skill": 0.0, "holdout": 0.1, "epochs": 3.0,
        "lr": 5e-6, "mini_batch": 8, "max_length": 8192 if suite == "alfworld" else 12288,
    }  # fmt: skip


def test_the_papers_stage_one_of_seed() -> None:
    """What SEED runs first, and what `skill_sft` runs alone: 180 x 8 trajectories, three passes over nine tenths."""
    config = resolve("seed", "alfworld")
    first = stage1_config(config, Stage1.model_validate(config.options["stage1"]), "m")
    alone = resolve("skill_sft", "alfworld")
    assert first.updates == alone.updates == 3 * 1440 * 9 // 10 // 8
    assert first.optimiser == alone.optimiser
    assert first.update == alone.update
    assert first.options == alone.options
    optimiser = first.optimiser
    assert (optimiser.lr, optimiser.betas, optimiser.weight_decay) == (5e-6, (0.9, 0.95), 0.01)
    assert (optimiser.schedule, optimiser.warmup, optimiser.clip) == ("cosine", 0.1, 1.0)
    assert (first.method, first.update.mini_batch, first.model) == ("skill_sft", 8, "m")
    assert not first.validation.panel


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("opsd", {"weight": 0.01, "beta": 5.0}),
        ("grpo_opsd", {"weight": 0.01}),
        ("sdar", {"weight": 0.01, "beta": 5.0}),
        ("skill_sd", {"weight": 0.001, "distil_clamp": 10.0}),
        ("rlsd", {"lam": 0.5, "lam_updates": 100, "scale_low": 0.8, "scale_high": 1.2}),
        ("opid", {"weight": 0.001, "skill": "rules"}),
        ("skill_grpo", {"skill": "static"}),
    ],
)
@pytest.mark.parametrize("suite", sorted(PAPER))
def test_the_papers_baselines(suite: str, method: str, expected: dict[str, Any], train_questions: Path) -> None:
    needed = [f'data.panel="{train_questions}"'] if suite == "searchqa" else []
    options = resolve(method, suite, overrides=needed).options
    assert {name: options[name] for name in expected} == expected
    assert options["kl_coefficient"] == PAPER[suite]["kl"]
    assert options["entropy_coefficient"] == PAPER[suite]["entropy"]


def test_stage_one() -> None:
    config = resolve("sft", "alfworld")
    optimiser = config.optimiser
    assert (optimiser.lr, optimiser.betas, optimiser.weight_decay) == (5e-6, (0.9, 0.95), 0.01)
    assert (optimiser.schedule, optimiser.warmup, optimiser.clip) == ("cosine", 0.1, 1.0)
    assert (config.update.mini_batch, config.options["episodes"]) == (8, 1440)
    assert config.updates == 3 * 1440 * 9 // 10 // 8


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
@pytest.mark.parametrize("method", method_names())
def test_every_recipe_resolves_for_every_model_it_names(name: str, method: str, train_questions: Path) -> None:
    recipe = load_recipe(name)
    assert set(recipe.methods) <= set(method_names())
    assert recipe.summary
    needed = [f'data.panel="{train_questions}"'] if name == "searchqa" else []
    for model in (recipe.model, *recipe.models):
        for suite in recipe.suites:
            config = resolve(
                method, suite, f"x/{model}" if model in recipe.models else model, recipe=name, overrides=needed
            )
            assert (config.suite, config.method, config.recipe) == (suite, method, name)


@pytest.mark.parametrize(
    ("suite", "model", "expected"),
    [
        ("alfworld", None, "alfworld"),
        ("alfworld", "smollm2-135m", "alfworld-smollm2"),
        ("alfworld", "SmolLM2-135M", None),
        ("alfworld", "Qwen/Qwen3-1.7B", "alfworld"),
        ("alfworld", "tiny", "alfworld"),
        ("mini-alfworld", None, "mini-alfworld"),
        ("mini-alfworld", "tiny:xs", "mini-alfworld"),
        ("mini-alfworld", "smollm2-135m", "mini-alfworld-smollm2"),
        ("mini-webshop", "smollm2-135m", "mini-webshop"),
    ],
)
def test_which_recipe_is_taken(suite: str, model: str | None, expected: str | None) -> None:
    if expected is None:  # stored models are found by their exact name
        with pytest.raises(UsageError, match="did you mean 'smollm2-135m'"):
            resolve("grpo", suite, model)
    else:
        assert resolve("grpo", suite, model).recipe == expected


def test_the_printed_configuration_is_a_recipe_for_itself(tmp_path: Path) -> None:
    config = small(
        "protocol.set.steps=9", 'data.families=["heat", "look"]', "lora.rank=4", "seed=5", "track.wandb='a\"b'"
    )
    file = tmp_path / "mine.toml"
    file.write_text(to_toml(config), encoding="utf-8")
    again = resolve("grpo", recipe=str(file))
    assert again == config.model_copy(update={"recipe": "mine"})
    assert tomllib.loads(to_toml(config))["track"]["wandb"] == 'a"b'


# Overlays and overrides


def write(folder: Path, text: str) -> str:
    path = folder / "my.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


LAYERS = """
summary = "layers"
suites = ["mini-alfworld"]
model = "tiny"
updates = 5
data.panel = "mini-alfworld/train-small"
optimiser.lr = 0.1
optimiser.eps = 0.1
optimiser.clip = 0.1
rollout.tasks = 3
[methods.grpo.optimiser]
lr = 0.2
eps = 0.2
[methods.grpo.method]
clip_low = 0.1
[models.tiny.optimiser]
lr = 0.3
[models.other]
updates = 99
"""


def test_later_layers_win(tmp_path: Path) -> None:
    path = write(tmp_path, LAYERS)
    config = resolve("grpo", recipe=path, overrides=["rollout.tasks=4", "method.clip_high=0.4", "rollout.tasks=7"])
    assert (config.optimiser.clip, config.optimiser.eps, config.optimiser.lr) == (0.1, 0.2, 0.3)
    assert (config.rollout.tasks, config.options["clip_low"], config.options["clip_high"]) == (7, 0.1, 0.4)
    assert (config.updates, config.suite, config.model) == (5, "mini-alfworld", "tiny")
    assert config.protocol.name == "alfworld/seed"  # the suite's own, where the recipe names none
    assert resolve("gigpo", model="x/Other", recipe=path).updates == 99
    assert resolve("gigpo", recipe=path).optimiser.eps == 0.1


def test_values_are_read_as_toml() -> None:
    config = small(
        "optimiser.lr=3e-5", "validation.before=false", "protocol.set.thinking=off", "data.families=['heat']",
        "update.mini_batch = 16", "protocol.name=alfworld/choose-window", "validation.temperature=0",
    )  # fmt: skip
    assert (config.optimiser.lr, config.validation.before, config.data.families) == (3e-5, False, ("heat",))
    assert config.protocol.set == {"thinking": "off"}
    assert (config.update.mini_batch, config.validation.temperature) == (16, 0.0)


def test_options_of_the_command_win() -> None:
    config = small("seed=1", "updates=2", "device=auto", seed=3, updates=4, device="cpu")
    assert (config.seed, config.updates, config.device) == (3, 4, "cpu")
    assert (small("seed=1").seed, small().seed) == (1, 0)


# What cannot be right


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["rollout.taks=3"], r"unknown key in \[rollout\] 'taks': did you mean 'tasks'"),
        (["rolout.tasks=3"], r"unknown section in --set 'rolout': did you mean 'rollout'"),
        (["method.clip_lo=0.1"], r"unknown key in \[method\] 'clip_lo': did you mean 'clip_low'"),
        (["options.clip_low=0.1"], "unknown section in --set 'options'"),
        (["protocol.set.stps=3"], "unknown protocol setting 'stps': did you mean 'steps'"),
        (["protocol.name=alfworld/chose"], "unknown protocol 'alfworld/chose': did you mean 'alfworld/choose'"),
        (["data.panel=mini-alfworld/trian"], "unknown panel 'mini-alfworld/trian': did you mean 'mini-alfworld/train'"),
        (["data.families=['haet']"], "unknown family 'haet': did you mean 'heat'"),
        (["model=tiny"], "use --model"),
        (["rollout=3"], "rollout is a section"),
        (["rollout.tasks"], "expected section.key=value"),
        (["rollout.=3"], "expected section.key=value"),
        (["data.families=[heat"], "the value is not TOML"),
        (["rollout.tasks=0"], "rollout.tasks: Input should be greater than or equal to 1, not 0"),
        (["rollout.tasks=many"], "rollout.tasks: Input should be a valid integer, not 'many'"),
        (["rollout.tasks=true"], "rollout.tasks: Input should be a valid integer, not True"),
        (["optimiser.lr=nan"], "optimiser.lr: Input should be a finite number"),
        (["optimiser.betas=[0.9, 1]"], "optimiser.betas.1: Input should be less than 1, not 1"),
        (["data.families=heat"], "data.families: Input should be a valid array, not 'heat'"),
        (["rollout.tasks=0", "updates=0"], "updates: .*, not 0; rollout.tasks: .*, not 0"),
        (["device=gpu"], "device must be auto, cpu, cuda or cuda:N, not 'gpu'"),
        (["method.dual_clip=0.5"], "method.dual_clip: must be above 1"),
        (["rollout.group=1"], "rollout.group is 1"),
        (["protocol.set.top_p=0.9"], "protocol.set.top_p: training draws from the whole distribution"),
        (["validation.panel=''", "validation.limit=5"], "choose tasks of validation.panel, which is empty"),
        (["validation.panel=mini-alfworld/train-small"], "validation.panel and data.panel are both"),
        (["validation.panel=mini-alfworld/train-small@1"], "shares [0-9]+ tasks with data.panel"),
        (["lora.targets=['q_proj']"], "lora.rank is 0"),
        (["update.dtype=bfloat16", "device=cpu"], "use float32 there"),
        (["data.panel=mini-webshop/train"], "data.panel 'mini-webshop/train@1' is of suite mini-webshop"),
        (["validation.panel=mini-webshop/test"], "validation.panel 'mini-webshop/test@1' is of suite mini-webshop"),
        (["protocol.name=webshop/quick"], "the protocol 'webshop/quick@1' is for webshop, mini-webshop"),
        (["update.mini_batch=129"], "never has more than 128 samples"),
    ],
)
def test_refused(changes: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        small(*changes)
    assert "\n" not in str(error.value)
    assert str(error.value).endswith(".")


def test_batches_of_step_independent_prompts_may_be_larger() -> None:
    config = small("protocol.name=alfworld/choose-window", "update.mini_batch=1536")
    assert most_samples(config, agent_protocol(config)) == 16 * 8 * 12


def test_a_method_without_rollouts_has_no_such_bound() -> None:
    assert small("update.mini_batch=5000", method="sft").update.mini_batch == 5000


def test_dialects_must_agree() -> None:
    with pytest.raises(UsageError, match=r"worded in dialect 2\.1\.2, the protocol 'alfworld/seed-put@1' in 2\.1\.1"):
        resolve("grpo", "alfworld", overrides=["protocol.name=alfworld/seed-put"])


def test_search_needs_a_training_panel() -> None:
    with pytest.raises(UsageError, match=r"recipe 'searchqa' names no training panel"):
        resolve("grpo", "searchqa")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"method": "grop", "suite": "alfworld"}, "unknown method 'grop': did you mean 'grpo'"),
        ({"method": "grpo", "suite": "alfwrld"}, "unknown suite 'alfwrld': did you mean 'alfworld'"),
        ({"method": "grpo", "recipe": "alfwrld"}, "unknown recipe 'alfwrld': did you mean 'alfworld'"),
        ({"method": "grpo", "recipe": "gone.toml"}, "there is no recipe file 'gone.toml'"),
        ({"method": "grpo", "suite": "alfworld", "model": "tinny"}, "unknown model 'tinny': did you mean 'tiny'"),
        ({"method": "grpo", "suite": "mini-alfworld", "model": "tiny:xxs"}, "unknown tiny model size 'xxs'"),
        (
            {"method": "grpo", "suite": "webshop", "recipe": "alfworld"},
            "recipe 'alfworld' is for alfworld, not webshop",
        ),
        ({"method": "grpo"}, "name a suite"),
    ],
)
def test_unknown_names(words: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        resolve(**words)


HEAD = 'summary = "x"\nsuites = ["mini-alfworld"]\nupdates = 1\ndata.panel = "mini-alfworld/train-small"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("suites = [", "is not a TOML file"),
        ("updates = 1", "suites must list"),
        (HEAD, "has no model of its own"),
        (f"{HEAD}model = 3", "model must be a text, not 3"),
        (f"{HEAD}[rolout]\ntasks = 3", "unknown section in recipe 'my' 'rolout': did you mean 'rollout'"),
        (f"{HEAD}[methods.grop]\nupdates = 3", "unknown method in recipe 'my' 'grop': did you mean 'grpo'"),
        (f"{HEAD}[methods.sft.rolout]\ntasks = 3", r"unknown section in \[methods.sft\] of recipe 'my' 'rolout'"),
        (f"{HEAD}[models.tiny]\nlr = 3", r"unknown section in \[models.tiny\] of recipe 'my' 'lr'"),
        (f"{HEAD}rollout = 3", "rollout must be a table of settings, not 3"),
        (f"{HEAD}methods = 3", "methods must be tables"),
        (f"{HEAD}models.tiny = 3", "models.tiny must be a table, not 3"),
        (f'{HEAD}model = "tiny"\nseed = "a"', "seed: Input should be a valid integer"),
    ],
)
def test_recipe_files_that_cannot_be_right(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        resolve("grpo", recipe=write(tmp_path, text))


def test_methods_are_made_with_their_own_settings() -> None:
    method = make_method(small("method.clip_high=0.28"))
    assert (type(method).__name__, method.settings.clip_high, method.settings.clip_low) == ("GRPO", 0.28, 0.2)
