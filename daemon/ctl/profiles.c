/* Profiles, and how good they are, as tables on standard output. Called by profile.c. */
#include "daemon/ctl/ctl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

/* "4 * w24 + 100": as people write it. */
static const char *show_amount(const struct gm_amount *amount, char text[GM_AMOUNT_TEXT])
{
    char plain[GM_AMOUNT_TEXT];
    const char *factors = strchr(gm_amount_format(amount, plain), '*');
    if (amount->n == 0)
        return gm_amount_format(amount, text);
    text[0] = '\0';
    if (amount->numerator != 1 || amount->denominator != 1)
        gm_text_add(text, GM_AMOUNT_TEXT, "%u%s", amount->numerator,
                    amount->denominator == 1 ? " * " : "");
    if (amount->denominator != 1)
        gm_text_add(text, GM_AMOUNT_TEXT, " / %u * ", amount->denominator);
    for (const char *c = factors + 1; *c != '\0'; c++)
        gm_text_add(text, GM_AMOUNT_TEXT, *c == '*' ? " * " : "%c", *c);
    if (amount->constant != 0)
        gm_text_add(text, GM_AMOUNT_TEXT, " %c %" PRIu64, amount->constant < 0 ? '-' : '+',
                    amount->constant < 0 ? -(uint64_t)amount->constant
                                         : (uint64_t)amount->constant);
    return text;
}

static const char *show_parts(uint16_t parts, char text[16])
{
    if (parts == GM_PROFILE_UNKNOWN)
        return "-";
    snprintf(text, 16, parts >= GM_PROFILE_UNKNOWN - 1 ? "> %u %%" : "%u.%02u %%", parts / 100u,
             parts % 100u);
    return text;
}

static void show_argument(const struct gm_profile_argument *argument)
{
    static const char *const kinds[] = {"T1 fixed", "T2 linear", "T3 strided"};
    const struct gm_template *template = &argument->template;
    char from[GM_AMOUNT_TEXT], bytes[GM_AMOUNT_TEXT], stride[GM_AMOUNT_TEXT], count[GM_AMOUNT_TEXT];
    if (argument->how != GM_PROFILE_TOUCH) {
        printf("%10u  %s\n", template->offset,
               argument->how == GM_PROFILE_NONE ? "not touched" : "touched, and no template fits");
        return;
    }
    const enum gm_template_kind kind = gm_template_kind(template);
    printf("%10u  %-10s  %s bytes", template->offset, kinds[kind],
           show_amount(&template->bytes, bytes));
    if (template->from.n > 0 || template->from.constant != 0)
        printf(" from %s on", show_amount(&template->from, from));
    if (kind == GM_TEMPLATE_STRIDED)
        printf(", %s times, every %s", show_amount(&template->count, count),
               show_amount(&template->stride, stride));
    printf("\n");
}

void mux_show_profile(const char *path, const struct gm_profile *profile)
{
    char missed[16], excess[16], unnamed[32];
    printf("%s: %u kernels\n", path, profile->n);
    if (profile->n > 0)
        printf("LAUNCHES    MISSED    EXCESS  UNNAMED   KERNEL\n");
    for (uint32_t i = 0; i < profile->n; i++) {
        const struct gm_profile_kernel *kernel = &profile->kernels[i];
        printf("%8" PRIu64 "  %8s  %8s  %-8s  %s\n", kernel->launches,
               show_parts(kernel->missed, missed), show_parts(kernel->excess, excess),
               gm_format_size(kernel->unnamed, unnamed, sizeof unnamed), kernel->name);
        for (uint32_t a = 0; a < kernel->n; a++)
            show_argument(&kernel->arguments[a]);
    }
}

void mux_show_lessons(const struct gm_records *records, const struct gm_profile *profile,
                      const struct gm_lesson *lessons)
{
    static const char *const ways[] = {"the profile", "addresses alone", "whole allocations"};
    struct gm_verdict sum[3] = {0};
    uint32_t kinds[3] = {0}, none = 0, other = 0, unnamed = 0;
    char missed[16], excess[16], touched[32];
    for (uint32_t i = 0; i < records->n_kernels; i++) {
        const struct gm_profile_kernel *kernel = gm_profile_find(profile, records->kernels[i].hash);
        for (uint32_t way = 0; way < 3; way++) {
            sum[way].touched += lessons[i].verdict[way].touched;
            sum[way].missed += lessons[i].verdict[way].missed;
            sum[way].excess += lessons[i].verdict[way].excess;
        }
        unnamed += kernel != NULL && kernel->unnamed > 0;
        for (uint32_t a = 0; kernel != NULL && a < kernel->n; a++) {
            if (kernel->arguments[a].how == GM_PROFILE_TOUCH)
                kinds[gm_template_kind(&kernel->arguments[a].template)]++;
            else if (kernel->arguments[a].how == GM_PROFILE_NONE)
                none++;
            else
                other++;
        }
    }
    printf("%u launches of %u kernels; addresses among the arguments: %u fixed, %u linear, %u "
           "strided, %u not touched, %u others; %u kernels follow pointers in memory\n",
           records->n_launches, records->n_kernels, kinds[0], kinds[1], kinds[2], none, other,
           unnamed);
    printf("The launches that were not learned from touched %s:\n",
           gm_format_size(sum[0].touched, touched, sizeof touched));
    printf("  MISSED    EXCESS  PREDICTED BY\n");
    for (uint32_t way = 0; way < 3; way++)
        printf("%8s  %8s  %s\n", show_parts(gm_judge_parts(sum[way].missed, &sum[way]), missed),
               show_parts(gm_judge_parts(sum[way].excess, &sum[way]), excess), ways[way]);
}
