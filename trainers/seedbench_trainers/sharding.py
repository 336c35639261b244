"""FSDP: the weights under training, their gradients and the optimiser's state in shards, one a process.

Between updates every process holds the whole weights too, gathered from the shards: what plays roll-outs, scores and
is written to checkpoints is the plain model, as with one process. While an update lasts its memory is given back.
Optimiser states are saved whole, in the format of a single process, so that any number of processes goes on with them.

Weights are float32 and passes run under autocast, as everywhere: the numbers do not depend on the strategy.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from seedbench_trainers.config import TrainConfig
from seedbench_trainers.distributed import World
from seedbench_trainers.launch import is_sharded
from seedbench_trainers.scoring import TokenScorer
from seedbench_trainers.trainee import Trainee


class Shards:
    """The shards of the weights under training (and of the reference), and the whole model that is filled from them.

    Args:
        whole: the model at the weights that training goes on from; it stays the caller's, and is not trained itself.
        reference: shards of the weights to compare with, in the order of the model's parameters; empty for none.
        mesh: where shards lie.
        world: the processes; all of them must make the same calls in the same order.
    """

    def __init__(self, whole: Any, reference: Sequence[Tensor], mesh: DeviceMesh, world: World) -> None:
        self._world, self._whole, self._reference = world, whole, reference
        twin = copy.deepcopy(whole).requires_grad_(True)
        whole.requires_grad_(False)
        self.scorer = TokenScorer(twin)
        """Scores with the sharded weights, with gradient. Every process must call it equally often."""
        self.scorer.whole_graph = True
        layers = set(twin._no_split_modules or ())
        for module in [m for m in twin.modules() if type(m).__name__ in layers]:
            fully_shard(module, mesh=mesh)
        fully_shard(self.scorer, mesh=mesh)
        for module in self.scorer.modules():
            if isinstance(module, FSDPModule):  # a mini-batch's normaliser is the whole one's: gradients are summed
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
        self.parameters = list(twin.parameters())
        """What is trained. The modules themselves show whole parameters between a forward and its backward pass."""

    def release(self) -> None:
        """Give back the memory of the whole weights: an update begins, in which errors cannot be told."""
        self._world.entangled = True
        for parameter in self._whole.parameters():
            parameter.untyped_storage().resize_(0)

    def gather(self) -> None:
        """Fill the whole model with the weights under training: an update has ended."""
        self._fill(self.parameters)

    @contextmanager
    def reference(self) -> Iterator[None]:
        """A block in which the whole model has the reference's weights. It is not interrupted."""
        with self._world.interrupts.shielded():
            self._fill(self._reference)
            try:
                yield
            finally:
                self.gather()

    @torch.no_grad()
    def _fill(self, shards: Sequence[Tensor]) -> None:
        with self._world.entangling():
            for parameter, shard in zip(self._whole.parameters(), shards, strict=True):
                parameter.untyped_storage().resize_(parameter.numel() * parameter.element_size())
                parameter.copy_(gathered(shard))


def sharded(trainee: Trainee, config: TrainConfig, world: World) -> Trainee:
    """The trainee with its weights in shards where the configuration's strategy says so, else as it is.

    What is given is used up. Two whole models are on the device for a moment.
    """
    model = trainee.loaded.model
    if not is_sharded(config, world.size, model.num_parameters(), gpu=model.device.type == "cuda"):
        return trainee
    mesh, reference = init_device_mesh(model.device.type, (world.size,)), list[Tensor]()
    if trainee.reference is not None:
        reference = [_shard(parameter, mesh) for parameter in trainee.reference.model.parameters()]
        trainee.reference = None  # before the policy is copied: a GPU need not hold three models
    shards, plain = Shards(model, reference, mesh, world), TokenScorer(model)
    return dataclasses.replace(
        trainee, scorer=shards.scorer, snapshot=plain, reference=plain if reference else None, shards=shards
    )


def gathered(tensor: Tensor) -> Tensor:
    """A tensor of which this process has a part, gathered (on all processes at once); any other as it is."""
    held = tensor.detach()
    return held.full_tensor() if isinstance(held, DTensor) else held


def whole_state(optimiser: torch.optim.Optimizer, keep: bool) -> dict[str, Any]:
    """The optimiser's state as a single process would save it: all processes gather, those that `keep` have it."""
    state = optimiser.state_dict()
    full = {n: {name: _kept(value, keep) for name, value in values.items()} for n, values in state["state"].items()}
    return {**state, "state": full}


def _kept(value: Any, keep: bool) -> Any:
    if not isinstance(value, DTensor):
        return value
    full = gathered(value)
    return full.cpu() if keep else None


def load_state(optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load what `whole_state` gave, each process its part. Raises ValueError where it does not fit."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    placed = {
        number: {name: _placed(value, parameters[number]) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    optimiser.load_state_dict({**state, "state": placed})


def _placed(value: Any, owner: Tensor) -> Any:
    if not isinstance(owner, DTensor) or not isinstance(value, Tensor) or value.shape != owner.shape:
        return value
    return _shard(value.to(owner.device), owner.device_mesh)


def _shard(tensor: Tensor, mesh: DeviceMesh) -> DTensor:
    """The part of this process: every process has the whole tensor, so that nothing needs to be sent."""
    part = distribute_tensor(tensor.detach(), mesh, [Shard(0)], src_data_rank=None).to_local().clone()
    return DTensor.from_local(part, mesh, [Shard(0)], shape=tensor.shape, stride=tensor.stride())
