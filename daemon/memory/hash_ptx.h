/* hash.ptx as text, embedded by the build. */
#ifndef GM_DAEMON_MEMORY_HASH_PTX_H
#define GM_DAEMON_MEMORY_HASH_PTX_H

extern const char gm_hash_ptx[];

#endif
