"""From the config to the graph of nodes: one node an artifact.

sft -> budget.<domain> -> rl.<domain>.<effort> -> distill | merge -> evaluate -> promote
                                 |                       |
                                 v                       v
                  evaluate.<domain>.<effort>   evaluate.<distill|merge>, evaluate.cold_start
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flows.config import COLD_START, PipelineConfig
from flows.plan.stages import STAGES
from stages.budget.config import BudgetJob
from stages.core.config import Config
from stages.core.errors import ConfigError
from stages.distill.config import DistillConfig, DistillJob
from stages.evaluate.config import EvaluateJob, SummaryJob
from stages.export.config import PromoteJob
from stages.merge.config import MergeJob
from stages.rl.config import RLJob
from stages.sft.config import SFTJob
from stages.tasks.config import CellConfig, PromptConfig
from stages.train.config import PretrainedBase

SFT = "sft"
SUMMARY = "evaluate"
PROMOTE = "promote"
STUDENT = "student"


@dataclass(frozen=True, slots=True)
class Ref:
    """Where an input comes from: another node's artifact, or a file; exactly one is set."""

    node: str | None = None
    file: str | None = None
    """Path as the config has it, relative to the working directory."""

    def __str__(self) -> str:
        return self.node if self.node is not None else f"file {self.file}"


@dataclass(frozen=True, slots=True)
class Node:
    """One artifact to be made."""

    id: str
    stage: str
    """A row of ``STAGES``."""
    job: Config
    """What the stage's ``run`` is given."""
    inputs: dict[str, Ref]
    slots: int
    """Slots taken while it runs, never more than there are."""
    priority: int
    """Among nodes that could start, the smaller goes first."""
    domain: str | None = None
    effort: str | None = None

    @property
    def parents(self) -> tuple[str, ...]:
        """Ids of the nodes it waits for, each once."""
        return tuple(dict.fromkeys(ref.node for ref in self.inputs.values() if ref.node is not None))


def build_nodes(config: PipelineConfig) -> tuple[Node, ...]:
    """The nodes of a pipeline, parents before children.

    Raises:
        ConfigError: ``resources.stage_slots`` names no stage.
    """
    for stage in config.resources.stage_slots:
        if stage not in STAGES:
            raise ConfigError(
                f"resources.stage_slots.{stage}", got="no stage", expected=f"one of {', '.join(STAGES)}",
                fix="correct the name",
            )  # fmt: skip
    return _Builder(config).nodes()


