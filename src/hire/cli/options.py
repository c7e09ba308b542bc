"""Options that several commands share."""

from __future__ import annotations

import click

from hire.errors import HireError

DEVICES = ("auto", "cpu", "cuda")


def _device(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    """The device of a name; torch is imported only where it must tell."""
    if name == "cpu":
        return name
    import torch

    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise HireError("no CUDA device was found", remedy="give --device cpu")
    return "cuda" if available else "cpu"


device_option = click.option(
    "--device",
    type=click.Choice(DEVICES),
    default="auto",
    callback=_device,
    help="Where to compute.",
    show_default=True,
)
