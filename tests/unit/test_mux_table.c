/*
 * daemon/mux_table: what people see of a status document, on terminals of several widths and where
 * there is none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "common/text.h"
#include "daemon/ctl/ctl.h"

static char shown[65536];
static struct mux_options options;

/* ---- standard output, for a moment ---- */

static int divert(int to)
{
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    assert_true(kept >= 0 && dup2(to, STDOUT_FILENO) >= 0);
    return kept;
}

static void put_back(int kept)
{
    fflush(stdout);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    close(kept);
}

static void show_to_file(const cJSON *status)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    int kept = divert(fileno(file));
    mux_table(status, &options);
    put_back(kept);
    rewind(file);
    shown[fread(shown, 1, sizeof shown - 1, file)] = '\0';
    fclose(file);
}

/* A terminal of `columns`; false: there are none here. */
static bool show_on_terminal(const cJSON *status, unsigned short columns)
{
    int near = posix_openpt(O_RDWR | O_NOCTTY), far = -1;
    struct winsize size = {.ws_row = 50, .ws_col = columns};
    struct termios mode;
    size_t length = 0;

    if (near >= 0 && grantpt(near) == 0 && unlockpt(near) == 0)
        far = open(ptsname(near), O_RDWR | O_NOCTTY);
    if (far < 0)
        return false;
    assert_int_equal(tcgetattr(far, &mode), 0);
    cfmakeraw(&mode);
    assert_int_equal(tcsetattr(far, TCSANOW, &mode), 0);
    assert_int_equal(ioctl(far, TIOCSWINSZ, &size), 0);
    int kept = divert(far);
    mux_table(status, &options);
    fputs("\f", stdout);
    put_back(kept);
    while (length == 0 || shown[length - 1] != '\f') {
        ssize_t n = read(near, shown + length, sizeof shown - 1 - length);
        assert_true(n > 0);
        length += (size_t)n;
    }
    shown[length - 1] = '\0';
    close(far);
    close(near);
    return true;
}

/* ---- looking at it ---- */

static size_t widest(void)
{
    size_t most = 0, n = 0;
    for (const char *at = shown; *at; at++) {
        n = *at == '\n' ? 0 : n + (((unsigned char)*at & 0xc0u) != 0x80u);
        most = n > most ? n : most;
    }
    return most;
}

static void expect(const char *text)
{
    if (!strstr(shown, text))
        fail_msg("\"%s\" is not in\n%s", text, shown);
}

static void expect_not(const char *text)
{
    if (strstr(shown, text))
        fail_msg("\"%s\" is in\n%s", text, shown);
}

/* All words of `text`, in this order, whatever blanks and ends of lines are between them. */
static void expect_words(const char *text)
{
    char flat[sizeof shown], *to = flat;
    for (const char *at = shown; *at; at++)
        if (*at != ' ' && *at != '\n')
            *to++ = *at;
        else if (to > flat && to[-1] != ' ')
            *to++ = ' ';
    *to = '\0';
    if (!strstr(flat, text))
        fail_msg("the words \"%s\" are not in\n%s", text, shown);
}

static cJSON *parse(const char *text)
{
    cJSON *status = cJSON_Parse(text);
    assert_non_null(status);
    return status;
}

