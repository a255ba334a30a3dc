/* The daemon's options: defaults, file, command line, precedence, and one line for each mistake. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "common/clock.h"
#include "common/sock.h"
#include "daemon/service/options_load.h"

#define WORDS 8

static struct gm_options options;
static char why[PATH_MAX + 512];
static char folder[64];
static char file[128];

/* Parse a command line; the words after the first NULL are not looked at. */
static int parse(const char *first, const char *second, const char *third)
{
    char name[] = "gpumuxd";
    const char *given[] = {first, second, third};
    char copies[3][256];
    char *argv[WORDS] = {name};
    int argc = 1;
    for (int i = 0; i < 3 && given[i]; i++) {
        snprintf(copies[i], sizeof copies[i], "%s", given[i]);
        argv[argc++] = copies[i];
    }
    argv[argc] = NULL;
    why[0] = '\0';
    return gm_options_parse(&options, argc, argv, why, sizeof why);
}

static void write_file(const char *text, size_t length)
{
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, length, out), length);
    assert_int_equal(fclose(out), 0);
}

/* Load `text` as a configuration file. */
static int load(const char *text)
{
    write_file(text, strlen(text));
    gm_options_init(&options);
    why[0] = '\0';
    return gm_options_load(&options, file, why, sizeof why);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/gm-options-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(file, sizeof file, "%s/gpumux.conf", folder);
    /* Whatever is configured on this machine is not what is tested. */
    setenv("XDG_CONFIG_HOME", folder, 1);
    setenv("XDG_RUNTIME_DIR", folder, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(file);
    return rmdir(folder);
}

static void assert_gpus(const char *list)
{
    char text[128];
    assert_string_equal(gm_options_gpus(&options.gpus, text, sizeof text), list);
}

static void test_defaults(void **state)
{
    (void)state;
    gm_options_init(&options);
    assert_gpus("0");
    assert_int_equal(options.gpu_budget.bytes, 0);
    assert_int_equal(options.gpu_budget.percent, 0);
    assert_int_equal(options.pinned, 0);
    assert_int_equal(options.slice, 4 * GM_S);
    assert_int_equal(options.patience, 60 * GM_S);
    assert_int_equal(options.best_class, GM_CLASS_INTERACTIVE);
    assert_int_equal(options.rules.n, 0);
    assert_int_equal(options.idle, 100 * GM_MS);
    assert_int_equal(options.max_apps, 256);
    assert_int_equal(options.log_level, GM_LOG_INFO);
    assert_false(options.user);
    assert_false(options.cap_bends);
}

static void test_line(void **state)
{
    (void)state;
    assert_int_equal(parse("--user", "--gpu-budget=24G", "--slice=250ms"), GM_OPTIONS_RUN);
    assert_int_equal(options.gpu_budget.bytes, 24ull << 30);
    assert_int_equal(options.gpu_budget.percent, 0);
    assert_int_equal(options.slice, 250 * GM_MS);
    assert_int_equal(parse("--user", "--gpu-budget", "80%"), GM_OPTIONS_RUN);
    assert_int_equal(options.gpu_budget.bytes, 0);
    assert_int_equal(options.gpu_budget.percent, 80);
    /* the last one counts, whatever it was before */
    assert_int_equal(parse("--user", "--gpu-budget=80%", "--gpu-budget=3G"), GM_OPTIONS_RUN);
    assert_int_equal(options.gpu_budget.bytes, 3ull << 30);
    assert_int_equal(options.gpu_budget.percent, 0);
    assert_false(options.cap_bends);
    assert_int_equal(parse("--user", "--cap-bends", NULL), GM_OPTIONS_RUN);
    assert_true(options.cap_bends);
}

static void test_socket_place(void **state)
{
    (void)state;
    char expected[128];
    snprintf(expected, sizeof expected, "%s/" GM_SOCKET_USER, folder);
    assert_int_equal(parse("--user", NULL, NULL), GM_OPTIONS_RUN);
    assert_string_equal(options.socket, expected);
    assert_false(options.is_own_socket);

    assert_int_equal(parse("--user", "--socket=/a/b", NULL), GM_OPTIONS_RUN);
    assert_string_equal(options.socket, "/a/b");
    assert_true(options.is_own_socket);

    unsetenv("XDG_RUNTIME_DIR");
    assert_int_equal(parse("--user", NULL, NULL), -EINVAL);
    assert_non_null(strstr(why, "XDG_RUNTIME_DIR"));
    assert_int_equal(parse("--user", "--socket=/a/b", NULL), GM_OPTIONS_RUN);
    setenv("XDG_RUNTIME_DIR", folder, 1);
}

static void test_line_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *words[3];
        const char *expected; /* a part of the line */
    } cases[] = {
        {{"--gpubudget=1G"}, "unknown option --gpubudget=1G"},
        {{"-z"}, "unknown option -z"},
        {{"--user", "--gpu"}, "--gpu needs a value: --gpu=N"},
        {{"--user=yes"}, "--user takes no value"},
        {{"--cap-bends=yes"}, "--cap-bends takes no value"},
        {{"--user", "serve"}, "\"serve\" is no option"},
        {{"--user", "--gpu=one"}, "--gpu: \"one\" is not a number"},
        {{"--user", "--gpu=-1"}, "--gpu: \"-1\" is not a number"},
        {{"--user", "--gpu=64"}, "--gpu: \"64\" is out of range: from 0 to 63"},
        {{"--user", "--gpu=18446744073709551616"}, "out of range"},
        {{"--user", "--gpu-budget=12Q"}, "--gpu-budget: \"12Q\" is not a size"},
        {{"--user", "--gpu-budget="}, "--gpu-budget: \"\" is not a size"},
        {{"--user", "--gpu-budget=%"}, "\"%\" is not a size"},
        {{"--user", "--gpu-budget=0%"}, "from 1% to 100%"},
        {{"--user", "--gpu-budget=101%"}, "from 1% to 100%"},
        {{"--user", "--gpu-budget=1000000000000%"}, "is not a size"},
        {{"--user", "--gpu-budget=1K"}, "\"1K\" is out of range: at least 2 MiB"},
        {{"--user", "--gpu-budget=9999999T"}, "out of range"},
        {{"--user", "--pinned=50%"}, "--pinned: \"50%\" is not a size"},
        {{"--user", "--idle=2"}, "--idle: \"2\" is not a time (for example 500ms or 4s)"},
        {{"--user", "--slice=0"}, "--slice: \"0\" is out of range: from 1ms to 3600s"},
        {{"--user", "--slice=fast"}, "\"fast\" is not a time"},
        {{"--user", "--max-apps=0"}, "from 1 to 4096"},
        {{"--user", "--fair=all"}, "--fair: \"all\" is not one of users|programs"},
        {{"--user", "--best-class=fast"},
         "--best-class: \"fast\" is not auto, latency, interactive or batch"},
        {{"--user", "--patience=0"}, "from 1ms to 86400s"},
        {{"--user", "--rule=user=0 class=fast"}, "--rule: class: \"fast\" is not"},
        {{"--user", "--rule=class=batch"}, "--rule: for which programs?"},
        {{"--user", "--rule"}, "--rule needs a value: --rule=RULE"},
        {{"--user", "--rule=user=0 class=batch", "--rule=user=0 paused"},
         "--rule: can match nothing: rule number 1 matches all of these programs"},
        {{"--user", "--history="}, "--history: \"\" is not a path"},
        {{"--user", "--log-level=loud"}, "is not error, warn, info or debug"},
        {{"--user", "--socket="}, "--socket: \"\" is not a path"},
        {{"--user", "--config=/nonexistent/x"}, "/nonexistent/x: cannot be read: No such file"},
        {{"--user", "--gpu=a\nb"}, "--gpu: \"a?b\" is not a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int result = parse(cases[i].words[0], cases[i].words[1], cases[i].words[2]);
        if (result >= 0 || !strstr(why, cases[i].expected))
            fail_msg("case %zu: %d \"%s\", expected \"%s\"", i, result, why, cases[i].expected);
        assert_null(strchr(why, '\n'));
    }
}

