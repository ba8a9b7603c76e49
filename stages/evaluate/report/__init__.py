"""The report: one HTML file that shows whether the knob moves, what it buys and what training did to get there."""
