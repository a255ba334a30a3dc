/* What the service may write (daemon/service/seen.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/service/seen.h"

/* The longest path of the unit's properties that has the folder counts. */
static void test_properties(void **state)
{
    static const struct {
        const char *properties, *folder, *by; /* NULL: it may be written */
    } cases[] = {
        {"ProtectSystem=full\n", "/usr/bin", "ProtectSystem"},
        {"ProtectSystem=full\n", "/etc", "ProtectSystem"},
        {"ProtectSystem=full\n", "/var/tmp", NULL},
        {"ProtectSystem=yes\n", "/etc", NULL},
        {"ProtectSystem=no\nProtectHome=no\nPrivateTmp=no\n", "/usr", NULL},
        {"ProtectSystem=strict\n", "/", "ProtectSystem"},
        {"ProtectSystem=strict\n", "/var/tmp", "ProtectSystem"},
        {"ProtectSystem=strict\nReadWritePaths=-/var /usr\n", "/var/tmp", NULL},
        {"ProtectHome=read-only\n", "/home", "ProtectHome"},
        {"ProtectHome=read-only\nReadWritePaths=/srv /home\n", "/home", NULL},
        {"ReadOnlyPaths=/var\nStateDirectory=gpumux\n", "/var/lib", "ReadOnlyPaths"},
        {"ReadOnlyPaths=/va\n", "/var", NULL},
        {"InaccessiblePaths=+/var/tmp\n", "/var/tmp", "InaccessiblePaths"},
        {"PrivateTmp=yes\n", "/tmp", NULL},
        {"", "/usr", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct gm_seen seen = {.kind = GM_SEEN_BY_ROOT};
        char why[512] = "";
        snprintf(seen.properties, sizeof seen.properties, "%s", cases[i].properties);
        const int error = gm_seen_try(&seen, cases[i].folder, why, sizeof why);
        if (error != (cases[i].by ? -EROFS : 0) || (cases[i].by && !strstr(why, cases[i].by)))
            fail_msg("case %zu: %d, \"%s\"", i, error, why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_properties)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