/* A status in which every number is as wide as it can be expected to be; `why` is one app's. */
static cJSON *make_status(const char *why)
{
    char text[8192];
    const int length = snprintf(
        text, sizeof text,
        "{\"schema\":1,\"version\":\"0.1.0\",\"pid\":4194304,\"uptime_s\":86399,"
        "\"socket\":\"/run/gpumux/gpumux.sock\",\"gpus\":[{\"index\":0,"
        "\"name\":\"NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition\","
        "\"budget_bytes\":1099404017664,\"usable_bytes\":1099404017664,"
        "\"budget_most_bytes\":1099404019712,\"used_bytes\":1099404017664,"
        "\"cached_bytes\":1099404017664,\"free_bytes\":1099404017664,"
        "\"device_total_bytes\":1099404017664,\"device_free_bytes\":1099404017664,"
        "\"tiers\":{\"gpu_bytes\":1099404017664,\"pinned_bytes\":1099404017664,"
        "\"pinned_cap_bytes\":1099404017664,\"pinned_used_bytes\":1099404017664,"
        "\"pinned_cached_bytes\":1099404017664,\"pinned_shadow_bytes\":1099404017664,"
        "\"paged_bytes\":1099404017664,\"paged_used_bytes\":1099404017664,"
        "\"paged_cap_bytes\":1099404017664,\"disk_used_bytes\":1099404017664,"
        "\"disk_cap_bytes\":1099404017664,\"on_host_bytes\":1099404017664},"
        "\"moved\":{\"pinned_to_paged_bytes\":1125789714087936,"
        "\"paged_to_pinned_bytes\":1125679762924340,\"pinned_to_disk_bytes\":1125569811760744,"
        "\"disk_to_pinned_bytes\":1125459860597147},"
        "\"bytes_clean\":1125789714087936,\"bytes_zero\":1125679762924340,"
        "\"switches\":1234567,\"bytes_in\":1125789714087936,\"bytes_out\":1125789714087936,"
        "\"history\":[{\"seq\":1,\"app\":7,\"total_ms\":1},"
        "{\"seq\":2,\"app\":4095,\"total_ms\":12345.678,\"drain_ms\":2000.04,\"plan_ms\":1.26,"
        "\"copy_ms\":10000,\"map_ms\":123.46,\"lower_ms\":11111.1,\"pinned_ms\":2222.2,\"hash_ms\":"
        "7.5,\"link_ms\":10000,"
        "\"bytes_out\":500000000000,\"bytes_in\":464000000000,\"bytes_lowered\":1125789714087936,"
        "\"bytes_clean\":500000000000,\"bytes_zero\":464000000000,"
        "\"bytes_raised\":1125679762924340}]}],"
        "\"apps\":[{\"id\":4095,\"pid\":4194304,\"user\":\"christopher\","
        "\"name\":\"a-program-whose-name-is-long\",\"state\":\"draining\","
        "\"resident_bytes\":1099404017664,\"total_bytes\":1099404017664,\"run_s\":3599,"
        "\"wait_s\":3599,\"level\":8,\"class\":\"interactive\",\"charged_s\":3599,"
        "\"allotment_s\":3599,\"weight\":0.125,\"share_percent\":12.5,\"why\":\"%s\"},"
        "{\"id\":1,\"pid\":2,\"user\":\"me\",\"name\":\"b\",\"state\":\"running\","
        "\"resident_bytes\":0,\"device_bytes\":6291456,\"total_bytes\":5,\"run_s\":1,\"wait_s\":0,"
        "\"why\":\"\"}]}",
        why);
    assert_true(length > 0 && length < (int)sizeof text);
    return parse(text);
}

static const char long_why[] =
    "its memory is being moved to the GPU: waiting for lower tiers: app 4094 (pid 4194303, "
    "another-program-whose-name-is-long), and for a reason that goes on and on";

/* ---- tests ---- */

static void test_everything_is_shown(void **state)
{
    cJSON *status = make_status(long_why);
    (void)state;
    show_to_file(status);
    expect("gpumuxd 0.1.0, pid 4194304, up 23h59m, /run/gpumux/gpumux.sock\n");
    expect("       6 MiB  "); /* its memory leaves */
    expect("  budget  1023.9 GiB now, at most 1023.9 GiB: 1023.9 GiB used, 1023.9 GiB cached, "
           "1023.9 GiB free\n");
    expect("  tiers   gpu 1023.9 GiB, pinned 1023.9 GiB used, 1023.9 GiB cached (at most 1023.9 "
           "GiB)\n");
    expect(
        "          shadows 1023.9 GiB: pinned copies of what is on the GPU, dropped when wanted\n");
    expect("          mapped on host 1023.9 GiB: in pinned memory, read over the link\n");
    expect("          paged 1023.9 GiB of 1023.9 GiB (1023.9 GiB held), 1023.9 TiB out to it, "
           "1023.8 TiB back\n");
    expect("          disk 1023.9 GiB of 1023.9 GiB, 1023.7 TiB out to it, 1023.6 TiB back\n");
    expect("          not copied out: 1023.9 TiB unchanged, 1023.8 TiB zero\n");
    /* 964 GB in 10 s */
    expect("  last    to app 4095 in 12345.7 ms: 465.7 GiB out, 432.1 GiB in, at 96.4 GB/s\n");
    expect("          drain 2000.0, plan 1.3, lower 11111.1, pinned 2222.2, copies 10000.0, hash "
           "7.5, map 123.5\n");
    expect("          not copied out: 465.7 GiB unchanged, 432.1 GiB zero\n");
    expect("          from pinned memory 1023.9 TiB down, 1023.8 TiB up to it\n");
    cJSON_Delete(status);
}

