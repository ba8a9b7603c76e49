"""Ask a checkpoint and write down what it says. Inputs and outputs: see GenerateJob."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stages.core.context import StageContext
from stages.core.errors import DataError
from stages.core.files import append_jsonl
from stages.core.ports import Summary
from stages.core.records import Problem, Rollout
from stages.generate.config import GenerateJob
from stages.rollout.collect import Collector, asks_for
from stages.rollout.domain import Domain, open_domain
from stages.rollout.policy import Policy, load_policy
from stages.tasks import environments, verifiers
from stages.tasks.config import DomainConfig

RESPONSES = "responses.jsonl"
FREE_TOKENS = 1024
"""Cap on a response where neither a person nor a domain sets one: room for all of it is taken beforehand."""


def run(job: GenerateJob, context: StageContext) -> Summary:
    """Write ``responses.jsonl``.

    Raises:
        ConfigError: an effort that the chat template does not take.
        DataError: a word that the tokenizer does not know, a prompt or a cap beyond the context, unusable problems.
    """
    policy = load_policy(context.inputs["model"], job.prompt, context)
    domain = _domain(job, context)
    problems = domain.problems if job.prompts else domain.problems[: job.problems]
    spec = domain.spec.model_copy(update={"cap_tokens": _cap(job, policy, problems)})
    asks = asks_for(replace(domain, spec=spec), problems, job.samples, job.effort, context.seed)
    collector = Collector(policy.sampler, policy.renderer)
    rollouts = collector.collect(asks, temperature=job.temperature, score=not job.prompts)
    domain.verifier.close()
    for rollout in rollouts:
        append_jsonl(context.out / RESPONSES, _record(job, spec, rollout, policy))
    return {"responses": len(rollouts)}


def _domain(job: GenerateJob, context: StageContext) -> Domain:
    """Held-out problems in their domain, or the prompts as problems without an answer."""
    spec = job.spec or DomainConfig(problems="", heldout="", demonstrations="")
    name = job.domain or "prompt"
    if not job.prompts:
        return open_domain(name, spec, context.inputs["heldout"], context.ports.sandbox)
    problems = tuple(Problem(str(number), name, prompt, "") for number, prompt in enumerate(job.prompts, 1))
    verifier = verifiers.build(spec.verifier, context.ports.sandbox)
    environment = environments.build(spec.environment) if spec.environment else None
    return Domain(name, spec, problems, verifier, environment)


def _cap(job: GenerateJob, policy: Policy, problems: Sequence[Problem]) -> int:
    """Cap on the model tokens of one response."""
    prompt_tokens = max(len(policy.renderer.prompt_ids(problem.prompt, job.effort)) for problem in problems)
    context_tokens = int(policy.model.config.get_text_config().max_position_embeddings)
    room = context_tokens - prompt_tokens
    if room < (job.max_tokens or 1):
        raise DataError(
            "max_tokens" if job.max_tokens else "prompt",
            got=f"{prompt_tokens} tokens of prompt and {job.max_tokens or 1} of response",
            expected=f"at most {context_tokens}, the context of the model",
            fix="ask for less" if job.max_tokens else "shorten the prompt",
        )
    return job.max_tokens or (job.spec.cap_tokens if job.spec else min(room, FREE_TOKENS))


def _record(job: GenerateJob, spec: DomainConfig, rollout: Rollout, policy: Policy) -> dict[str, Any]:
    """One response; ``expected``, ``correct`` and ``reason`` are None where there is no reference answer."""
    renderer, counts, known = policy.renderer, rollout.counts, not job.prompts
    text = renderer.text(rollout.sampled.token_ids_T)
    correct = None if rollout.reward is None else rollout.reward >= spec.success_threshold
    return {
        "problem": rollout.problem.id,
        "sample": rollout.sample,
        "effort": job.effort or job.prompt.message.default,
        "prompt": rollout.problem.prompt,
        # The span is marked by its tags, also where it was the prompt that opened it.
        "response": f"{job.prompt.tags.open} {text}" if renderer.opened_by_prompt else text,
        "answer": rollout.answer_text,
        "tokens": counts.counted,
        "answer_tokens": counts.answer,
        "truncated": counts.truncated,
        "expected": rollout.problem.answer if known else None,
        "correct": correct if known else None,
        "reason": rollout.verdict.reason if known else None,
    }
