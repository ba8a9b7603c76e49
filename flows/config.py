"""The pipeline's config: one YAML file, strict, with ``--set a.b=c`` overrides. No torch.

Order matters in one place: ``tiers`` lists the efforts from the one that thinks least to the one that thinks most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from stages.budget.config import BudgetConfig
from stages.core.config import UNKEYED, Config, explain, parse
from stages.core.errors import ConfigError
from stages.distill.config import DistillConfig
from stages.evaluate.config import EvaluateConfig
from stages.export.config import PromoteConfig
from stages.merge.config import MergeConfig
from stages.rl.config import RLConfig
from stages.sft.config import SFTConfig
from stages.tasks.config import CellConfig, DomainConfig, EffortMessage, PromptConfig, ThinkingTags
from stages.train.config import BaseModelConfig, MicroBase

COLD_START = "cold_start"


class TierConfig(Config):
    """One effort, in every domain."""

    start: str = Field(COLD_START, alias="from")
    """``cold_start``, or the tier whose specialist of the same domain this one starts from."""
    rl: dict[str, Any] = Field(default_factory=dict)
    """Fields of ``rl`` that differ for this tier."""


class ResourcesConfig(Config):
    """Where and how wide the stages run; nothing here enters an artifact key."""

    slots: int = Field(2, ge=1)
    """Stages side by side: cores, or accelerators."""
    threads_per_slot: int = Field(1, ge=1)
    """CPU threads of one slot."""
    stage_slots: dict[str, int] = Field(default_factory=dict)
    """Slots that one stage takes, by stage name; 1 where not named."""
    device: str = "auto"
    """``auto``: CUDA, then MPS, then CPU; or a torch device. With several accelerators each slot gets its own."""
    engine: Literal["single", "deepspeed"] = "single"
    """Train engine; ``deepspeed`` runs through accelerate."""
    processes: int = Field(1, ge=1)
    """Processes of one training stage under ``deepspeed``."""
    zero_stage: Literal[0, 1, 2, 3] = 2
    checkpoint_seconds: float = Field(60.0, ge=0)
    """A training stage checkpoints at the first step that ends this long after the last checkpoint."""


class TrackingConfig(Config):
    uri: str | None = None
    """MLflow tracking URI; None: ``mlflow.db`` (SQLite) beside the store."""
    experiment: str = "ninefold"


class PipelineConfig(Config):
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", json_schema_extra=UNKEYED)
    """Names the runs of this config; letters, digits, - and _."""
    seed: int = Field(1, ge=0)
    store: str = Field("store", json_schema_extra=UNKEYED)
    """Where artifacts live; paths are relative to the working directory."""
    base: BaseModelConfig = MicroBase()
    message: EffortMessage = EffortMessage()
    tags: ThinkingTags = ThinkingTags()
    condition_specialists: bool = False
    """Whether specialists see the effort message in training; the student always does."""
    domains: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")], DomainConfig] = Field(min_length=1)
    tiers: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")], TierConfig] = Field(min_length=1)
    """Efforts from the one that thinks least to the one that thinks most."""
    tau: dict[str, dict[str, float]]
    """Budget multiplier by domain, then effort; rises strictly with the effort."""
    sft: SFTConfig = SFTConfig()
    budget: BudgetConfig = BudgetConfig()
    rl: RLConfig = RLConfig()
    consolidate: Annotated[DistillConfig | MergeConfig, Field(discriminator="type")] = DistillConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    promote: PromoteConfig = PromoteConfig()
    resources: ResourcesConfig = Field(ResourcesConfig(), json_schema_extra=UNKEYED)
    tracking: TrackingConfig = Field(TrackingConfig(), json_schema_extra=UNKEYED)

    @property
    def efforts(self) -> tuple[str, ...]:
        """From the one that thinks least to the one that thinks most."""
        return tuple(self.tiers)

    @property
    def cells(self) -> tuple[CellConfig, ...]:
        return tuple(CellConfig(domain=domain, effort=effort) for domain in self.domains for effort in self.efforts)

    def prompt(self, efforts: Sequence[str]) -> PromptConfig:
        return PromptConfig(efforts=tuple(efforts), message=self.message, tags=self.tags)

    def rl_of(self, effort: str) -> RLConfig:
        """``rl`` with the tier's own fields over it."""
        own = self.tiers[effort].rl
        return RLConfig.model_validate(merge_values(self.rl.model_dump(exclude_unset=True), own))

    def tau_start(self, domain: str, effort: str) -> float:
        """Where the cell's tau starts from (methods, section 6)."""
        own = self.tau[domain][effort]
        annealing = self.rl_of(effort).annealing
        if annealing.steps == 0:
            return own
        if annealing.start != "parent":
            return float(annealing.start)
        parent = self.tiers[effort].start
        return own if parent == COLD_START else self.tau[domain][parent]

    @model_validator(mode="after")
    def _check(self) -> PipelineConfig:
        # ConfigError is no ValueError, so pydantic lets it through with its own object, got and expected.
        for domain in self.tau:
            _one_of(f"tau.{domain}", domain, self.domains)
        for domain in self.domains:
            self._check_tau(domain)
        for effort, tier in self.tiers.items():
            _one_of(f"tiers.{effort}.from", tier.start, [COLD_START, *self.tiers])
            self._check_no_circle(effort)
            try:
                self.rl_of(effort)
            except ValidationError as error:
                raise explain(error, RLConfig, f"tiers.{effort}.rl") from None
        for domain in self.sft.domains or ():
            _one_of("sft.domains", domain, self.domains)
        if self.message.default is not None:
            _one_of("message.default", self.message.default, self.tiers)
        return self

    def _check_tau(self, domain: str) -> None:
        taus = self.tau.get(domain, {})
        for effort in taus:
            _one_of(f"tau.{domain}.{effort}", effort, self.tiers)
        for effort in self.tiers:
            value = taus.get(effort)
            if value is None or not 0 < value < float("inf"):
                got = "nothing" if value is None else value
                raise ConfigError(
                    f"tau.{domain}.{effort}", got=got, expected="a positive finite number", fix="set the multiplier"
                )
        for lower, higher in zip(self.efforts, self.efforts[1:], strict=False):
            if not taus[lower] < taus[higher]:
                raise ConfigError(
                    f"tau.{domain}",
                    got=f"{lower} {taus[lower]} and {higher} {taus[higher]}",
                    expected=f"tau to fall from {self.efforts[-1]} to {self.efforts[0]}",
                    fix=f"lower tau.{domain}.{lower} or raise tau.{domain}.{higher}",
                )

    def _check_no_circle(self, effort: str) -> None:
        seen = [effort]
        while (parent := self.tiers[seen[-1]].start) in self.tiers:
            seen.append(parent)
            if seen.count(parent) > 1:
                raise ConfigError(
                    f"tiers.{effort}.from", got=" <- ".join(seen), expected=f"a chain that begins at {COLD_START}"
                )


