from __future__ import annotations

from contextlib import suppress
from typing import Any

import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from hire.service.app import create_app
from hire.service.relations import Draft
from hire.service.schemas import Problem
from hire.service.service import Service
from tests.service.conftest import EXAMPLES

EXAMPLES_EACH = 5
ANY_HOST = "0.0.0.0"
DRAFT = Draft("kind", EXAMPLES)
ENDLESS = "/v1/events"


def test_nothing_that_its_description_allows_or_forbids_breaks_the_service(service: Service) -> None:
    schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(service, host=ANY_HOST))
    seen: set[tuple[str, int]] = set()

    def send(case: Any) -> None:
        chosen = case.path_parameters
        if "relation" in chosen and len(str(chosen["relation"])) % 2:  # some ask about a relation that is there
            relations = service.relations.page(1)
            chosen["relation"] = relations[0][0].id if relations else service.relations.add(DRAFT).id
        answer = case.call()
        seen.add((case.method, answer.status_code))
        assert answer.status_code < 500, answer.text
        if answer.status_code >= 400:
            assert answer.json().keys() == Problem.model_fields.keys()

    for mode in schemathesis.GenerationMode:
        for found in schema.get_all_operations():
            operation: Any = found.ok()  # type: ignore[union-attr]
            if operation.path == ENDLESS:
                continue
            cases = operation.as_strategy(generation_mode=mode)
            limits = settings(max_examples=EXAMPLES_EACH, deadline=None, suppress_health_check=list(HealthCheck))
            with suppress(Unsatisfiable):  # what takes no parameters cannot be asked wrongly
                limits(given(cases)(send))()  # type: ignore[no-untyped-call]
    assert {("GET", 200), ("GET", 404), ("GET", 422), ("POST", 422)} <= seen
