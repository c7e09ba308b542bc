"""Complete relations in the background: jobs over all heads, and learning from new verdicts."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from hire.errors import HireError
from hire.inference.answers import Answer
from hire.service.log import Log
from hire.service.relations import ConflictError, NotFoundError, RelationTable, StoredRelation
from hire.service.review import Review
from hire.service.store import Store, in_parts, marks, new_id, now
from hire.service.teaching import Teaching

HEADS_AT_ONCE = 128  # that are stored together
SECONDS_BETWEEN_EVENTS = 1.0
SECONDS_BEFORE_LEARNING = 1.0  # so that a quick series of verdicts is learned at once
REFRESHED = 32  # cards whose suggestions are brought up to date after learning
DIVERSITY = 0.1  # what a card loses in usefulness each time that the cards with the same tail before it double
ACTIVE = ("queued", "running")


class Jobs:
    """Jobs and their results; a thread carries them out one after another."""

    def __init__(self, store: Store, teaching: Teaching, relations: RelationTable, review: Review) -> None:
        self.store = store
        self.teaching = teaching
        self.relations = relations
        self.review = review
        self.log = Log(store)
        self._wake = threading.Event()
        self._learn = threading.Event()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._noticing = threading.Lock()
        self._to_learn: dict[str, float] = {}  # relations with new verdicts, and when the last one came

    def start(self) -> None:
        """Carry out jobs from now on; first those that a stop interrupted."""
        self._stopping.clear()
        for name, work, wake in (("jobs", self._run_next, self._wake), ("learner", self._learn_next, self._learn)):
            thread = threading.Thread(target=self._endure, args=(work, wake), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Stop after the heads that are being answered; jobs go on at the next start."""
        self._stopping.set()
        for event in (self._wake, self._learn):
            event.set()
        while self._threads:
            self._threads.pop().join()

    def create(self, relation: StoredRelation, k: int, by: str) -> Callable[[], str]:
        """Find the heads of a new job; the returned change saves it, and gives its id."""
        heads = self.teaching.heads_of_scope(relation.scope, relation.references, relation.graph, relation.name)
        if not len(heads):
            raise HireError("the relation's scope has no heads", remedy="choose another scope")
        self.teaching.taught(relation)  # an error now rather than in the background
        job = new_id()

        def save() -> str:
            with self.store.changing() as connection:
                self._refuse_second(relation.id)
                self.relations.get(relation.id)
                self.review.enter_heads(relation, heads, job)
                (count,) = connection.execute("SELECT count(*) FROM heads WHERE pending = ?", (job,)).fetchone()
                connection.execute(
                    "INSERT INTO jobs (id, relation, state, k, heads, created, by) VALUES (?, ?, 'queued', ?, ?, ?, ?)",
                    (job, relation.id, k, count, now(), by),
                )
                self._tell(job)
            return job

        return save

    def wake(self) -> None:
        """Look for jobs now."""
        self._wake.set()

    def _refuse_second(self, relation: str) -> None:
        last = self.last(relation)
        if last is not None and last["state"] in ACTIVE:
            raise ConflictError("the relation is already being completed", remedy="wait for it, or cancel that job")

    def get(self, job: str) -> dict[str, Any]:
        """A job by its id."""
        with self.store.reading() as connection:
            row = connection.execute("SELECT * FROM jobs WHERE id = ?", (job,)).fetchone()
        if row is None:
            raise NotFoundError(f"there is no job {job!r}", remedy="list the jobs to see which exist")
        return _with_time_left(dict(row))

    def last(self, relation: str) -> dict[str, Any] | None:
        """The last job of a relation."""
        found = self.page(relation, 1)
        return found[0] if found else None

    def page(self, relation: str | None, limit: int, before: int | None = None) -> list[dict[str, Any]]:
        """At most so many jobs, newest first."""
        with self.store.reading() as connection:
            rows = connection.execute(
                "SELECT * FROM jobs WHERE (? IS NULL OR relation = ?) AND (? IS NULL OR number < ?) "
                "ORDER BY number DESC LIMIT ?",
                (relation, relation, before, before, limit),
            ).fetchall()
        return [_with_time_left(dict(row)) for row in rows]

    def cancel(self, job: str) -> None:
        """Cancel a job; what it has found stays."""
        self._set_state(job, "cancelled", ACTIVE, "it has ended already")

    def resume(self, job: str) -> None:
        """Continue a job that was cancelled or has failed."""
        self._refuse_second(self.get(job)["relation"])
        self._set_state(job, "queued", ("cancelled", "failed"), "only a cancelled or failed job can be resumed")

    def _set_state(self, job: str, state: str, expected: tuple[str, ...], otherwise: str) -> None:
        with self.store.changing() as connection:
            if self.get(job)["state"] not in expected:
                raise ConflictError(f"the job cannot be {state}: {otherwise}", remedy="reload the job")
            connection.execute(
                "UPDATE jobs SET state = ?, ended = ?, problem = NULL WHERE id = ?",
                (state, now() if state == "cancelled" else None, job),
            )
            self._tell(job)

    def _tell(self, job: str) -> None:
        found = self.get(job)
        self.store.emit("job", found["relation"], found)

    def _endure(self, work: Callable[[], bool], wake: threading.Event) -> None:
        """Work until there is nothing to do, then wait; a failure is logged, and does not end the thread."""
        while not self._stopping.is_set():
            wake.clear()
            try:
                busy = work()
            except Exception:
                logging.getLogger("hire").exception("work in the background failed")
                busy = False
            if not busy:
                wake.wait(1.0)  # another process may have added something

    # Jobs

    def _run_next(self) -> bool:
        with self.store.reading() as connection:
            row = connection.execute(
                "SELECT id, relation, k FROM jobs WHERE state IN ('queued', 'running') ORDER BY number LIMIT 1"
            ).fetchone()
        if row is None:
            return False
        try:
            self._run(row["id"], self.relations.get(row["relation"]), row["k"])
        except HireError as error:
            self._fail(row["id"], error.problems[0].message)
        except Exception:
            self._fail(row["id"], "internal error; see the log of hire serve")
            raise
        return True

    def _fail(self, job: str, problem: str) -> None:
        with self.store.changing() as connection:
            connection.execute(
                "UPDATE jobs SET state = 'failed', ended = ?, problem = ? WHERE id = ?", (now(), problem, job)
            )
            self._tell(job)

    def _run(self, job: str, relation: StoredRelation, k: int) -> None:
        taught = self.teaching.learn(relation).taught
        told, start = time.monotonic(), time.monotonic()
        while not self._stopping.is_set():
            with self.store.reading() as connection:
                heads = [
                    row["head"]
                    for row in connection.execute(
                        "SELECT head FROM heads WHERE pending = ? ORDER BY number LIMIT ?", (job, HEADS_AT_ONCE)
                    )
                ]
            found = list(self.teaching.answers_to_many(relation, heads, k, taught=taught))
            with self.store.changing() as connection:
                if self.get(job)["state"] not in ACTIVE:
                    return
                self._store(relation.id, found)
                if not heads:
                    self._diversify(relation.id)
                end = time.monotonic()
                connection.execute(
                    "UPDATE jobs SET state = ?, done = done + ?, seconds = seconds + ?, ended = ? WHERE id = ?",
                    ("running" if heads else "done", len(heads), end - start, None if heads else now(), job),
                )
                start = end
                if not heads or end - told > SECONDS_BETWEEN_EVENTS:
                    self._tell(job)
                    told = end
            if not heads:
                return

    def _store(self, relation: str, found: list[tuple[str, list[Answer]]]) -> None:
        """Store the suggestions for some heads in place of older ones."""
        with self.store.changing() as connection:
            for heads in in_parts(head for head, _ in found):
                among, values = f"relation = ? AND head IN ({marks(len(heads))})", (relation, *heads)
                connection.execute(f"DELETE FROM suggestions WHERE {among}", values)
                connection.execute(f"UPDATE heads SET pending = NULL WHERE {among}", values)
            connection.executemany(
                "INSERT INTO suggestions (relation, head, place, tail, score, confidence) VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (relation, head, place, answer.tail, answer.score, answer.confidence)
                    for head, answers in found
                    for place, answer in enumerate(answers)
                ],
            )
            self.log.refresh(relation, [head for head, _ in found])

    def _diversify(self, relation: str) -> None:
        """Let cards with the same tail take turns with others in the order of usefulness."""
        with self.store.changing() as connection:
            connection.execute(
                "UPDATE heads SET usefulness = usefulness + :diversity * log2(turns.turn) FROM ("
                "  SELECT number, row_number() OVER (PARTITION BY tail ORDER BY usefulness, number) AS turn"
                "  FROM heads WHERE relation = :relation AND state = 'open') AS turns "
                "WHERE heads.number = turns.number",
                {"relation": relation, "diversity": DIVERSITY},
            )
            version = self.relations.get(relation).version
            self.store.emit("relation", relation, {"relation": relation, "version": version, "change": "refreshed"})

    # Learning

    def notice(self, relation: str) -> None:
        """Learn from the verdicts on a relation soon."""
        with self._noticing:
            self._to_learn[relation] = time.monotonic()
        self._learn.set()

    def _learn_next(self) -> bool:
        self.teaching.tidy()
        with self._noticing:
            if not self._to_learn:
                return False
            relation, last = next(iter(self._to_learn.items()))
            wait = last + SECONDS_BEFORE_LEARNING - time.monotonic()
            if wait <= 0:
                del self._to_learn[relation]
        if wait > 0:
            self._stopping.wait(wait)
            return True
        try:
            stored = self.relations.get(relation)
        except NotFoundError:
            return True
        if self.teaching.is_behind(stored):
            self._refresh_next(stored)
        return True

    def _refresh_next(self, relation: StoredRelation) -> None:
        """Learn, then bring the suggestions of the next cards up to date, unless a job will."""
        taught = self.teaching.learn(relation).taught
        with self.store.reading() as connection:
            heads = [
                row["head"]
                for row in connection.execute(
                    "SELECT head FROM heads WHERE relation = ? AND state = 'open' AND pending IS NULL "
                    "ORDER BY usefulness, number LIMIT ?",
                    (relation.id, REFRESHED),
                )
            ]
            row = connection.execute("SELECT max(k) AS k FROM jobs WHERE relation = ?", (relation.id,)).fetchone()
        found = list(self.teaching.answers_to_many(relation, heads, row["k"] or 10, taught=taught))
        with self.store.changing():
            self._store(relation.id, found)
            version = self.relations.get(relation.id).version
            self.store.emit("relation", relation.id, {"relation": relation.id, "version": version, "change": "learned"})


def _with_time_left(job: dict[str, Any]) -> dict[str, Any]:
    left = job["seconds"] / job["done"] * (job["heads"] - job["done"]) if job["done"] else None
    return job | {"seconds_left": left if job["state"] in ACTIVE else None}
