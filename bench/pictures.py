"""The pictures of README.md, as SVG that is written here: no network, no library.

pictures.py screen COLUMNS LINES < SCREEN > top.svg       a terminal's screen, as `tmux capture-pane -e -p` prints it
pictures.py latency RESULTS > latency.svg                 of bench/results/latency.txt, the run that bench/README.md quotes

`sh bench/pictures.sh` makes both.
"""

import html
import re
import sys

# What a terminal's colours look like here; None is the default.
COLOURS = ["#3b4252", "#e06c75", "#8fc379", "#e5c07b", "#61a0ef", "#c678dd", "#56b6c2", "#dcdfe4",
           "#6b7280", "#ff7a85", "#a5e08a", "#ffd58a", "#7fb8ff", "#dd8ff2", "#6fd3df", "#ffffff"]
BACK, TEXT = "#16191d", "#dcdfe4"
WIDE, HIGH = 8, 17  # of a character
RUN = "2026-11-25T10:36:07Z"


def style_of(codes, style):
    """What a sequence of SGR codes makes of (foreground, background, bold, reverse)."""
    front, back, bold, reverse = style
    codes = [int(code or 0) for code in codes.split(";")]
    while codes:
        code = codes.pop(0)
        if code == 0:
            front = back = None
            bold = reverse = False
        elif code == 1:
            bold = True
        elif code == 22:
            bold = False
        elif code in (7, 27):
            reverse = code == 7
        elif 30 <= code <= 37:
            front = code - 30
        elif 90 <= code <= 97:
            front = code - 82
        elif code == 39:
            front = None
        elif 40 <= code <= 47:
            back = code - 40
        elif 100 <= code <= 107:
            back = code - 92
        elif code == 49:
            back = None
        elif code in (38, 48) and codes[:1] == [5]:  # of 256; the first 16 are these
            number, codes = codes[1] % 16, codes[2:]
            front, back = (number, back) if code == 38 else (front, number)
    return front, back, bold, reverse


def screen(columns, lines, text):
    """The screen as SVG: a box for each background, and a text for each run of one style."""
    width, height = columns * WIDE + 16, lines * HIGH + 16
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
           f'font-family="ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="13">',
           f'<rect width="{width}" height="{height}" rx="6" fill="{BACK}"/>']
    style = (None, None, False, False)
    for row, line in enumerate(text.split("\n")[:lines]):
        column = 0
        for part in re.split(r"(\x1b\[[0-9;]*m|\x1b.|[\x0e\x0f])", line):
            sequence = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
            if sequence:
                style = style_of(sequence[1], style)
            if not part or part[0] in "\x1b\x0e\x0f":
                continue
            front, back, bold, reverse = style
            ink = TEXT if front is None else COLOURS[front]
            box = None if back is None else COLOURS[back]
            if reverse:
                ink, box = box or BACK, ink
            x, y = 8 + column * WIDE, 8 + row * HIGH
            if box:
                out.append(f'<rect x="{x}" y="{y}" width="{len(part) * WIDE}" height="{HIGH}" fill="{box}"/>')
            if part.strip():
                start = len(part) - len(part.lstrip())
                shown = part.strip()
                weight = ' font-weight="bold"' if bold else ""
                out.append(f'<text x="{x + start * WIDE}" y="{y + 13}" textLength="{len(shown) * WIDE}" '
                           f'lengthAdjust="spacingAndGlyphs" fill="{ink}"{weight} xml:space="preserve">'
                           f'{html.escape(shown, quote=False)}</text>')
            column += len(part)
    return "\n".join(out + ["</svg>", ""])


def read_latency(text):
    """[(workload, {row: percent of alone})] of the run that is quoted, and its machine."""
    entry = next(part for part in re.split(r"\n(?=date )", text) if part.startswith(f"date      {RUN}"))
    machine = re.search(r"^machine\s+(.*?), driver", entry, re.M)[1]
    found = []
    for line in entry.splitlines():
        workload = re.fullmatch(r"(?:latency)?\s+([A-Z]+): (.*); \d+ rounds of .*", line)
        row = re.match(r"\s+([\w.-]+)\s+mean .*; ([\d.]+) % of alone", line)
        if workload:
            found.append((workload[1], workload[2], {}))
        elif row:
            found[-1][2][row[1]] = float(row[2])
    return machine, found


def latency(text):
    """Bars: a request's mean time beside others, in multiples of that alone."""
    machine, workloads = read_latency(text)
    left, scale, group = 290, 46, 46
    most = max(rows["native"] for _, _, rows in workloads) / 100
    width, height = int(left + most * scale + 60), 78 + group * len(workloads) + 26
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
           f'font-family="system-ui,Helvetica,Arial,sans-serif" font-size="13" fill="#1d2329">',
           f'<rect width="{width}" height="{height}" fill="#fff"/>',
           '<text x="12" y="24" font-size="15" font-weight="bold">A request beside programs that always have work</text>',
           f'<text x="12" y="43" fill="#66707a">mean time, in multiples of that alone; {html.escape(machine)}</text>']
    for x, colour, name in ((12, "#c4ccd4", "without gpumux"), (150, "#2f77b5", "with gpumux (class latency)")):
        out.append(f'<rect x="{x}" y="54" width="12" height="12" fill="{colour}"/><text x="{x + 18}" y="65">{name}</text>')
    top = 78
    for step in range(int(most) + 1):
        x = left + step * scale
        dash = '' if step == 1 else ' stroke-dasharray="2 3"'
        out.append(f'<path d="M{x} {top}V{height - 22}" stroke="#c4ccd4"{dash}/>'
                   f'<text x="{x}" y="{height - 8}" text-anchor="middle" fill="#66707a">{step}</text>')
    for i, (_, name, rows) in enumerate(workloads):
        y = top + 6 + i * group
        critical, others = name.split("; ", 1) if "; " in name else (name.replace("as D", "the same"), "")
        out.append(f'<text x="12" y="{y + 14}">{html.escape(critical)}</text>'
                   f'<text x="12" y="{y + 30}" fill="#66707a">{html.escape("beside " + others if others else "")}</text>')
        for k, (row, colour) in enumerate((("native", "#c4ccd4"), ("timeslices", "#2f77b5"))):
            times = rows[row] / 100
            out.append(f'<rect x="{left}" y="{y + 2 + k * 16}" width="{times * scale:.1f}" height="14" fill="{colour}"/>'
                       f'<text x="{left + times * scale + 5:.1f}" y="{y + 14 + k * 16}">{times:.1f}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    if sys.argv[1:2] == ["screen"] and len(sys.argv) == 4:
        sys.stdout.write(screen(int(sys.argv[2]), int(sys.argv[3]), sys.stdin.read()))
    elif sys.argv[1:2] == ["latency"] and len(sys.argv) == 3:
        sys.stdout.write(latency(open(sys.argv[2], encoding="utf-8").read()))
    else:
        sys.exit(__doc__.strip())


if __name__ == "__main__":
    main()
