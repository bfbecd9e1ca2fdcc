"""Reports over several runs, from their directories alone. Imports neither torch nor numpy.

- `seeds`  runs of one configuration together, mean and standard deviation over their seeds
"""
