"""Experience replay beyond the uniform `replay_buffer`.

- `prioritized`  transitions drawn by their last TD error
- `hindsight`    transitions relabelled with goals that were achieved (HER)
"""
