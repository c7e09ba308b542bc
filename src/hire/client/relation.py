"""A relation on a service, and the explanations of its answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from hire.client.connection import Connection, Json, items, lines
from hire.errors import HireError
from hire.inference.answers import Answer, HeadAnswer

HEADS_AT_ONCE = 2_000  # in one request
SECONDS_BETWEEN_LOOKS = 0.5  # at a job


class RemoteRelation:
    """A relation on a service, with the methods of a taught relation and of its review.

    It is shared: what is added, rejected or judged changes it for everyone.
    """

    def __init__(self, connection: Connection, about: Json) -> None:
        self.connection = connection
        self.about = about

    @property
    def id(self) -> str:
        """Its id on the service."""
        return str(self.about["id"])

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.about["name"])

    def __repr__(self) -> str:
        return f"<RemoteRelation {self.name} on {self.connection.url}>"

    def _call(self, method: str, path: str, body: Any = None, **query: Any) -> Json:
        return self.connection.call(method, f"/relations/{self.id}{path}", body, query)

    def refresh(self) -> Json:
        """What the service knows of it now: references, counts, its last job."""
        self.about = self._call("GET", "")
        return self.about

    def add(self, head: str, tail: str) -> RemoteRelation:
        """The relation with one more example."""
        body = {"references": [{"head": head, "tail": tail}], "by": self.connection.by}
        self.about = self._call("POST", "/references", body)
        return self

    def reject(self, head: str, tail: str) -> RemoteRelation:
        """The relation with a pair marked as false: it is never predicted again."""
        self.judge(head, tail, "reject")
        return self

    def predict(self, head: str, k: int = 10, *, known: bool = False, threshold: float | None = None) -> list[Answer]:
        """The k best tails of a head, best first."""
        return _answers(self._call("GET", "/answers", head=head, k=k, known=known, threshold=threshold))

    def predict_many(
        self, heads: Iterable[str], k: int = 10, *, known: bool = False, threshold: float | None = None
    ) -> Iterator[tuple[str, list[Answer]]]:
        """Each head with its answers, in order, as they arrive."""
        remaining = iter(heads)
        while some := list(islice(remaining, HEADS_AT_ONCE)):
            body = {"heads": some, "k": k, "known": known, "threshold": threshold}
            path = f"/relations/{self.id}/predictions"
            answer = self.connection.send("POST", path, body, None, {}, stream=True)
            yield from zip(some, map(_answers, items(lines(answer))), strict=True)

    def predict_heads(self, tail: str, k: int = 10, *, known: bool = False) -> list[HeadAnswer]:
        """The k best heads of a tail, best first."""
        found = self._call("GET", "/heads", tail=tail, k=k, known=known)
        return [HeadAnswer(each["head"]["id"], each["score"]) for each in found["heads"]]

    def answer_set(self, head: str, confidence: float = 0.9) -> list[Answer]:
        """The new tails, best first, that contain the answer with a given confidence."""
        return _answers(self._call("GET", "/answer-set", head=head, confidence=confidence))

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Answer]:
        """How well each (head, tail) fits, with the score and the confidence that `predict` gives it."""
        body = {"pairs": [{"head": head, "tail": tail} for head, tail in pairs]}
        return _answers(self._call("POST", "/scores", body))

    def explain(self, head: str, tail: str, *, most: int = 10) -> RemoteExplanation:
        """Why a tail is suggested for a head: at most `most` rules, and as many shared tuples."""
        return RemoteExplanation(self._call("GET", "/explanation", head=head, tail=tail, most=most))

    def complete(
        self, k: int = 10, *, wait: bool = True, progress: Callable[[Json], object] = lambda _job: None
    ) -> Json:
        """Complete the relation over all its heads by a job on the service; returns the job."""
        job = self._call("POST", "/jobs", {"k": k, "by": self.connection.by})
        while wait and job["state"] in ("queued", "running"):
            time.sleep(SECONDS_BETWEEN_LOOKS)
            job = self.connection.call("GET", f"/jobs/{job['id']}")
            progress(job)
        if job["state"] == "failed":
            raise HireError(f"the job failed: {job['problem']}", remedy="see the log of hire serve")
        return job

    def cancel(self, job: str) -> Json:
        """Cancel a job; what it has found stays."""
        return self.connection.call("POST", f"/jobs/{job}/cancel")

    def resume(self, job: str) -> Json:
        """Continue a job that was cancelled or has failed."""
        return self.connection.call("POST", f"/jobs/{job}/resume")

    def cards(self, order: str = "useful", **filters: Any) -> Iterator[Json]:
        """Heads with their suggestions: as a queue or, with `state="any"`, all of them."""
        return self.connection.pages(f"/relations/{self.id}/cards", "cards", {"order": order, "limit": 100, **filters})

    def judge(
        self, head: str, tail: str | None, verdict: str, *, version: int | None = None, force: bool = False
    ) -> Json:
        """A verdict on a pair: accept, reject, unsure; or no_tail on a head. Returns its entry and the card."""
        body = {"head": head, "tail": tail, "verdict": verdict, "version": version, "force": force}
        return self._call("POST", "/verdicts", body | self.connection.author)

    def undo(self, entry: int) -> Json:
        """Undo an entry of the log."""
        return self._call("POST", "/undo", {"entry": entry} | self.connection.author)

    def estimate(self, threshold: float) -> Json:
        """How many facts a threshold would accept, and what share of them is correct."""
        return self._call("GET", "/estimate", threshold=threshold)

    def accept_batch(self, threshold: float, *, expected: int | None = None) -> Json:
        """Accept all undecided facts at or above a threshold; returns the batch."""
        return self._call("POST", "/batches", {"threshold": threshold, "expected": expected} | self.connection.author)

    def revert(self, batch: str) -> Json:
        """Undo what still holds of a batch."""
        return self.connection.call("POST", f"/batches/{batch}/revert", self.connection.author)

    def history(self, **filters: Any) -> Iterator[Json]:
        """The log of verdicts, newest first."""
        return self.connection.pages(f"/relations/{self.id}/history", "entries", {"limit": 500, **filters})

    def export(self, form: str = "tsv", **options: Any) -> str:
        """Accepted facts as a file: tsv, ntriples, turtle, quickstatements, sparql; or the log."""
        return self.connection.text(f"/relations/{self.id}/export", {"format": form, **options})

    def push(self, endpoint: str, **options: Any) -> Json:
        """Write accepted facts to a SPARQL endpoint."""
        return self._call("POST", "/push", {"endpoint": endpoint, "by": self.connection.by, **options})

    def import_verdicts(self, text: str, form: str = "tsv") -> Json:
        """Import verdicts as a batch: a table of heads, tails and verdicts, or an exported log."""
        return self._call("POST", "/import", {"text": text, "format": form} | self.connection.author)

    def delete(self) -> None:
        """Delete the relation for everyone."""
        self._call("DELETE", "")


class RemoteExplanation:
    """The evidence for and against one answer, as a sentence and as the plain data of a local explanation."""

    def __init__(self, found: Json) -> None:
        self.found = found
        self.sentence = str(found["sentence"])
        self.confidence: float | None = found["confidence"]

    def to_dict(self) -> Json:
        """Plain data, entities by their ids; `labels` has the labels of those that have one."""
        labels: dict[str, str] = {}

        def name(ref: Json) -> str:
            if ref["label"] != ref["id"]:
                labels[ref["id"]] = ref["label"]
            return str(ref["id"])

        found, similar = self.found, self.found["similar"]
        common = ("words", "for", "weight", "support", "references")
        rules = [
            {
                "text": reason["text"],
                **{key: reason[key] for key in common},
                "paths": [[name(ref) for ref in path] for path in reason["paths"]],
                "kinds": reason["edge_types"],
            }
            for reason in found["reasons"]
            if reason["kind"] == "path"
        ]
        shared = [
            {"relation": reason["relation"], "entity": name(reason["entity"]), **{key: reason[key] for key in common}}
            for reason in found["reasons"]
            if reason["kind"] == "shared"
        ]
        return {
            **{key: found[key] for key in ("relation", "score", "confidence", "sentence")},
            "head": name(found["head"]),
            "tail": name(found["tail"]),
            "rules": rules,
            "shared": shared,
            "similar": {
                "head": name(similar["head"]),
                "tail": name(similar["tail"]),
                "head_similarity": similar["head_similarity"],
                "tail_similarity": similar["tail_similarity"],
            },
            "labels": labels,
        }


def _answers(found: Json) -> list[Answer]:
    return [Answer(each["tail"]["id"], each["score"], each["confidence"]) for each in found["answers"]]
