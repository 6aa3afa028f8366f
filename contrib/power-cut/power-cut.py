#!/usr/bin/python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Power cuts at home: writes to an NBD volume of another machine, remembers what that machine has acknowledged,
and verifies after a power cut that it is there. docs/internals/testing.md tells how to go about it.

    power-cut.py write  nbd://box/data --state run.json    # then pull the plug
    power-cut.py verify nbd://box/data --state run.json    # when the machine is up again
    power-cut.py loop   nbd://box/data --state run.json --cuts 20 --off 'plug off' --on 'plug on'

Works with any NBD server. Needs libnbd's Python module (Debian: apt-get install python3-libnbd).

Each sector that is written is a stamp of its place and of the number of the write. A write is durable if
it had the flag FUA, or was acknowledged before an acknowledged FLUSH was sent. After a cut a sector must hold the
last durable write to it, or a later one; anything else is wrong, an older one above all.
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import time

import nbd

SECTOR = 512
PIECE = 1 << 20


class Lost(Exception):
    """The connection is gone, or silent: the power is cut."""


def stamp(run, sector, number):
    """What write `number` puts into a sector; number 0 is from before the test: zeroes."""
    if number == 0:
        return bytes(SECTOR)
    head = f"power-cut {run} {sector} {number}\n".encode()
    return head + hashlib.shake_128(head).digest(SECTOR - len(head))


class State:
    """What each sector may hold: `sectors[sector] = [last durable write, later ones]`."""

    def __init__(self, path):
        self.path = path
        self.run, self.span, self.number, self.sectors = os.urandom(4).hex(), 0, 0, {}
        if os.path.exists(path):
            with open(path) as file:
                known = json.load(file)
            self.run, self.span, self.number = known["run"], known["span"], known["number"]
            self.sectors = {int(sector): it for sector, it in known["sectors"].items()}

    def save(self):
        with open(self.path + ".new", "w") as file:
            json.dump({"run": self.run, "span": self.span, "number": self.number, "sectors": self.sectors}, file)
        os.replace(self.path + ".new", self.path)

    def issue(self, sectors):
        self.number += 1
        for sector in sectors:
            self.sectors.setdefault(sector, [0, []])[1].append(self.number)
        return self.number

    def durable(self, number, sectors):
        for sector in sectors:
            it = self.sectors[sector]
            if number > it[0]:
                it[:] = [number, [later for later in it[1] if later > number]]


def connect(uri, patience):
    """Waits for the server: the machine may be starting."""
    end = time.monotonic() + patience
    told = False
    while True:
        handle = nbd.NBD()
        try:
            handle.connect_uri(uri)
            return handle
        except nbd.Error as error:
            if time.monotonic() > end:
                sys.exit(f"power-cut: {uri}: {error.string}")
            if not told:
                print(f"power-cut: {uri}: {error.string}; waiting for it, {patience} s at most", file=sys.stderr, flush=True)
                told = True
            time.sleep(0.2)


def prepare(args, state):
    """Before the first write the place must be empty, since zeroes are what unwritten sectors are known by."""
    if state.span:
        return
    handle = connect(args.uri, args.patience)
    span = min(args.span << 20, handle.get_size()) // PIECE * PIECE
    for offset in range(0, span, PIECE):
        if not args.overwrite and any(handle.pread(PIECE, offset)):
            sys.exit(f"power-cut: the first {args.span} MiB of the volume hold data; --overwrite destroys it")
    for offset in range(0, span, PIECE):
        handle.pwrite(bytes(PIECE), offset)
    handle.flush()
    handle.shutdown()
    state.span = span // SECTOR
    state.save()


class Writer:
    """Keeps `depth` requests in flight until the connection is lost."""

    def __init__(self, args, state):
        self.args, self.state = args, state
        self.handle = connect(args.uri, args.patience)
        self.in_flight = 0
        self.busy = set()  # sectors with a write in flight; two at once would have no order
        self.covered = []  # acknowledged, not known to be durable
        self.acknowledged = 0
        self.error = None

    def until_lost(self, goal, at_goal):
        """Calls `at_goal` once when so many writes are acknowledged, and goes on."""
        while True:
            while self.in_flight < self.args.depth and self.error is None:
                self.flush() if random.randrange(32) == 0 else self.write()
            try:
                silent = self.handle.poll(self.args.silence * 1000) == 0
            except nbd.Error:
                raise Lost from None
            if silent or self.handle.aio_is_dead() or self.handle.aio_is_closed():
                raise Lost
            if self.error is not None:
                sys.exit(f"power-cut: the server answered with error {self.error} while it was up")
            if goal is not None and self.acknowledged >= goal:
                goal = None
                at_goal()

    def submit(self, command, *arguments, done, flags=0):
        def completed(error):
            self.in_flight -= 1
            if error.value == 0:
                done()
            else:
                self.error = error.value
            return 1

        try:
            command(*arguments, completion=completed, flags=flags)
        except nbd.Error:
            raise Lost from None
        self.in_flight += 1

    def write(self):
        count = random.randint(1, 512) if random.randrange(16) == 0 else random.randint(1, 24)
        # Half of the writes go to a sixteenth of the place, so that sectors are rewritten soon.
        span = self.state.span // random.choice((1, 16))
        first = random.randrange(span - count)
        sectors = range(first, first + count)
        if not self.busy.isdisjoint(sectors):
            return
        fua = random.randrange(8) == 0
        number = self.state.issue(sectors)
        self.busy.update(sectors)
        data = b"".join(stamp(self.state.run, sector, number) for sector in sectors)

        def done():
            self.busy.difference_update(sectors)
            self.acknowledged += 1
            if fua:
                self.state.durable(number, sectors)
            else:
                self.covered.append((number, sectors))

        flags = nbd.CMD_FLAG_FUA if fua else 0
        buffer = nbd.Buffer.from_bytearray(bytearray(data))
        self.submit(self.handle.aio_pwrite, buffer, first * SECTOR, done=done, flags=flags)

    def flush(self):
        covered, self.covered = self.covered, []

        def done():
            for number, sectors in covered:
                self.state.durable(number, sectors)

        self.submit(self.handle.aio_flush, done=done)


