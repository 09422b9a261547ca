/* A driver library of three GPUs, the second of which does not answer. Built by the test of daemon/src/inventory/nvml.rs. */
#include <stdio.h>
#include <string.h>

typedef struct { int number; } *device;
typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} pci_info;
typedef struct { unsigned long long total, free, used; } memory_info;

static struct { int number; } devices[3] = {{0}, {1}, {2}};
static int is_open;

int nvmlInit_v2(void) { return is_open = 1, 0; }
int nvmlShutdown(void) { return is_open = 0; }
const char *nvmlErrorString(int code) { return code == 4 ? "Insufficient Permissions" : "Uninitialized"; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = 3, is_open ? 0 : 1; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *out)
{
    if (!is_open || index > 2) return 1;
    if (index == 1) return 4;
    *out = (device)&devices[index];
    return 0;
}

int nvmlDeviceGetUUID(device d, char *text, unsigned bytes)
{
    return snprintf(text, bytes, "GPU-0000-%d", d->number) < (int)bytes ? 0 : 7;
}

int nvmlDeviceGetName(device d, char *text, unsigned bytes)
{
    return snprintf(text, bytes, "Fake %d", 100 + d->number) < (int)bytes ? 0 : 7;
}

int nvmlDeviceGetPciInfo_v3(device d, pci_info *out)
{
    memset(out, 0, sizeof *out);
    out->domain = d->number;
    out->bus = 0x3b;
    snprintf(out->bus_id, sizeof out->bus_id, "%08X:3B:00.0", out->domain);
    return 0;
}

int nvmlDeviceGetMemoryInfo(device d, memory_info *out)
{
    if (d->number == 2) return 3;
    *out = (memory_info){16ull << 30, 15ull << 30, 1ull << 30};
    return 0;
}
