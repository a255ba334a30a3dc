/* What `top` shows: samples of the status, the rates between them, and their history. Pure of
 * terminals. Called by top.c and screen.c. */
#ifndef GM_DAEMON_CTL_SAMPLES_H
#define GM_DAEMON_CTL_SAMPLES_H

#include "daemon/ctl/ctl.h"

#define MUX_HISTORY 128 /* samples */

enum mux_series {
    MUX_USED,   /* of the budget, from 0 to 1 */
    MUX_PINNED, /* of the most pinned memory */
    MUX_BELOW,  /* of the paged and disk tiers together */
    MUX_IN,     /* bytes a second to the GPU */
    MUX_OUT,    /* ... and from it */
    MUX_BUSY,   /* part of the time in which somebody had the GPU, from 0 to 1 */
    MUX_SERIES,
};

struct mux_gpu_history {
    double index;                         /* of the GPU; CUDA's number */
    unsigned n;                           /* samples so far, MUX_HISTORY at most */
    float value[MUX_SERIES][MUX_HISTORY]; /* the oldest first */
};

struct mux_samples {
    cJSON *status, *before;      /* the newest, and the one before; NULL: there is none */
    double seconds;              /* between the two */
    struct mux_gpu_history *gpu; /* by place in the status */
    size_t n_gpus;
};

/* Take a status, which it deletes in time. False: out of memory. */
bool mux_take_sample(struct mux_samples *samples, cJSON *status);
void mux_free_samples(struct mux_samples *samples);

/* The newest value; 0. */
double mux_newest(const struct mux_gpu_history *gpu, enum mux_series series);

/* Percent of the time between the last two samples that the app had its GPU; less than 0: it is not
 * known. */
double mux_percent(const struct mux_samples *samples, const cJSON *app);

/* What the newest sample has, as JSON: the programs that `options` and `filter` mean ("": all). */
cJSON *mux_samples_json(const struct mux_samples *samples, const struct mux_options *options);

/* Whether a part of an app's name, user, state, pid or reason is `filter`. */
bool mux_is_filtered(const cJSON *app, const char *filter);

#endif
