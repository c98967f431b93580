"""A switch between network namespaces, in user space: kernels without netem can neither delay nor lose frames.

    python3 wire.py SEED NAME=NAMESPACE …

Each namespace gets a TAP device eth0 with the hardware address 02:00:00:00:00:NN, where NN is its position in the
list, from 1. A frame goes to the port of its address; broadcasts go to all. Rules belong to ordered pairs of ports and
can be changed at any time by lines on standard input. Each is answered with one line on standard output:

    rule FROM TO [delay=MS] [jitter=MS] [loss=SHARE] [cut]     replaces the rule; without options the pair is clean
    clear                                                      removes all rules
    counts                                                     {"FROM>TO": [passed, lost, cut]} as JSON

The response is "ok", the counts, or "error: WHY". Frames of a pair stay in order under delay, as on a real path. Exits
at the end of its input.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import struct
import sys
import time
from dataclasses import dataclass, field

TUNSETIFF = 0x400454CA
SIOCSIFHWADDR = 0x8924
IFF_TAP = 0x0002
IFF_NO_PI = 0x1000
ARPHRD_ETHER = 1
CLONE_NEWNET = 0x40000000
LARGEST_FRAME = 65_536
# Frames read from one port before the others get their turn.
AT_ONCE = 64


@dataclass
class Path:
    """The rule from one port to another."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    cut: bool = False
    last_due_s: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0, 0, 0])

    def reset(self, words: list[str]) -> None:
        fresh = Path()
        for word in words:
            name, _, value = word.partition("=")
            if name == "delay":
                fresh.delay_s = float(value) / 1000
            elif name == "jitter":
                fresh.jitter_s = float(value) / 1000
            elif name == "loss":
                fresh.loss = float(value)
            elif word == "cut":
                fresh.cut = True
            else:
                raise ValueError(f"no such rule: {word}")
        if fresh.delay_s < 0 or fresh.jitter_s < 0 or not 0 <= fresh.loss <= 1:
            raise ValueError("times must not be negative, and a share is from 0 to 1")
        self.delay_s, self.jitter_s, self.loss, self.cut = fresh.delay_s, fresh.jitter_s, fresh.loss, fresh.cut


def open_port(namespace: str, number: int) -> int:
    """A TAP device stays in the namespace that created it, whichever process has its descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if libc.setns(there, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
        port = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(port, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TAP | IFF_NO_PI))
        fcntl.ioctl(port, SIOCSIFHWADDR, struct.pack("16sH6s16x", b"eth0", ARPHRD_ETHER, bytes([2, 0, 0, 0, 0, number])))
    finally:
        libc.setns(home, CLONE_NEWNET)
        os.close(home)
        os.close(there)
    return port


class Wire:
    def __init__(self, seed: str, ports: dict[str, int]) -> None:
        self.random = random.Random(seed)
        self.ports = ports
        self.names = list(ports)
        self.paths = {(a, b): Path() for a in ports for b in ports if a != b}
        # (due, order, port, frame): the order keeps frames that are due at the same time in sequence.
        self.waiting: list[tuple[float, int, int, bytes]] = []
        self.order = 0

    def command(self, line: str) -> str:
        words = line.split()
        try:
            if words == ["clear"]:
                for path in self.paths.values():
                    path.reset([])
            elif words == ["counts"]:
                return json.dumps({f"{a}>{b}": path.counts for (a, b), path in self.paths.items() if any(path.counts)})
            elif len(words) >= 3 and words[0] == "rule":
                self.paths[words[1], words[2]].reset(words[3:])
            else:
                raise ValueError(f"no such command: {line.strip()}")
        except KeyError as error:
            return f"error: no such path: {error}"
        except ValueError as error:
            return f"error: {error}"
        return "ok"

    def take(self, source: str) -> None:
        """Reads the frames of a port, up to a limit."""
        for _ in range(AT_ONCE):
            try:
                frame = os.read(self.ports[source], LARGEST_FRAME)
            except BlockingIOError:
                return
            number = frame[5]
            if frame[:5] == b"\x02\0\0\0\0" and 1 <= number <= len(self.names):
                if self.names[number - 1] != source:
                    self.put(source, self.names[number - 1], frame)
            else:
                for name in self.names:
                    if name != source:
                        self.put(source, name, frame)

    def put(self, source: str, target: str, frame: bytes) -> None:
        path = self.paths[source, target]
        if path.cut:
            path.counts[2] += 1
            return
        if path.loss > 0 and self.random.random() < path.loss:
            path.counts[1] += 1
            return
        path.counts[0] += 1
        now_s = time.monotonic()
        wait_s = max(0.0, path.delay_s + self.random.uniform(-path.jitter_s, path.jitter_s)) if path.delay_s + path.jitter_s > 0 else 0.0
        # A frame never overtakes an earlier one of its path, even if the delay was just reduced.
        due_s = max(now_s + wait_s, path.last_due_s)
        if due_s <= now_s:
            self.send(self.ports[target], frame)
            return
        path.last_due_s = due_s
        self.order += 1
        heapq.heappush(self.waiting, (due_s, self.order, self.ports[target], frame))

    def send(self, port: int, frame: bytes) -> None:
        # The device is down or full: the frame is lost, as on a real link.
        try:
            os.write(port, frame)
        except OSError:
            return

    def deliver_due(self) -> float | None:
        """Sends the frames that are due. Returns the time until the next one, if any."""
        while self.waiting:
            wait_s = self.waiting[0][0] - time.monotonic()
            if wait_s > 0:
                return wait_s
            _, _, port, frame = heapq.heappop(self.waiting)
            self.send(port, frame)
        return None

    def run(self) -> None:
        commands = sys.stdin.fileno()
        os.set_blocking(commands, False)
        by_descriptor = {port: name for name, port in self.ports.items()}
        text = b""
        while True:
            ready, _, _ = select.select([commands, *by_descriptor], [], [], self.deliver_due())
            for descriptor in ready:
                if descriptor != commands:
                    self.take(by_descriptor[descriptor])
                    continue
                more = os.read(commands, 4096)
                if more == b"":
                    return
                *lines, text = (text + more).split(b"\n")
                for line in lines:
                    print(self.command(line.decode()), flush=True)


def main() -> None:
    seed, *places = sys.argv[1:]
    namespaces = dict(place.split("=", 1) for place in places)
    wire = Wire(seed, {name: open_port(namespace, at + 1) for at, (name, namespace) in enumerate(namespaces.items())})
    print("ok", flush=True)
    wire.run()


if __name__ == "__main__":
    main()
