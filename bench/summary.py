#!/usr/bin/env python3
"""
python3 bench/summary.py RESULT.json...: what bench/results holds of a result: date, commit, command and machine, and below
them what the bench printed. Of a bench in C, which keeps no table, what it measured, a line each.
"""

import json
import re
import sys

HEAD = ("bench", "date", "commit", "command", "machine", "ceiling", "outcome")


def head(result):
    """Where a result comes from, a line each."""
    machine = result["machine"]
    yield f"date      {result['date']}"
    yield f"commit    {(result['commit'] or 'unknown')[:12]}"
    yield f"command   {' '.join(result['command'])}"
    driver = re.search(r"\d+\.\d+(\.\d+)*", machine.get("driver") or "")
    yield (f"machine   {machine['gpu'] or 'no GPU'}, driver {driver[0] if driver else 'none'}, {machine['cpu']}, "
           f"{machine['processors']} processors, {machine['memory_bytes'] >> 30} GiB")
    if result.get("ceiling"):
        yield "ceiling   " + ", ".join(f"{way} {rate:.1f} GB/s" for way, rate in result["ceiling"].items())
    if result.get("outcome"):
        yield f"outcome   {result['outcome']}"


def members(result):
    """What a bench in C measured."""
    for name, value in result.items():
        if name not in HEAD:
            for one in value if isinstance(value, list) else [value]:
                yield f"{name}: {json.dumps(one)}"


def main():
    for file in sys.argv[1:]:
        try:
            with open(file, encoding="utf-8") as text:
                result = json.load(text)
            lines = [*head(result), *(result["table"] if "table" in result else members(result))]
        except (OSError, ValueError, LookupError, TypeError) as error:
            sys.exit(f"summary: {file} is no result: {error}")
        print("\n".join(lines))


if __name__ == "__main__":
    main()
