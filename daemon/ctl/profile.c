/*
 * mux-ctl profile: start a program with the profiler's library, learn what it recorded, keep it as
 * a profile; or learn records that were kept; or show profiles. Calls profiles.c, find.c,
 * replace.c, say.c and daemon/profile.
 *
 * The library writes a file for each process into a folder (GPUMUX_PROFILE_RECORDS). A profile is
 * replaced as a whole (replace.c), as a program may start meanwhile.
 */
#include "daemon/ctl/ctl.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIBRARY "libgpumux-profile.so"
#define RECORDS_SUFFIX ".records"
#define FILES_MOST 4096u /* of a folder */

static bool ends_with(const char *name, const char *suffix)
{
    const size_t length = strlen(name), end = strlen(suffix);
    return length > end && strcmp(name + length - end, suffix) == 0;
}

/* Call act(path, arg) for the files of a folder that end with `suffix`, in the order of their
 * names. Returns how many there were; a folder that cannot be read has none. */
static unsigned each_file(const char *folder, const char *suffix,
                          void (*act)(const char *path, void *arg), void *arg)
{
    struct dirent **entries;
    unsigned found = 0;
    char path[PATH_MAX];
    const int n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (ends_with(entries[i]->d_name, suffix) && found < FILES_MOST &&
            snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name) < PATH_MAX) {
            act(path, arg);
            found++;
        }
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return found;
}

/* ---- show ---- */

static void show_file(const char *path, void *failed)
{
    struct gm_profile profile;
    char why[256];
    if (!gm_profile_read(path, &profile, why, sizeof why)) {
        mux_complain("%s: %s", path, why);
        *(bool *)failed = true;
        return;
    }
    mux_show_profile(path, &profile);
    gm_profile_free(&profile);
}

static int show(const struct mux_options *options)
{
    char folder[PATH_MAX];
    bool has_failed = false;
    unsigned found = 0;
    for (char **word = options->words; *word; word++, found++)
        show_file(*word, &has_failed);
    if (found == 0) {
        if (gm_profile_folder(getenv, folder, sizeof folder))
            found += each_file(folder, GM_PROFILE_SUFFIX, show_file, &has_failed);
        found += each_file(gm_profile_system(), GM_PROFILE_SUFFIX, show_file, &has_failed);
        if (found == 0)
            printf("There is no profile, neither in %s nor in %s.\n",
                   gm_profile_folder(getenv, folder, sizeof folder) ? folder : "~/.config",
                   gm_profile_system());
    }
    const int code = mux_written("the profiles");
    return has_failed ? MUX_FAILED : code;
}

/* ---- learn ---- */

/* Adds to struct gm_records; says what is wrong. */
static void read_records(const char *path, void *records)
{
    char why[256];
    FILE *file = fopen(path, "re");
    if (!file)
        mux_complain("%s: %s", path, strerror(errno));
    else if (!gm_records_read(file, records, why, sizeof why))
        mux_complain("%s: %s; what is behind it is left out", path, why);
    if (file)
        fclose(file);
}

/* The folders up to the last '/'. */
static bool make_folders(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *at = strchr(folder + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        if (mkdir(folder, 0755) && errno != EEXIST)
            return false;
        *at = '/';
    }
    return true;
}

static bool write_profile(const char *path, const struct gm_profile *profile)
{
    struct mux_file new;
    FILE *file = make_folders(path) ? mux_begin_file(&new, path, 0644) : NULL;
    if (file && mux_end_file(&new, gm_profile_write(file, profile)))
        return true;
    mux_complain("%s: %s", path, mux_file_error(errno));
    return false;
}

/* Merge the records into the profile at `path`, and say how good it is. */
static int learn(const struct gm_records *records, const char *path)
{
    struct gm_profile profile = {0};
    char why[256];
    if (records->n_launches == 0) {
        mux_complain("no launch was recorded");
        return MUX_FAILED;
    }
    if (access(path, F_OK) == 0 && !gm_profile_read(path, &profile, why, sizeof why)) {
        mux_complain("%s is left as it is: %s", path, why);
        return MUX_FAILED;
    }
    struct gm_lesson *lessons = calloc(records->n_kernels, sizeof *lessons);
    int code = MUX_FAILED;
    if (!lessons || !gm_learn(records, &profile, lessons)) {
        mux_complain("no memory");
    } else if (write_profile(path, &profile)) {
        mux_show_lessons(records, &profile, lessons);
        printf("The profile is %s: mux-ctl profile --show %s\n", path, path);
        code = mux_written("what was learned");
    }
    free(lessons);
    gm_profile_free(&profile);
    return code;
}

