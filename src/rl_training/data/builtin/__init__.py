"""Datasets that the package makes itself, by playing environments.

- `library`            the built-in datasets, their recipes and their cache
- `scripted_policies`  controllers of several levels of skill in classic control tasks
- `rows`               rows of a dataset from played transitions
"""
