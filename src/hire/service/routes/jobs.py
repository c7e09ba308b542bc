"""Endpoints about jobs, which complete a relation over all of its heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Response

from hire.service.calls import IdempotencyKey, TheCall
from hire.service.cards import encoded, number_in
from hire.service.review_schemas import Job, JobRequest, Jobs
from hire.service.routes.graph import Cursor
from hire.service.views import job_of

router = APIRouter(prefix="/v1", tags=["jobs"])


@router.post("/relations/{relation}/jobs", operation_id="completeRelation", status_code=201, response_model=Job)
async def create(relation: str, request: JobRequest, call: TheCall, idempotency_key: IdempotencyKey = None) -> Response:
    """Complete a relation over all of its heads in the background; what was decided stays."""
    jobs = call.service.jobs

    def prepare() -> Callable[[], Job]:
        save = jobs.create(call.service.relations.get(relation), request.k, request.by)
        return lambda: job_of(jobs.get(save()))

    answer = await call.once(prepare, headers=lambda job: {"location": f"/v1/jobs/{job.id}"})
    jobs.wake()
    return answer


@router.get("/jobs", operation_id="listJobs")
async def page(
    call: TheCall,
    relation: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Cursor = None,
) -> Jobs:
    """Jobs, newest first."""

    def read() -> Jobs:
        found = call.service.jobs.page(relation, limit + 1, number_in(cursor))
        more = encoded([found[limit - 1]["number"]]) if len(found) > limit else None
        return Jobs(jobs=[job_of(job) for job in found[:limit]], next=more)

    return await call.read(read)


@router.get("/jobs/{job}", operation_id="getJob")
async def one(job: str, call: TheCall) -> Job:
    """One job, with its progress and the time left."""
    return await call.read(lambda: job_of(call.service.jobs.get(job)))


@router.post("/jobs/{job}/cancel", operation_id="cancelJob", response_model=Job)
async def cancel(job: str, call: TheCall, idempotency_key: IdempotencyKey = None) -> Response:
    """Cancel a job; what it has found stays."""
    return await _changed(call, job, call.service.jobs.cancel)


@router.post("/jobs/{job}/resume", operation_id="resumeJob", response_model=Job)
async def resume(job: str, call: TheCall, idempotency_key: IdempotencyKey = None) -> Response:
    """Continue a job that was cancelled or has failed."""
    return await _changed(call, job, call.service.jobs.resume)


async def _changed(call: TheCall, job: str, change: Callable[[str], None]) -> Response:
    def carry_out() -> Job:
        change(job)
        return job_of(call.service.jobs.get(job))

    answer = await call.once(lambda: carry_out, 200)
    call.service.jobs.wake()
    return answer
