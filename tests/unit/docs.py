"""docs.py SOURCE BUILD: the pages say what the programs have.

- daemon/README.md has a row for each option of gpumuxd, with its default, and for each command of mux-ctl, and no others
- daemon/README.md names each member of what --json prints
- shim/README.md has a row for each variable of the environment that libgpumux(7) has (test_manual.sh: those of the code)
- docs/troubleshooting.md has a row for each check of mux-ctl doctor, and no other
- docs/containers.md has a row for each word of Slurm's --gpumux, and no other
- the example of docs/lab.md is a configuration without a mistake
- each link leads to a file of the tree and, with #, to a heading of it
"""
import os
import re
import subprocess
import sys
import tempfile

source, build = sys.argv[1:]
wrong = []


def read(path):
    with open(os.path.join(source, path), encoding="utf-8") as file:
        return file.read()


def compare(what, told, known):
    """Names that a page has, and those that there are."""
    wrong.extend(f"{what} lacks {name}" for name in sorted(known - told))
    wrong.extend(f"{what} has {name}, which there is not" for name in sorted(told - known))
    if not known:
        wrong.append(f"{what}: nothing is known")


def help_of(*command):
    return subprocess.run([os.path.join(build, "daemon", command[0]), *command[1:]], capture_output=True, text=True,
                          check=True, env={**os.environ, "ARGP_HELP_FMT": "rmargin=2000", "LC_ALL": "C"}).stdout


# --- gpumuxd's options ---
known = {}
for line in help_of("gpumuxd", "--help").splitlines():
    if re.match(r"\s+(-., )?--", line):
        name = re.search(r"--([a-z-]+)", line)[1]
        default = re.search(r"\(default ([^()]+)\)", line)
        known[name] = default and default[1]
for name in ("help", "version", "check", "drain"): # what does one thing and ends: the text has those
    del known[name]
page = read("daemon/README.md")
rows = re.findall(r"^\| `--([a-z-]+)[^|`]*(?:\\\|[^|`]*)*`[^|]*\|([^|]*)\|", page, re.M)
compare("daemon/README.md, options:", {name for name, _ in rows}, set(known))
for name, default in rows:
    default = default.strip()
    if known.get(name) and default != known[name]:
        wrong.append(f"daemon/README.md: --{name} is {known[name]} by default, not {default}")

# --- mux-ctl's commands ---
known = set(re.findall(r"^MUX_COMMAND\(([a-z]+),", read("daemon/ctl/commands.def"), re.M))
told = set()
for row in re.findall(r"^\| (`mux-ctl [^|]*(?:\\\|[^|]*)*)\|", page, re.M):
    told |= set(re.findall(r"`(?:mux-ctl )?([a-z]+)[` ]", row))
compare("daemon/README.md, commands:", told, known)

# --- members of JSON ---
known = set()
for path in ("views/status.c", "ctl/doctor.c", "ctl/ps.c", "ctl/samples.c", "ctl/unshared.c"):
    found = re.findall(r'(?:cJSON_Add\w+ToObject|add_\w+)\(\s*[\w>.-]+,\s*"([a-z_]+)"', read(f"daemon/{path}"))
    known |= set(found)
    if len(found) < 6:
        wrong.append(f"daemon/{path}: only {len(found)} members are found")
known |= {name for name in re.findall(r'ToObject\(root, "([a-z_]+)"', read("daemon/service/control.c"))} - {"started_s"} # of HELLO
wrong.extend(f"daemon/README.md, members: lacks {name}"
             for name in sorted(known - set(re.findall(r"`([a-z_]+)(?:\[\])?`", page))))

# --- variables ---
known = set(re.findall(r"GPUMUX_[A-Z_]+", read("docs/man/libgpumux.7")))
told = set()
for row in re.findall(r"^\| (`[A-Z][^|]*)\|", read("shim/README.md"), re.M):
    told |= set(re.findall(r"GPUMUX_[A-Z_]+", row))
compare("shim/README.md, variables:", told, known)

# --- doctor ---
code = read("daemon/ctl/doctor.c")
known = set(re.findall(r'\bcheck\(doctor, "([^"]+)"', code))
known |= set(re.findall(r'^GM_FEATURE\(\d+, [A-Z_]+, "([^"]+)"', read("common/features.def"), re.M))
table = read("docs/troubleshooting.md").split("## What each check means")[1].split("\n## ")[0]
told = set()
for row in re.findall(r"^\| (`[^|]*)\|", table, re.M):
    told |= set(re.findall(r"`([^`]+)`", row))
compare("docs/troubleshooting.md, checks:", told, known)

# --- Slurm ---
known = set(re.findall(r'\[GM_SPANK_[A-Z]+\] = "([a-z]+)"', read("packaging/slurm/option.c"))) | {"off"}
table = read("docs/containers.md").split("## Slurm")[1].split("\n## ")[0]
compare("docs/containers.md, words:", set(re.findall(r"^\| `([a-z]+)[:`]", table, re.M)), known)

# --- the example ---
example = re.search(r"^A start for.*?```\n(.*?)```", read("docs/lab.md"), re.M | re.S)[1]
with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
    os.chmod(file.name, 0o644)
    file.write(example)
    file.flush()
    done = subprocess.run([os.path.join(build, "daemon", "gpumuxd"), "--check", "--config", file.name], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0 or len(example.splitlines()) < 5:
        wrong.append(f"docs/lab.md, example: {done.stderr}")


# --- links ---
def anchors(path):
    """As GitHub makes them of headings."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", read(path), flags=re.S), re.M):
        anchor = re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", heading).lower()).replace(" ", "-")
        found.add(anchor)
    return found


pages = [os.path.relpath(os.path.join(folder, name), source) for folder, folders, names in os.walk(source)
         if not folders.__setitem__(slice(None), [one for one in folders if not one.startswith((".", "build", "shared"))])
         for name in names if name.endswith(".md")]
count = 0
for page in pages:
    text = re.sub(r"```.*?```", "", read(page), flags=re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        count += 1
        path, _, anchor = link.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(os.path.join(source, path)):
            wrong.append(f"{page}: {link}: there is no {path}")
        elif anchor and anchor not in anchors(path):
            wrong.append(f"{page}: {link}: {path} has no such heading")
if len(pages) < 8 or count < 30:
    wrong.append(f"only {len(pages)} pages with {count} links")

for line in wrong:
    print(line)
print(f"{len(pages)} pages, {count} links, {len(wrong)} wrong")
sys.exit(bool(wrong))
