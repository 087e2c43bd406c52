"""Call an embedder: one call at a time, in its own thread, with a time limit for each caller.

If a call exceeds its time limit, its caller stops waiting, and no further call is made until that call returns, so that
a hanging embedder blocks only one thread. An async embedder runs in an event loop in this thread and is cancelled at
its time limit. Every exception of an embedder is raised as `EmbedderFailed`.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice

from callgate.memory.embedder_protocol import Embedder, EmbedderFailed, pack_vector

__all__ = ["EmbedderCalls"]


class _EmbedderCall:
    """One call of the embedder: its texts, its time limit and its result."""

    def __init__(self, texts: Sequence[str], timeout_s: float) -> None:
        self.texts = texts
        self.timeout_s = timeout_s
        self.began = 0.0
        self.vectors: list[bytes] = []
        self.error: EmbedderFailed | None = None
        self.given_up = False
        self.done = threading.Event()


class EmbedderCalls:
    """Calls one embedder in a thread. The first call starts the thread."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._guard = threading.Lock()
        self._jobs: queue.SimpleQueue[_EmbedderCall | None] = queue.SimpleQueue()
        self._waiting: set[_EmbedderCall] = set()
        self._running: _EmbedderCall | None = None
        self._thread: threading.Thread | None = None
        self._cancel: Callable[[], object] = _do_nothing
        self._closed = False

    def vectors(self, texts: Sequence[str], timeout_s: float) -> list[bytes]:
        """Return one packed vector per text; empty for a text without a usable vector.

        Raises:
            EmbedderFailed: The embedder raised, took too long, is still busy with an earlier call, or did not return one vector per text.
        """
        job = _EmbedderCall(texts, timeout_s)
        self._enqueue(job)
        job.done.wait(timeout_s)
        with self._guard:
            self._waiting.discard(job)
            if not job.done.is_set():
                job.given_up = True
                raise self._late_error(timeout_s)
        if job.error is not None:
            raise job.error
        return job.vectors

    def close(self) -> None:
        """End all waits with `EmbedderFailed`. Idempotent."""
        with self._guard:
            self._closed = True
            for job in self._waiting:
                job.error, job.given_up = self._closed_error(), True
                job.done.set()
            self._jobs.put(None)
            self._cancel()

    @property
    def _label(self) -> str:
        return f"The embedder {self._embedder.name!r}"

    def _late_error(self, limit_s: float) -> EmbedderFailed:
        return EmbedderFailed(f"{self._label} gave no answer within {limit_s:g} s. Check whether it is up and how busy it is.", late=True)

    def _closed_error(self) -> EmbedderFailed:
        return EmbedderFailed(f"{self._label} is no longer asked: its memory is closed.", late=True)

    def _enqueue(self, job: _EmbedderCall) -> None:
        with self._guard:
            if self._closed:
                raise self._closed_error()
            if self._running is not None and self._running.given_up:
                since_s = time.monotonic() - self._running.began
                raise EmbedderFailed(
                    f"{self._label} has been busy with one call for {since_s:.0f} s. It is asked again when that is over.", late=True
                )
            if self._thread is None:
                self._thread = self._start()
            self._waiting.add(job)
            self._jobs.put(job)

    def _start(self) -> threading.Thread:
        thread = threading.Thread(target=self._work, name="callgate-embedder", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            raise EmbedderFailed(f"{self._label} was not asked: {error}. End other threads, or raise the limit of them.") from error
        return thread

    # The thread

    def _work(self) -> None:
        runner = asyncio.Runner()  # makes its event loop on first use
        while (job := self._jobs.get()) is not None:
            with self._guard:
                if job.given_up:
                    continue
                job.began, self._running = time.monotonic(), job
            self._answer(job, runner)
            with self._guard:
                self._running = None
                job.done.set()
        runner.close()

    def _answer(self, job: _EmbedderCall, runner: asyncio.Runner) -> None:
        try:
            job.vectors = self._embed(job, runner)
        except EmbedderFailed as error:
            job.error = error
        except BaseException as error:  # an exception of the embedder must not end this thread
            job.error = EmbedderFailed(f"{self._label} failed: {type(error).__name__}: {error}")

    def _embed(self, job: _EmbedderCall, runner: asyncio.Runner) -> list[bytes]:
        given = self._embedder(list(job.texts))
        if inspect.isawaitable(given):
            given = runner.run(self._await(given, job.timeout_s))
        found = [pack_vector(vector, self._embedder) for vector in islice(given, len(job.texts) + 1)]
        if len(found) != len(job.texts):
            many = "more" if len(found) > len(job.texts) else str(len(found))
            raise EmbedderFailed(f"{self._label} gave {many} vectors for {len(job.texts)} texts. It has to give one for each.")
        return found

    async def _await(self, given: Awaitable[Iterable[Iterable[float]]], timeout_s: float) -> Iterable[Iterable[float]]:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        with self._guard:
            self._cancel = _do_nothing if self._closed else lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await given
        except TimeoutError:
            if limit.expired():
                raise self._late_error(timeout_s) from None
            raise
        finally:
            with self._guard:
                self._cancel = _do_nothing


def _do_nothing() -> None:
    """Do nothing: the call of a plain function cannot be cancelled."""
