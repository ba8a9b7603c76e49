"""Leases between processes. Oracle: the kernel lock, seen from another process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.store.lease import Holder, Lease
from infra.store.local import Store
from stages.core.errors import Interrupted, Skipped

HOLD = """
import sys
from pathlib import Path
from infra.store.lease import Lease
from infra.store.local import Store
lease = Lease(Store(Path(sys.argv[1])), "k1", "run-a")
lease.acquire()
print("held", flush=True)
sys.stdin.readline()
lease.release()
"""


@contextmanager
def other_process(root: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lease until a line or its death."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_a_held_lease_is_skipped_and_the_holder_is_named(store: Store) -> None:
    with other_process(store.root) as process:
        with pytest.raises(Skipped, match=rf"run run-a \(pid {process.pid} on ") as error:
            Lease(store, "k1", "run-b").acquire(wait=False)
        assert error.value.exit_code == 6


def test_a_waiter_hears_of_the_holder_and_takes_over_when_it_ends(store: Store) -> None:
    with other_process(store.root) as process:
        told: list[Holder | None] = []

        def end_the_holder(holder: Holder | None) -> None:
            told.append(holder)
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

        lease = Lease(store, "k1", "run-b")
        lease.acquire(on_wait=end_the_holder)
        assert [holder.pid for holder in told if holder] == [process.pid]
        holder = lease.holder()
        assert holder is not None
        assert (holder.pid, holder.run) == (os.getpid(), "run-b")
        lease.release()


def test_the_lease_of_a_killed_holder_is_free_although_its_file_stays(store: Store) -> None:
    with other_process(store.root) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        lease = Lease(store, "k1", "run-b")
        stale = lease.holder()
        assert stale is not None
        assert stale.pid == process.pid
        lease.acquire(wait=False)
        lease.release()
        assert lease.holder() is None


def test_waiting_can_be_cancelled(store: Store) -> None:
    with other_process(store.root), pytest.raises(Interrupted):
        Lease(store, "k1", "run-b").acquire(cancelled=lambda: True)


def test_two_keys_do_not_meet(store: Store) -> None:
    with Lease(store, "k1", "run-a"):
        Lease(store, "k2", "run-b").acquire(wait=False)
