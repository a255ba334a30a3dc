/*
 * daemon/stores: three tiers against a model of what is where, with several copies under way; every
 * fault of disk and memory once; closing in the middle; what the file looks like from outside.
 */
#include "tests/unit/stores_world.h"

enum filling { FILLED_BY_USE, FILLED_AHEAD, FILLED_AHEAD_BY_TOUCH, FILLINGS };

static void move_at_random(enum filling filling)
{
    struct world w;
    open_pool(&w, 96 * MIB);
    fault.keep_ms = filling ? 1 : 0; /* given back and filled again all the time */
    fault.populate_error = filling == FILLED_AHEAD_BY_TOUCH ? EINVAL : 0;
    open_world_as_told(&w, 101 * MIB, 67 * MIB); /* paged and disk end within a slab */
    assert_int_equal(gm_stores_cap(w.stores, GM_TIER_PINNED), 96 * MIB);
    assert_int_equal(gm_stores_cap(w.stores, GM_TIER_PAGED), 100 * MIB);
    assert_int_equal(gm_stores_cap(w.stores, GM_TIER_DISK), 66 * MIB);
    for (int step = 0; step < 600; step++) {
        uint32_t chunk = (uint32_t)pick(&w, CHUNKS);
        struct chunk *c = &w.chunks[chunk];
        if (filling != FILLED_BY_USE && pick(&w, 4) == 0)
            gm_stores_want(w.stores, pick(&w, 2) * pick(&w, 120 * MIB));
        if (c->tier == GM_TIER_NONE) {
            make_chunk(&w, chunk, GM_CHUNK_MIN << pick(&w, GM_CHUNK_CLASSES));
        } else if (c->to == GM_TIER_NONE && pick(&w, 8) == 0) {
            end_chunk(&w, chunk);
        } else if (c->to == GM_TIER_NONE) {
            enum gm_tier to = GM_TIER_PINNED + (enum gm_tier)pick(&w, 3);
            if (to != c->tier)
                move_chunk(&w, chunk, to);
        }
        if (pick(&w, 4) == 0)
            wait_for(&w, (unsigned)pick(&w, 6));
        check_sums(&w);
    }
    wait_for(&w, 0);
    check_sums(&w);
    assert_true(w.ended > 60 && w.most_in_flight > 3);
    assert_int_equal(fault.populates > 0, filling != FILLED_BY_USE);
    for (uint32_t i = 0; i < CHUNKS; i++)
        assert_int_equal(w.chunks[i].error, 0);
    close_world(&w);
}

static void test_random_moves(void **state)
{
    (void)state;
    for (enum filling filling = 0; filling < FILLINGS; filling++)
        move_at_random(filling);
}

/* A full tier takes exactly its cap, to the last page. */
static void test_caps(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 32 * MIB, 38 * MIB, 6 * MIB);
    for (unsigned t = GM_TIER_PINNED; t <= GM_TIER_DISK; t++) {
        const enum gm_tier tier = (enum gm_tier)t;
        const uint64_t cap = gm_stores_cap(w.stores, tier);
        uint32_t pages[32];
        for (uint32_t i = 0; i < cap / GM_CHUNK_MIN; i++) {
            pages[i] = gm_stores_take(w.stores, tier, GM_CHUNK_MIN);
            assert_int_not_equal(pages[i], GM_NONE);
        }
        assert_int_equal(gm_stores_used(w.stores, tier), cap);
        assert_int_equal(gm_stores_take(w.stores, tier, GM_CHUNK_MIN), GM_NONE);
        for (uint32_t i = 0; i < cap / GM_CHUNK_MIN; i += 2)
            gm_stores_free(w.stores, tier, pages[i]);
        if (cap >= 16 * MIB) { /* fragments take a large one */
            uint32_t page = gm_stores_take(w.stores, tier, 16 * MIB);
            assert_int_not_equal(page, GM_NONE);
            gm_stores_free(w.stores, tier, page);
        }
        for (uint32_t i = 1; i < cap / GM_CHUNK_MIN; i += 2)
            gm_stores_free(w.stores, tier, pages[i]);
        assert_int_equal(gm_stores_used(w.stores, tier), 0);
    }
    gm_stores_free(w.stores, GM_TIER_DISK, GM_NONE);
    assert_int_equal(gm_stores_take(w.stores, GM_TIER_GPU, GM_CHUNK_MIN), GM_NONE);
    close_world(&w);
}

