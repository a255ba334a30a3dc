#include "shim/driver/real.h"

struct gm_real gm_real; /* entry/load.c fills it */
