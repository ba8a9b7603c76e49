"""From problems to scored rollouts: render, sample over one or many turns, count, verify.

One call may mix domains and efforts: their rows share the sampler's batches, and each domain's rows are verified
together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stages.core.errors import StageFailed
from stages.core.keys import derive_seed
from stages.core.ports import Sampler, SampleRequest
from stages.core.records import IntArray, Problem, Rollout, Sampled, TokenCounts, Verdict
from stages.rewards.accounting import count_tokens
from stages.rollout.domain import Domain
from stages.tasks.environments import Session
from stages.tasks.prompts import Renderer

NOT_SCORED = Verdict(None, "not scored")
TRUNCATED = Verdict(0.0, "truncated")
"""Methods, section 2: cut off inside the answer, so unfinished and wrong whatever stands there."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One rollout to draw."""

    domain: Domain
    problem: Problem
    group: str
    sample: int
    effort: str | None
    """Effort message of the prompt; None: none."""
    seed: int


def asks_for(
    domain: Domain, problems: Sequence[Problem], rollouts: int, effort: str | None, seed: int, step: int = 0
) -> list[Ask]:
    """``rollouts`` asks a problem, one group each; every draw is addressed by (seed, step, problem, sample)."""
    return [
        Ask(
            domain,
            problem,
            f"{step}/{problem.id}",
            sample,
            effort,
            derive_seed(seed, "rollout", step, problem.id, sample),
        )
        for problem in problems
        for sample in range(rollouts)
    ]


class Collector:
    """Draws rollouts from one policy.

    Args:
        sampler: over the policy's live weights.
        renderer: the checkpoint's own prompt form.
    """

    def __init__(self, sampler: Sampler, renderer: Renderer) -> None:
        self._sampler = sampler
        self._renderer = renderer

    def collect(self, asks: Sequence[Ask], *, temperature: float, score: bool = True) -> list[Rollout]:
        """One rollout per ask, in order; with ``score`` off every verdict is None."""
        requests = [
            SampleRequest(
                self._renderer.prompt_ids(ask.problem.prompt, ask.effort), ask.domain.spec.cap_tokens, ask.seed
            )
            for ask in asks
        ]
        sampled = self._sampler.sample(
            requests,
            temperature=temperature,
            turn_end_ids=self._renderer.turn_end_ids,
            on_turn=self._turn_hook(asks),
        )
        rollouts = [
            Rollout(
                problem=ask.problem,
                group=ask.group,
                sample=ask.sample,
                effort=ask.effort,
                prompt_ids=np.asarray(request.prompt_ids, dtype=np.int64),
                sampled=result,
                counts=self.count(result, ask.domain),
                verdict=NOT_SCORED,
                answer_text=self._renderer.answer_text(result.token_ids_T, result.roles_T),
                temperature=temperature,
            )
            for ask, request, result in zip(asks, requests, sampled, strict=True)
        ]
        return _scored(asks, rollouts) if score else rollouts

    def count(self, sampled: Sampled, domain: Domain) -> TokenCounts:
        renderer = self._renderer
        return count_tokens(
            sampled.token_ids_T,
            sampled.roles_T,
            sampled.finish,
            think_open_id=renderer.think_open_id,
            think_close_id=renderer.think_close_id,
            opened_by_prompt=renderer.opened_by_prompt,
            counting=domain.spec.counting,
            eos_ids=renderer.eos_ids,
        )

    def _turn_hook(self, asks: Sequence[Ask]) -> Callable[[int, IntArray], Sequence[int] | None] | None:
        """Answers a row's tool call from that row's own environment session; None where no domain has one."""
        if all(ask.domain.environment is None for ask in asks):
            return None
        sessions: dict[int, Session] = {}

        def on_turn(row: int, turn_ids: IntArray) -> Sequence[int] | None:
            environment = asks[row].domain.environment
            if environment is None:
                return ()
            if row not in sessions:
                sessions[row] = environment.start(asks[row].problem, derive_seed(asks[row].seed, "environment"))
            observation = sessions[row].step(self._renderer.text(turn_ids))
            return None if observation is None else self._renderer.observation_ids(observation)

        return on_turn


def _scored(asks: Sequence[Ask], rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Verdicts filled in; a truncated rollout is wrong without being looked at."""
    verdicts = [TRUNCATED if rollout.counts.truncated else NOT_SCORED for rollout in rollouts]
    by_domain: dict[str, list[int]] = defaultdict(list)
    for index, rollout in enumerate(rollouts):
        if not rollout.counts.truncated:
            by_domain[asks[index].domain.name].append(index)
    for indices in by_domain.values():
        verifier = asks[indices[0]].domain.verifier
        items = [(rollouts[index].problem, rollouts[index].answer_text) for index in indices]
        for index, verdict in zip(indices, verifier.verify_many(items), strict=True):
            verdicts[index] = verdict
    return [replace(rollout, verdict=verdict) for rollout, verdict in zip(rollouts, verdicts, strict=True)]


def unscored_share(rollouts: Sequence[Rollout], limit: float) -> float:
    """Share of rollouts that the machinery could not score.

    Raises:
        StageFailed: above ``limit``.
    """
    unscored = [rollout for rollout in rollouts if rollout.reward is None]
    share = len(unscored) / len(rollouts) if rollouts else 0.0
    if share > limit:
        raise StageFailed(
            "scoring",
            got=f"{len(unscored)} of {len(rollouts)} rollouts unscored ({unscored[0].verdict.reason})",
            expected=f"at most {limit:.0%}",
            fix="mend the verifier or the sandbox, then run the same command to go on",
        )
    return share