/* Every byte, each way between two tiers, past the page cache and through it. */
static void test_every_byte(void **state)
{
    static const enum gm_tier ways[] = {GM_TIER_PAGED,  GM_TIER_PINNED, GM_TIER_DISK,
                                        GM_TIER_PINNED, GM_TIER_PAGED,  GM_TIER_DISK,
                                        GM_TIER_PAGED,  GM_TIER_PINNED};
    (void)state;
    for (int is_direct = 0; is_direct < 2; is_direct++) {
        struct world w;
        char why[256] = "";
        open_pool(&w, 64 * MIB);
        fault.has_direct = is_direct != 0;
        assert_int_equal(open_stores(&w, 64 * MIB, directory, 64 * MIB, why, sizeof why), 0);
        if (!is_direct)
            assert_int_equal(fault.flags & (O_DIRECT | O_DSYNC), O_DSYNC);
        assert_true(make_chunk(&w, 0, 2 * MIB)); /* so that the other one is in pieces */
        assert_true(make_chunk(&w, 1, 32 * MIB));
        w.chunks[1].is_whole = true;
        fill(&w, &w.chunks[1], false);
        for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++)
            assert_int_equal(move_now(&w, 1, ways[i]), 0);
        assert_true(fault.writes > 0 && fault.reads > 0);
        check_sums(&w);
        close_world(&w);
    }
}

/* A write that fails: the source is as it was, and the copy goes well when the disk does again. */
static void test_failed_writes(void **state)
{
    static const struct {
        int error, then, expected;
    } cases[] = {
        {ENOSPC, 0, -ENOSPC}, {EIO, 0, -EIO},           {NOTHING, 0, -EIO}, {EINTR, 0, 0},
        {SHORT, 0, 0},        {SHORT, ENOSPC, -ENOSPC}, {SHORT, EIO, -EIO},
    };
    struct world w;
    (void)state;
    open_world(&w, 64 * MIB, 32 * MIB, 64 * MIB);
    assert_true(make_chunk(&w, 0, 16 * MIB));
    for (unsigned i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const unsigned c = i / 2;
        if (i % 2) /* from paged memory, which needs no bounce buffer */
            assert_int_equal(move_now(&w, 0, GM_TIER_PAGED), 0);
        enum gm_tier from = w.chunks[0].tier;
        fault.writes = 0;
        fault.write_error = cases[c].error;
        fault.then = cases[c].then;
        fault.fail_write = 1 + (int)c % 4;
        assert_int_equal(move_now(&w, 0, GM_TIER_DISK), cases[c].expected);
        assert_true(fault.writes >= fault.fail_write);
        fault.fail_write = 0;
        if (cases[c].expected) {
            assert_int_equal(w.chunks[0].tier, from);
            assert_int_equal(gm_stores_used(w.stores, GM_TIER_DISK), 0);
            if (from == GM_TIER_PINNED)
                fill(&w, &w.chunks[0], true);
            assert_int_equal(move_now(&w, 0, GM_TIER_DISK), 0);
        }
        assert_int_equal(move_now(&w, 0, GM_TIER_PINNED), 0);
    }
    check_sums(&w);
    close_world(&w);
}

