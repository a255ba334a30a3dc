"""docs.py SOURCE BUILD: the pages say what the programs have.

- gpumuxd(8) has each option of gpumuxd, with its default, and mux-ctl(1) each command, and no others
- mux-ctl(1) names each member of what --json prints, and no member that no program writes
- daemon/README.md and the manual name no option that there is not
- a citation of a page of the manual, such as gpumux(7), "Caps", leads to a heading of it
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



def plain(text):
    """Of a page of the manual, without roff."""
    return re.sub(r"\\f[BIR]", "", text).replace("\\-", "-")


def made(page):
    """A page of the manual as the build has it: with options and commands from the tables."""
    with open(os.path.join(build, "docs/man", page), encoding="utf-8") as file:
        return plain(file.read())


def options_of(text):
    """The options that a help lists, and the default of each."""
    found = {}
    for line in text.splitlines():
        if re.match(r"\s+(-., )?--", line):
            default = re.search(r"\(default ([^()]+)\)", line)
            found[re.search(r"--([a-z-]+)", line)[1]] = default and default[1]
    return found


# --- gpumuxd's options ---
known = options_of(help_of("gpumuxd", "--help"))
told = {}
for entry in made("gpumuxd.8").split(".SH OPTIONS")[1].split("\n.SH ")[0].split(".TP\n")[1:]:
    default = re.search(r"^Default: (.*)\.$", entry, re.M)
    told[re.match(r"(?:\.B )?--([a-z-]+)", entry)[1]] = default and default[1]
compare("gpumuxd(8), options:", set(told), set(known))
for name in sorted(set(told) & set(known)):
    if known[name] and told[name] != known[name]:
        wrong.append(f"gpumuxd(8): --{name} is {known[name]} by default, not {told[name]}")
options = set(known)

# --- mux-ctl's commands ---
commands = set(re.findall(r"^MUX_COMMAND\(([a-z]+),", read("daemon/ctl/commands.def"), re.M))
part = made("mux-ctl.1").split(".SH COMMANDS")[1].split("\n.SH ")[0]
compare("mux-ctl(1), commands:", set(re.findall(r"^\.SS ([a-z]+)$", part, re.M)), commands)
for command in commands:
    options |= set(options_of(help_of("mux-ctl", command, "--help")))

# --- members of JSON ---
known = set()
for path in ("views/status.c", "views/log.c", "ctl/doctor.c", "ctl/ps.c", "ctl/samples.c", "ctl/unshared.c"):
    found = re.findall(r'(?:cJSON_Add\w+ToObject|add_\w+)\(\s*[\w>.-]+,\s*"([a-z_]+)"', read(f"daemon/{path}"))
    known |= set(found)
    if len(found) < 6:
        wrong.append(f"daemon/{path}: only {len(found)} members are found")
known |= set(re.findall(r'ToObject\(root, "([a-z_]+)"', read("daemon/service/control.c")))
known -= {"started_s", "newest", "kept", "entries"} # of HELLO, and around the entries of the log
part = read("docs/man/mux-ctl.1").split("\n.SH JSON")[1].split("\n.SH ")[0]
told = set(re.findall(r"`([a-z_]+)(?:\[\])?`", part))
wrong.extend(f"mux-ctl(1), members: lacks {name}" for name in sorted(known - told))
code = "".join(read(os.path.join(folder, name)) for folder, _, names in os.walk(os.path.join(source, "daemon"))
               for name in names if name.endswith((".c", ".h", ".def")))
wrong.extend(f"mux-ctl(1), members: nobody writes {name}" for name in sorted(told)
             if "_" in name and not re.search(rf"\b({name}|{re.sub('_(s|ms|bytes)$', '', name)})\b", code))

# --- what pages name: options, and headings of the manual ---
pages = [os.path.relpath(os.path.join(folder, name), source) for folder, folders, names in os.walk(source)
         if not folders.__setitem__(slice(None), [one for one in folders if not one.startswith((".", "build", "shared"))])
         for name in names if re.search(r"\.(md|def|[ch]|[1-8])$", name)]
manual = [page for page in pages if page.startswith("docs/man/") and page[-1].isdigit()]
options |= {"now", "sanitizer", "replay", "steps"} # of systemctl, tests/setup.sh, sim_sched, and of a program in an example
for page in ["daemon/README.md", *manual]:
    named = set(re.findall(r"(?<![\w-])--([a-z][a-z-]*)", plain(read(page))))
    wrong.extend(f"{page} names --{name}, which there is not" for name in sorted(named - options))
headings = {os.path.basename(page): {one.lower() for one in re.findall(r"^\.S[HS] (.*)$", plain(read(page)), re.M)} for page in manual}
cited = 0
for page in pages:
    text = re.sub(r"\s+(\* )?", " ", read(page)) # also in comments of C
    here = os.path.basename(page)
    found = re.findall(r'\b(gpumux(?:d|\.conf|-keeper)?|mux-ctl|libgpumux)`?\((\d)\), "([^"]+)"', text)
    if here in headings:
        found += [(*here.rsplit(".", 1), heading) for heading in re.findall(r'\bsee "([^"]+)"', text)]
    cited += len(found)
    wrong.extend(f'{page}: {name}({section}) has no "{heading}"' for name, section, heading in found
                 if heading.lower() not in headings.get(f"{name}.{section}", ()))
if cited < 20:
    wrong.append(f"only {cited} citations of the manual")

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


pages = [page for page in pages if page.endswith(".md")]
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
