/*
 * Prints shim/COVERAGE.md: what gpumux does with each entry point of the driver, from the tables
 * that the shim is built from (shim/driver/hooks.def, pass.def, interop.def). One line an API: its
 * forms (versions and stream modes) are told apart only where they are not treated alike.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum kind { GROUP, SUBMIT, COPY, LAUNCH, REPLAY, SYNC, HANDLE, PASS };
enum mode { ANY, LEGACY, PTDS, PTSZ };

static const char *const hows[] = {
    [SUBMIT] = "gate", [COPY] = "gate, checked", [LAUNCH] = "gate, seen",   [REPLAY] = "gate, seen",
    [SYNC] = "marked", [HANDLE] = "handled",     [PASS] = "passed through",
};

/* In the order of the tables. A GROUP is the title of the rows behind it. */
struct row {
    enum kind kind;
    const char *api; /* of a group: its name */
    const char *symbol;
    const char *text; /* of a group: what it says; of a passed row: the name of its reason */
    unsigned since;
    enum mode mode;
};

static const struct row hooks[] = {
#define GM_GROUP(name, text) {GROUP, name, NULL, text, 0, ANY},
#define GM_HOOK(api, symbol, since, mode, kind, params, args)                                      \
    {kind, #api, #symbol, NULL, since, mode},
#include "shim/driver/hooks.def"
#undef GM_HOOK
};

#define GM_REASON(name, text) {GROUP, #name, NULL, text, 0, ANY},
#define GM_PASS(api, symbol, since, mode, reason) {PASS, #api, #symbol, #reason, since, mode},
static const struct row passes[] = {
#include "shim/driver/pass.def"
};
#define GM_REASON(name, text) {GROUP, #name, NULL, text, 0, ANY},
static const struct row interops[] = {
#include "shim/driver/interop.def"
};
#undef GM_PASS

struct table {
    const struct row *rows;
    size_t n;
};
#define TABLE(rows)                                                                                \
    {                                                                                              \
        rows, sizeof(rows) / sizeof((rows)[0])                                                     \
    }
static const struct table tables[] = {TABLE(hooks), TABLE(passes), TABLE(interops)};

/* "KERNEL_ATTRIBUTE" as "Kernel attribute". */
static void print_title(const char *name, bool is_constant)
{
    for (size_t i = 0; name[i] != '\0'; i++) {
        char c = name[i];
        if (is_constant && c == '_')
            c = ' ';
        else if (is_constant && i > 0 && c >= 'A' && c <= 'Z')
            c = (char)(c - 'A' + 'a');
        putchar(c);
    }
}

static const struct row *group_of(const struct table *table, size_t i)
{
    while (i > 0 && table->rows[i].kind != GROUP)
        i--;
    return &table->rows[i];
}

/* What else a passed row's reason is called than the group it stands in: nothing, if in order. */
static bool is_out_of_place(const struct table *table, size_t i)
{
    const struct row *row = &table->rows[i];
    return row->kind == PASS && strcmp(group_of(table, i)->api, row->text) != 0;
}

static const char *how(const struct row *row)
{
    return hows[row->kind];
}

/* One line: the API, its symbols, and how each kind of them is treated. */
static void print_api(const struct table *table, size_t first, size_t end)
{
    const struct row *row = &table->rows[first];
    printf("| `%s` | ", row->api);
    unsigned n = 0, versions = 0, last = 0;
    bool has_per_thread = false, is_mixed = false;
    for (size_t i = first; i < end; i++) {
        const struct row *other = &table->rows[i];
        if (strcmp(other->api, row->api) != 0)
            continue;
        n++;
        has_per_thread = has_per_thread || other->mode == PTDS || other->mode == PTSZ;
        is_mixed = is_mixed || other->kind != row->kind;
    }
    /* Versions in the order of age, each once. */
    for (;;) {
        unsigned next = 0;
        for (size_t i = first; i < end; i++) {
            const struct row *other = &table->rows[i];
            if (strcmp(other->api, row->api) == 0 && other->since > last &&
                (next == 0 || other->since < next))
                next = other->since;
        }
        if (next == 0)
            break;
        printf("%s%u.%u", versions++ > 0 ? ", " : "", next / 1000, next % 1000 / 10);
        last = next;
    }
    printf(" | %u%s | %s |\n", n, has_per_thread ? ", per-thread too" : "",
           is_mixed ? "mixed" : how(row));
}

static bool is_first_of_api(const struct table *table, size_t group, size_t i)
{
    for (size_t k = group + 1; k < i; k++)
        if (strcmp(table->rows[k].api, table->rows[i].api) == 0)
            return false;
    return true;
}

static size_t group_end(const struct table *table, size_t group)
{
    size_t end = group + 1;
    while (end < table->n && table->rows[end].kind != GROUP)
        end++;
    return end;
}

static void print_groups(const struct table *table, bool is_pass)
{
    for (size_t group = 0; group < table->n; group = group_end(table, group)) {
        const struct row *title = &table->rows[group];
        size_t end = group_end(table, group);
        printf("### ");
        print_title(title->api, is_pass);
        printf("\n\n%c%s.\n\n",
               title->text[0] >= 'a' && title->text[0] <= 'z' ? title->text[0] - 'a' + 'A'
                                                              : title->text[0],
               title->text + 1);
        puts("| API | since CUDA | symbols | how |\n| --- | --- | --- | --- |");
        for (size_t i = group + 1; i < end; i++)
            if (is_first_of_api(table, group, i))
                print_api(table, i, end);
        puts("");
    }
}

struct count {
    unsigned apis, symbols;
};

static struct count count_kind(enum kind kind)
{
    struct count count = {0};
    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
        const struct table *table = &tables[t];
        for (size_t i = 0; i < table->n; i++) {
            bool is_new = table->rows[i].kind == kind;
            count.symbols += is_new;
            for (size_t k = 0; k < i && is_new; k++)
                is_new = table->rows[k].kind != kind ||
                         strcmp(table->rows[k].api, table->rows[i].api) != 0;
            count.apis += is_new;
        }
    }
    return count;
}

