"""Knowledge graphs and few-shot datasets: reading, building, opening, verifying."""
