"""Faults injected into the package, and a table of what came of them.

    python -m tests.faults [--quick] [--only KIND ...] [--case NAME] [--seed N] [--json FILE] [--jobs N]

A kind of fault is a module with `cases(rng, quick)`, which yields `Case`s in an order that depends on the
seed alone:

- `kills`            SIGKILL at random moments of training and of resuming
- `file_operations`  a crash or a disk error at the n-th file operation
- `bits`             flipped bits in the files of a run and in datasets
- `signals`          SIGINT, SIGTERM, SIGHUP in every phase of training
- `environments`     environments that fail, hang or die, and are mended
- `hostile_files`    files that want to run code, fill the memory or write elsewhere
- `fuzz`             random configurations, datasets, manifests, run directories, observations

`support` has what they share: verdicts, forked processes, small runs and their comparison.
"""
