/* The names of apps: scripts, modules and archives under every interpreter of the table, titles
 * that programs give themselves, and command lines that are nonsense. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/appname.h"
#include "common/text.h"
#include "common/wire.h"

_Static_assert(GM_APPNAME_SIZE == sizeof(((struct gm_msg_hello *)0)->name), "HELLO holds a name");

/* In `line` a '|' stands for the end of a word. */
static void expect(const char *line, const char *exe, const char *expected)
{
    char name[GM_APPNAME_SIZE];
    size_t length = strlen(line);
    char *bytes = malloc(length + 1); /* of its own, for the address sanitizer */
    assert_non_null(bytes);
    for (size_t i = 0; i <= length; i++)
        bytes[i] = line[i] == '|' ? '\0' : line[i];
    gm_appname(bytes, length, exe, name);
    if (strcmp(name, expected) != 0)
        fail_msg("\"%s\" is called \"%s\", not \"%s\"", line, name, expected);
    free(bytes);
}

static void test_names(void **state)
{
    static const struct {
        const char *line, *name;
    } cases[] = {
        {"./app|", "app"},
        {"/opt/My Things/app|--x|", "app"},
        {"app", "app"},
        /* python, however it is called */
        {"python3|train_model.py|", "train_model.py"},
        {"/opt/conda/envs/a/bin/python3.12|/home/a/train_model.py|--lr|0.1|", "train_model.py"},
        {"python3.13t|x.py|", "x.py"},
        {"python2.7-dbg|x.py|", "x.py"},
        {"pypy3|x.py|", "x.py"},
        {"python3|-u|x.py|", "x.py"},
        {"python3|-u|-W|ignore|-X|dev|x.py|", "x.py"},
        {"python3|-Wignore|-Xdev|x.py|", "x.py"},
        {"python3|-uW|ignore|x.py|-m|y|", "x.py"},
        {"python3|--check-hash-based-pycs|always|x.py|", "x.py"},
        {"python3|--check-hash-based-pycs=always|x.py|", "x.py"},
        {"python3|-m|pkg.mod|--flag|", "pkg.mod"},
        {"python3|-mpkg.mod|", "pkg.mod"},
        {"python3|-um|ipykernel_launcher|-f|k.json|", "ipykernel_launcher"},
        {"python3|/usr/local/bin/torchrun|--nproc|2|train.py|", "torchrun"},
        {"python3|--|-odd.py|", "-odd.py"},
        {"python3|src/app/|", "app"},
        {"python3|-c|import x|train.py|", "python3"},
        {"python3|-uc|import x|", "python3"},
        {"python3|-|x|", "python3"},
        {"python3|-m|", "python3"},
        {"python3|-W|", "python3"},
        {"python3|-i|", "python3"},
        {"python3|", "python3"},
        {"python3||", "python3"},
        {"python3|.|", "python3"},
        {"python3|/dev/fd/63|", "python3"},
        {"python3|/proc/self/fd/9|", "python3"},
        {"python-config|x.py|", "python-config"},
        {"pythonic|x.py|", "pythonic"},
        /* shells */
        {"bash|x.sh|", "x.sh"},
        {"-bash|", "bash"},
        {"/bin/sh|-eu|dir/x.sh|a|", "x.sh"},
        {"bash|-euo|pipefail|x.sh|", "x.sh"},
        {"bash|+o|posix|x.sh|", "x.sh"},
        {"bash|--rcfile|rc|x.sh|", "x.sh"},
        {"bash|-c|./a|x.sh|", "bash"},
        {"bash|-lc|./a|", "bash"},
        /* java */
        {"java|-jar|/opt/app.jar|a|", "app.jar"},
        {"/usr/lib/jvm/bin/java|-Xmx4g|-Dx=y|-cp|a.jar:b.jar|Main|a|", "Main"},
        {"java|-classpath|.|--add-opens|a/b=c|com.x.Main|", "com.x.Main"},
        {"java|--class-path=.|@options|com.x.Main|", "com.x.Main"},
        {"java|-m|mod/com.x.Main|", "com.x.Main"},
        {"java|--module=mod/com.x.Main|", "com.x.Main"},
        {"java|Main.java|", "Main.java"},
        {"java|-version|", "java"},
        /* others */
        {"perl|-w|-I|lib|x.pl|", "x.pl"},
        {"perl5.36|-Mstrict|-i.bak|x.pl|", "x.pl"},
        {"perl|-lane|print|x.pl|", "perl"},
        {"ruby|-r|json|x.rb|", "x.rb"},
        {"ruby3.1|-W0|-Ilib|x.rb|", "x.rb"},
        {"ruby|-e|puts|", "ruby"},
        {"node|--max-old-space-size=4096|-r|./m.js|x.js|", "x.js"},
        {"nodejs|-pe|1|", "nodejs"},
        {"R|--no-echo|--no-restore|--file=fit.R|--args|1|", "fit.R"},
        {"/usr/lib/R/bin/exec/R|-f|fit.R|", "fit.R"},
        {"R|--no-echo|-e|1|", "R"},
        {"julia|--project=.|-t|4|-O3|fit.jl|a|", "fit.jl"},
        {"julia|--threads|4|-Lx.jl|fit.jl|", "fit.jl"},
        {"julia|-e|1|", "julia"},
        {"/lib64/ld-linux-x86-64.so.2|--library-path|a:b|/opt/app|x|", "app"},
        {"ld.so|/usr/bin/python3|-u|train.py|", "train.py"},
        {"ld.so|ld.so|./app|", "app"},
        {"ld.so|", "ld.so"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect(cases[i].line, "/usr/bin/some-file", cases[i].name);
}

static void test_titles(void **state)
{
    (void)state;
    expect("VLLM::EngineCore|||||", "/usr/bin/python3.12", "VLLM::EngineCore");
    expect("ray::train_step() [3/4]|||", "/usr/bin/python3.12", "ray::train_step()");
    expect("gunicorn: worker [a/b]", "/usr/bin/python3.12", "gunicorn");
    expect("python3 -u train.py [worker 3]", "/usr/bin/python3.12", "train.py");
    expect("python: worker", "/usr/bin/python3.12", "python");
    /* a blank in a file's own name makes no title */
    expect("My Game|", "/opt/My Game", "My Game");
    expect("things/My Game|", "/opt/My Game", "My Game");
}

static void test_nonsense(void **state)
{
    char name[GM_APPNAME_SIZE], line[300], expected[GM_APPNAME_SIZE];
    (void)state;

    expect("", "/opt/bin/app", "app");
    expect("", "", "");
    expect("", NULL, "");
    expect("|||", "/opt/bin/app", "app");
    expect("/|", "/opt/bin/app", "app");
    expect("-|", "/opt/bin/app", "app");
    expect(" |", "/opt/bin/app", "app");
    expect(": : :|", "/opt/bin/app", "app");
    expect("app\nfaked log line|", NULL, "app?faked");
    expect("python3|\x1b[31mx.py|", NULL, "?[31mx.py");
    expect("python3|x\xff.py|", NULL, "x?.py");
    expect("python3|\xc3\xa9t\xc3\xa9.py|", NULL, "\xc3\xa9t\xc3\xa9.py");

    memset(line, 'a', sizeof line);
    gm_appname(line, sizeof line, NULL, name); /* a word that does not end */
    memset(expected, 'a', sizeof expected - 1);
    expected[sizeof expected - 1] = '\0';
    assert_string_equal(name, expected);

    memcpy(line + 62, "\xc3\xa9", 2); /* a character that does not fit is left out whole */
    gm_appname(line, sizeof line, NULL, name);
    expected[62] = '\0';
    assert_string_equal(name, expected);

    /* Whatever the bytes are: legal text without a '/', and nothing read beyond them. */
    static const char *const pieces[] = {
        "python3", "ld.so", "java", "-", "--", "-m", "-o", "+",    "/",    ":", "=",
        "",        "R",     "bash", " ", "-W", "@",  "é",  "\xff", "\x80", ".", "-jar"};
    uint32_t seed = 1;
    for (int round = 0; round < 20000; round++) {
        size_t length = 0;
        while (length < 40) {
            seed = seed * 1664525u + 1013904223u;
            const char *piece = pieces[(seed >> 8) % (sizeof pieces / sizeof pieces[0])];
            memcpy(line + length, piece, strlen(piece));
            length += strlen(piece);
            if (seed >> 30 != 0)
                line[length++] = '\0';
        }
        char *bytes = malloc(length);
        assert_non_null(bytes);
        memcpy(bytes, line, length);
        gm_appname(bytes, length, round % 2 ? "/usr/bin/python3" : NULL, name);
        assert_true(gm_text_is_legal(name, sizeof name));
        assert_null(strchr(name, '/'));
        free(bytes);
    }
}

static void test_own(void **state)
{
    char name[GM_APPNAME_SIZE], buffer[PATH_MAX + 4096];
    (void)state;
    gm_appname_own(buffer, sizeof buffer, name);
    assert_string_equal(name, "test_appname");
    gm_appname_own(buffer, PATH_MAX + 4,
                   name); /* too small for the first word: the executed file's name */
    assert_true(name[0] != '\0');
}

/* Processes of one name are one family, also through others. */
static void test_family(void **state)
{
    char name[GM_APPNAME_SIZE], buffer[PATH_MAX + 4096];
    uint64_t family[2], own;
    int status, way[2];
    (void)state;
    gm_appname_own(buffer, sizeof buffer, name);
    own = gm_appname_family(buffer, sizeof buffer, "nobody");
    assert_int_equal((uint32_t)own, getpid());
    assert_true(own >> 32 != 0); /* where pids have that meaning */
    assert_int_equal(pipe(way), 0);
    const pid_t child = fork();
    if (child == 0) {
        const pid_t grandchild = fork();
        if (grandchild == 0) {
            family[0] = gm_appname_family(buffer, sizeof buffer, name);
            family[1] =
                (uint32_t)gm_appname_family(buffer, sizeof buffer, "nobody") == (uint32_t)getpid();
            _exit(write(way[1], family, sizeof family) == sizeof family ? 0 : 1);
        }
        waitpid(grandchild, &status, 0);
        _exit(status == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read(way[0], family, sizeof family), sizeof family);
    assert_int_equal(family[0], own);
    assert_int_equal(family[1], 1);
    close(way[0]);
    close(way[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),    cmocka_unit_test(test_titles),
        cmocka_unit_test(test_nonsense), cmocka_unit_test(test_own),
        cmocka_unit_test(test_family),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
