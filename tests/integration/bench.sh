#!/bin/sh
# The benches run over simcuda with small sizes: they end well, what they write is JSON with the members that its
# reader needs, and all data was verified. Speed is not looked at.
. "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null 2>&1 || skip "no python3"
benches=$(cd "$(dirname "$0")/../../bench" && pwd)

# result NAME COMMAND...: run it with its result in $dir/NAME.json.
result() {
    result_name=$1
    shift
    timeout 100 "$@" --json "$dir/$result_name.json" > "$dir/$result_name.out" 2>&1
    code=$?
    case $code in
    0) say "$result_name: $(sed -n 1p "$dir/$result_name.out")" ;;
    *) fail "$result_name ended with $code" ;;
    esac
}

# script NAME ARGUMENT...
script() {
    script_name=$1
    shift
    result "$script_name" python3 -B "$benches/$script_name.py" --build "$BUILD" --link-bytes 32M --link-rounds 1 \
        --gap 60ms "$@"
}

size() {
    shrunk "$1"
}

result link "$BUILD/bench/link" --bytes 32M --rounds 2 --from 4M --to 16M
script switch --sizes "$(size 48M),$(size 64M)" --budget "$(size 80M)" --piece "$(size 24M)" --turns 2 --warm 1 \
    --peer checkpoint --peer restart --peer-turns 1
script oversize --size "$(size 96M)" --budget "$(size 64M)" --pinned 128M --sweeps 2
script tiers --sizes 64M,64M,64M --budget 72M --piece 24M --fractions 1/2 --rounds 1 --warm 1 --work 10ms \
    --disk "$dir" --disk-pinned 64M --disk-rounds 1 --host-bytes 16M --host-disk-bytes 128M
script prefetch --sizes "$(size 64M),$(size 64M),$(size 64M)" --budget "$(size 80M)" --piece "$(size 24M)" \
    --pinned 256M --quantum 100ms --seconds 2

python3 -B - "$dir" << 'END' || fail "a result is not as it should be"
import json, os, sys

def load(name):
    with open(os.path.join(sys.argv[1], name + ".json"), encoding="utf-8") as file:
        result = json.load(file)
    assert result["bench"] == name and result["is_verified"] is True and "outcome" not in result, name
    assert result["machine"]["gpu"] and result["machine"]["processors"] > 0 and result["command"], name
    assert result["date"].endswith("Z") and "commit" in result, name
    return result

def verified(turns, what):
    assert turns, what
    for turn in turns:
        assert turn["mismatches"] == 0 and turn["passes"] >= 1 and turn["first_ms"] > 0, (what, turn)

link = load("link")
assert [piece["piece"] for piece in link["pieces"]] == [4 << 20, 8 << 20, 16 << 20]
assert all(piece[way]["median"] > 0 for piece in link["pieces"] for way in ("h2d", "d2h", "both"))

switch = load("switch")
verified(switch["turns"], "switch")
assert len(switch["turns"]) == 4 and len(switch["link"]) == 3
for turn in switch["turns"]:
    assert turn["switches"] >= 1 and turn["bytes_in"] > 0 and turn["ideal_ms"] > 0, turn
    assert turn["parts"]["bytes_in"] <= turn["bytes_in"] and turn["parts"]["total_ms"] > 0, turn
    assert turn["parts"]["copy_ms"] <= turn["parts"]["total_ms"], turn
assert switch["peers"]["checkpoint"]["is_available"] is False # simcuda has no such calls
assert switch["peers"]["restart"]["ratio"] > 0

oversize = load("oversize")
assert "OUT_OF_MEMORY" in oversize["refused"] and oversize["bytes_on_host"] > 0
assert all(oversize["sweeps"][work]["rate"]["median"] > 0 for work in ("verify", "rewrite"))

tiers = load("tiers")
assert [run["name"] for run in tiers["runs"]] == ["all pinned", "1/2 pinned", "pinned and disk"]
for run in tiers["runs"]:
    verified(run["turns"], run["name"])
    assert run["most"]["pinned_used_bytes"] <= run["options"]["pinned"], run["name"]
assert tiers["runs"][1]["most"]["paged_used_bytes"] > 0
assert tiers["runs"][2]["most"]["disk_used_bytes"] > 0 and tiers["runs"][2]["most"]["paged_used_bytes"] == 0

prefetch = load("prefetch")
assert [run["prefetch"] for run in prefetch["runs"]] == ["off", "on"]
for run in prefetch["runs"]:
    assert run["switches"] and run["passes"] > 0 and all(a["mismatches"] == 0 for a in run["answers"].values())
END
python3 -B "$benches/summary.py" "$dir/link.json" "$dir/switch.json" "$dir/oversize.json" "$dir/tiers.json" \
    "$dir/prefetch.json" || fail "summary.py"