/* A terminal: one line for each program, whatever there is to say. */
static void test_no_line_is_too_wide(void **state)
{
    static const unsigned short widths[] = {80, 100, 120, 200, 400};
    cJSON *status = make_status(long_why);
    (void)state;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        if (!show_on_terminal(status, widths[i]))
            skip();
        const char *row = strstr(shown, "draining"), *end = row ? strchr(row, '\n') : NULL;
        assert_non_null(end);
        for (const char *at = shown; (at = strstr(at, "draining")); at++)
            assert_ptr_equal(at, row);
        assert_in_range(widest(), 70, widths[i]);
        expect("4194304");
        expect("WHY\n");
        expect("its memory is");
        assert_int_equal(strstr(shown, "CHARGED") != NULL, widths[i] >= 200);
        assert_int_equal(strstr(shown, long_why) != NULL, widths[i] >= 400);
    }
    options.is_long = true; /* all of it */
    assert_true(show_on_terminal(status, 80));
    expect(long_why);
    expect("CHARGED");
    options.is_long = false;
    show_to_file(status); /* no terminal: nothing is cut */
    expect(long_why);
    expect("CHARGED");
    cJSON_Delete(status);
}

/* Sixty programs of three users, on a terminal of 80 columns. */
static cJSON *make_sixty(void)
{
    static const char *const states[] = {"idle", "waiting", "running", "paused"};
    static const char *const users[] = {"alice", "bob", "carol"};
    cJSON *status = parse("{\"gpus\":[{\"index\":0},{\"index\":1}],\"apps\":[]}");
    cJSON *apps = cJSON_GetObjectItemCaseSensitive(status, "apps");
    for (int i = 0; i < 60; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{\"id\":%d,\"pid\":%d,\"uid\":%d,\"user\":\"%s\",\"name\":\"train_%d.py\","
                 "\"gpu\":0,\"state\":\"%s\",\"resident_bytes\":%d,\"total_bytes\":%d,"
                 "\"run_s\":%d,\"wait_s\":%d,\"waiting_s\":%d,\"level\":2,\"class\":\"auto\","
                 "\"why\":\"waits until what runs has had its turn and others theirs\"}",
                 i, 1000 + i, 1000 + i % 3, users[i % 3], i, states[i % 4], (i % 7) << 20, 1 << 20,
                 i, 60 - i, i);
        cJSON_AddItemToArray(apps, parse(text));
    }
    /* the last one uses the second GPU as well */
    cJSON *again = cJSON_Duplicate(cJSON_GetArrayItem(apps, 59), true);
    cJSON_ReplaceItemInObjectCaseSensitive(again, "gpu", cJSON_CreateNumber(1));
    cJSON_AddItemToArray(apps, again);
    return status;
}

/* The numbers of the programs whose names are shown, in their order. */
static size_t names_shown(int number[100])
{
    size_t n = 0;
    for (const char *at = shown; n < 100 && (at = strstr(at, " train_")); at++)
        number[n++] = atoi(at + strlen(" train_"));
    return n;
}