static void test_failed_reads(void **state)
{
    static const int errors[][2] = {
        {EIO, -EIO}, {ENOMEM, -EIO}, {NOTHING, -EIO}, {SHORT, 0}, {EINTR, 0}};
    struct world w;
    (void)state;
    open_world(&w, 32 * MIB, 32 * MIB, 64 * MIB);
    assert_true(make_chunk(&w, 0, 16 * MIB));
    for (unsigned i = 0; i < 2 * sizeof errors / sizeof *errors; i++) {
        const enum gm_tier to = i % 2 ? GM_TIER_PAGED : GM_TIER_PINNED;
        assert_int_equal(move_now(&w, 0, GM_TIER_DISK), 0);
        fault.reads = 0;
        fault.read_error = errors[i / 2][0];
        fault.fail_read = 2;
        assert_int_equal(move_now(&w, 0, to), errors[i / 2][1]);
        assert_true(fault.reads >= 2);
        fault.fail_read = 0;
        if (errors[i / 2][1]) {
            assert_int_equal(w.chunks[0].tier, GM_TIER_DISK);
            assert_int_equal(gm_stores_used(w.stores, to), 0);
        }
        if (w.chunks[0].tier != GM_TIER_PINNED)
            assert_int_equal(move_now(&w, 0, GM_TIER_PINNED), 0);
    }
    close_world(&w);
}

/* One fault among many copies is that copy's alone. */
static void test_failure_among_others(void **state)
{
    struct world w;
    unsigned failed = 0;
    (void)state;
    open_world(&w, 64 * MIB, 0, 64 * MIB);
    fault.write_error = EIO;
    fault.fail_write = 7;
    for (uint32_t i = 0; i < 16; i++) {
        assert_true(make_chunk(&w, i, 4 * MIB));
        assert_true(move_chunk(&w, i, GM_TIER_DISK));
    }
    wait_for(&w, 0);
    for (uint32_t i = 0; i < 16; i++) {
        failed += w.chunks[i].error != 0;
        assert_int_equal(w.chunks[i].tier, w.chunks[i].error ? GM_TIER_PINNED : GM_TIER_DISK);
        if (w.chunks[i].tier == GM_TIER_DISK)
            assert_int_equal(move_now(&w, i, GM_TIER_PINNED), 0);
    }
    assert_int_equal(failed, 1);
    check_sums(&w);
    close_world(&w);
}

/* A disk that hangs holds no copy in memory up. */
static void test_disk_holds_nothing_up(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 64 * MIB, 32 * MIB, 64 * MIB);
    fault.hold = true;
    assert_true(make_chunk(&w, 0, 32 * MIB));
    assert_true(make_chunk(&w, 1, 32 * MIB));
    assert_true(move_chunk(&w, 0, GM_TIER_DISK));
    assert_true(move_chunk(&w, 1, GM_TIER_PAGED));
    wait_for(&w, 1);
    assert_int_equal(w.chunks[1].tier, GM_TIER_PAGED);
    assert_int_equal(w.chunks[0].tier, GM_TIER_PINNED);
    fault.hold = false;
    wait_for(&w, 0);
    assert_int_equal(w.chunks[0].tier, GM_TIER_DISK);
    close_world(&w);
}

/* Closing waits for the pieces under way, and for no more; nobody is told. */
static void test_close_with_copies_queued(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, 96 * MIB, 96 * MIB, 96 * MIB);
    fault.write_ms = 1000; /* all would take five times that */
    for (uint32_t i = 0; i < 24; i++)
        assert_true(make_chunk(&w, i, 4 * MIB));
    for (uint32_t i = 0; i < 24; i++)
        assert_true(move_chunk(&w, i, i % 4 ? GM_TIER_DISK : GM_TIER_PAGED));
    close_world(&w);
    assert_true(fault.writes < 18);
    assert_int_equal(w.ended, 0);
    assert_int_equal(w.in_flight, 24);

    open_world(&w, 32 * MIB, 32 * MIB, 0); /* with all ended and nobody told yet */
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(make_chunk(&w, i, 4 * MIB));
        assert_true(move_chunk(&w, i, GM_TIER_PAGED));
    }
    usleep(50000);
    close_world(&w);
    assert_int_equal(w.ended, 0);

    open_world(&w, 32 * MIB, 0, 0); /* the pinned tier alone */
    assert_int_equal(gm_stores_take(w.stores, GM_TIER_PAGED, 2 * MIB), GM_NONE);
    assert_int_equal(gm_stores_take(w.stores, GM_TIER_DISK, 2 * MIB), GM_NONE);
    close_world(&w);
    gm_stores_close(NULL);
}

