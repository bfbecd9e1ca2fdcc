"""Machinery of `ray_executor`: trials on the nodes of a Ray cluster.

    driver (ray_executor) ---- tasks ----> node: carries a trial out in a process of its own
        |                                    |
        +--- hub, on the driver's node <-----+   "stop now"; files of the run, where no directory is shared

- `connection`  connecting to a cluster, its nodes, how many trials it holds; `resources` of a trial
- `probe`       check of every node before anything starts: versions, data files, shared directory
- `node`        task that carries a trial out on a node
- `hub`         actor on the driver's node
- `tree`        files of a run directory that travel; `receiver` puts them in place, `mirror` sends them

Only `connection`, `probe` and `node` talk to Ray, and none of these modules needs torch.
"""
