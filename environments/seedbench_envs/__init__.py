"""The suites of SeedBench as Gymnasium environments, registered on import.

>>> import gymnasium
>>> env = gymnasium.make("seedbench_envs:seedbench/MiniALFWorld-v1")
"""

import gymnasium

gymnasium.register(id="seedbench/ALFWorld-v1", entry_point="seedbench_envs.alfworld.env:ALFWorldEnv")
gymnasium.register(
    id="seedbench/MiniALFWorld-v1",
    entry_point="seedbench_envs.alfworld.env:ALFWorldEnv",
    kwargs={"edition": "mini"},
)
gymnasium.register(id="seedbench/WebShop-v1", entry_point="seedbench_envs.webshop.env:WebShopEnv")
gymnasium.register(
    id="seedbench/MiniWebShop-v1",
    entry_point="seedbench_envs.webshop.env:WebShopEnv",
    kwargs={"edition": "mini"},
)
gymnasium.register(id="seedbench/SearchQA-v1", entry_point="seedbench_envs.searchqa.env:SearchQAEnv")
gymnasium.register(
    id="seedbench/MiniSearchQA-v1",
    entry_point="seedbench_envs.searchqa.env:SearchQAEnv",
    kwargs={"edition": "mini"},
)
