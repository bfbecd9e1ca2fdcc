"""Packing: from named arrays of any source to one matrix with a row per transition.

- `layout`  columns of a packed row
- `source`  named arrays that are read in pieces
- `sizes`   what a file may unpack to
- `archives`  zip archives, checked before they are unpacked
- `names`   field names of other libraries, and how they map to ours
- `propensities`  probabilities with which the logging policy acted
- `flags`   terminations and truncations, told apart by whatever flags there are
- `plan`    names, shapes and flags of a source, checked before big arrays are read
- `pack`    filling the matrix, in memory or on disk
- `cache`   packed datasets in files that are mapped into memory
"""