static void print_counts(void)
{
    static const char *const texts[] = {
        [HANDLE] = "a handler does it: instead of the driver, or around it",
        [LAUNCH] = "crosses the gate, and which memory it touches is marked while the daemon asks",
        [REPLAY] = "the same, for launches that do not name it: of graphs and with textures",
        [SUBMIT] = "crosses the gate: waits while the program is paused",
        [COPY] = "crosses the gate; addresses in memory that was freed and is kept are refused",
        [SYNC] = "not gated; while it lasts the program counts as busy",
        [PASS] = "goes to the driver as if gpumux were not there",
    };
    static const enum kind order[] = {HANDLE, LAUNCH, REPLAY, SUBMIT, COPY, SYNC, PASS};
    unsigned symbols = 0;
    puts("| how | APIs | symbols | meaning |\n| --- | --- | --- | --- |");
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        struct count count = count_kind(order[i]);
        printf("| %s | %u | %u | %s |\n", hows[order[i]], count.apis, count.symbols,
               texts[order[i]]);
        symbols += count.symbols;
    }
    printf("| all | | %u | |\n\n", symbols);
}

int main(void)
{
    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
        for (size_t i = 0; i < tables[t].n; i++) {
            if (i == 0 && tables[t].rows[i].kind != GROUP) {
                fprintf(stderr, "coverage: %s stands in no group\n", tables[t].rows[i].symbol);
                return 1;
            }
            if (is_out_of_place(&tables[t], i)) {
                fprintf(stderr, "coverage: %s does not stand below its reason, %s\n",
                        tables[t].rows[i].symbol, tables[t].rows[i].text);
                return 1;
            }
        }
    }
    puts("# What gpumux does with each entry point of the CUDA driver\n");
    puts("Made from `shim/driver/hooks.def`, `shim/driver/pass.def` and `shim/driver/interop.def` "
         "by "
         "`cmake --build BUILD --target coverage`;\ndo not edit. Every typed pointer of the CUDA "
         "13.0 headers is here: a unit test fails when one is not, and another\nwhen this page is "
         "out of date. A newer driver's call that is not here goes to the driver. A symbol is one "
         "exported\nform of an API: an ABI, for the legacy or the per-thread default stream.\n");
    print_counts();
    puts("## Handled\n");
    print_groups(&tables[0], false);
    puts("## Passed through\n");
    print_groups(&tables[1], true);
    puts("## Graphics and video interfaces, passed through\n");
    print_groups(&tables[2], true);
    return 0;
}
