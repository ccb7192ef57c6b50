"""Figures: ours beside the raw engine, in one run, as ratios. `make bench` prints them."""