static unsigned names_in_directory(void)
{
    unsigned names = 0;
    DIR *dir = opendir(directory);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        names += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return names;
}

/* Nobody else can open the file, and it is gone with the daemon: unnamed from the start, or made
 * and unlinked where the filesystem has no unnamed files. */
static void test_file_is_unnamed(void **state)
{
    static const int errors[] = {0, EOPNOTSUPP, EISDIR};
    (void)state;
    for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct world w;
        struct stat st;
        char why[256] = "";
        mode_t mask = umask(i == 0 ? 0777 : 0); /* whatever the umask is */
        open_pool(&w, 32 * MIB);
        fault.open_error = errors[i];
        int error = open_stores(&w, 0, directory, 8 * MIB, why, sizeof why);
        umask(mask);
        if (error)
            fail_msg("%d: %s", error, why);
        assert_int_equal(names_in_directory(), 0);
        assert_int_equal(fstat(fault.fd, &st), 0);
        assert_true(S_ISREG(st.st_mode));
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(st.st_nlink, 0);
        assert_int_equal(st.st_size, 8 * MIB);
        assert_true(fcntl(fault.fd, F_GETFD) & FD_CLOEXEC);
        assert_true(make_chunk(&w, 0, 8 * MIB));
        assert_int_equal(move_now(&w, 0, GM_TIER_DISK), 0);
        assert_int_equal(move_now(&w, 0, GM_TIER_PINNED), 0);
        close_world(&w);
        assert_int_equal(names_in_directory(), 0);
        assert_int_equal(fcntl(fault.fd, F_GETFD), -1);
    }
}

/* A filesystem that sets nothing aside, or too little, is used all the same. It keeps no part. */
static void test_without_fallocate(void **state)
{
    static const int errors[] = {EOPNOTSUPP, ENOSPC};
    (void)state;
    for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct world w;
        struct stat is;
        char why[256] = "";
        open_pool(&w, 32 * MIB);
        fault.fallocate_error = errors[i];
        assert_int_equal(open_stores(&w, 0, directory, 32 * MIB, why, sizeof why), 0);
        assert_int_equal(fstat(fault.fd, &is), 0);
        assert_true(is.st_size == 32 * MIB && is.st_blocks < 2048);
        assert_true(make_chunk(&w, 0, 16 * MIB));
        assert_int_equal(move_now(&w, 0, GM_TIER_DISK), 0);
        assert_int_equal(move_now(&w, 0, GM_TIER_PINNED), 0);
        close_world(&w);
    }
}

static bool has_cap(struct world *w, uint64_t bytes)
{
    for (int i = 0; i < 20000 && gm_stores_cap(w->stores, GM_TIER_DISK) != bytes; i++) {
        usleep(1000);
        uv_run(&w->loop, UV_RUN_NOWAIT);
    }
    return gm_stores_cap(w->stores, GM_TIER_DISK) == bytes;
}

/* Of a tier that is larger than what is free there is what is free, less 5 %, as that changes. What
 * is used stays. */
static void test_less_free_than_asked(void **state)
{
    struct world w;
    char why[256] = "";
    (void)state;
    open_pool(&w, 32 * MIB);
    fault.has_free = true;
    fault.free_bytes = 100 * MIB;
    assert_int_equal(open_stores(&w, 0, directory, 2046 * MIB, why, sizeof why), 0);
    assert_true(has_cap(&w, 94 * MIB)); /* 95 in slabs, the last of which has 30 */
    uint32_t page = gm_stores_take(w.stores, GM_TIER_DISK, 32 * MIB);
    assert_int_not_equal(page, GM_NONE);
    fault.free_bytes = 0;
    assert_true(has_cap(&w, 32 * MIB));
    assert_int_equal(gm_stores_take(w.stores, GM_TIER_DISK, 2 * MIB), GM_NONE);
    gm_stores_free(w.stores, GM_TIER_DISK, page);
    assert_int_equal(gm_stores_cap(w.stores, GM_TIER_DISK), 0); /* it goes at once */
    fault.free_bytes = 4000 * MIB;
    assert_true(has_cap(&w, 2046 * MIB));
    page = gm_stores_take(w.stores, GM_TIER_DISK, 30 * MIB); /* the last slab, which is smaller */
    assert_int_equal(page, 2016 / 2);
    fault.free_bytes = 0;
    assert_true(has_cap(&w, 30 * MIB));
    gm_stores_free(w.stores, GM_TIER_DISK, page);
    assert_int_equal(gm_stores_cap(w.stores, GM_TIER_DISK), 0);
    fault.free_bytes = 1000 * MIB;
    assert_true(has_cap(&w, 928 * MIB)); /* of 950 */
    assert_true(make_chunk(&w, 0, 32 * MIB));
    assert_int_equal(move_now(&w, 0, GM_TIER_DISK), 0);
    page = w.chunks[0].page;
    assert_int_equal(move_now(&w, 0, GM_TIER_PINNED), 0);
    fault.free_bytes = 0; /* what has blocks is what is left, wherever it lies */
    assert_true(has_cap(&w, 32 * MIB));
    assert_int_equal(gm_stores_take(w.stores, GM_TIER_DISK, 32 * MIB), page);
    close_world(&w);
}