static void test_file(void **state)
{
    (void)state;
    assert_int_equal(load("# all of it\n"
                          "\n"
                          "gpu=3\n"
                          "  gpu-budget =  80%   # most\r\n"
                          "\tpinned = 64G\n"
                          "socket = /a#b\n"
                          "fair = programs\n"
                          "slice = 1s\n"
                          "best-class = batch\n"
                          "rule = user=0 class=latency # root's\n"
                          "rule = command=a#b weight=2\n"
                          "idle = 5ms\n"
                          "patience = 1.5s\n"
                          "max-apps = 7\n"
                          "cap-bends = yes\n"
                          "log-level = debug"),
                     0);
    assert_gpus("3");
    assert_int_equal(options.gpu_budget.percent, 80);
    assert_int_equal(options.pinned, 64ull << 30);
    assert_string_equal(options.socket, "/a#b");
    assert_int_equal(options.fair, 1);
    assert_int_equal(options.slice, GM_S);
    assert_int_equal(options.best_class, GM_CLASS_BATCH);
    assert_int_equal(options.rules.n, 2);
    assert_int_equal(options.rules.rule[0].line, 10);
    assert_int_equal(options.rules.rule[0].settings.class, GM_CLASS_LATENCY);
    assert_string_equal(options.rules.rule[1].command, "a#b");
    assert_int_equal(options.idle, 5 * GM_MS);
    assert_int_equal(options.patience, 1500 * GM_MS);
    assert_int_equal(options.max_apps, 7);
    assert_int_equal(options.log_level, GM_LOG_DEBUG);
    assert_true(options.cap_bends);
    assert_int_equal(load("cap-bends = no"), 0);
    assert_false(options.cap_bends);
    assert_int_equal(load(""), 0);
}

