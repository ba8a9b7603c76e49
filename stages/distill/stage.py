"""Multi-teacher on-policy distillation (methods, section 7). Inputs and outputs: see DistillJob.

The run is one training loop in two parts: a warm start of supervised steps on effort-tagged specialist rollouts, then
distillation on the student's own rollouts. In a distillation step the rows are sorted by teacher: each teacher is
loaded once, and only one micro-batch of teacher logits is alive at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stages.core.context import StageContext
from stages.core.ports import Summary
from stages.distill.config import DistillJob
from stages.distill.student import Student
from stages.tasks.prompts import set_template
from stages.train.loop import train_loop
from stages.train.model import save_trained


def run(job: DistillJob, context: StageContext) -> Summary:
    """Distil every cell's specialist into one student and write its model folder.

    Raises:
        DataError: a cell without a teacher, or a teacher with other tokens or shapes: before the first step.
    """
    student = Student.open(job, context)
    train_loop(context, student.engine, student.total_steps, student.step, student)
    set_template(student.policy.tokenizer, job.prompt)
    save_trained(student.engine, student.policy.tokenizer, context.out)
    return _summary(student.last)


def _summary(last: Mapping[str, float]) -> dict[str, Any]:
    return {name: last[name] for name in ("kl", "tokens") if name in last}
