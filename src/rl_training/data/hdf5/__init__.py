"""HDF5 files of strangers: libhdf5 works in a process of its own.

- `reader`  `Hdf5Reader`, the arrays of one file; it starts the process and stops it
- `worker`  the program of that process, the only place that reads with h5py
"""
