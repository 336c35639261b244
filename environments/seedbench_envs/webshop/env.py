"""WebShop as a Gymnasium environment."""

from __future__ import annotations

import re
import string
from numbers import Integral
from random import Random
from typing import Any

from gymnasium import spaces

from seedbench.errors import UsageError, unknown
from seedbench_envs.base import TextEnv
from seedbench_envs.webshop.actions import SEARCH_FORM, clicks
from seedbench_envs.webshop.records import Goal
from seedbench_envs.webshop.render import MODES, ObservationMode, render
from seedbench_envs.webshop.reward import Reward
from seedbench_envs.webshop.session import Session, Shop

_TASK = re.compile(r"(goal|human)/(0|[1-9][0-9]{0,8})")
_NOT_BOUGHT = {"attribute": 0.0, "option": 0.0, "type": 0.0, "price": 0.0}


class AnyText(spaces.Text):
    """Texts of up to `max_length` characters, of whatever script; samples are printable ASCII."""

    def __init__(self, max_length: int, min_length: int = 0) -> None:
        super().__init__(max_length, min_length=min_length, charset=string.printable)

    def contains(self, x: Any) -> bool:
        """Whether `x` is a text of a length that fits."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length


class WebShopEnv(TextEnv):
    """WebShop: `reset(options={"task": "goal/12"})` or `"human/3"`, then `search[...]` and `click[...]`.

    A plain integer (of Python or numpy) as task is an index of the synthetic goals. The observation is upstream's
    page, the terminal page with its printed score included; the reward is upstream's, paid at the step that buys,
    which is `terminated`. A session can be played on after that, as upstream's can, and buy again. An action that
    upstream ignores changes nothing: `info["action_valid"]` is False and `info["reason"]` says why; so do the three
    kinds of search on which upstream breaks (session.py). `step` never raises for what an action says.

    `info` has the keys of `TextEnv` and:
        admissible_actions: `search[<your query>]` where there is a search bar (a template: put a query into it; a
            search works on every page, listed or not), then a click for everything on the page, in upstream's
            order (not sorted), but for the button `search`, which upstream ignores, and names that cannot be said.
        score: reward of the last purchase, 0.0 before any. success: whether it is 1.
        metrics: its parts `attribute`, `option`, `type`, `price`, each in [0, 1], 0.0 before any purchase; after one,
            `option` is 1.0 where the goal asks for no option.
        reason: why the action did nothing; empty if it did something.

    Args:
        shop: products, search and goals; None takes those of `edition`.
        edition: which shop to open, "official" or "mini" (generated, not official).
        size: of the official shop, "1k", "100k" or "full"; None is the first.
        observation_mode: "text", "text_rich", "html" or "url".
        fix_colours: mend upstream's colour rule, which keeps 458 of the 6,910 official goals below a full reward.
        render_mode: "ansi" makes `render` return the current observation.

    Raises:
        SeedBenchError: the data is not there (the message says how to fetch it).
        UsageError: an unknown option or task.
    """

    def __init__(
        self,
        shop: Shop | None = None,
        *,
        edition: str = "official",
        size: str | None = None,
        observation_mode: ObservationMode = "text",
        fix_colours: bool = False,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        if observation_mode not in MODES:
            raise unknown("observation mode", observation_mode, MODES)
        if shop is None:
            from seedbench_envs.webshop.library import open_shop

            shop = open_shop(edition, size)
        self.observation_space = AnyText(10_000_000)
        self.action_space = AnyText(100_000)
        self.observation_mode: ObservationMode = observation_mode
        self.fix_colours = fix_colours
        self.dice = Random()
        """Draws the products of `<r>` searches; every reset seeds it from the task, so that episodes repeat."""
        self._shop = shop
        self._task = ""
        self._session: Session | None = None
        self._bought: Reward | None = None

    def task_ids(self) -> list[str]:
        """Ids of all goals, sorted."""
        return sorted(f"{kind}/{index}" for kind, count in self._shop.goals.counts().items() for index in range(count))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start a goal; see the class. Raises UsageError for one that is not there; then nothing has changed."""
        task = self._chosen_task(seed, options)
        goal = self._goal(task)
        self.dice.seed(task)
        number = task.partition("/")[2]
        session = Session(self._shop, goal, number, self.dice, fix_colours=self.fix_colours)
        self._session, self._task, self._bought = session, task, None
        return self._observe(session), self._info(session, "")

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Do one action. Raises UsageError before the first reset or for an action that is no text."""
        session = self._running()
        if not isinstance(action, str):
            raise UsageError(f"an action is a string, not {type(action).__name__}.")
        result = session.act(action)
        self._bought = result.bought or self._bought
        return self._observe(session), result.reward, result.done, False, self._info(session, result.reason)

    def identity(self) -> dict[str, Any]:
        """What rewards depend on beside the goals, for tables to say; empty under upstream's rules."""
        return {"rules": "fix-colours"} if self.fix_colours else {}

    def available_actions(self) -> dict[str, Any]:
        """`has_search_bar` and all `clickables` of the page, in order, as upstream reports them.

        Raises UsageError before the first reset.
        """
        page = self._running().page
        return {"has_search_bar": page.has_search_bar, "clickables": list(page.clickables)}

    def _running(self) -> Session:
        if self._session is None:
            raise UsageError("no goal was started: call reset(options={'task': 'goal/0'}) first.")
        return self._session

    def _chosen_task(self, seed: int | None, options: dict[str, Any] | None) -> str:
        task = (options or {}).get("task")
        # Upstream takes a numpy integer for no index at all and picks a goal at random.
        if isinstance(task, Integral) and not isinstance(task, bool):
            task = f"goal/{int(task)}"
        return super()._chosen_task(seed, {"task": task})

    def _goal(self, task: str) -> Goal:
        counts, named = self._shop.goals.counts(), _TASK.fullmatch(task)
        if named and int(named[2]) < counts.get(named[1], 0):
            return self._shop.goals.goal(task)
        known = " and ".join(f"{kind}/0 to {kind}/{count - 1}" for kind, count in counts.items() if count)
        raise UsageError(f"unknown task '{task[:60]}': this shop has {known or 'no goals'}.")

    def _observe(self, session: Session) -> str:
        self._observation = render(session.page, session.url, self.observation_mode)
        return self._observation

    def _info(self, session: Session, reason: str) -> dict[str, Any]:
        bought, page = self._bought, session.page
        actions = [SEARCH_FORM] if page.has_search_bar else []
        actions += clicks(page.clickables)
        return {
            "task_id": self._task,
            "family": session.goal.category,
            "instruction": session.goal.instruction,
            "admissible_actions": actions,
            "success": bought is not None and bought.total == 1,
            "score": bought.total if bought else 0.0,
            "action_valid": not reason,
            "reason": reason,
            "metrics": _parts(bought) if bought else dict(_NOT_BOUGHT),
        }


def _parts(bought: Reward) -> dict[str, float]:
    return {
        "attribute": bought.attribute,
        "option": 1.0 if bought.option is None else bought.option,
        "type": bought.r_type,
        "price": float(bought.price),
    }
