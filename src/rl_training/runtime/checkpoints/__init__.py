"""Checkpoints: everything that a run is, in safetensors and JSON.

- `format`: reading and writing one checkpoint, atomically and verified
- `manifest`: its `manifest.json`, with a checksum of its own
- `segments`: its replay, of which a save writes only new rows
- `directories`: the checkpoint directories of a run, and what a crash leaves of them
- `store`: the checkpoints of a run; `last`, `best`, pinned steps, pruning
- `callback`: saving at intervals, at the best score and at the end
- `rollback`: return to the last good policy when an online score falls
"""