/* Where the profile belongs: what the user says, or the user's folder. */
static bool place_of(const struct mux_options *options, const char *name, char path[PATH_MAX])
{
    char folder[PATH_MAX - 128];
    if (options->output) {
        snprintf(path, PATH_MAX, "%s", options->output);
        return true;
    }
    if (!gm_profile_folder(getenv, folder, sizeof folder)) {
        mux_complain("profile: neither HOME nor XDG_CONFIG_HOME is set: where does the profile "
                     "belong? --output=FILE");
        return false;
    }
    snprintf(path, PATH_MAX, "%s/%s" GM_PROFILE_SUFFIX, folder, name);
    for (char *c = path + strlen(folder) + 1; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
            *c = '_';
    return true;
}

static int learn_files(const struct mux_options *options)
{
    struct gm_records records = {0};
    char path[PATH_MAX];
    if (!options->words[0] || !options->output) {
        mux_complain("profile: which records, and where does the profile belong? mux-ctl profile "
                     "--learn --output=FILE RECORDS...");
        return MUX_FAILED;
    }
    for (char **word = options->words; *word; word++)
        read_records(*word, &records);
    const int code = place_of(options, "", path) ? learn(&records, path) : MUX_FAILED;
    gm_records_free(&records);
    return code;
}

/* ---- run ---- */

static void remove_file(const char *path, void *unused)
{
    (void)unused;
    unlink(path);
}

/* The folder for the records: an absolute path. */
static bool make_place(const struct mux_options *options, char folder[PATH_MAX])
{
    const char *top = getenv("TMPDIR");
    if (options->kept) {
        if ((mkdir(options->kept, 0755) && errno != EEXIST) || !realpath(options->kept, folder)) {
            mux_complain("%s: %s", options->kept, strerror(errno));
            return false;
        }
        return true;
    }
    snprintf(folder, PATH_MAX, "%s/gpumux-profile-XXXXXX", top && *top == '/' ? top : "/tmp");
    if (mkdtemp(folder))
        return true;
    mux_complain("%s: %s", folder, strerror(errno));
    return false;
}

/* Run the program to its end. Its exit code; or that of an error, and *is_run is false. */
static int run(char **argv, const char *library, const char *folder, bool *is_run)
{
    int status = 0;
    *is_run = false;
    if (setenv("CUDA_INJECTION64_PATH", library, 1) ||
        setenv("GPUMUX_PROFILE_RECORDS", folder, 1)) {
        mux_complain("the environment cannot be set: %s", strerror(errno));
        return MUX_FAILED;
    }
    const pid_t child = fork();
    if (child < 0) {
        mux_complain("%s cannot be started: %s", argv[0], strerror(errno));
        return MUX_FAILED;
    }
    if (child == 0) {
        execvp(argv[0], argv);
        _exit(mux_not_executed(argv[0], errno));
    }
    /* What a user types ends the program: what it has recorded is learned. */
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    *is_run = code != MUX_NOT_FOUND && code != MUX_CANNOT_EXECUTE;
    return code;
}

static int profile_program(const struct mux_options *options)
{
    char library[PATH_MAX], folder[PATH_MAX], path[PATH_MAX], name[GM_APPNAME_SIZE];
    struct gm_records records = {0};
    bool is_run;
    if (!options->words[0]) {
        mux_complain("profile: which program? mux-ctl profile -- PROGRAM [ARGUMENT...]");
        return MUX_FAILED;
    }
    mux_name(options->words, name);
    if (!mux_find(LIBRARY, "../shim/profiler/" LIBRARY, "GPUMUX_PROFILE_LIB", library) ||
        !place_of(options, name, path) || !make_place(options, folder))
        return MUX_FAILED;
    int code = run(options->words, library, folder, &is_run);
    if (is_run) {
        if (each_file(folder, RECORDS_SUFFIX, read_records, &records) == 0)
            mux_complain("%s recorded nothing: it made no CUDA call, or the profiler could not "
                         "start",
                         name);
        const int learned = records.n_launches > 0 ? learn(&records, path) : MUX_FAILED;
        code = code != 0 ? code : learned;
    }
    gm_records_free(&records);
    if (!options->kept) {
        each_file(folder, RECORDS_SUFFIX, remove_file, NULL);
        rmdir(folder);
    }
    return code;
}

int mux_profile(const struct mux_options *options)
{
    if (options->is_shown)
        return show(options);
    return options->is_learned ? learn_files(options) : profile_program(options);
}
