/*
 * A library that is neither the driver nor NVML and has functions of its own under names that look
 * like theirs, one of each exactly like it. Nobody may replace any.
 */
int cudnnReach(void);
int cuReach(void);
int custom(void);
int cu(void);
int cuMemAlloc_v2(void);
int nvmlReach(void);
int nvml(void);
int nvmlDeviceGetMemoryInfo(void);

int cudnnReach(void)
{
    return 1;
}

int cuReach(void)
{
    return 2;
}

int custom(void)
{
    return 3;
}

int cu(void)
{
    return 4;
}

int cuMemAlloc_v2(void)
{
    return 5;
}

int nvmlReach(void)
{
    return 6;
}

int nvml(void)
{
    return 7;
}

int nvmlDeviceGetMemoryInfo(void)
{
    return 8;
}