static void test_file_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"gpu = 1\nbudget = 2G\n", ":2: no option has the name \"budget\""},
        {"\n\ngpu-budget = lots\n", ":3: gpu-budget: \"lots\" is not a size"},
        {"gpu\n", ":1: expected \"name = value\""},
        {"gpu =\n", ":1: gpu: \"\" is not a number"},
        {"= 3\n", ":1: no option has the name \"\""},
        {"gpu = 1 2\n", ":1: gpu: \"1 2\" is not a number"},
        {"gpu = 1\nidle = 1s\ngpu = 2\n", ":3: gpu was set on line 1 already"},
        {"gpu = 1\nrule = user=0\n", ":2: rule: sets nothing"},
        {"rule = user=0 class=batch\n\nrule = user=0 command=x paused\n",
         ":3: rule: can match nothing: the rule on line 1 matches all of these programs"},
        {"rule = user=-1 class=batch\n", ":1: rule: user: there is no user"},
        {"rule =\n", ":1: rule: for which programs?"},
        {"user = 1\n", ":1: \"user\" can only be given on the command line"},
        {"cap-bends = maybe\n", ":1: cap-bends: \"maybe\" is not yes or no"},
        {"cap-bends =\n", ":1: cap-bends: \"\" is not yes or no"},
        {"config = /etc/x\n", ":1: \"config\" can only be given on the command line"},
        {"gpu = 1\x01\n", ":1: gpu: \"1?\" is not a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int result = load(cases[i].text);
        if (result >= 0 || strncmp(why, file, strlen(file)) != 0 || !strstr(why, cases[i].expected))
            fail_msg("case %zu: %d \"%s\", expected \"%s\"", i, result, why, cases[i].expected);
        assert_int_not_equal(result, -ENOENT); /* that means: no such file */
    }
    /* not text; a line without end; a folder; nothing */
    gm_options_init(&options);
    write_file("gpu = 1\0\n", 9);
    assert_int_equal(gm_options_load(&options, file, why, sizeof why), -EINVAL);
    char *longest = malloc(100000);
    assert_non_null(longest);
    memset(longest, 'g', 100000);
    write_file(longest, 100000);
    free(longest);
    assert_int_equal(gm_options_load(&options, file, why, sizeof why), -EINVAL);
    assert_int_equal(gm_options_load(&options, folder, why, sizeof why), -EISDIR);
    assert_int_equal(gm_options_load(&options, "/nonexistent/x", why, sizeof why), -ENOENT);
}