@dataclass(frozen=True, slots=True)
class _Builder:
    config: PipelineConfig

    def nodes(self) -> tuple[Node, ...]:
        domains = self.config.domains
        rl = [self._rl(domain, effort) for effort in self._tiers_by_start() for domain in domains]
        return (
            self._sft(),
            *(self._budget(domain) for domain in domains),
            *rl,
            self._consolidate(),
            self._evaluate_cold_start(),
            *(self._evaluate_specialist(cell) for cell in self.config.cells),
            self._evaluate_student(),
            self._summary(),
            self._promote(),
        )

    def _tiers_by_start(self) -> list[str]:
        """Tiers from the one that thinks most to the one that thinks least, but each after the one it starts from."""
        ordered: list[str] = []

        def add(effort: str) -> None:
            parent = self.config.tiers[effort].start
            if parent != COLD_START and parent not in ordered:
                add(parent)
            if effort not in ordered:
                ordered.append(effort)

        for effort in reversed(self.config.efforts):
            add(effort)
        return ordered

    def _sft(self) -> Node:
        config = self.config
        names = config.sft.domains or tuple(config.domains)
        inputs = {f"demonstrations.{name}": Ref(file=config.domains[name].demonstrations) for name in names}
        if isinstance(config.base, PretrainedBase) and Path(config.base.path).is_dir():
            inputs["base"] = Ref(file=config.base.path)
        job = SFTJob(base=config.base, sft=config.sft, prompt=self._prompt(config.sft.effort_words), domains=names)
        return self._node(SFT, "sft", job, inputs, priority=0)

    def _budget(self, domain: str) -> Node:
        spec = self.config.domains[domain]
        job = BudgetJob(
            budget=self.config.budget, domain=domain, spec=spec, prompt=self._prompt(self.config.sft.effort_words)
        )
        inputs = {"model": Ref(node=SFT), "problems": Ref(file=spec.problems)}
        return self._node(f"budget.{domain}", "budget", job, inputs, priority=1, domain=domain)

    def _rl(self, domain: str, effort: str) -> Node:
        config = self.config
        spec = config.domains[domain]
        parent = config.tiers[effort].start
        job = RLJob(
            rl=config.rl_of(effort),
            domain=domain,
            effort=effort,
            tau=config.tau[domain][effort],
            tau_start=config.tau_start(domain, effort),
            conditioned=config.condition_specialists,
            spec=spec,
            prompt=self._prompt((effort,)),
        )
        inputs = {
            "model": Ref(node=SFT if parent == COLD_START else f"rl.{domain}.{parent}"),
            "budget": Ref(node=f"budget.{domain}"),
            "problems": Ref(file=spec.problems),
        }
        # From the highest tier down, the domains of one tier side by side.
        rank = len(config.efforts) - config.efforts.index(effort)
        return self._node(f"rl.{domain}.{effort}", "rl", job, inputs, priority=1 + rank, domain=domain, effort=effort)

    def _consolidate(self) -> Node:
        config = self.config
        inputs = {"model": Ref(node=SFT)}
        inputs |= {f"teacher.{cell.name}": Ref(node=f"rl.{cell.name}") for cell in config.cells}
        job: Config
        if isinstance(config.consolidate, DistillConfig):
            inputs |= {f"problems.{name}": Ref(file=spec.problems) for name, spec in config.domains.items()}
            job = DistillJob(
                distill=config.consolidate,
                cells=config.cells,
                conditioned_teachers=config.condition_specialists,
                specs=config.domains,
                prompt=self._prompt(config.efforts),
            )
        else:
            job = MergeJob(merge=config.consolidate, cells=config.cells, prompt=self._prompt(config.efforts))
        return self._node(config.consolidate.type, config.consolidate.type, job, inputs, priority=0)

    def _evaluate_cold_start(self) -> Node:
        cells = tuple(CellConfig(domain=domain, effort=None) for domain in self.config.domains)
        prompt = self._prompt(self.config.sft.effort_words)
        return self._evaluate(COLD_START, COLD_START, SFT, cells, prompt, conditioned=False)

    def _evaluate_specialist(self, cell: CellConfig) -> Node:
        assert cell.effort is not None  # a specialist is always of one tier
        conditioned = self.config.condition_specialists
        prompt = self._prompt((cell.effort,))
        return self._evaluate(cell.name, cell.name, f"rl.{cell.name}", (cell,), prompt, conditioned=conditioned)

    def _evaluate_student(self) -> Node:
        name = self.config.consolidate.type
        prompt = self._prompt(self.config.efforts)
        return self._evaluate(name, STUDENT, name, self.config.cells, prompt, conditioned=True)

    def _evaluate(
        self,
        name: str,
        subject: str,
        model: str,
        cells: tuple[CellConfig, ...],
        prompt: PromptConfig,
        conditioned: bool,
    ) -> Node:
        specs = {domain: self.config.domains[domain] for domain in dict.fromkeys(cell.domain for cell in cells)}
        job = EvaluateJob(
            evaluate=self.config.evaluate,
            subject=subject,
            cells=cells,
            conditioned=conditioned,
            specs=specs,
            prompt=prompt,
        )
        inputs = {"model": Ref(node=model)}
        inputs |= {f"heldout.{domain}": Ref(file=spec.heldout) for domain, spec in specs.items()}
        # Nothing that trains waits for an evaluation, so they fill what the others leave; the student's ends the run.
        priority = 0 if subject == STUDENT else 2 + len(self.config.efforts)
        only = cells[0] if len(cells) == 1 else None
        return self._node(
            f"evaluate.{name}",
            "evaluate",
            job,
            inputs,
            priority=priority,
            domain=only.domain if only else None,
            effort=only.effort if only else None,
        )

    def _summary(self) -> Node:
        config = self.config
        student = config.consolidate.type
        inputs = {
            f"evaluation.{COLD_START}": Ref(node=f"evaluate.{COLD_START}"),
            f"evaluation.{STUDENT}": Ref(node=f"evaluate.{student}"),
        }
        inputs |= {f"evaluation.{cell.name}": Ref(node=f"evaluate.{cell.name}") for cell in config.cells}
        trained = [SFT, *(f"rl.{cell.name}" for cell in config.cells), *([student] if student == "distill" else [])]
        inputs |= {f"training.{name}": Ref(node=name) for name in trained}
        inputs |= {f"budget.{domain}": Ref(node=f"budget.{domain}") for domain in config.domains}
        job = SummaryJob(
            domains=tuple(config.domains),
            efforts=config.efforts,
            tau=config.tau,
            caps={name: spec.cap_tokens for name, spec in config.domains.items()},
            bootstrap=config.evaluate.bootstrap,
            student=student,
            title=config.name,
        )
        return self._node(SUMMARY, "summary", job, inputs, priority=0)

    def _promote(self) -> Node:
        config = self.config
        job = PromoteJob(
            promote=config.promote,
            domains=tuple(config.domains),
            efforts=config.efforts,
            caps={name: spec.cap_tokens for name, spec in config.domains.items()},
            prompt=config.prompt(config.efforts),
        )
        inputs = {"model": Ref(node=config.consolidate.type), "summary": Ref(node=SUMMARY)}
        return self._node(PROMOTE, "export", job, inputs, priority=0)

    def _prompt(self, efforts: tuple[str, ...]) -> PromptConfig:
        """Without the default effort: that is for serving, so a change of it costs an export and no training."""
        prompt = self.config.prompt(efforts)
        return prompt.model_copy(update={"message": prompt.message.model_copy(update={"default": None})})

    def _node(
        self,
        name: str,
        stage: str,
        job: Config,
        inputs: dict[str, Ref],
        *,
        priority: int,
        domain: str | None = None,
        effort: str | None = None,
    ) -> Node:
        resources = self.config.resources
        slots = min(resources.stage_slots.get(stage, 1), resources.slots)
        return Node(name, stage, job, inputs, slots, priority, domain, effort)
