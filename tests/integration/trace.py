"""Checks what mux-ctl trace made: trace.py part|whole TRACE EXPORT REPORT LOG STATUS PID PID

The export is held against the log and the status of the daemon, and the report against the export.
"""
import collections
import html.parser
import json
import re
import sys

kind, trace, export, report, log, status = sys.argv[1:7]
pids = sys.argv[7:]
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


# --- the report ---
class Page(html.parser.HTMLParser):
    """Elements are closed in order; nothing is fetched from anywhere; marks are within their lanes."""
    EMPTY = {"meta", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.rows, self.lanes, self.text, self.cells = [], set(), 0, {}, "", []
        self.lane = None

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in self.EMPTY:
            self.open.append(tag)
        assert not {"src", "href", "action"} & set(attrs), (tag, attrs)
        if "id" in attrs:
            assert attrs["id"] not in self.ids
            self.ids.add(attrs["id"])
        if attrs.get("class") == "name" and attrs.get("title"):
            self.lane = attrs["title"]
            self.lanes[self.lane] = collections.Counter()
        if tag == "rect" and self.lane and "y" in attrs and self.open.count("figure") == 0:
            assert -0.1 <= float(attrs["x"]) <= 4000 and 0 <= float(attrs["width"]) <= 4001, attrs
            self.lanes[self.lane][attrs["class"]] += 1
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:])
        self.open.pop()

    def handle_data(self, data):
        self.text += data
        if "td" in self.open or "th" in self.open:
            self.cells[-1][-1] += data


text = open(report, encoding="utf-8").read()
assert "://" not in re.sub("http://www.w3.org/[a-z0-9/]*", "", text), "the page names an address"
page = Page()
page.feed(text)
page.close()
assert not page.open, page.open
assert {"programs", "scroll", "lanes", "switch-times", "wait-times", "turn-times", "parts", "bytes"} <= page.ids, page.ids
rows = {cells[1]: cells for cells in page.cells[1:]}
assert set(rows) == set(pids), rows
for pid in pids:
    ran = sum(event["dur"] for event in programs[pid] if event["name"] == "running") / 1e6
    said = rows[pid][4].split()
    assert abs(float(said[0]) * {"s": 1, "ms": 1e-3}[said[1]] - ran) < 0.02 * ran + 0.02, (rows[pid], ran)
    lane = next(marks for name, marks in page.lanes.items() if name.endswith(f"({pid})"))
    assert sum(lane[f"d{does}"] for does in (4, 5)) >= 4 and lane["d1"] + lane["d2"] >= 1, lane
    assert sum(lane.values()) <= len(programs[pid]), lane
assert page.lanes["switches"]["switch"] == len(shown), page.lanes["switches"]
assert f"{len(shown)}: half within" in page.text
assert any(name.startswith("copies in, up to") for name in page.lanes), page.lanes
assert kind == "whole" or any(name.startswith("tiers, up to") for name in page.lanes), page.lanes
print(f"{len(events)} events, {len(shown)} switches, a page of {len(text)} bytes")
