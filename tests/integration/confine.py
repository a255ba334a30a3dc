#!/usr/bin/env python3
"""confine.py UNIT COMMAND...: runs a command with the capabilities, system calls and address families that a systemd
unit leaves it, where no systemd runs. It knows the settings of gpumuxd.service alone. Needs libseccomp, libcap and
systemd-analyze, which names the calls of a set."""
import ctypes
import errno
import os
import subprocess
import sys

ALLOW, ERRNO, EQUAL = 0x7FFF0000, 0x00050000, 4
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16, "AF_PACKET": 17}
FAMILIES_MAX = 46
PR_CAPBSET_DROP = 24


class Compare(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def words(unit, key):
    """All words of the unit's lines `key=`."""
    with open(unit, encoding="utf-8") as file:
        return [word for line in file if line.startswith(key + "=") for word in line.split("=", 1)[1].split()]


def calls_of(name):
    """The system calls of a set such as @clock, of a call itself."""
    if not name.startswith("@"):
        return {name}
    said = subprocess.run(["systemd-analyze", "syscall-filter", name], check=True, capture_output=True, text=True).stdout
    found = set()
    for line in said.splitlines()[1:]:
        if line.startswith("    ") and not line.strip().startswith("#"):
            found |= calls_of(line.strip())
    return found


def filter_calls(unit):
    lib = ctypes.CDLL("libseccomp.so.2")
    lib.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(lib.seccomp_init(ctypes.c_uint32(ALLOW)))
    names = words(unit, "SystemCallFilter")
    assert names[0].startswith("~"), "not a list of what is denied"
    names[0] = names[0][1:]
    for name in set().union(*map(calls_of, names)) | {"unshare", "setns"}:
        number = lib.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # else this machine has no such call
            assert lib.seccomp_rule_add_array(context, ctypes.c_uint32(ERRNO | errno.EPERM), number, 0, None) == 0, name
    allowed = {FAMILIES[name] for name in words(unit, "RestrictAddressFamilies")}
    socket = lib.seccomp_syscall_resolve_name(b"socket")
    for family in set(range(FAMILIES_MAX)) - allowed:
        compare = Compare(0, EQUAL, family, 0)
        assert lib.seccomp_rule_add_array(context, ctypes.c_uint32(ERRNO | errno.EAFNOSUPPORT), socket, 1,
                                          ctypes.byref(compare)) == 0, family
    assert lib.seccomp_load(context) == 0, "seccomp"


def drop_capabilities(unit):
    libc, libcap = ctypes.CDLL(None), ctypes.CDLL("libcap.so.2")
    kept = set()
    for name in words(unit, "CapabilityBoundingSet"):
        number = ctypes.c_int()
        assert libcap.cap_from_name(name.lower().encode(), ctypes.byref(number)) == 0, name
        kept.add(number.value)
    with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as file:
        last = int(file.read())
    for number in set(range(last + 1)) - kept:
        assert libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) == 0, number


drop_capabilities(sys.argv[1])
filter_calls(sys.argv[1])
os.execvp(sys.argv[2], sys.argv[2:])
