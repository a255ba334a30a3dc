/*
 * A library that is not the driver and has functions of its own under names that look like the
 * driver's, one of them exactly like it. Nobody may replace any.
 */
int cudnnReach(void);
int cuReach(void);
int custom(void);
int cu(void);
int cuMemAlloc_v2(void);

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
