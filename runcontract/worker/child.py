"""A child: takes a message, claims its run, performs, settles, takes the next.

It pops only when it holds no run. With Redis away it claims from the journal instead.
"""

from __future__ import annotations

import logging
import os
import random
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from django.conf import settings as django_settings
from django.db import reset_queries
from django.db.backends.signals import connection_created
from django.db.utils import Error as DatabaseError

from ..contract.address import Address
from ..exceptions import TransportUnavailable
from ..lifecycle import transitions
from ..lifecycle.database import (
    DatabaseFailure,
    forget_connections,
    notice_lost_client,
    tidy_connections,
)
from ..lifecycle.table import Table
from ..registry import tables
from ..transport import Station, breaker_of, put_back, take
from .burial import Obituary, bury
from .execution import Execution, GivenUp
from .interrupts import Interrupts
from .lifeline import die_with_parent
from .reports import BROKEN, DONE, GAVE_UP, JOURNAL, RECYCLED, Hold, Phase, Report, tell

logger = logging.getLogger("runcontract.worker")

POLL = 1.0
"""Seconds between two looks into an empty journal while Redis is away."""


@dataclass(frozen=True)
class ChildOptions:
    """What every child of a worker is told."""

    lanes: Sequence[str]
    burst: bool = False
    max_runs: int | None = None
    max_memory: int | None = None
    """MiB of resident memory after which a child is replaced."""


def worker_name(pid: int, nonce: str) -> str:
    """Host, pid and a nonce: a reborn worker never has its predecessor's name."""
    return f"{socket.gethostname()[:100]}-{pid}-{nonce}"


def live(
    options: ChildOptions,
    name: str,
    parent: int,
    reports: int,
    orders: int,
    obituaries: Sequence[Obituary],
    *,
    only_bury: bool,
) -> NoReturn:
    """The whole life of a forked child; never returns to the supervisor's code."""
    code = BROKEN
    try:
        interrupts = Interrupts(orders)
        interrupts.install()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
        die_with_parent(parent, orders)
        interrupts.end_at_fork()
        connection_created.connect(notice_lost_client)
        random.seed()
        bury(obituaries, lambda: interrupts.stopping and not only_bury)
        tell(reports, Report(Phase.IDLE).encode())
        code = DONE if only_bury else Child(options, name, reports, interrupts).work()
    except BaseException:
        logger.exception("A worker process could not go on.")
    finally:
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)


