"""Checks what mux-ctl trace made: trace.py part|whole TRACE EXPORT LOG STATUS PID PID

The export is held against the log and the status of the daemon.
"""
import collections
import json
import sys

kind, trace, export, log, status = sys.argv[1:6]
pids = sys.argv[6:]
switches = [entry for entry in map(json.loads, open(log, encoding="utf-8")) if entry["kind"] == "switch"]
gpu = json.load(open(status, encoding="utf-8"))["gpus"][0]
events = json.load(open(export, encoding="utf-8"))["traceEvents"]

# --- the export: Perfetto's own rules first ---
names = {}
for event in events:
    assert event["ph"] in "XMCi" and isinstance(event["name"], str) and event["pid"] == 1, event
    if event["ph"] != "M":
        assert event["ts"] >= 0, event
    if event["ph"] == "X":
        assert event["dur"] >= 0, event
    assert event["ph"] != "i" or event["s"] in ("g", "p", "t"), event
    assert all(isinstance(value, (str, int, float)) for value in event.get("args", {}).values()), event
    assert event["ph"] != "C" or all(value >= 0 for value in event["args"].values()), event
    if event["name"] == "thread_name":
        names[event["tid"]] = event["args"]["name"]
tracks = collections.defaultdict(list)
for event in events:
    if event["ph"] == "X":
        tracks[names[event["tid"]]].append(event)
for name, slices in tracks.items():  # slices of a track lie in each other, or apart
    ends = []
    for event in sorted(slices, key=lambda event: (event["ts"], -event["dur"])):
        while ends and ends[-1] <= event["ts"] + 1e-3:
            ends.pop()
        assert not ends or event["ts"] + event["dur"] <= ends[-1] + 1e-3, (name, event)
        ends.append(event["ts"] + event["dur"])

# Each switch of the log is there, with its time, its reason, and parts that fill it.
shown = [event for event in tracks["switches"] if event["name"].startswith("to ")]
found = {round(event["dur"] / 1e3, 3): event for event in shown}
if kind == "part":
    assert len(shown) >= 8, len(shown)
    switches = switches[-8:]
for entry in switches:
    event = found.get(round(entry["total_ms"], 3)) or found.get(round(entry["total_ms"] + 1e-3, 3)) \
        or next((event for event in shown if abs(event["dur"] / 1e3 - entry["total_ms"]) < 2e-3), None)
    assert event, entry
    assert f"pid {entry['pid']})" in event["name"] and event["args"]["bytes in"] == entry["bytes_in"] \
        and event["args"]["bytes out"] == entry["bytes_out"], (entry, event)
    parts = [part for part in tracks["switches"] if part not in shown and part["ts"] >= event["ts"] - 1e-3
             and part["ts"] + part["dur"] <= event["ts"] + event["dur"] + 1e-3]
    assert abs(sum(part["dur"] for part in parts) - event["dur"]) < 1, (event, parts)
assert any("in the place of pid" in event["args"]["why"] for event in shown)

# What the programs did: never both with their gates open, as they do not fit together; and they waited meanwhile.
programs = {pid: next(slices for name, slices in tracks.items() if f"(pid {pid}, " in name) for pid in pids}
assert len(names) == 5 + len(pids), names
turns = {pid: [event for event in slices if event["name"] in ("running", "idle in its turn", "draining")]
         for pid, slices in programs.items()}
for pid in pids:
    assert len(turns[pid]) >= 4 and any(event["name"].startswith("waiting") for event in programs[pid]), programs[pid]
both = max(min(event["ts"] for event in programs[pid] if event["name"].startswith("waiting")) for pid in pids)
last = min(max(event["ts"] for event in turns[pid] if event["name"] == "running") for pid in pids)
# Before and behind these they fit: a program allocates and frees piece by piece.
apart = {pid: [event for event in turns[pid] if both <= event["ts"] < last] for pid in pids}
assert all(len(apart[pid]) >= 3 for pid in pids), apart
for one in apart[pids[0]]:
    for two in apart[pids[1]]:
        assert one["ts"] + one["dur"] <= two["ts"] + 1e-3 or two["ts"] + two["dur"] <= one["ts"] + 1e-3, (one, two)

# Copies: of the whole, every byte that the status has.
moved = {way: sum(event["args"]["bytes"] for event in tracks["copies " + way]) for way in ("in", "out")}
assert min(moved.values()) > 0, moved
if kind == "whole":
    assert moved == {"in": gpu["bytes_in"], "out": gpu["bytes_out"]}, (moved, gpu["bytes_in"], gpu["bytes_out"])
else:
    tiers = {event["name"]: max(other["args"]["bytes"] for other in events if other["name"] == event["name"])
             for event in events if event["ph"] == "C"}
    assert tiers["tier GPU"] > 0 and tiers["tier pinned"] > 0 and len(tiers) == 5, tiers
assert any(event["ph"] == "i" and event["name"].endswith(" sets weight=2") for event in events)

print(f"{len(events)} events, {len(shown)} switches")
