"""Comparison with other libraries: `harness` for d3rlpy and in general, `sb3` for Stable-Baselines3."""