def write(args, state, goal=None, at_goal=None):
    """Writes until the power is cut; how many writes were acknowledged."""
    prepare(args, state)
    writer = Writer(args, state)
    print(f"power-cut: writing to {state.span * SECTOR >> 20} MiB; cut the power when you like", flush=True)
    try:
        writer.until_lost(goal, at_goal)
    except Lost:
        pass
    finally:
        state.save()
    print(f"power-cut: the connection is lost after {writer.acknowledged} acknowledged writes", flush=True)
    return writer.acknowledged


def verify(args, state):
    """Reads all that was ever written; how many sectors are wrong."""
    handle = connect(args.uri, args.patience)
    wrong = 0
    sectors_in_piece = PIECE // SECTOR
    for start in range(0, state.span, sectors_in_piece):
        known = [it for it in range(start, start + sectors_in_piece) if it in state.sectors]
        if not known:
            continue
        try:
            data = handle.pread(PIECE, start * SECTOR)
        except nbd.Error as error:
            print(f"power-cut: sectors {start} and following can't be read: {error.string}")
            wrong += len(known)
            continue
        for sector in known:
            durable, later = state.sectors[sector]
            found = data[(sector - start) * SECTOR :][:SECTOR]
            held = next((it for it in [*reversed(later), durable] if stamp(state.run, sector, it) == found), None)
            if held is None:
                wrong += 1
                if wrong <= 20:
                    print(f"power-cut: sector {sector}: write {durable} is durable, there is {what(found)}")
            else:
                # It has been seen, and after the FLUSH below it must stay.
                state.sectors[sector] = [held, []]
    handle.flush()
    handle.shutdown()
    state.save()
    print(f"power-cut: {len(state.sectors)} sectors verified, {wrong} wrong", flush=True)
    return wrong


def what(found):
    if not any(found):
        return "nothing but zeroes"
    head = found.split(b"\n")[0]
    if head.startswith(b"power-cut "):
        run, sector, number = head.decode(errors="replace").split()[1:4]
        return f"write {number} to sector {sector} of run {run}"
    return "garbage"


def loop(args, state):
    """Cuts the power by command, again and again; how many sectors are wrong."""
    total = 0
    for cut in range(1, args.cuts + 1):
        off = []
        total += write(args, state, random.randint(1, args.goal), lambda: off.append(start(args.off)))
        if not off:
            sys.exit("power-cut: the connection was lost before the power was cut")
        if off[0].wait():
            sys.exit(f"power-cut: exit code {off[0].returncode} from: {args.off}")
        if start(args.on).wait():
            sys.exit(f"power-cut: it failed: {args.on}")
        wrong = verify(args, state)
        if wrong:
            break
    print(f"power-cut: {cut} cuts, {total} writes acknowledged, {wrong} wrong sectors")
    return wrong


def start(command):
    return subprocess.Popen(command, shell=True, stdin=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], epilog=__doc__.split("\n\n", 1)[1], formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("verb", choices=["write", "verify", "loop"])
    parser.add_argument("uri", help="the volume, as in nbd://box/data or nbds://box/data (TLS)")
    parser.add_argument("--state", required=True, help="file of this machine for what was acknowledged")
    parser.add_argument("--span", type=int, default=64, help="MiB of the volume to use, from its start [64]")
    parser.add_argument("--overwrite", action="store_true", help="whatever these MiB hold may be destroyed")
    parser.add_argument("--depth", type=int, default=16, help="requests in flight [16]")
    parser.add_argument("--silence", type=int, default=10, help="seconds without an answer that mean a cut [10]")
    parser.add_argument("--patience", type=int, default=600, help="seconds to wait for the machine to be up [600]")
    parser.add_argument("--cuts", type=int, default=20, help="loop: how often [20]")
    parser.add_argument("--goal", type=int, default=5000, help="loop: most writes between two cuts [5000]")
    parser.add_argument("--off", help="loop: command that cuts the power")
    parser.add_argument("--on", help="loop: command that gives it back")
    args = parser.parse_args()
    state = State(args.state)
    if args.verb == "write":
        write(args, state)
    elif not state.span and args.verb == "verify":
        sys.exit(f"power-cut: {args.state}: nothing was written yet")
    elif args.verb == "verify":
        sys.exit(1 if verify(args, state) else 0)
    elif not (args.off and args.on):
        sys.exit("power-cut: loop needs --off and --on")
    else:
        sys.exit(1 if loop(args, state) else 0)


if __name__ == "__main__":
    main()
