"""Following growing files. Oracle: the lines as written."""

from __future__ import annotations

from pathlib import Path

from infra.tracking.tail import Tail
from stages.core.context import EVENTS, METRICS, Log


def test_each_record_comes_once_and_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    assert (tail.poll().events, tail.poll().metrics) == ([], [])
    log = Log(tmp_path)
    log.metrics(1, 9, {"loss": 2.0})
    assert [record["step"] for record in tail.poll().metrics] == [1]
    path = tmp_path / EVENTS
    path.write_text('{"t": 1, "event": "st')
    assert tail.poll().events == []
    path.write_text('{"t": 1, "event": "start"}\n{"t": 2')
    assert [event["event"] for event in tail.poll().events] == ["start"]
    assert tail.poll().metrics == []


def test_a_file_that_was_cut_back_is_read_from_its_start(tmp_path: Path) -> None:
    log, tail = Log(tmp_path), Tail(tmp_path)
    for step in (1, 2, 3):
        log.metrics(step, 9, {"loss": float(step)})
    assert not tail.poll().rewound
    log.rewind(2)
    log.metrics(3, 9, {"loss": 30.0})
    log.metrics(4, 9, {"loss": 4.0})
    news = tail.poll()
    assert news.rewound
    assert [record["metrics"]["loss"] for record in news.metrics] == [1.0, 2.0, 30.0, 4.0]
    assert (tmp_path / METRICS).read_text().count("\n") == 4
