"""A release as users get it: `make release-check` installs one, `test_release` looks into one.

- `build`         the sdist, and the wheel built from it
- `__main__`      the wheel in a fresh environment, outside of the repository
- `test_release`  files and metadata; the wheel over the environment of the tests
"""
