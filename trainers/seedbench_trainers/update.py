"""One update: optimiser steps over the mini-batches of a batch of samples, each in micro-batches that fit memory."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from seedbench.rollout import derive_seed
from seedbench_trainers.base import Method, Metrics, Term, Tokens
from seedbench_trainers.config import Optimiser, TrainConfig
from seedbench_trainers.distributed import World
from seedbench_trainers.losses import reduce_term
from seedbench_trainers.microbatch import collate, micro_batches
from seedbench_trainers.records import Sample
from seedbench_trainers.scoring import forward, pass_tokens, score
from seedbench_trainers.sharding import gathered
from seedbench_trainers.trainee import Trainee

_FEW = 8
"""Samples on which the terms' gradient norms are measured."""


class NotFinite(Exception):
    """The loss or the gradient of a step is no finite number; the weights were not touched by that step."""

    def dump(self, samples: Sequence[Sample], path: Path) -> None:
        """Write ids, response positions and signals of the samples as one npz file."""
        arrays: dict[str, Any] = {}
        for index, sample in enumerate(samples):
            named = {"ids": sample.ids, "positions": sample.positions, "old": sample.logprobs, **sample.signals}
            arrays |= {f"{index}/{name}": values for name, values in named.items()}
        np.savez_compressed(path, **arrays)


def learning_rate(settings: Optimiser, share: float) -> float:
    """The rate after `share` in [0, 1) of the updates: linear warm-up, then constant, cosine or linear to 0."""
    if share < settings.warmup:
        return settings.lr * share / settings.warmup
    after = (share - settings.warmup) / (1 - settings.warmup)
    if settings.schedule == "cosine":
        return settings.lr * 0.5 * (1 + math.cos(math.pi * after))
    return settings.lr * (1 - after if settings.schedule == "linear" else 1.0)


def normaliser(term: Term, samples: Sequence[Sample]) -> float:
    """What a term's sum is divided by, over a whole mini-batch: masked tokens, or samples that have any; at least 1."""
    if not term.mask:
        counts = [sample.length for sample in samples]
    else:
        counts = [int((sample.signals[term.mask] > 0).sum()) for sample in samples]
    return float(max(1, sum(counts) if term.average == "token" else sum(count > 0 for count in counts)))


