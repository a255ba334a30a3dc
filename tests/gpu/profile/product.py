"""Matrix products by cuBLAS in several sizes, called through ctypes: no framework. Verifies one of them.

Finds libcublas and libcudart in the folders of Python's packages, or where the dynamic linker looks.
"""
import ctypes
import glob
import site
import sys


def library(name):
    for folder in site.getsitepackages() + [site.getusersitepackages()] + ["/usr/local/cuda/lib64/..", "/usr/lib/x86_64-linux-gnu/.."]:
        for path in sorted(glob.glob(f"{folder}/**/lib{name}.so.1[23]*", recursive=True)):
            try:
                return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            except OSError:
                pass
    for version in ("13", "12"):
        try:
            return ctypes.CDLL(f"lib{name}.so.{version}", mode=ctypes.RTLD_GLOBAL)
        except OSError:
            pass
    print(f"skipped: there is no lib{name}")
    sys.exit(77)


def check(code, what):
    if code != 0:
        print(f"{what}: error {code}")
        sys.exit(1)


library("cublasLt")
cublas, cudart = library("cublas"), library("cudart")
handle = ctypes.c_void_p()
check(cublas.cublasCreate_v2(ctypes.byref(handle)), "cublasCreate")


def memory(n, value):
    at = ctypes.c_void_p()
    check(cudart.cudaMalloc(ctypes.byref(at), ctypes.c_size_t(4 * n)), "cudaMalloc")
    data = (ctypes.c_float * n)(*([value] * n))
    check(cudart.cudaMemcpy(at, data, ctypes.c_size_t(4 * n), 1), "cudaMemcpy")
    return at


most = 1024 * 1024
a, b, c = memory(most, 1.0), memory(most, 2.0), memory(most, 0.0)
one, zero = ctypes.c_float(1), ctypes.c_float(0)
for step in range(1, 9):
    m, n, k = 128 * step, 96 * step, 64 * step
    for _ in range(2):
        check(cublas.cublasSgemm_v2(handle, 0, 0, m, n, k, ctypes.byref(one), a, m, b, k, ctypes.byref(zero), c, m), "cublasSgemm")
    check(cudart.cudaDeviceSynchronize(), "cudaDeviceSynchronize")
got = (ctypes.c_float * 1)()
check(cudart.cudaMemcpy(got, c, ctypes.c_size_t(4), 2), "cudaMemcpy")
if got[0] != 2.0 * k:
    print(f"the product is {got[0]}, not {2.0 * k}")
    sys.exit(1)
print("results are right")
