"""Speed beside other libraries, in one thread. Run it with `make bench`."""

import os

# Before numpy, torch or jax is imported: each of them reads this once.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["NPROC"] = (
    "1"  # XLA's pool: it runs independent operations at once in spite of the flags
)
os.environ["JAX_PLATFORMS"] = "cpu"
