#include "bench/samples.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void gm_samples_sort(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare);
}

double gm_samples_percentile(const double *sorted, size_t count, unsigned percent)
{
    return sorted[(count * percent + 99) / 100 - 1];
}

struct gm_spread gm_samples_spread(double *values, size_t count)
{
    gm_samples_sort(values, count);
    return (struct gm_spread){.median = (values[(count - 1) / 2] + values[count / 2]) / 2,
                              .low = gm_samples_percentile(values, count, 10),
                              .high = gm_samples_percentile(values, count, 90)};
}