def _one_of(what: str, got: str, choices: Iterable[str]) -> None:
    names = list(choices)
    if got not in names:
        raise ConfigError(what, got=f"'{got}'", expected=f"one of {', '.join(names)}", fix="correct the name")


def merge_values(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` laid over ``base``, mapping by mapping; a mapping that names another ``type`` replaces the whole."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if (
            isinstance(old, Mapping)
            and isinstance(value, Mapping)
            and value.get("type", old.get("type")) == old.get("type")
        ):
            merged[key] = merge_values(old, value)
        else:
            merged[key] = value
    return merged


def load(path: Path, overrides: Sequence[str] = ()) -> PipelineConfig:
    """Read and check a YAML config.

    Args:
        overrides: ``a.b=c`` each, the value in YAML, e.g. ``tau.code.low=0.7``.

    Raises:
        ConfigError: not readable, not YAML, an unknown key, or a value that makes no sense.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(str(path), got="no such file", expected="a YAML config", fix="check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), got=str(error), expected="a readable YAML config") from None
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(str(path), got=f"broken YAML ({error})", expected="a mapping", fix="mend the line") from None
    if not isinstance(values, dict):
        raise ConfigError(str(path), got=type(values).__name__, expected="a mapping of keys to values")
    for override in overrides:
        values = merge_values(values, _override(override))
    return parse(PipelineConfig, values, path.name)


def _override(text: str) -> dict[str, Any]:
    """``a.b=c`` as nested mappings."""
    path, equals, value = text.partition("=")
    if not equals or not all(path.split(".")):
        raise ConfigError(f"--set {text}", got=repr(text), expected="a.b=c", fix="e.g. --set tau.code.low=0.7")
    try:
        nested: Any = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {text}", got=f"broken YAML ({error})", expected="a YAML value") from None
    for part in reversed(path.strip().split(".")):
        nested = {part: nested}
    return dict(nested)
