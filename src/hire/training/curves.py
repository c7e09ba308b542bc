"""The course of a training as a picture."""

from __future__ import annotations

from typing import Any

from hire.util.svg import WIDTH, line, picture, text


def curves_svg(history: list[dict[str, Any]]) -> str:
    """Draw the course of a training: the loss, and MRR on dev, each over the steps."""
    width, height = WIDTH / 2, 360
    panels = [("loss", {"loss": [entry["loss"] for entry in history]})]
    names = [name for name in history[0]["dev"] if name != "mean"] if history else []
    panels.append(("MRR on dev", {name: [entry["dev"][name] for entry in history] for name in names}))
    steps = [entry["step"] for entry in history]
    parts = []
    for number, (title, curves) in enumerate(panels):
        left, right, top, bottom = number * width + 60, (number + 1) * width - 70, 50, height - 40
        highest = max((value for values in curves.values() for value in values), default=1.0) or 1.0
        parts += [
            line("edge", left, bottom, right, bottom),
            line("edge", left, top, left, bottom),
            text((left + right) / 2, 24, title, "end"),
            text(left - 6, top + 4, f"{highest:.3g}", "relation", "end"),
            text(left - 6, bottom + 4, "0", "relation", "end"),
            text(right, bottom + 18, f"step {steps[-1]:,}" if steps else "", "relation", "end"),
        ]
        for curve, (name, values) in enumerate(curves.items()):
            places = [
                (left + (right - left) * step / steps[-1], bottom - (bottom - top) * value / highest)
                for step, value in zip(steps, values, strict=True)
            ]
            color = ("#0969da", "#2da44e", "#d1242f", "#8250df", "#bf8700")[curve % 5]
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>')
            if places:
                label = f"{name} {values[-1]:.3f}"
                parts.append(text(places[-1][0] + 6, places[-1][1] + 4, label, "relation", "start"))
    return picture(height, parts)
