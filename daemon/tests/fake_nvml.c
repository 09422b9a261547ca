/* A driver library of three GPUs, the second of which does not answer. With WITH_MIG, it has the functions for MIG and five GPUs: the first
 * cannot be divided, the third has instances in the places 0 and 2 of 3, the fourth will be in MIG mode after a reset, and the fifth is in
 * MIG mode without instances. Built by the tests of daemon/src/inventory/nvml.rs. */
#include <stdio.h>
#include <string.h>

/* number: of an instance, ten times that of its GPU plus its place. */
typedef struct { int number, is_instance; } *device;
typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} pci_info;
typedef struct { unsigned long long total, free, used; } memory_info;

#ifdef WITH_MIG
enum { GPUS = 5 };
#else
enum { GPUS = 3 };
#endif
static struct { int number, is_instance; } devices[] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}};
static int is_open;

int nvmlInit_v2(void) { return is_open = 1, 0; }
int nvmlShutdown(void) { return is_open = 0; }
const char *nvmlErrorString(int code) { return code == 4 ? "Insufficient Permissions" : "Uninitialized"; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = GPUS, is_open ? 0 : 1; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *out)
{
    if (!is_open || index >= GPUS) return 1;
    if (index == 1) return 4;
    *out = (device)&devices[index];
    return 0;
}

int nvmlDeviceGetUUID(device d, char *text, unsigned bytes)
{
    return snprintf(text, bytes, "%s-0000-%d", d->is_instance ? "MIG" : "GPU", d->number) < (int)bytes ? 0 : 7;
}

int nvmlDeviceGetName(device d, char *text, unsigned bytes)
{
    int gpu = d->is_instance ? d->number / 10 : d->number;
    return snprintf(text, bytes, "Fake %d%s", 100 + gpu, d->is_instance ? " MIG 1g.4gb" : "") < (int)bytes ? 0 : 7;
}

int nvmlDeviceGetPciInfo_v3(device d, pci_info *out)
{
    if (d->is_instance) return 2;
    memset(out, 0, sizeof *out);
    out->domain = d->number;
    out->bus = 0x3b;
    snprintf(out->bus_id, sizeof out->bus_id, "%08X:3B:00.0", out->domain);
    return 0;
}

int nvmlDeviceGetMemoryInfo(device d, memory_info *out)
{
    if (d->number == 2) return 3;
    unsigned long long total = (d->is_instance ? 4ull : 16ull) << 30;
    *out = (memory_info){total, total - (1ull << 30), 1ull << 30};
    return 0;
}

#ifdef WITH_MIG
static struct { int number, is_instance; } instances[] = {{20, 1}, {21, 1}, {22, 1}};

int nvmlDeviceGetMigMode(device d, unsigned *current, unsigned *pending)
{
    if (d->number == 0) return 3;
    *current = d->number == 2 || d->number == 4;
    *pending = 1;
    return 0;
}

int nvmlDeviceGetMaxMigDeviceCount(device d, unsigned *count) { return *count = 3, d->is_instance ? 2 : 0; }

int nvmlDeviceGetMigDeviceHandleByIndex(device d, unsigned index, device *out)
{
    if (index > 2) return 2;
    if (d->number != 2 || index == 1) return 6;
    *out = (device)&instances[index];
    return 0;
}
#endif
