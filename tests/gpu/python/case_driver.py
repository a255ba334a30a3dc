"""A case of the framework matrix without any framework: the driver's calls through ctypes. Runs on simcuda as well."""

import ctypes
import zlib

import case

PIECE = 2**24
READ = 2**21 # of each piece in a round


class Driver:
    """libcuda.so.1; a call that fails ends the program."""

    def __init__(self):
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise case.Skip(f"no CUDA driver: {error}") from None
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name}: error {code}")

    def alloc(self, count):
        at = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(count))
        return at

    def read(self, at, count):
        buffer = ctypes.create_string_buffer(count)
        self.call("cuMemcpyDtoH_v2", buffer, at, ctypes.c_size_t(count))
        return buffer.raw


def memory(arguments):
    """Sets, copies within the GPU and to it, and reads back; of each piece a part is summed up in each round."""
    driver = Driver()
    pieces = [driver.alloc(PIECE) for _ in range(max(2, int(arguments.gib * 2**30) // PIECE))]
    for number, piece in enumerate(pieces):
        driver.call("cuMemsetD32_v2", piece, 0x1234567 * (number + 1) % 2**32, ctypes.c_size_t(PIECE // 4))
        text = (b"%08d" % number) * 1024
        driver.call("cuMemcpyHtoD_v2", ctypes.c_uint64(piece.value + 4096 * number % PIECE), text, ctypes.c_size_t(len(text)))

    def one_round():
        value, scratch = 0, driver.alloc(PIECE)
        for number, piece in enumerate(pieces):
            driver.call("cuMemcpyDtoD_v2", scratch, piece, ctypes.c_size_t(PIECE))
            at = number * READ % PIECE
            value = zlib.crc32(driver.read(ctypes.c_uint64(scratch.value + at), READ), value)
            value = zlib.crc32(driver.read(piece, 65536), value)
        driver.call("cuMemFree_v2", scratch)
        return value, [value]

    return one_round


if __name__ == "__main__":
    case.run({"driver": memory})
