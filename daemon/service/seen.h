/*
 * What the service may write: its unit shows it less of the file system than a shell has. The
 * unit's properties say so (`systemctl show`). Called by trial.c. Owns no state.
 */
#ifndef GM_DAEMON_SERVICE_SEEN_H
#define GM_DAEMON_SERVICE_SEEN_H

#include <stddef.h>

#include "daemon/service/options.h"

struct gm_seen {
    enum {
        GM_SEEN_AS_SERVICE, /* this process is the service, or what it tests is started by hand */
        GM_SEEN_BY_ROOT,  /* root asks in a shell: what it sees, less what the unit may not write */
        GM_SEEN_BY_OTHER, /* another user asks for the system's service: nobody knows */
    } kind;
    char properties[8192]; /* of the unit, NAME=VALUE in lines */
};

/* Whose view holds for a configuration with these options. Runs systemctl. */
void gm_seen_find(struct gm_seen *seen, const struct gm_options *options);

/* Whether files can be made in `folder`, as far as the unit says. 0; or -EROFS with one line in
 * `why`. */
int gm_seen_try(const struct gm_seen *seen, const char *folder, char *why, size_t size);

#endif