/* What cannot work is refused in one line that says what to change, and leaves nothing behind. */
static void test_bad_configurations(void **state)
{
    char file[96], missing[96];
    (void)state;
    snprintf(file, sizeof file, "%s.file", directory);
    snprintf(missing, sizeof missing, "%s/none", directory);
    int fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    const struct {
        uint64_t paged;
        const char *dir;
        uint64_t disk;
        int open_error, fallocate_error, mmap_error;
        int expected;
        const char *words[2];
    } cases[] = {
        {0, missing, 64 * MIB, 0, 0, 0, -ENOENT, {missing, "make the folder first"}},
        {0, file, 64 * MIB, 0, 0, 0, -ENOTDIR, {file, "Not a directory"}},
        {0, directory, 64 * MIB, EROFS, 0, 0, -EROFS, {directory, "Read-only file system"}},
        {0, directory, 64 * MIB, EACCES, 0, 0, -EACCES, {directory, "Permission denied"}},
        {0, directory, 64 * MIB, EMFILE, 0, 0, -EMFILE, {directory, "Too many open files"}},
        {0, directory, 64 * MIB, 0, EFBIG, 0, -EFBIG, {"64 MiB", "File too large"}},
        {0, directory, 64 * MIB, 0, EDQUOT, 0, -EDQUOT, {"64 MiB", "ask for less"}},
        {0, directory, 1 * MIB, 0, 0, 0, -EINVAL, {directory, "at least 2 MiB"}},
        {64 * MIB, NULL, 0, 0, 0, ENOMEM, -ENOMEM, {"--paged 64 MiB", "ask for less"}},
        {64 * MIB, directory, 64 * MIB, EROFS, 0, 0, -EROFS, {"--disk", "Read-only"}},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w;
        char why[512] = "";
        open_pool(&w, 32 * MIB);
        fault.open_error = cases[i].open_error;
        fault.fallocate_error = cases[i].fallocate_error;
        fault.mmap_error = cases[i].mmap_error;
        int error = open_stores(&w, cases[i].paged, cases[i].dir, cases[i].disk, why, sizeof why);
        if (error != cases[i].expected || !strstr(why, cases[i].words[0]) ||
            !strstr(why, cases[i].words[1]) || strchr(why, '\n'))
            fail_msg("case %u: %d, \"%s\"", i, error, why);
        assert_null(w.stores);
        assert_int_equal(names_in_directory(), 0);
        close_world(&w);
    }
    unlink(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_moves),
        cmocka_unit_test(test_caps),
        cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_failed_writes),
        cmocka_unit_test(test_failed_reads),
        cmocka_unit_test(test_failure_among_others),
        cmocka_unit_test(test_disk_holds_nothing_up),
        cmocka_unit_test(test_close_with_copies_queued),
        cmocka_unit_test(test_file_is_unnamed),
        cmocka_unit_test(test_without_fallocate),
        cmocka_unit_test(test_less_free_than_asked),
        cmocka_unit_test(test_bad_configurations),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
