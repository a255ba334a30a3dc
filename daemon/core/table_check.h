/* Whether all that the table says fits together. */
#ifndef GM_CORE_TABLE_CHECK_H
#define GM_CORE_TABLE_CHECK_H

#include "daemon/core/table_rows.h"

/* NULL if every invariant holds, else the name of the first that does not. For tests and debug. */
const char *gm_table_check(const struct gm_table *table);

#endif
