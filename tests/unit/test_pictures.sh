#!/bin/sh
# The pictures of README.md: each is there, named there, and legal SVG that fetches nothing; the figure is what bench/pictures.py
# makes of the results now; and a screen with every kind of sequence becomes one.
set -u
command -v python3 > /dev/null || { echo "skipped: no python3" && exit 77; }
pictures=$SOURCE/bench/pictures
dir=$(mktemp -d "${TMPDIR:-/tmp}/gm-pictures.XXXXXX") || exit 2
trap 'rm -rf "$dir"' EXIT
export PYTHONDONTWRITEBYTECODE=1

fail() {
    echo "pictures: FAILED: $*"
    exit 1
}

python3 "$SOURCE/bench/pictures.py" latency "$SOURCE/bench/results/latency.txt" > "$dir/latency.svg" || fail "no figure is made"
cmp "$dir/latency.svg" "$pictures/latency.svg" || fail "bench/pictures/latency.svg is not what bench/results/latency.txt has now: sh bench/pictures.sh"
printf 'a \033[1mbold\033[0m <&\033[7m turned\033[0m\n\033[38;5;3mcolour\033[39m \342\226\210\033[41;97m x \033[m\n' > "$dir/screen"
python3 "$SOURCE/bench/pictures.py" screen 20 2 < "$dir/screen" > "$dir/screen.svg" || fail "no screen is made"
! python3 "$SOURCE/bench/pictures.py" screen 2> "$dir/said" || fail "screen without its size is no mistake"
cat > "$dir/check.py" << 'END'
import sys
import xml.etree.ElementTree as tree
SVG = "{http://www.w3.org/2000/svg}"
for path in sys.argv[1:]:
    root = tree.parse(path).getroot()
    width, height = (float(number) for number in root.get("viewBox").split()[2:])
    assert root.tag == SVG + "svg" and width <= 900 and height <= 600, (path, root.attrib)
    for element in root.iter():
        assert element.tag in (SVG + "svg", SVG + "rect", SVG + "text", SVG + "path"), (path, element.tag)
        assert float(element.get("x") or 0) + float(element.get("width") or 0) <= width, (path, element.attrib)
        assert float(element.get("y") or 0) <= height, (path, element.attrib)
texts = [(element.text, element.get("fill")) for element in tree.parse(sys.argv[1]).getroot().iter(SVG + "text")]
assert texts == [("a", "#dcdfe4"), ("bold", "#dcdfe4"), ("<&", "#dcdfe4"), ("turned", "#16191d"), ("colour", "#e5c07b"),
                 ("\u2588", "#dcdfe4"), ("x", "#ffffff")], texts
bars = [element for element in tree.parse(sys.argv[2]).getroot().iter(SVG + "rect") if element.get("height") == "14"]
assert len(bars) == 12, len(bars)
shown = "".join(element.text for element in tree.parse(sys.argv[3]).getroot().iter(SVG + "text"))
assert all(word in shown for word in ("gpumux", "GPU 0", "train", "RESIDENT", "q quit")), shown
END
python3 "$dir/check.py" "$dir/screen.svg" "$pictures/latency.svg" "$pictures/top.svg" || fail "what the pictures are"
for picture in "$pictures"/*.svg; do
    [ "$(wc -c < "$picture")" -lt 20000 ] || fail "$picture is large"
    name=pictures/$(basename "$picture")
    grep -qF "](bench/$name)" "$SOURCE/README.md" || grep -qF "]($name)" "$SOURCE/bench/README.md" || fail "no page shows $picture"
done
echo "the pictures are as they should be"