static void test_sixty(void **state)
{
    cJSON *status = make_sixty();
    int number[100];
    (void)state;
    if (!show_on_terminal(status, 80))
        skip();
    assert_in_range(widest(), 70, 80);
    assert_int_equal(names_shown(number), 61);
    for (int i = 0; i < 61; i++) { /* running, waiting, paused, idle; who waits longest first */
        static const int ranks[] = {3, 1, 0, 2};
        if (i == 0)
            continue;
        const int before = ranks[number[i - 1] % 4], now = ranks[number[i] % 4];
        assert_true(before < now || (before == now && number[i - 1] >= number[i]));
    }
    expect_words("USER PROGRAMS RESIDENT TOTAL RUN WAIT carol 20 ");
    expect("\nbob               20 ");
    expect("\nalice             20 ");
    expect_words("alice 20 59 MiB 20 MiB 9m30s 10m30s");

    static const struct {
        const char *sort;
        int first;
    } sorts[] = {{"memory", 6}, {"run", 59}, {"wait", 0}, {"user", 0}, {"name", 0}, {"pid", 0}};
    for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++) {
        assert_true(mux_sort_index(sorts[i].sort, &options.sort));
        show_to_file(status);
        names_shown(number);
        if (number[0] != sorts[i].first)
            fail_msg("by %s the first is %d", sorts[i].sort, number[0]);
    }
    assert_false(mux_sort_index("size", &options.sort));
    assert_int_equal(options.sort, 0);
    options.user = "bob";
    show_to_file(status);
    assert_int_equal(names_shown(number), 20);
    expect_not("alice");
    options.user = "1001"; /* the same by its number */
    show_to_file(status);
    assert_int_equal(names_shown(number), 20);
    options.command = "train_1*";
    show_to_file(status);
    assert_int_equal(names_shown(number), 5); /* 1, 10, 13, 16, 19 */
    options.user = options.command = NULL;
    cJSON_Delete(status);
}

/* What an app does without stands below the table, known here or not; a number is no name. */
static void test_features_off(void **state)
{
    (void)state;
    cJSON *status =
        parse("{\"gpus\":[{\"index\":0,\"name\":\"g\",\"tiers\":{\"pinned_is_registered\":true}}],"
              "\"apps\":[{\"id\":3,\"name\":\"a\",\"features_off\":[]},{\"id\":4,\"name\":\"b\","
              "\"features_off\":[\"context-events\",\"some\\u001b-new-one\",5]}]}");
    show_to_file(status);
    expect("pinned memory is registered");
    expect("app 4 without context-events: the driver has no cuCtxRecordEvent");
    expect("app 4 without some");
    expect_not("app 3 without");
    expect_not("\033");
    expect_not("without 5");
    cJSON_Delete(status);
}

static void test_account(void **state)
{
    cJSON *status;
    (void)state;
    status =
        parse("{\"apps\":[{\"id\":1,\"pid\":2,\"level\":2,\"class\":\"auto\",\"charged_s\":3.06,"
              "\"allotment_s\":16,\"weight\":1,\"share_percent\":100,\"why\":\"\"},"
              "{\"id\":2,\"pid\":3,\"level\":4,\"class\":\"batch\",\"charged_s\":70,"
              "\"allotment_s\":null,\"weight\":2,\"share_percent\":100,\"why\":\"\"}]}");
    show_to_file(status);
    expect("  L  CLASS     CHARGED  WHY\n");
    expect("  2  auto   3.1s/16.0s  -\n");
    expect("  4  batch       1m10s  weight 2\n");
    cJSON_Delete(status);

    /* what cannot be moved, where it is worth a word */
    status = parse("{\"apps\":[{\"id\":1,\"pid\":2,\"weight\":2,\"why\":\"paused\","
                   "\"unswappable_bytes\":25165824},"
                   "{\"id\":2,\"pid\":3,\"why\":\"\",\"unswappable_bytes\":1048575},"
                   "{\"id\":3,\"pid\":4,\"why\":\"\",\"unswappable_bytes\":1048576},"
                   "{\"id\":4,\"pid\":5,\"why\":\"x\",\"unswappable_bytes\":\"much\"}]}");
    show_to_file(status);
    expect("  paused; weight 2; 24 MiB unswappable\n");
    expect("  -\n  3    4 "); /* nothing of the second */
    expect("  1 MiB unswappable\n");
    expect("  x\n");
    cJSON_Delete(status);
}

