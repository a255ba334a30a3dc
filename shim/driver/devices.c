#include "shim/driver/devices.h"

#include "common/shm.h"

static int gm_gpus_by_device[GM_DEVICES_MOST]; /* index plus one: 0 is none */
static CUdevice gm_devices_by_gpu[GM_GPUS_MAX];
static uint32_t gm_n_gpus;
static CUdevice gm_devices_seen[GM_DEVICES_MOST];
static uint32_t gm_n_devices;

void gm_devices_set(const CUdevice *devices, uint32_t count)
{
    for (int device = 0; device < GM_DEVICES_MOST; device++)
        gm_gpus_by_device[device] = 0;
    gm_n_gpus = count < GM_GPUS_MAX ? count : GM_GPUS_MAX;
    for (uint32_t gpu = 0; gpu < gm_n_gpus; gpu++) {
        gm_devices_by_gpu[gpu] = devices[gpu];
        if (devices[gpu] >= 0 && devices[gpu] < GM_DEVICES_MOST)
            gm_gpus_by_device[devices[gpu]] = (int)gpu + 1;
    }
}

void gm_devices_see(CUdevice device)
{
    if (gm_n_devices < GM_DEVICES_MOST)
        gm_devices_seen[gm_n_devices++] = device;
}

uint32_t gm_device_count(void)
{
    return gm_n_devices;
}

CUdevice gm_device_at(uint32_t i)
{
    return i < gm_n_devices ? gm_devices_seen[i] : -1;
}

uint32_t gm_gpu_count(void)
{
    return gm_n_gpus;
}

int gm_gpu_of(CUdevice device)
{
    return device >= 0 && device < GM_DEVICES_MOST ? gm_gpus_by_device[device] - 1 : -1;
}

CUdevice gm_gpu_device(uint32_t gpu)
{
    return gpu < gm_n_gpus ? gm_devices_by_gpu[gpu] : -1;
}
