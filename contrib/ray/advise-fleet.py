#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sizes caches for a fleet of recordings on all machines of a Ray cluster, one recording a task.

usage: advise-fleet.py FOLDER OUT.parquet [OPTION OF flashfront advise]...

All machines see FOLDER and the folder of OUT.parquet at the same paths, and have the program
flashfront (or what the variable FLASHFRONT names). Each task writes OUT.parquet.parts/*.parquet,
which the driver joins: the table is that of `flashfront advise --fleet FOLDER`. A second start
does only what is missing. docs/decide/fleet.md has an example.
"""

import hashlib
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import ray


@ray.remote(num_cpus=1)
def size(folder, name, part, program, options):
    """Sizes the cache for one recording, in one row."""
    command = [program, "--quiet", "advise", "--fleet", name, "--out", part, *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return None if done.returncode == 0 else f"{name}: {done.stderr.strip()}"


def main(folder, out, *options):
    folder, parts = os.path.abspath(folder), os.path.abspath(out) + ".parts"
    found = [os.path.join(at, file) for at, _, files in os.walk(folder) for file in files]
    names = sorted(os.path.relpath(path, folder) for path in found)
    os.makedirs(parts, exist_ok=True)
    files = [f"{parts}/{hashlib.sha256(name.encode()).hexdigest()[:24]}.parquet" for name in names]
    program = os.environ.get("FLASHFRONT", "flashfront")
    left = [size.remote(folder, name, file, program, options) for name, file in zip(names, files)]
    while left:
        (done,), left = ray.wait(left)
        if (error := ray.get(done)) is not None:
            sys.exit(error)
    pq.write_table(pa.concat_tables(pq.read_table(file) for file in files), out + ".new")
    os.replace(out + ".new", out)


main(*sys.argv[1:])
