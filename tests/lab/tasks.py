"""Jobs that do what a test asks for. Each takes the run, its context, and the run's `args`."""

import asyncio
import atexit
import ctypes
import logging
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.apps import apps
from django.db import connections, transaction

from runcontract import PermanentError, TransientError

from . import errors

TASKS: dict[str, Callable[..., Any]] = {}
ASYNC_TASKS: dict[str, Callable[..., Any]] = {}
HOOKS: dict[str, Callable[..., Any]] = {}
KEPT: list[Any] = []
"""What a job leaves in its process."""

STEP = 0.02


def task(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function a task of that name."""
    TASKS[function.__name__] = function
    return function


def hook(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function something that `on_failed` may call."""
    HOOKS[function.__name__] = function
    return function


def nap_for(seconds: float) -> None:
    """Sleep in small steps, so that a signal is taken between two lines of Python."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(STEP)


# Work that ends well


@task
def succeed(run: Any, ctx: Any) -> None:
    """Nothing, at once."""


@task
def nap(run: Any, ctx: Any, n: float = 1) -> None:
    nap_for(n)


@task
def wait_for_file(run: Any, ctx: Any, path: str = "", n: float = 90) -> None:
    """Nap until the test makes this file, however slow the machine is."""
    end = time.monotonic() + n
    while time.monotonic() < end and not Path(path).exists():
        time.sleep(STEP)


@task
def nap_once(run: Any, ctx: Any, n: float = 1, until: int = 1) -> None:
    """Long in the first `until` attempts, nothing in later ones."""
    if ctx.attempt <= until:
        nap_for(n)


@task
def echo(run: Any, ctx: Any, text: str = "") -> None:
    """Leave `text` in the run's own column, to compare with what was sent."""
    run.note = text
    run.save(update_fields=["note"])


@task
def count_up(run: Any, ctx: Any, n: int = 10, pause: float = 0.05) -> None:
    """Report progress, in the contract and in the run's own column."""
    for done in range(1, n + 1):
        nap_for(pause)
        ctx.progress(done, n)
        run.progress = done
        run.save(update_fields=["progress"])


@task
def steps(run: Any, ctx: Any, names: list[str] | None = None, pause: float = 0.05) -> None:
    """Timed steps, each with one count."""
    for name in names or ["fetch", "store"]:
        with ctx.step(name) as step:
            nap_for(pause)
            step.count(rows=3)


@task
def patient(run: Any, ctx: Any, n: float = 30) -> None:
    """Ask the context, again and again, whether it may go on."""
    end = time.monotonic() + n
    while time.monotonic() < end:
        ctx.check()
        time.sleep(STEP)


@task
def see_order(run: Any, ctx: Any, pk: int | None = None) -> None:
    """Need an order that the caller made in its transaction."""
    order = apps.get_model("lab", "Order").objects.get(pk=pk or run.order_id)
    run.note = order.name
    run.save(update_fields=["note"])


@task
def make_order(run: Any, ctx: Any, name: str = "made", n: float = 0, kind: str = "") -> None:
    """An effect in Postgres, on Django's connection; then a nap and perhaps an error."""
    apps.get_model("lab", "Order").objects.create(name=name)
    nap_for(n)
    if kind:
        raise errors.ERRORS[kind]()


@task
def enqueue_another(run: Any, ctx: Any, job_id: str = "another") -> None:
    type(run).objects.enqueue(job_id=job_id)


@task
def sql(run: Any, ctx: Any, statement: str = "SELECT pg_sleep(1)") -> None:
    """Wait in the database, where no Python runs."""
    with connections["default"].cursor() as cursor:
        cursor.execute(statement)


@task
def lock_own_row(run: Any, ctx: Any, n: float = 1, after: float = 1) -> None:
    """A long transaction that holds the run's own row, and then more work."""
    with transaction.atomic():
        run.save(update_fields=["note"])
        nap_for(n)
    nap_for(after)


@task
def use_memory(run: Any, ctx: Any, megabytes: int = 50) -> None:
    """Keep memory for good."""
    KEPT.append(os.urandom(1024) * 1024 * megabytes)


# Work that fails


@task
def fail(run: Any, ctx: Any, kind: str = "permanent", n: float = 0) -> None:
    """Raise an error of errors.ERRORS, after a nap."""
    nap_for(n)
    raise errors.ERRORS[kind]()


@task
def fail_on(run: Any, ctx: Any, attempts: list[int], kind: str = "transient", n: float = 0) -> None:
    """Nap, then raise in these attempts only."""
    nap_for(n)
    if ctx.attempt in attempts:
        raise errors.ERRORS[kind]()


@task
def transient(run: Any, ctx: Any, message: str = "busy", retry_after: Any = None) -> None:
    raise TransientError(message, retry_after=retry_after)


@task
def permanent(run: Any, ctx: Any, message: str = "no") -> None:
    raise PermanentError(message)


@task
def raise_text(run: Any, ctx: Any, text: str = "", times: int = 1) -> None:
    """A ValueError with this text, repeated."""
    raise ValueError(text * times)


# Work that hurts its process


@task
def suicide(run: Any, ctx: Any, number: int = signal.SIGKILL, attempts: list[int] | None = None):
    """Send our own process a signal, in these attempts or in all."""
    if attempts is None or ctx.attempt in attempts:
        os.kill(os.getpid(), number)
        nap_for(10)


@task
def segfault(run: Any, ctx: Any) -> None:
    ctypes.string_at(0)


@task
def exit_code(run: Any, ctx: Any, code: int = 3) -> None:
    os._exit(code)


@task
def abort(run: Any, ctx: Any) -> None:
    os.abort()


@task
def spin(run: Any, ctx: Any, n: float = 1) -> None:
    """Burn the processor in Python."""
    end = time.monotonic() + n
    while time.monotonic() < end:
        pass


@task
def hold_gil(run: Any, ctx: Any, n: int = 5) -> None:
    """Sleep in C without letting go of the GIL: no thread and no signal handler runs."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    ctypes.PyDLL(None).usleep(int(n * 1_000_000))  # a signal would end it and return to Python
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@task
def regex(run: Any, ctx: Any, length: int = 27) -> None:
    """A pattern that backtracks for seconds; each letter doubles it."""
    re.match(r"(a+)+$", "a" * length + "b")


# Work that does not want to stop


@task
def stubborn(run: Any, ctx: Any, n: float = 60) -> None:
    """Swallow whatever is raised into it."""
    end = time.monotonic() + n
    while time.monotonic() < end:
        try:
            time.sleep(0.1)
        except BaseException:
            pass


@task
def deaf(run: Any, ctx: Any, n: float = 60) -> None:
    """Ignore the signals of a stop."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    nap_for(n)


@task
def masked(run: Any, ctx: Any, n: float = 60) -> None:
    """Block the signals of a stop."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGALRM})
    nap_for(n)


@task
def own_handlers(run: Any, ctx: Any) -> None:
    """Change the handlers and end well: the next run must not suffer."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, lambda *_: None)


@task
def handler_raises(run: Any, ctx: Any, n: float = 60) -> None:
    """A SIGTERM handler of its own that raises."""
    signal.signal(signal.SIGTERM, lambda *_: errors.throw(RuntimeError("own handler")))
    nap_for(n)


@task
def parent_of(run: Any, ctx: Any, n: float = 60) -> None:
    """Wait for a sub-process, whose pid is left in the note."""
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({n})"])
    run.note = str(child.pid)
    run.save(update_fields=["note"])
    child.wait()


@task
def turncoat(run: Any, ctx: Any, n: float = 60) -> None:
    """Turn whatever stops it into an error of its own."""
    try:
        nap_for(n)
    except BaseException as stop:
        raise PermanentError("turned") from stop


@task
def deaf_to_all(run: Any, ctx: Any, n: float = 60) -> None:
    """Block every signal that can be blocked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    nap_for(n)


@task
def listen_for_ever(run: Any, ctx: Any) -> None:
    """Wait in a socket without a timeout."""
    ours, _theirs = socket.socketpair()
    ours.recv(1)


@task
def terminate_own(run: Any, ctx: Any) -> None:
    """Start a process by multiprocessing and end it, as a Pool does."""
    process = multiprocessing.get_context("fork").Process(target=nap_for, args=(60,))
    process.start()
    process.terminate()
    process.join(20)
    run.note = str(process.exitcode)
    run.save(update_fields=["note"])
    process.kill()


@task
def fork_comes_back(run: Any, ctx: Any) -> None:
    """Fork, and let both return."""
    nap_for(0.5 if os.fork() else 0)


@task
def leave_a_trace(run: Any, ctx: Any, path: str = "", n: float = 60) -> None:
    """Write the time into a file, again and again: for when the database cannot be asked."""
    end = time.monotonic() + n
    while time.monotonic() < end:
        Path(f"{path}.new").write_text(str(time.time()))
        Path(f"{path}.new").replace(path)
        time.sleep(STEP)


# Work that misbehaves after its end


@task
def own_alarm(run: Any, ctx: Any, n: float = 0.5) -> None:
    """An alarm that rings after the job has returned; nobody handles it."""
    signal.setitimer(signal.ITIMER_REAL, n)


@task
def leave_begin(run: Any, ctx: Any) -> None:
    """A transaction that Django does not know of."""
    with connections["default"].cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO lab_order (name, amount) VALUES ('uncommitted', 0)")


@task
def leave_autocommit_off(run: Any, ctx: Any) -> None:
    connections["default"].set_autocommit(False)
    apps.get_model("lab", "Order").objects.create(name="uncommitted")


@task
def leave_atomic(run: Any, ctx: Any) -> None:
    transaction.atomic().__enter__()
    apps.get_model("lab", "Order").objects.create(name="uncommitted")


@task
def leave_read_only(run: Any, ctx: Any) -> None:
    """A session in which nothing can be written."""
    with connections["default"].cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")


@task
def non_daemon_thread(run: Any, ctx: Any, n: float = 60) -> None:
    threading.Thread(target=nap_for, args=(n,)).start()


@task
def slow_at_exit(run: Any, ctx: Any, n: float = 60) -> None:
    atexit.register(nap_for, n)


@task
def late_thread(run: Any, ctx: Any, n: float = 0.1) -> None:
    """A thread that raises after the job has returned."""
    threading.Timer(n, lambda: errors.throw(ValueError("from a late thread"))).start()


@task
def bad_finalizer(run: Any, ctx: Any) -> None:
    """An object whose `__del__` raises."""
    errors.Undeletable()


@task
def bad_log_handler(run: Any, ctx: Any) -> None:
    """A log handler that raises whenever anybody logs; then an error."""
    handler = errors.RaisingHandler()
    logging.getLogger().addHandler(handler)
    try:
        raise ValueError("with a broken log handler")
    finally:
        threading.Timer(1, logging.getLogger().removeHandler, (handler,)).start()


# Coroutines


def async_task(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a coroutine function a task of AsyncRun."""
    ASYNC_TASKS[function.__name__.removeprefix("async_")] = function
    return function


@async_task
async def async_succeed(run: Any, ctx: Any) -> None:
    await asyncio.sleep(0)


@async_task
async def async_nap(run: Any, ctx: Any, n: float = 1) -> None:
    end = time.monotonic() + n
    while time.monotonic() < end:
        await asyncio.sleep(STEP)


@async_task
async def async_fail(run: Any, ctx: Any, kind: str = "permanent") -> None:
    raise errors.ERRORS[kind]()


@async_task
async def async_stubborn(run: Any, ctx: Any, n: float = 60) -> None:
    """Swallow every cancellation."""
    end = time.monotonic() + n
    while time.monotonic() < end:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(STEP)


@async_task
async def async_tidy(run: Any, ctx: Any, n: float = 60) -> None:
    """Say in the note that the cancellation came."""
    try:
        await async_nap(run, ctx, n)
    except asyncio.CancelledError:
        run.note = "cancelled"
        await run.asave(update_fields=["note"])
        raise


@async_task
async def async_backends(run: Any, ctx: Any) -> None:
    """The note says whether synchronous code sees one connection, and which thread's."""

    def seen() -> tuple[int, bool]:
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            main = threading.current_thread() is threading.main_thread()
            return cursor.fetchone()[0], main

    run.note = str(len({await sync_to_async(seen)() for _ in range(5)} | {(0, True)}))
    run.note += f" {(await sync_to_async(seen)())[1]}"
    await run.asave(update_fields=["note"])


# What on_failed does


@hook
def keep(run: Any, error: Any) -> None:
    """Move the failure into a table of the consumer's."""
    apps.get_model("lab", "Order").objects.create(name=f"failed {run.job_id}"[:100])


@hook
def broken(run: Any, error: Any) -> None:
    raise RuntimeError("on_failed is broken")


@hook
def broken_sql(run: Any, error: Any) -> None:
    """Poison the transaction."""
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT 1/0")


@hook
def lethal(run: Any, error: Any) -> None:
    """Kill whatever process settles this run."""
    os.kill(os.getpid(), signal.SIGKILL)


@hook
def endless(run: Any, error: Any) -> None:
    """Wait in the database for longer than anybody has patience."""
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT pg_sleep(600)")
