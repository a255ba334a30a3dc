/*
 * The part of CUPTI that tests/gpu/crosscheck needs, on simcuda: one subscriber, called at every
 * call into the driver before it does anything. The number of a call is its place in the shim's
 * tables. Which form of an API it is simcuda does not tell: it is taken for the newest hooked one.
 */
#include "tests/simcuda/watch.h"

#include <cuda.h>
#include <cupti_callbacks.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define SIM_VISIBLE __attribute__((visibility("default")))

struct sim_name {
    const char *api, *symbol;
};

/* From what is looked for last to what is looked for first. */
static const struct sim_name names[] = {
    {"", ""},
#define GM_PASS(api, symbol, since, mode, reason) {#api, #symbol},
#include "shim/driver/pass.def"
#undef GM_PASS
#define GM_OWN(api, symbol, since) {#api, #symbol},
#include "shim/driver/own.def"
#undef GM_OWN
#define GM_HOOK(api, symbol, since, mode, kind, params, args) {#api, #symbol},
#include "shim/driver/hooks.def"
#undef GM_HOOK
};
#define NAMES (sizeof(names) / sizeof(names[0]))

static CUpti_CallbackFunc subscriber;
static void *subscriber_data;

/* The newest hooked form of the API, or of one that is not hooked. */
static CUpti_CallbackId number_of(const char *api)
{
    CUpti_CallbackId i = NAMES - 1;
    while (i > 0 && strcmp(names[i].api, api) != 0)
        i--;
    return i;
}

static void on_call(const char *api)
{
    CUpti_CallbackData data;
    CUpti_CallbackId id = number_of(api);
    if (id == 0)
        return;
    memset(&data, 0, sizeof(data));
    data.callbackSite = CUPTI_API_ENTER;
    data.functionName = api;
    subscriber(subscriber_data, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
}

SIM_VISIBLE CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle *handle,
                                                CUpti_CallbackFunc callback, void *data)
{
    if (handle == NULL || callback == NULL)
        return CUPTI_ERROR_INVALID_PARAMETER;
    if (subscriber != NULL)
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    subscriber = callback;
    subscriber_data = data;
    *handle = (CUpti_SubscriberHandle)&subscriber;
    return CUPTI_SUCCESS;
}

SIM_VISIBLE CUptiResult CUPTIAPI cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle handle,
                                                   CUpti_CallbackDomain domain)
{
    if (handle != (CUpti_SubscriberHandle)&subscriber || domain != CUPTI_CB_DOMAIN_DRIVER_API)
        return CUPTI_ERROR_INVALID_PARAMETER;
    simcuda_watch(enable ? on_call : NULL);
    return CUPTI_SUCCESS;
}

SIM_VISIBLE CUptiResult CUPTIAPI cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id,
                                                      const char **name)
{
    if (domain != CUPTI_CB_DOMAIN_DRIVER_API || id == 0 || id >= NAMES || name == NULL)
        return CUPTI_ERROR_INVALID_PARAMETER;
    *name = names[id].symbol;
    return CUPTI_SUCCESS;
}