class Child:
    """One process that performs runs, one after the other."""

    def __init__(
        self, options: ChildOptions, name: str, reports: int, interrupts: Interrupts
    ) -> None:
        self.options, self.name = options, name
        self._reports, self._interrupts = reports, interrupts
        self._tables = {table.label: table for table in tables()}
        self._left = options.max_runs
        self._code = BROKEN
        """Unless it is told to stop, has done its share or has emptied the lanes."""
        self._refused: set[str] = set()
        self._away = False
        self._unsure = False
        """A claim from the journal had no reply: the journal is asked again before anything."""
        self._told: Report | None = None
        self._pid = os.getpid()

    def work(self) -> int:
        """Work until told to stop; returns the exit code."""
        station = Station(
            self.options.lanes,
            name=self.name,
            next_run=self._next_run,
            perform_run=self._perform,
        )
        station.work(burst=self.options.burst, logging_level="WARNING")
        forget_connections()
        return self._code

    def _tell(self, report: Report) -> None:
        if os.getpid() != self._pid:
            os._exit(BROKEN)  # a fork of the job's that came back from perform
        if report == self._told:
            return
        self._told = report
        if not tell(self._reports, report.encode()):
            os._exit(BROKEN)

    # The next run.

    def _next_run(self, burst: bool) -> tuple[str, Any] | None:
        """(lane, run), or None when nothing came. Raises StopIteration to stop."""
        while True:
            if self._used_up() or self._interrupts.stopping:
                self._code = RECYCLED
                raise StopIteration
            if self._unsure or breaker_of(self.options.lanes[0]).open:
                return self._from_journal(burst)
            try:
                found = take(self.options.lanes, block=not burst)
            except TransportUnavailable:
                return self._from_journal(burst)
            if found is None:
                if burst:
                    self._code = DONE
                tidy_connections(idle=True)
                return None
            run = self._from_message(*found)
            if run is not None or not burst:  # a burst does not end at a message without a run
                return run

    def _from_message(self, lane: str, message: bytes) -> tuple[str, Any] | None:
        if self._interrupts.stopping:
            self._return_message(lane, message)
            self._code = RECYCLED
            raise StopIteration
        address = Address.parse(message)
        table = self._tables.get(address.label) if address else None
        if address is None or table is None or not table.accepts(address.pk):
            logger.warning("Dropped a message that names no run: %.80r", message)
            return None
        run = self._claim(table, address)
        return None if run is None else (lane, run)

    def _return_message(self, lane: str, message: bytes) -> None:
        try:
            put_back(lane, message)
        except TransportUnavailable:
            logger.info("A message taken while stopping is left to the sweep.")

    def _claim(self, table: Table, address: Address) -> Any | None:
        """Claim by address. A claim with no reply is looked for under our own name."""
        self._tell(Report(Phase.TAKING, Hold(table.label, address.pk, address.lease)))
        asked = False
        while True:
            try:
                run = self._claimed_before(table) if asked else None
                run = run or transitions.claim(table, address.pk, address.lease, self.name)
                break
            except DatabaseFailure as error:
                asked = True
                if not self._wait_for_database(error):
                    return None
            except DatabaseError as error:
                logger.error("%s could not be claimed: %s", address, error)
                forget_connections()
                run = None
                break
        if run is None:
            self._tell(Report(Phase.IDLE))
        return run

    def _claimed_before(self, table: Table) -> Any | None:
        found = transitions.claimed_by(table, self.name)
        return found[0] if found else None

    def _wait_for_database(self, error: Exception) -> bool:
        """A pause on a lost database; False when this child is to stop instead."""
        if not self._away:
            self._away = True
            logger.warning("The database is away (%s); waiting for it.", type(error).__name__)
        forget_connections()
        return self._interrupts.sleep(1.0)

    def _from_journal(self, burst: bool) -> tuple[str, Any] | None:
        """Claim without a message: the lanes in order of priority, each table in turn."""
        for table in self._tables.values():
            self._tell(Report(Phase.TAKING, Hold(table.label, *JOURNAL)))
            try:
                found = self._claimed_before(table)
                run = found or transitions.claim_waiting(table, self.options.lanes, self.name)
            except DatabaseFailure as error:
                self._unsure = True
                self._wait_for_database(error)
                return None
            except DatabaseError as error:
                self._say_refused(table, error)
                continue
            if run is not None:
                self._rotate(table)
                return run.lane, run
        self._tell(Report(Phase.IDLE))
        self._unsure = self._away = False
        if burst:
            self._code = DONE
        else:
            self._interrupts.sleep(POLL * random.uniform(0.7, 1.3))  # noqa: S311
            tidy_connections(idle=True)
        return None

    def _say_refused(self, table: Table, error: DatabaseError) -> None:
        """A table that cannot be asked, not migrated perhaps: said once, and the others go on."""
        forget_connections()
        if table.label not in self._refused:
            self._refused.add(table.label)
            logger.error("%s: nothing can be claimed: %s", table.label, error)

    def _rotate(self, table: Table) -> None:
        """Let the other tables come first next time."""
        self._tables[table.label] = self._tables.pop(table.label)

    # The run.

    def _perform(self, run: Any) -> None:
        self._away = False
        try:
            Execution(run, self._interrupts, self._tell).execute()
        except GivenUp:
            logger.info("%s %s was interrupted; this process ends.", run._meta.label, run.pk)
            logging.shutdown()
            os._exit(GAVE_UP)
        except Exception:
            logger.exception("%s %s could not be settled.", run._meta.label, run.pk)
            logging.shutdown()
            os._exit(BROKEN)
        tidy_connections(idle=False)
        if django_settings.DEBUG:
            reset_queries()
        if self._left is not None:
            self._left -= 1
        self._tell(Report(Phase.IDLE))

    def _used_up(self) -> bool:
        if self._left is not None and self._left <= 0:
            return True
        limit = self.options.max_memory
        return limit is not None and _resident_mib() > limit


def _resident_mib() -> float:
    """This process's resident memory, in MiB."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
