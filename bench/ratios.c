#include "bench/ratios.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double gm_ratios_median(double *ratios, size_t count)
{
    qsort(ratios, count, sizeof(*ratios), compare);
    return sqrt(ratios[(count - 1) / 2] * ratios[count / 2]);
}
