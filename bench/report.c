/* The head of a JSON result. See report.h. */
#include "bench/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "common/size.h"

void gm_report_spread(FILE *out, const char *name, struct gm_spread spread)
{
    fprintf(out, "\"%s\": {\"median\": %.3f, \"p10\": %.3f, \"p90\": %.3f}", name, spread.median,
            spread.low, spread.high);
}

/* A JSON string with its quotes. */
static void gm_report_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(out, "\\u%04x", *c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

/* The rest of the first line of `file` that begins with `key`, without what separates the two. */
static const char *line_of(const char *file, const char *key, char *text, size_t size)
{
    FILE *in = fopen(file, "re");
    const char *found = NULL;
    if (in == NULL)
        return NULL;
    while (found == NULL && fgets(text, (int)size, in) != NULL) {
        if (strncmp(text, key, strlen(key)) != 0)
            continue;
        text[strcspn(text, "\n")] = '\0';
        found = text + strlen(key) + strspn(text + strlen(key), " \t:=\"");
        text[strlen(text) - (text[0] != '\0' && text[strlen(text) - 1] == '"')] = '\0';
    }
    fclose(in);
    return found;
}

static void member(FILE *out, const char *name, const char *text)
{
    fprintf(out, "\"%s\": ", name);
    if (text != NULL)
        gm_report_text(out, text);
    else
        fprintf(out, "null");
    fprintf(out, ", ");
}

void gm_report_machine(FILE *out, const char *gpu, int cuda_version)
{
    char text[512], cuda[32];
    struct utsname kernel;
    snprintf(cuda, sizeof(cuda), "%d.%d", cuda_version / 1000, cuda_version % 1000 / 10);
    fprintf(out, "{");
    member(out, "gpu", gpu);
    member(out, "driver",
           line_of("/proc/driver/nvidia/version", "NVRM version", text, sizeof(text)));
    member(out, "cuda", gpu != NULL ? cuda : NULL);
    member(out, "cpu", line_of("/proc/cpuinfo", "model name", text, sizeof(text)));
    member(out, "kernel", uname(&kernel) == 0 ? kernel.release : NULL);
    member(out, "distribution", line_of("/etc/os-release", "PRETTY_NAME", text, sizeof(text)));
    fprintf(out, "\"processors\": %ld, \"memory_bytes\": %lld}", sysconf(_SC_NPROCESSORS_ONLN),
            (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
}

FILE *gm_report_open(const char *file, const char *bench, int argc, char **argv, const char *gpu,
                     int cuda_version)
{
    FILE *out = strcmp(file, "-") == 0 ? stdout : fopen(file, "we");
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    if (out == NULL) {
        fprintf(stderr, "%s: %s: %s\n", bench, file, strerror(errno));
        return NULL;
    }
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    fprintf(out, "{\n  ");
    member(out, "bench", bench);
    member(out, "date", date);
    member(out, "commit", getenv("GM_COMMIT"));
    fprintf(out, "\"command\": [");
    for (int i = 0; i < argc; i++) {
        const char *slash = i == 0 ? strrchr(argv[0], '/') : NULL;
        fprintf(out, "%s", i > 0 ? ", " : "");
        gm_report_text(out, slash != NULL ? slash + 1 : argv[i]);
    }
    fprintf(out, "],\n  \"machine\": ");
    gm_report_machine(out, gpu, cuda_version);
    fprintf(out, ",\n");
    return out;
}

int gm_report_close(FILE *out, const char *file)
{
    int failed;
    fprintf(out, "}\n");
    failed = fflush(out) != 0 || ferror(out) != 0;
    if (out != stdout && fclose(out) != 0)
        failed = 1;
    if (failed)
        fprintf(stderr, "cannot write %s\n", file);
    return failed ? -1 : 0;
}

static bool take_value(const struct gm_option *option, const char *text)
{
    uint64_t number = 0;
    if (text == NULL || text[0] == '\0')
        return false;
    if (option->kind == GM_OPTION_TEXT) {
        *(const char **)option->value = text;
        return true;
    }
    const bool is_size = option->kind == GM_OPTION_SIZE;
    if ((is_size ? gm_parse_size(text, &number) : gm_parse_number(text, &number)) != 0 ||
        number < option->least || number > option->most)
        return false;
    *(uint64_t *)option->value = number;
    return true;
}

bool gm_options_take(int argc, char **argv, const struct gm_option *options, size_t count)
{
    for (int i = 1; i < argc; i++) {
        const struct gm_option *option = options;
        while (option < options + count && strcmp(argv[i], option->name) != 0)
            option++;
        if (option == options + count)
            return false;
        if (option->kind == GM_OPTION_FLAG)
            *(bool *)option->value = true;
        else if (!take_value(option, argv[++i])) /* NULL behind the last */
            return false;
    }
    return true;
}
