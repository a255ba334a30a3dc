"""What gpumux's hooks cost a program, told within one process: they are switched off and on again while it runs.

Most entry points of libgpumux.so do little for a program that has the GPU but let the call pass the gate (SUBMIT,
COPY, LAUNCH and SYNC in shim/hooks.def). While they are off each of these begins with a jump to the driver's own, so
whoever holds its address, from wherever it got that, calls the driver. The others are left alone: they keep the books
of what the program has, and frameworks call them rarely. So a program whose memory is where it belongs goes on as
before, but a daemon that closes its gate meanwhile is not obeyed: for benches, where nobody else wants the GPU.

A jump has its cost too, above all where the line that it is in has to be fetched first. So there is a third way, with
a second jump, in a line of its own, behind the first: what that adds is what the first added, and so

    ON             with the hooks
    ONE_JUMP       past them
    TWO_JUMPS      the same; it takes as much longer than ONE_JUMP as that takes longer than the driver alone, which is
                   therefore ONE_JUMP * ONE_JUMP / TWO_JUMPS

Where nothing of gpumux is preloaded there is nothing to switch, and all ways are the same.
"""

import ctypes
import mmap
import os
import platform
import re

SHIM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "shim")
TABLE = os.path.join(SHIM, "hooks.def")
PASSING = ("SUBMIT", "COPY", "LAUNCH", "SYNC")
DLSYM_VERSIONS = (b"GLIBC_2.34", b"GLIBC_2.2.5")
ON, ONE_JUMP, TWO_JUMPS = WAYS = range(3)
CACHE_LINE = 64
LAUNCH = "cuLaunchKernel" # what has to be among them
ANYWHERE = None           # RTLD_DEFAULT: in the order of the process, what is preloaded first


LOOK_UPS = ("dlsym", "dlopen") # what libgpumux.so exports of the C library's


class Unavailable(Exception):
    """They cannot be switched here."""


def rows():
    """Of every hooked entry point the symbol and the kind."""
    with open(TABLE, encoding="utf-8") as file:
        return re.findall(r"^GM_HOOK\(\w+, (\w+), \d+, \w+, (\w+),", file.read(), re.M)


def names():
    """The entry points that are switched."""
    return [symbol for symbol, kind in rows() if kind in PASSING]


def nvml_names():
    with open(os.path.join(SHIM, "nvml.def"), encoding="utf-8") as file:
        return re.findall(r"^GM_NVML\((\w+),", file.read(), re.M)


def jump_to(address):
    """jmp *0(%rip), and the address behind it."""
    return b"\xff\x25\0\0\0\0" + address.to_bytes(8, "little")


JUMP = len(jump_to(0))


class Code:
    """What of this process can be changed."""

    def __init__(self):
        if platform.machine() != "x86_64":
            raise Unavailable(f"hooks cannot be switched on {platform.machine()}")
        self.libc = ctypes.CDLL(None, use_errno=True)

    def versioned(self, name):
        """The address of the C library's own function, past one that is exported in front of it; None if unknown."""
        dlvsym = self.libc.dlvsym
        dlvsym.restype, dlvsym.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
        found = (dlvsym(ANYWHERE, name.encode(), version) for version in DLSYM_VERSIONS)
        return next((address for address in found if address), None)

    def own_dlsym(self):
        address = self.versioned("dlsym")
        if not address:
            raise Unavailable("the C library's own dlsym is not found")
        return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(address)

    def make_writable(self, addresses):
        """The places of jumps."""
        size = mmap.PAGESIZE
        for page in sorted({at // size for address in addresses for at in (address, address + JUMP - 1)}):
            if self.libc.mprotect(ctypes.c_void_p(page * size), ctypes.c_size_t(size),
                                  mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) != 0:
                raise Unavailable(f"code may not be changed here: {os.strerror(ctypes.get_errno())}")


def take_out():
    """
    Make this process, which has made no CUDA call yet, a native one: what libgpumux.so exports in front of the driver,
    NVML and the C library jumps to theirs. So whoever asks for an entry point of the driver gets the driver's own, and
    the library, which no call ever reaches, does nothing. Returns how many were taken out.
    """
    code = Code()
    look_up, found = code.own_dlsym(), {}
    for library, symbols in (("libcuda.so.1", [symbol for symbol, _ in rows()]),
                             ("libnvidia-ml.so.1", nvml_names())):
        try:
            handle = ctypes.CDLL(library)._handle
        except OSError:
            continue
        for symbol in symbols:
            found[look_up(ANYWHERE, symbol.encode())] = look_up(handle, symbol.encode())
    for symbol in LOOK_UPS:
        found[look_up(ANYWHERE, symbol.encode())] = code.versioned(symbol)
    found = {ours: own for ours, own in found.items() if ours and own and ours != own}
    code.make_writable(found)
    for ours, own in found.items():
        ctypes.memmove(ours, jump_to(own), JUMP)
    return len(found)


class Hooks(Code):
    """Those of this process, which are on."""

    def __init__(self):
        super().__init__()
        self.switches = {} # by name: address and what it begins with, by way
        look_up = self.own_dlsym()
        try:
            driver = ctypes.CDLL("libcuda.so.1")._handle
        except OSError:
            return
        found = [(name, look_up(ANYWHERE, name.encode()), look_up(driver, name.encode())) for name in names()]
        found = [(name, ours, own) for name, ours, own in found if ours and own and ours != own]
        self.second = mmap.mmap(-1, max(1, len(found)) * CACHE_LINE,
                                prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        line = ctypes.addressof(ctypes.c_char.from_buffer(self.second))
        for name, ours, own in found:
            ctypes.memmove(line, jump_to(own), JUMP)
            self.switches[name] = ours, (ctypes.string_at(ours, JUMP), jump_to(own), jump_to(line))
            line += CACHE_LINE
        self.make_writable(address for address, _ in self.switches.values())

    def __bool__(self):
        """Whether there is anything between this program's launches and the driver."""
        return LAUNCH in self.switches

    def switch(self, way):
        """No thread is in such a call."""
        for address, code in self.switches.values():
            ctypes.memmove(address, code[way], JUMP)