static void test_precedence(void **state)
{
    (void)state;
    char config[160], path[160];
    const char *text = "gpu = 2\nslice = 9s\nsocket = /from/file\n";
    write_file(text, strlen(text));
    snprintf(config, sizeof config, "--config=%s", file);
    assert_int_equal(parse(config, "--gpu=5", NULL), GM_OPTIONS_RUN);
    assert_gpus("5");                            /* line over file */
    assert_int_equal(options.slice, 9 * GM_S);   /* file over default */
    assert_int_equal(options.idle, 100 * GM_MS); /* default */
    assert_string_equal(options.socket, "/from/file");
    assert_true(options.is_own_socket);

    /* the default place of --user's file */
    snprintf(path, sizeof path, "%s/gpumux", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/gpumux/gpumux.conf", folder);
    assert_int_equal(rename(file, path), 0);
    assert_int_equal(parse("--user", NULL, NULL), GM_OPTIONS_RUN);
    assert_gpus("2");
    assert_string_equal(options.config, path);
    assert_int_equal(rename(path, file), 0);
    assert_int_equal(parse("--user", NULL, NULL), GM_OPTIONS_RUN);
    assert_gpus("0");
    assert_string_equal(options.config, "");
    snprintf(path, sizeof path, "%s/gpumux", folder);
    assert_int_equal(rmdir(path), 0);
}

/* What is gone is told with its place (integration_config), whatever its value is. */
static void test_gone(void **state)
{
    (void)state;
    char config[160];
    const char *text = "levels = 99\n\nshared-gpu = yes\nfit = maybe\n";
    snprintf(config, sizeof config, "--config=%s", file);
    write_file(text, strlen(text));
    assert_int_equal(parse(config, "--quantum=soon", "--shared-gpu"), GM_OPTIONS_RUN);
    for (size_t i = 0; i < GM_GONES; i++) {
        const char *name = gm_gone_rows[i].name;
        const bool is_flag = strcmp(name, "shared-gpu") == 0;
        assert_int_equal(options.gone_line[i], strcmp(name, "levels") == 0 ? 1
                                               : is_flag                   ? 3
                                               : strcmp(name, "fit") == 0  ? 4
                                                                           : 0);
        assert_int_equal(options.is_gone_given[i], is_flag || strcmp(name, "quantum") == 0);
    }
    assert_int_equal(options.slice, 4 * GM_S);
    assert_int_equal(parse("--quantum", NULL, NULL), -EINVAL);
}

/* Rules of the command line stand before those of the file. */
static void test_rules(void **state)
{
    (void)state;
    char config[160], many[64];
    const char *text = "rule = user=0 class=batch\nrule = command=x class=auto\n";
    snprintf(config, sizeof config, "--config=%s", file);
    write_file(text, strlen(text));
    assert_int_equal(parse("--rule=user=0 command=y weight=2", config, "--rule=user=0 weight=3"),
                     GM_OPTIONS_RUN);
    assert_int_equal(options.rules.n, 4);
    assert_int_equal(gm_rules_match(&options.rules, 0, "y", GM_CLASS_AUTO)->settings.weight, 2000);
    assert_int_equal(gm_rules_match(&options.rules, 0, "z", GM_CLASS_AUTO)->settings.weight, 3000);
    assert_int_equal(gm_rules_match(&options.rules, 1, "x", GM_CLASS_AUTO)->line, 2);
    assert_null(gm_rules_match(&options.rules, 1, "z", GM_CLASS_AUTO));

    char name[] = "gpumuxd", first[] = "--user";
    static char *argv[GM_RULES_MAX + 4];
    int argc = 0;
    argv[argc++] = name;
    argv[argc++] = first;
    for (unsigned i = 0; i <= GM_RULES_MAX; i++) {
        snprintf(many, sizeof many, "--rule=user=%u paused", i + 1);
        argv[argc++] = strdup(many);
    }
    assert_int_equal(gm_options_parse(&options, argc, argv, why, sizeof why), -ENOSPC);
    assert_string_equal(why, "--rule: more than 256 rules");
    while (argc > 2)
        free(argv[--argc]);
}

/* A file that others can write, or that never ends, is none. */
static void test_files(void **state)
{
    (void)state;
    const char *text = "slice = 9s\n";
    char path[160];
    assert_int_equal(load(text), 0);
    assert_int_equal(chmod(file, 0646), 0);
    assert_int_equal(gm_options_load(&options, file, why, sizeof why), -EPERM);
    assert_non_null(strstr(why, "every user may write it"));
    assert_int_equal(chmod(file, 0664), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(file, 65534, 0), 0);
        gm_options_init(&options);
        assert_int_equal(gm_options_load(&options, file, why, sizeof why), -EPERM);
        assert_non_null(strstr(why, "belongs to user 65534"));
        assert_int_equal(options.slice, 4 * GM_S);
        assert_int_equal(chown(file, 0, 0), 0);
    }
    assert_int_equal(truncate(file, GM_CONFIG_MAX + 1), 0);
    assert_int_equal(gm_options_load(&options, file, why, sizeof why), -EFBIG);
    assert_int_equal(unlink(file), 0);

    snprintf(path, sizeof path, "%s/fifo", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(gm_options_load(&options, path, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "is not a file"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(gm_options_load(&options, "/dev/null", why, sizeof why), 0);
    assert_int_equal(gm_options_load(&options, "/dev/zero", why, sizeof why), -EINVAL);
}

/* What is the same before and after a reload. */
static void test_same(void **state)
{
    (void)state;
    static struct gm_options before;
    const struct gm_option_row *rows = gm_option_rows;
    assert_int_equal(load("rule = user=0 class=batch\nsocket = /a/longer/one\ndisk = /tmp:1G\n"),
                     0);
    assert_int_equal(gm_options_set(&options, "gpu-budget", "50%", 9, why, sizeof why), 0);
    before = options;
    for (size_t i = 0; i < GM_OPTIONS; i++)
        assert_true(gm_option_is_same(&rows[i], &before, &options));
    options.socket[sizeof "/a/longer/one" + 1] = 'x'; /* of a longer path before it */
    options.rules.rule[0].line = 7;
    for (size_t i = 0; i < GM_OPTIONS; i++)
        assert_true(gm_option_is_same(&rows[i], &before, &options));
    options.rules.rule[0].uid = 5; /* the user has another number now */
    assert_false(gm_option_is_same(&rows[GM_OPTION_rules], &before, &options));
    options.rules = before.rules;
    options.rules.rule[0].settings.class = GM_CLASS_LATENCY;
    assert_false(gm_option_is_same(&rows[GM_OPTION_rules], &before, &options));
    options.disk.bytes++;
    assert_false(gm_option_is_same(&rows[GM_OPTION_disk], &before, &options));
    options.gpu_budget.percent++;
    assert_false(gm_option_is_same(&rows[GM_OPTION_gpu_budget], &before, &options));
    options.idle++;
    assert_false(gm_option_is_same(&rows[GM_OPTION_idle], &before, &options));
    options.cap_bends = true;
    assert_false(gm_option_is_same(&rows[GM_OPTION_cap_bends], &before, &options));
}

static void test_check(void **state)
{
    (void)state;
    char config[160];
    const char *right = "idle = 1s\n", *wrong = "\nidle = 1\n";
    snprintf(config, sizeof config, "--config=%s", file);
    write_file(right, strlen(right));
    assert_int_equal(parse("--check", config, NULL), GM_OPTIONS_CHECK);
    write_file(wrong, strlen(wrong));
    assert_int_equal(parse("--check", config, NULL), -EINVAL);
    assert_non_null(strstr(why, ":2: idle"));
    assert_int_equal(parse("--check", "--max-apps=0", NULL), -ERANGE);
    assert_int_equal(parse("--drain", NULL, NULL), GM_OPTIONS_DRAIN);
    assert_int_equal(parse("--drain", "--max-apps=0", NULL), -ERANGE);
}

/* What was there before and cannot be found now is a mistake: neither a missing file nor a missing
 * user says that rules are to end. */
static void test_lost(void **state)
{
    (void)state;
    static struct gm_options held;
    char config[160], expected[256];
    assert_int_equal(parse("--user", NULL, NULL), 0);
    held = options; /* no file was there */
    assert_int_equal(gm_options_find_lost(&held, &options, why, sizeof why), 0);

    snprintf(config, sizeof config, "--config=%s", file);
    const char *text = "idle = 1s\nrule = user=root paused\n";
    write_file(text, strlen(text));
    assert_int_equal(parse("--user", config, NULL), 0);
    assert_int_equal(gm_options_find_lost(&held, &options, why, sizeof why), 0); /* it came */
    held = options;
    assert_int_equal(gm_options_find_lost(&held, &options, why, sizeof why), 0);
    assert_int_equal(parse("--user", NULL, NULL), 0);
    assert_int_equal(gm_options_find_lost(&held, &options, why, sizeof why), -ENOENT);
    snprintf(expected, sizeof expected, "%s: cannot be read: No such file or directory", file);
    assert_string_equal(why, expected);

    /* The system does not have these users: one it had before, one it never had. */
    text = "idle = 1s\nrule = user=gm-nobody paused\n";
    write_file(text, strlen(text));
    assert_int_equal(parse("--user", config, NULL), 0);
    assert_true(options.rules.rule[0].is_unknown);
    assert_int_equal(gm_options_find_lost(&held, &options, why, sizeof why), 0);
    held = options;
    assert_int_equal(gm_options_find_lost(&held, &options, why, sizeof why), 0);
    held.rules.rule[0].is_unknown = false;
    held.rules.rule[0].uid = 1234;
    assert_int_equal(gm_options_find_lost(&held, &options, why, sizeof why), -ENOENT);
    snprintf(expected, sizeof expected, "%s:2: rule: there is no user \"gm-nobody\" any more",
             file);
    assert_string_equal(why, expected);
    held.rules.rule[0].has_user = false; /* a rule for everybody has no user to lose */
    assert_int_equal(gm_options_find_lost(&held, &options, why, sizeof why), 0);

    held = options;
    held.rules.rule[0].is_unknown = false;
    assert_int_equal(parse("--user", "--rule=user=gm-nobody paused", config), 0);
    assert_int_equal(gm_options_find_lost(&held, &options, why, sizeof why), -ENOENT);
    assert_string_equal(why, "--rule: there is no user \"gm-nobody\" any more");
}

/* A short buffer for the line is cut, never overrun. */
static void test_short_why(void **state)
{
    (void)state;
    char small[16];
    memset(small, 'x', sizeof small);
    gm_options_init(&options);
    assert_int_equal(gm_options_set(&options, "gpu-budget", "12Q", 1, small, 8), -EINVAL);
    assert_int_equal(small[7], '\0');
    assert_int_equal(small[8], 'x');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),     cmocka_unit_test(test_line),
        cmocka_unit_test(test_socket_place), cmocka_unit_test(test_line_mistakes),
        cmocka_unit_test(test_file),         cmocka_unit_test(test_file_mistakes),
        cmocka_unit_test(test_precedence),   cmocka_unit_test(test_short_why),
        cmocka_unit_test(test_gone),         cmocka_unit_test(test_rules),
        cmocka_unit_test(test_files),        cmocka_unit_test(test_same),
        cmocka_unit_test(test_check),        cmocka_unit_test(test_lost),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
