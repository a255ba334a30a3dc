/* The commands' numbers, for sets of them: commands.def. */
#ifndef GM_DAEMON_CTL_COMMANDS_H
#define GM_DAEMON_CTL_COMMANDS_H

#include <limits.h>

enum {
#define MUX_COMMAND(name, ...) VERB_##name,
#define MUX_OPTION(...)
#include "daemon/ctl/commands.def"
#undef MUX_COMMAND
#undef MUX_OPTION
};
#define MUX_OF(name) (1u << VERB_##name)
#define MUX_ALL UINT_MAX

#endif
