/* The library that the interposing one finds. */
int reach_probe(int depth);
int cuReachProbe(int depth);
int cuLaunchGrid(void);

int reach_probe(int depth)
{
    return depth;
}

int cuReachProbe(int depth)
{
    return depth;
}

int cuLaunchGrid(void)
{
    return 2;
}
