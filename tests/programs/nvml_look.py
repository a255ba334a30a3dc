"""What a program of Python is told of its memory by pynvml (nvidia-ml-py) and by CUDA: for integration/nvml.sh."""
import ctypes
import os

import pynvml

cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, (name, result)


def own(processes):
    return [process.usedGpuMemory for process in processes if process.pid == os.getpid()][0]


device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
before = own(pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(48 << 20))
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
after = own(pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
details = own(pynvml.nvmlDeviceGetRunningProcessDetailList(handle, pynvml.nvmlProcessDetailList_v1, 0))
said = pynvml.nvmlDeviceGetMemoryInfo(handle)
print(f"process={after - before} details={details - before} same={int((said.free, said.total) == (free.value, total.value))}")
