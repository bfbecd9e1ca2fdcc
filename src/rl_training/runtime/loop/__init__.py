"""Surroundings of the training loop: its state, and callbacks in one file each.

- `state`: `TrainerState` and `TrainResult`
- `callback`: the base class, the list that calls callbacks in order, intervals
- `saved_values`: numbers out of a checkpoint
- `stop_reasons`: names of the reasons for which a run ends
- `budget`, `early_stopping`, `schedule`: the callbacks of the `control` options
- `interrupt`: Ctrl-C and SIGTERM as an orderly stop
- `logging`: rows of averaged metrics
- `watcher`: warnings of saturated weights, exploded values, policies that leave the data
- `progress`: live bar or plain lines for the user
- `timing`: seconds by activity
- `machine`: threads and memory of the process
"""