/* Who is paused reads nothing over the link, whatever is mapped there for its next turn. */
static void test_on_host(void **state)
{
    cJSON *status = parse("{\"apps\":[{\"id\":1,\"state\":\"running\",\"on_host_bytes\":67108864},"
                          "{\"id\":2,\"state\":\"draining\",\"on_host_bytes\":33554432},"
                          "{\"id\":3,\"state\":\"paused\",\"on_host_bytes\":2097152},"
                          "{\"id\":4,\"state\":\"running\",\"on_host_bytes\":0}]}");
    (void)state;
    show_to_file(status);
    expect("  64 MiB in host memory, read over the link\n");
    expect("  32 MiB in host memory, read over the link\n");
    expect("  2 MiB in host memory\n");
    expect_not("  0 in host");
    cJSON_Delete(status);
}

/* What is shared is said for the GPU, and beside each program that shares. */
static void test_shared(void **state)
{
    cJSON *status =
        parse("{\"gpus\":[{\"index\":0,\"shared_bytes\":100663296}],\"apps\":[{\"id\":1,"
              "\"pid\":2,\"why\":\"its turn\",\"weight\":2,\"shared_bytes\":67108864},"
              "{\"id\":2,\"pid\":3,\"why\":\"\",\"shared_bytes\":33554432},"
              "{\"id\":3,\"pid\":4,\"why\":\"\",\"shared_bytes\":0}]}");
    (void)state;
    show_to_file(status);
    expect("  shared  96 MiB between programs: it stays on the GPU\n");
    expect("its turn; weight 2; shares 64 MiB\n");
    expect("  shares 32 MiB\n");
    assert_null(strstr(shown, "shares 0"));
    cJSON_Delete(status);
    status = make_status("its turn comes");
    show_to_file(status);
    expect_not("shared");
    cJSON_Delete(status);
}

/* As many programs as an MPS server takes, each with a part; and numbers that no daemon sends. */
static void test_space_sharing(void **state)
{
    char text[16384] = "{\"gpus\":[],\"apps\":[],\"space_sharing\":[{\"user\":\"me\","
                       "\"state\":\"ready\",\"pids\":[";
    (void)state;
    for (int i = 0; i < 48; i++)
        gm_text_add(text, sizeof text, "%s%d", i > 0 ? "," : "", 1234500 + i);
    gm_text_add(text, sizeof text, "],\"percent\":[");
    for (int i = 0; i < 48; i++)
        gm_text_add(text, sizeof text, "%s25.5", i > 0 ? "," : "");
    gm_text_add(text, sizeof text, "]}]}");
    cJSON *status = parse(text);
    show_to_file(status);
    expect("MPS of me is ready: 48 programs, pid 1234500 (25.5%), 1234501 (25.5%), ");
    for (int i = 0; i < 48; i++) {
        char pid[16];
        snprintf(pid, sizeof pid, "%d", 1234500 + i);
        expect(pid);
    }
    const char *last = strstr(shown, "1234547");
    assert_true(last && strncmp(last + 7, " (25.5%)\n", 9) == 0);
    cJSON_Delete(status);
    snprintf(text, sizeof text,
             "{\"space_sharing\":[{\"user\":\"me\",\"state\":\"ready\",\"pids\":[");
    for (int i = 0; i < 48; i++)
        gm_text_add(text, sizeof text, "%s1e300", i > 0 ? "," : "");
    gm_text_add(text, sizeof text, "],\"percent\":[");
    for (int i = 0; i < 48; i++)
        gm_text_add(text, sizeof text, "%s1e-300", i > 0 ? "," : "");
    gm_text_add(text, sizeof text, "]}]}");
    status = parse(text);
    show_to_file(status); /* cut */
    expect("MPS of me is ready: 48 programs, pid 1000000");
    assert_true(strlen(shown) < 2048);
    cJSON_Delete(status);
}

/* A script's name is whole where there is room, and cut where there is none. */
static void test_names(void **state)
{
    cJSON *status = parse("{\"apps\":[{\"id\":1,\"pid\":2,\"name\":\"finetune_llama_7b.py\"}]}");
    (void)state;
    show_to_file(status);
    expect("  finetune_llama_7b.py  ");
    cJSON_Delete(status);
    status = make_status("its turn comes");
    show_to_file(status);
    expect("  a-program-whose-name-is-  ");
    if (show_on_terminal(status, 80))
        expect("  a-program-whose  ");
    cJSON_Delete(status);
}