class Updater:
    """AdamW over the trainee's parameters, driven by a method's loss.

    The order of samples in mini-batches follows from the seed and the number of the update. `total` is the number of
    updates that the learning-rate schedule spans. The processes of a `world` have the same samples and share the
    passes of each mini-batch; sums are taken over all of them before the step.
    """

    def __init__(
        self, trainee: Trainee, method: Method, config: TrainConfig, total: int, world: World | None = None
    ) -> None:
        settings = config.optimiser
        self._world = world or World()
        self.steps_done = 0
        self.optimiser = torch.optim.AdamW(
            trainee.parameters,
            lr=settings.lr,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
        )
        self._trainee, self._method, self._config, self._total = trainee, method, config, total

    def update(self, samples: Sequence[Sample], number: int) -> Metrics:
        """Train on the samples; figures are means over the optimiser steps. Raises NotFinite before a bad step."""
        if (shards := self._trainee.shards) is None:
            return self._update(samples, number)
        shards.release()
        try:
            figures = self._update(samples, number)
        except NotFinite:  # on all processes: anything else ends this one
            shards.gather()
            raise
        shards.gather()
        return figures

    def _update(self, samples: Sequence[Sample], number: int) -> Metrics:
        config = self._config
        # A rise begins above 0, and a fall that has reached 0 would make the last update (or the only one) a void one.
        share = min((number + bool(config.optimiser.warmup)) / self._total, 1 - 0.5 / self._total)
        rate = learning_rate(config.optimiser, share)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        figures: dict[str, list[float]] = defaultdict(list)
        norms = self.term_norms(samples) if self._method.tracked_terms else {}
        trained = 0
        for mini_batch in self._mini_batches(samples, number):
            step = self._step(mini_batch, first=not figures)
            trained += sum(len(sample.ids) for sample in mini_batch)
            for name, value in step.items():
                figures[name].append(value)
        top = ("policy/ratio_max", "policy/parity")
        means = {k: max(v) if k in top else sum(v) / len(v) for k, v in figures.items()}
        return {
            **means,
            **norms,
            "optim/lr": rate,
            "optim/steps": float(self.steps_done),
            "update/tokens": float(trained),
        }

    def _mini_batches(self, samples: Sequence[Sample], number: int) -> Iterator[list[Sample]]:
        size = self._config.update.mini_batch or len(samples)
        for epoch in range(self._config.update.epochs):
            order = list(samples)
            Random(derive_seed(self._config.seed, "mini-batches", number, epoch)).shuffle(order)
            yield from (order[at : at + size] for at in range(0, len(order), size))

    def _step(self, samples: list[Sample], *, first: bool) -> Metrics:
        """One optimiser step. `first`: the weights are still those that sampled, so that parity can be measured."""
        terms = {term.name: term for term in self._method.terms()}
        scale = {name: term.weight / normaliser(term, samples) for name, term in terms.items()}
        sums: dict[str, float] = defaultdict(float)
        tops: dict[str, float] = {}
        finite = True
        self.optimiser.zero_grad(set_to_none=True)
        for mine, beside in self._passes(samples):
            if not mine:
                self._forward_contexts([], beside)
                self._trainee.scorer.idle().backward()  # type: ignore[no-untyped-call]
                continue
            tokens = self._forward(mine, beside)
            values = self._method.loss(tokens)
            loss = torch.stack(
                [
                    scale[name] * reduce_term(values[name], _mask(tokens, term), term.average)[0]
                    for name, term in terms.items()
                ]
            )
            finite = finite and bool(torch.isfinite(loss).all())
            loss.sum().backward()  # type: ignore[no-untyped-call]
            for name, value in zip(terms, loss.detach().tolist(), strict=True):
                sums[f"loss/{name}"] += value
            _add_statistics(sums, tops, tokens, {k: v for k, v in values.items() if k not in terms}, first)
        sums, tops, finite = _united(self._world.exchange(lambda: (dict(sums), tops, finite)))
        if not finite:
            self.optimiser.zero_grad(set_to_none=True)
            raise NotFinite("the loss is not a finite number")
        count = max(1.0, sums.pop("tokens"))
        figures = {k: v if k.startswith("loss/") else v / count for k, v in sums.items()} | tops
        figures["loss/total"] = sum(figures[f"loss/{name}"] for name in terms)
        figures["optim/grad_norm"] = self._apply()
        return figures

    def _passes(self, samples: list[Sample]) -> Iterator[tuple[list[Sample], list[list[Sample]]]]:
        """The samples of each of this process's passes, and of those that all processes make at the same time.

        With shards every process makes as many, and some of them over no samples.
        """
        tokens, size = self._config.update.tokens, self._world.size
        if size > 1:  # or a small mini-batch would be one process's work
            tokens = min(tokens, -(-sum(len(sample.ids) for sample in samples) // size))
        cut = [[samples[i] for i in indices] for indices in micro_batches(samples, tokens)]
        for at in range(0, len(cut), size):
            beside = cut[at : at + size]
            mine = beside[self._world.rank] if self._world.rank < len(beside) else []
            if mine or self._trainee.shards:
                yield mine, beside

    def _forward(self, samples: Sequence[Sample], beside: Sequence[Sequence[Sample]] = ()) -> Tokens:
        self._forward_contexts(samples, beside)
        batch = collate(samples, range(len(samples)), self._trainee.loaded.model.device)
        with self._trainee.precision():
            return forward(
                self._trainee.scorer,
                batch,
                temperature=self._config.rollout.temperature,
                entropy=self._method.needs_entropy,
            )

    def _forward_contexts(self, samples: Sequence[Sample], beside: Sequence[Sequence[Sample]]) -> None:
        """Write the present weights' scores of fresh contexts into the signals of their names."""
        budget = self._config.update.tokens
        for name in self._method.fresh:
            most = 0
            if self._trainee.shards:
                tokens = pass_tokens(budget, self._trainee.loaded.model.device)
                most = max((len(micro_batches(_contexts(one, name), tokens)) for one in beside), default=0)
            with self._trainee.precision():
                scores = score(
                    self._trainee.scorer,
                    _contexts(samples, name),
                    tokens=budget,
                    temperature=self._config.rollout.temperature,
                    passes=most,
                )
            present = [sample for sample in samples if name in sample.contexts]
            for sample, values in zip(present, scores, strict=True):
                sample.signals[name] = values

    def term_norms(self, samples: Sequence[Sample]) -> Metrics:
        """Gradient norm of each weighed term on a few samples, evenly taken from the batch, before any step.

        The processes of a world all do the same.
        """
        few = samples[:: max(1, len(samples) // _FEW)][:_FEW]
        norms: Metrics = {}
        made = None
        for term in self._method.terms():
            if made is None or self._trainee.shards:  # a graph over shards serves one backward pass
                made = self._few(few)
            tokens, values = made
            loss = (
                term.weight
                / normaliser(term, few)
                * reduce_term(values[term.name], _mask(tokens, term), term.average)[0]
            )
            if not loss.requires_grad:
                continue
            norms[f"gradient/{term.name}"] = self._norm(loss)
        return norms

    def _few(self, few: Sequence[Sample]) -> tuple[Tokens, Mapping[str, torch.Tensor]]:
        tokens = self._forward(few, [few])
        return tokens, self._method.loss(tokens)

    def _norm(self, loss: torch.Tensor) -> float:
        """Norm of the gradient of a loss, whose graph is kept where it can be; no gradient is left behind."""
        parameters = self._trainee.parameters
        if self._trainee.shards is None:
            gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
            return math.sqrt(sum(float(g.detach().float().square().sum()) for g in gradients if g is not None))
        (loss / self._world.size).backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        self.optimiser.zero_grad(set_to_none=True)
        return float(gathered(norm))

    def _apply(self) -> float:
        if self._trainee.shards is None:
            self._world.sum_gradients(self._trainee.parameters)
        clipped = torch.nn.utils.clip_grad_norm_(self._trainee.parameters, self._config.optimiser.clip)
        norm = float(gathered(clipped))
        if not math.isfinite(norm):
            self.optimiser.zero_grad(set_to_none=True)
            raise NotFinite("the gradient is not a finite number")
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.steps_done += 1
        return norm


def _contexts(samples: Sequence[Sample], name: str) -> list[Sample]:
    return [sample.contexts[name] for sample in samples if name in sample.contexts]


def _united(
    parts: Sequence[tuple[dict[str, float], dict[str, float], bool]],
) -> tuple[dict[str, float], dict[str, float], bool]:
    """Sums, largest values and whether all is finite, over all processes."""
    sums: dict[str, float] = defaultdict(float)
    tops: dict[str, float] = {}
    for some, most, _ in parts:
        for name, value in some.items():
            sums[name] += value
        tops |= {name: max(value, tops.get(name, 0.0)) for name, value in most.items()}
    return sums, tops, all(finite for _, _, finite in parts)


def _mask(tokens: Tokens, term: Term) -> torch.Tensor:
    return tokens.signals[term.mask] * tokens.mask if term.mask else tokens.mask


def _add_statistics(
    sums: dict[str, float], tops: dict[str, float], tokens: Tokens, values: dict[str, torch.Tensor], first: bool
) -> None:
    """Add sums over response tokens (`tokens` counts them) and the largest ratio and sampling mismatch."""
    mask = tokens.mask
    sums["tokens"] += float(mask.sum())
    for name, value in values.items():
        sums[f"policy/{name}"] += float((value.detach() * mask).sum())
    if "ratio" in values:
        tops["policy/ratio_max"] = max(tops.get("policy/ratio_max", 0.0), float((values["ratio"] * mask).max()))
    if first and bool(tokens.old.any()):
        apart = float(((tokens.logprobs.detach() - tokens.old).abs() * mask).max())
        tops["policy/parity"] = max(tops.get("policy/parity", 0.0), apart)
