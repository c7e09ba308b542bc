"""HTTP requests that follow only safe redirects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from hire.errors import HireError

if TYPE_CHECKING:
    import urllib3

MAX_REDIRECTS = 10
REDIRECTS = (301, 302, 303, 307, 308)


def request(pool: urllib3.PoolManager, method: str, address: str, **options: Any) -> urllib3.BaseHTTPResponse:
    """The response, after redirects that never leave http(s) and never fall back from https to http.

    Method and body stay the same after a redirect; the response is left to be streamed.
    """
    url, came_from = address, ""
    for _ in range(MAX_REDIRECTS + 1):
        scheme = url.partition(":")[0].lower()
        if scheme not in ("http", "https") or (scheme == "http" and came_from == "https"):
            word = f"redirects to {url}, which is not followed" if came_from else "is not an http(s) URL"
            raise HireError(word, file=address, remedy="use a URL that begins with https://")
        response = pool.request(method, url, retries=False, redirect=False, preload_content=False, **options)
        location = response.headers.get("Location")
        if response.status not in REDIRECTS or location is None:
            return response
        response.close()
        url, came_from = urljoin(url, location), scheme
    raise HireError(f"more than {MAX_REDIRECTS} redirects", file=address, remedy="check the URL, or try a mirror")