/* What uses a GPU without gpumux is a line each, and one word where nobody knows. */
static void test_unshared(void **state)
{
    (void)state;
    cJSON *status =
        parse("{\"gpus\":[{\"index\":0,\"unshared\":[{\"pid\":812,\"user\":\"a-user-with-a-name\","
              "\"name\":"
              "\"X\\u001b[31morg\",\"bytes\":314572800},{\"pid\":1234567,\"bytes\":null}]}]}");
    show_to_file(status);
    expect("\nNOT SHARED  GPU  USER            MEMORY  NAME\n"
           "       812    0  a-user-wit     300 MiB  X?[31morg\n"
           "   1234567    0  -                    -  -\n");
    cJSON_Delete(status);
    status = parse("{\"gpus\":[{\"index\":0,\"unshared\":[]},{\"index\":1,\"unshared\":null,"
                   "\"unshared_why\":\"NVML does\\nnot answer\"}]}");
    show_to_file(status);
    expect("\nnot shared of GPU 1: unknown (NVML does?not answer)\n");
    assert_null(strstr(shown, "NOT SHARED"));
    assert_null(strstr(shown, "of GPU 0"));
    cJSON_Delete(status);
}

/* Short enough for a column of its own. */
static void test_reason_beside(void **state)
{
    cJSON *status = parse("{\"apps\":[{\"id\":1,\"pid\":2,\"why\":\"after app 2\"},"
                          "{\"id\":2,\"pid\":3}]}");
    (void)state;
    show_to_file(status);
    expect("  WHY\n");
    expect("  after app 2\n");
    expect("  -\n");
    assert_true(widest() <= 100);
    cJSON_Delete(status);
}

/* What is no row is wrapped, at blanks if possible; never to nothing. */
static void test_wrapped(void **state)
{
    cJSON *status =
        parse("{\"apps\":[],\"refused\":{\"count\":1,\"user\":\"me\",\"name\":\"a\",\"pid\":5,"
              "\"why\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa "
              "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
              "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
              "\xc3\xa4\xc3\xa4\"}}");
    (void)state;
    if (!show_on_terminal(status, 10))
        skip();
    expect("1 program refused\nsince the start, the\nlast 0.0s ago: a\n(pid 5, me):\n"
           "aaaaaaaaaaaaaaaaaaaa\naaaaaaaaaaaaaaaaaaaa\n");
    expect("\n\xc3\xa4\xc3\xa4\n"); /* 22 of them: whole characters in each line */
    cJSON_Delete(status);
}

/* What an older or newer daemon sends is shown as far as it can be. */
static void test_odd_documents(void **state)
{
    static const char *const texts[] = {
        "{}",
        "{\"gpus\":[{}],\"apps\":[{}]}",
        "{\"gpus\":[{\"tiers\":7,\"moved\":[],\"history\":[{}]}],\"apps\":[{\"why\":3}]}",
        "{\"gpus\":[{\"tiers\":{\"paged_cap_bytes\":1e300,\"disk_cap_bytes\":1}}]}",
        "{\"gpus\":{},\"apps\":[{\"why\":\"a\\nb\\u001b[31m\",\"name\":\"\\u0007\"}]}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cJSON *status = parse(texts[i]);
        show_to_file(status);
        assert_true(strlen(shown) > 20 && widest() <= 100);
        expect_not("\x1b");
        expect_not("\a");
        cJSON_Delete(status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_is_shown),
        cmocka_unit_test(test_no_line_is_too_wide),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_reason_beside),
        cmocka_unit_test(test_wrapped),
        cmocka_unit_test(test_sixty),
        cmocka_unit_test(test_odd_documents),
        cmocka_unit_test(test_account),
        cmocka_unit_test(test_features_off),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_space_sharing),
        cmocka_unit_test(test_unshared),
        cmocka_unit_test(test_on_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
