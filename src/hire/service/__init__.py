"""The HTTP service and what it keeps; its page is in hire.web."""
