"""The stream of live updates."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from hire.service.calls import TheCall

router = APIRouter(prefix="/v1", tags=["events"])
PATH = "/events"
Number = Annotated[int | None, Query(ge=0, le=1 << 62)]


@router.get(
    PATH,
    operation_id="streamEvents",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Server-sent events without end."}},
)
async def events(
    call: TheCall,
    relation: Annotated[str | None, Query(max_length=100, description="Only events of this relation.")] = None,
    last_event_id: Annotated[int | None, Header(ge=0, le=1 << 62, description="Resume after this event.")] = None,
    last: Annotated[Number, Query(alias="last_event_id", description="The same, where headers cannot be set.")] = None,
) -> StreamingResponse:
    """Changes as they happen: `verdict`, `batch`, `job`, `relation`; `reset` if too much was missed."""
    since = last_event_id if last_event_id is not None else last
    return StreamingResponse(call.service.events.stream(relation, since), media_type="text/event-stream")
