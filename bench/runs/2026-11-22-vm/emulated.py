#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measures a real daemon, driven by fio over NBD, on files with the pace of a hard disk and an SSD.

    emulated.py FLASHFRONT DIR [PART...]     parts: random wide seq misses hits fsync; all without

Prints a line of JSON for each fio run: rates, latencies, and what the daemon's counters grew by. In DIR are made a cache of
2 GiB, written beforehand, and a sparse origin of 16 GiB; both are removed at the end. `bare` is the same fio on the same
emulated device without a cache.
"""
import json, os, signal, subprocess, sys, time

BINARY, DIR = sys.argv[1], sys.argv[2]
PARTS = sys.argv[3:] or ["random", "wide", "seq", "misses", "hits", "fsync"]
CACHE, ORIGIN, SOCKET, CONTROL, STATE = (f"{DIR}/{name}" for name in ("cache.img", "origin.img", "nbd", "control", "state"))
GROWN = ("reads", "writes", "flushes", "read_hits", "read_misses", "destaged_blocks", "origin_writes_bytes", "origin_reads_bytes",
         "cache_writes_bytes", "cache_flushes", "origin_flushes", "throttled_writes", "bypassed_sequential")


def status():
    return json.loads(subprocess.check_output([BINARY, "status", "--json", "--control", CONTROL]))


class Served:
    """A daemon."""

    def __init__(self, *options):
        command = [BINARY, "serve", "--nbd", f"unix:{SOCKET}", "--control", CONTROL, "--state", STATE, *options]
        self.log = open(f"{DIR}/log", "a")
        self.daemon = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log)
        if not self.daemon.stdout.readline().startswith(b"ready"):
            sys.exit(f"no daemon: see {DIR}/log")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.daemon.send_signal(signal.SIGTERM)
        # The second one is at once: dirty data of a benchmark need not reach the origin.
        time.sleep(0.5)
        self.daemon.send_signal(signal.SIGTERM)
        self.daemon.wait()


def cached(limit, *options):
    subprocess.run([BINARY, "format", "--force", "--cache", CACHE, "--origin", ORIGIN], check=True, stdout=subprocess.DEVNULL)
    emulated = ("--emulate-cache", "samsung-850-pro", "--emulate-origin", "wd-re-4tb")
    return Served("--cache", CACHE, "--origin", ORIGIN, "--dirty-limit", limit, "--max-dirty-age", "1h", *emulated, *options)


def bare(path, device):
    return Served("--without-cache", "--accept-missing-dirty-data", "--origin", path, "--emulate-origin", device)


def fresh_origin():
    if os.path.exists(ORIGIN):
        os.remove(ORIGIN)
    with open(ORIGIN, "wb") as file:
        file.truncate(16 << 30)


def fio(part, name, **options):
    options = {"bs": "4k", "iodepth": 32, "randrepeat": 0, "ioengine": "nbd", "uri": f"nbd+unix:///?socket={SOCKET}", **options}
    if "runtime" in options:
        options["time_based"] = 1
    words = [f"--{key}={value}" for key, value in options.items()]
    before = status()
    text = subprocess.check_output(["fio", "--name=x", "--group_reporting", "--output-format=json", *words])
    after = status()
    # Before the JSON fio may say that the engine has no place for files.
    job = json.loads(text[text.index(b"{"):])["jobs"][0]
    way = job["read"] if job["read"]["total_ios"] else job["write"]
    lat, load = way["clat_ns"], os.getloadavg()[0]
    line = {
        "part": part, "run": name, "per_s": round(way["iops"], 1), "mb_per_s": round(way["bw_bytes"] / 1e6, 1),
        "slowest_half_second_per_s": way["iops_min"], "p50_ms": lat["percentile"]["50.000000"] / 1e6,
        "p99_ms": lat["percentile"]["99.000000"] / 1e6, "max_ms": round(lat["max"] / 1e6, 1), "time_s": way["runtime"] / 1e3,
        "sync_p50_ms": job["sync"]["lat_ns"].get("percentile", {}).get("50.000000", 0) / 1e6,
        "dirty_mib": [before["blocks_dirty"] // 256, after["blocks_dirty"] // 256], "load_average": load,
        **{key: after[key] - before[key] for key in GROWN},
    }
    print(json.dumps(line), flush=True)


def drain():
    subprocess.run([BINARY, "drain", "--control", CONTROL], check=True, stdout=subprocess.DEVNULL)


def overload(part, limit, span, fill_s, run_s):
    """4 KiB random writes: first until the limit is reached, then what counts."""
    writes = {"rw": "randwrite", "size": span, "norandommap": 1}
    fresh_origin()
    with cached(limit):
        fio(part, "cached, filling", **writes, runtime=fill_s)
        fio(part, "cached, at the limit", **writes, runtime=run_s)
    with bare(ORIGIN, "wd-re-4tb"):
        fio(part, "bare, its write cache filling", **writes, runtime=60)
        fio(part, "bare", **writes, runtime=60)


def seq():
    writes = {"rw": "write", "bs": "1m", "iodepth": 8, "size": "4g"}
    fresh_origin()
    with cached("128MiB", "--sequential-bypass", "0B"):
        fio("seq", "cached, filling", **writes, runtime=10)
        fio("seq", "cached, at the limit", **writes, runtime=60)
    with bare(ORIGIN, "wd-re-4tb"):
        fio("seq", "bare, its write cache filling", **writes, runtime=10)
        fio("seq", "bare", **writes, runtime=60)


def misses():
    """Reads of what is not cached, with nothing dirty and under destage."""
    away = {"rw": "randread", "offset": "8g", "size": "8g", "iodepth": 4, "norandommap": 1, "runtime": 45}
    fresh_origin()
    with cached("512MiB"):
        fio("misses", "alone", **away)
        fio("misses", "dirtied", rw="randwrite", offset="1g", size="7g", io_size="370m")
        fio("misses", "under destage", **away)


def hits():
    """Hits in three rounds, with nothing dirty and under destage in turns: they need the processor, which may be shared."""
    hot = {"rw": "randread", "size": "512m", "norandommap": 1, "runtime": 8}
    fresh_origin()
    with cached("128MiB"):
        fio("hits", "hot set written", rw="randwrite", bs="128k", iodepth=4, size="512m")
        for nth in range(3):
            drain()
            fio("hits", f"alone, {nth + 1}", **hot)
            fio("hits", f"dirtied, {nth + 1}", rw="randwrite", offset="1g", size="7g", io_size="116m")
            fio("hits", f"under destage, {nth + 1}", **hot)


def fsync():
    """A FLUSH after each write; bare is the emulated SSD without anything before it."""
    writes = {"rw": "randwrite", "size": "1g", "iodepth": 1, "fsync": 1, "runtime": 15, "norandommap": 1}
    writers = (1, 16)
    fresh_origin()
    with cached("512MiB"):
        for jobs in writers:
            fio("fsync", f"cached, {jobs}", **writes, numjobs=jobs)
    with bare(CACHE, "samsung-850-pro"):
        for jobs in writers:
            fio("fsync", f"bare SSD, {jobs}", **writes, numjobs=jobs)


os.makedirs(DIR, exist_ok=True)
subprocess.run(["dd", "if=/dev/zero", f"of={CACHE}", "bs=1M", "count=2048", "conv=fsync", "status=none"], check=True)
try:
    for part in PARTS:
        match part:
            # Dirty data as dense as in bench/scenarios/random-overload.toml, and eight times sparser.
            case "random": overload("random", "128MiB", "2g", 30, 150)
            case "wide": overload("wide", "128MiB", "16g", 20, 100)
            case "seq": seq()
            case "misses": misses()
            case "hits": hits()
            case "fsync": fsync()
            case _: sys.exit(f"no part `{part}`")
finally:
    for path in (CACHE, ORIGIN):
        if os.path.exists(path):
            os.remove(path)
