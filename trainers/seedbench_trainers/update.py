"""One update: optimiser steps over the mini-batches of a batch of samples, each in micro-batches that fit memory."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from seedbench.rollout import derive_seed
from seedbench_trainers.base import Method, Metrics, Term, Tokens
from seedbench_trainers.config import Optimiser, TrainConfig
from seedbench_trainers.losses import reduce_term
from seedbench_trainers.microbatch import collate, micro_batches
from seedbench_trainers.records import Sample
from seedbench_trainers.scoring import forward, score
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
    updates that the learning-rate schedule spans.
    """

    def __init__(self, trainee: Trainee, method: Method, config: TrainConfig, total: int) -> None:
        settings = config.optimiser
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
        self.optimiser.zero_grad(set_to_none=True)
        for indices in micro_batches(samples, self._config.update.tokens):
            tokens = self._forward([samples[i] for i in indices])
            values = self._method.loss(tokens)
            loss = torch.stack(
                [
                    scale[name] * reduce_term(values[name], _mask(tokens, term), term.average)[0]
                    for name, term in terms.items()
                ]
            )
            if not bool(torch.isfinite(loss).all()):
                self.optimiser.zero_grad(set_to_none=True)
                raise NotFinite("the loss is not a finite number")
            loss.sum().backward()  # type: ignore[no-untyped-call]
            for name, value in zip(terms, loss.detach().tolist(), strict=True):
                sums[f"loss/{name}"] += value
            _add_statistics(sums, tops, tokens, {k: v for k, v in values.items() if k not in terms}, first)
        count = max(1.0, sums.pop("tokens"))
        figures = {k: v if k.startswith("loss/") else v / count for k, v in sums.items()} | tops
        figures["loss/total"] = sum(figures[f"loss/{name}"] for name in terms)
        figures["optim/grad_norm"] = self._apply()
        return figures

    def _forward(self, samples: Sequence[Sample]) -> Tokens:
        for name in self._method.fresh:
            self._score_context(samples, name)
        batch = collate(samples, range(len(samples)), self._trainee.loaded.model.device)
        with self._trainee.precision():
            return forward(
                self._trainee.scorer,
                batch,
                temperature=self._config.rollout.temperature,
                entropy=self._method.needs_entropy,
            )

    def _score_context(self, samples: Sequence[Sample], name: str) -> None:
        """Write the present weights' scores of a context into the signal of its name."""
        present = [sample for sample in samples if name in sample.contexts]
        with self._trainee.precision():
            scores = score(
                self._trainee.scorer,
                [sample.contexts[name] for sample in present],
                tokens=self._config.update.tokens,
                temperature=self._config.rollout.temperature,
            )
        for sample, values in zip(present, scores, strict=True):
            sample.signals[name] = values

    def term_norms(self, samples: Sequence[Sample]) -> Metrics:
        """Gradient norm of each weighed term on a few samples, evenly taken from the batch, before any step."""
        few = samples[:: max(1, len(samples) // _FEW)][:_FEW]
        terms = self._method.terms()
        tokens = self._forward(few)
        values = self._method.loss(tokens)
        norms = {}
        for term in terms:
            loss = (
                term.weight
                / normaliser(term, few)
                * reduce_term(values[term.name], _mask(tokens, term), term.average)[0]
            )
            if not loss.requires_grad:
                continue
            gradients = torch.autograd.grad(loss, self._trainee.parameters, retain_graph=True, allow_unused=True)
            squares = [float(g.detach().float().square().sum()) for g in gradients if g is not None]
            norms[f"gradient/{term.name}"] = math.sqrt(sum(squares))
        return norms

    def _apply(self) -> float:
        norm = float(torch.nn.utils.clip_grad_norm_(self._trainee.parameters, self._config.optimiser.clip))
        if not math.isfinite(norm):
            self.optimiser.zero_grad(set_to_none=True)
            raise NotFinite("the gradient is not a finite number")
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.steps_done += 1
        return norm


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
