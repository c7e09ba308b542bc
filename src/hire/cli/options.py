"""Options that several commands share."""

from __future__ import annotations

import click

device_option = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Where to compute; auto is CUDA where there is one.",
)
